"""What the topic `headrace.mirror` says, folded record by record: the newest state of every copy, and the last orders.

Of two terms the later one counts, whatever comes later in the log: what a deposed leader writes after its successor's claim
is passed over. States of earlier versions, which know no terms, count where there is none with one; the latest of them, since
each broker wrote to a partition of its own. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from headrace.broker.wire.batches import Record
from headrace.mirror.memory import orders, state
from headrace.mirror.memory.orders import LIMIT, MERGED, PAUSE, PROMOTED, TOPICS, Promoted
from headrace.mirror.memory.own_topics import WRITTEN_PARTITION
from headrace.mirror.memory.state import (
    LEADER,
    NO_TERM,
    RESTORE,
    RESUME,
    SEPARATOR,
    SKIP,
    RestoreOrder,
    SkipOrder,
    State,
    Term,
)


class RecordKey(NamedTuple):
    """A record's key, and the partition that it lies in."""

    partition: int
    key: bytes


@dataclass(slots=True)
class _Copy:
    """What is known of one place: `claimed` is the latest term of each topic id."""

    states: dict[RecordKey, tuple[int, State]] = field(default_factory=dict)
    claimed: dict[UUID, Term] = field(default_factory=dict)
    resume: str | None = None
    skip: SkipOrder | None = None
    promoted: Promoted | None = None
    is_paused: bool = False
    limit: int | None = None
    topics: re.Pattern[str] | None = None
    merged: frozenset[str] = frozenset()


class States:
    """See the module's text; a place is `<target topic>-<partition>`."""

    def __init__(self) -> None:
        self._copies: dict[bytes, _Copy] = {}
        self._restores: dict[bytes, RestoreOrder] = {}

    def take(self, partition: int, record: Record) -> None:
        """The next record of a partition; raises ValueError for one that says nothing."""
        key = record.key or b""
        place, _, what = key.partition(SEPARATOR.encode())
        if not place or not place.decode():
            raise ValueError("a record without a place in its key")
        copy = self._copies.setdefault(place, _Copy())
        if record.value is None:
            copy.states.pop(RecordKey(partition, key), None)
            if what.decode() == RESTORE:
                self._restores.pop(place, None)
            return
        match what.decode():
            case x if x == LEADER:
                claim = state.decode_claim(record.value)
                self._claimed(copy, claim.target_id, (claim.leader_epoch, record.offset))
            case x if x == RESTORE:
                self._restores[place] = state.decode_restore(record.value)
            case text if not text or text.count(SEPARATOR) == 2:
                self._take_state(
                    copy, RecordKey(partition, key), record.timestamp_ms, state.decode(record.value)
                )
            case order:
                self._take_order(copy, order, record.value)

    @staticmethod
    def _take_order(copy: _Copy, order: str, value: bytes) -> None:
        match order:
            case x if x == RESUME:
                copy.resume = state.decode_resume(value)
            case x if x == SKIP:
                copy.skip = state.decode_skip(value)
            case x if x == PAUSE:
                copy.is_paused = orders.decode_pause(value)
            case x if x == LIMIT:
                copy.limit = orders.decode_limit(value)
            case x if x == TOPICS:
                copy.topics = orders.decode_topics(value)
            case x if x == PROMOTED:
                copy.promoted = orders.decode_promoted(value)
            case x if x == MERGED:
                copy.merged = orders.decode_merged(value)
            case unknown:
                raise ValueError(f"{unknown!r} is nothing that this version knows")

    def _take_state(self, copy: _Copy, key: RecordKey, timestamp_ms: int, found: State) -> None:
        is_late = found.term < copy.claimed.get(found.target_id, NO_TERM)
        # Without any other it is what a compacted topic has kept: whoever claimed the place has written nothing.
        if not is_late or self._newest(copy, found.target_id) is None:
            copy.states[key] = timestamp_ms, found
            self._claimed(copy, found.target_id, found.term)

    @staticmethod
    def _claimed(copy: _Copy, target_id: UUID, term: Term) -> None:
        copy.claimed[target_id] = max(term, copy.claimed.get(target_id, NO_TERM))

    def forget(self, partition: int) -> None:
        """This partition is read again from its start."""
        for copy in self._copies.values():
            copy.states = {key: found for key, found in copy.states.items() if key.partition != partition}
            copy.claimed.clear()
        if partition == WRITTEN_PARTITION:
            self._restores.clear()

    def places(self) -> list[bytes]:
        return list(self._copies)

    def newest(self, place: bytes, target_id: UUID | None) -> State | None:
        """The state of a copy whose topic has this id; None for an id that nobody knows: that of the last record."""
        copy = self._copies.get(place)
        if copy is None or not copy.states:
            return None
        if target_id is None:
            target_id = max(copy.states.values(), key=lambda found: found[0])[1].target_id
        return self._newest(copy, target_id)

    @staticmethod
    def _newest(copy: _Copy, target_id: UUID) -> State | None:
        found = [entry for entry in copy.states.values() if entry[1].target_id == target_id]
        return max(found, key=lambda entry: (entry[1].term, entry[0]))[1] if found else None

    def claimed(self, place: bytes, target_id: UUID) -> Term:
        """The latest term that claimed the place or wrote a state."""
        copy = self._copies.get(place)
        return NO_TERM if copy is None else copy.claimed.get(target_id, NO_TERM)

    def outdated(self, place: bytes, target_id: UUID, term: Term) -> list[RecordKey]:
        """Records of states that the one of this term has replaced for good."""
        copy = self._copies.get(place)
        found = {} if copy is None else copy.states
        return [
            key
            for key, (_, known) in found.items()
            if known.term == NO_TERM or (known.target_id == target_id and known.term < term)
        ]

    def records(self, place: bytes) -> list[RecordKey]:
        """All records of states of a place."""
        copy = self._copies.get(place)
        return [] if copy is None else list(copy.states)

    def resume_of(self, place: bytes) -> str | None:
        """The stop that was told to end last, if any."""
        copy = self._copies.get(place)
        return None if copy is None else copy.resume

    def skip_of(self, place: bytes) -> SkipOrder | None:
        """The rot that was told to be passed over last, if any."""
        copy = self._copies.get(place)
        return None if copy is None else copy.skip

    def restore_of(self, place: bytes, target_id: UUID) -> RestoreOrder | None:
        """How the topic of this id is to be restored, as long as it is not."""
        order = self._restores.get(place)
        return order if order is not None and order.target_id == target_id else None

    @property
    def restores_count(self) -> int:
        """How many orders to restore are not carried out, or not known to be."""
        return len(self._restores)

    def promoted_of(self, topic: str) -> Promoted | None:
        """What this topic was a copy of when it was promoted last."""
        copy = self._copies.get(topic.encode())
        return None if copy is None else copy.promoted

    def merged_of(self, topic: str) -> frozenset[str]:
        """The clusters whose messages are brought into the topic, where it keeps no mark of that itself."""
        copy = self._copies.get(topic.encode())
        return frozenset() if copy is None else copy.merged

    def is_paused(self, topic: str) -> bool:
        """Whether the copy of this name was told to pause."""
        copy = self._copies.get(topic.encode())
        return copy is not None and copy.is_paused

    def limit_of(self, source: str) -> int | None:
        """Bytes a second that were ordered for a source; None: as it is configured."""
        copy = self._copies.get(source.encode())
        return None if copy is None else copy.limit

    def choice_of(self, source: str) -> re.Pattern[str] | None:
        """Which topics of a source were chosen; None: all that are configured."""
        copy = self._copies.get(source.encode())
        return None if copy is None else copy.topics
