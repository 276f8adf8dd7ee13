"""One source partition under its owner: what of it the target has, what comes next, what nothing may follow.

    stream.survey() → Survey; located(…)     where the source and the target are; then it copies, or stops with a sentence
    wants() → offset; fetched(…)             fills `outbox` with batches as they go to the target
    acknowledged() / refused(…)              what became of the first of them
    rotten; passed_over(last) → Position     where it stopped at rot, and what a person who gives that up has the registry say

Invariants: a message's sequence number is settled by its place in the source's log alone, so that the target's producer state
takes each batch once and in order, whoever sends it, however late: what is not next there is refused, or known as a
repetition. `position` is committed in the target as far as it goes: it moves by acknowledgements, and over what was found
committed there. That is never sent again, since a target that has just forgotten the producer would take it.
Must not know: sockets, clocks, who else might own the partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from headrace.broker.errors import KafkaError, UnsupportedForMessageFormatError
from headrace.broker.log.segment import Place
from headrace.broker.wire.batches import check_crc
from headrace.broker.wire.special_values import NO_EPOCH
from headrace.mirror.aggregate.committed import Aborted, Committed
from headrace.mirror.aggregate.position import Position
from headrace.mirror.aggregate.rewriting import rewritten
from headrace.mirror.copy.rot import places
from headrace.mirror.copy.survey import truncation
from headrace.mirror.memory.state import NO_ID, SkipOrder
from headrace.mirror.questions import UNKNOWN, Survey, Surveyed

ROT = "rot"


class Phase(StrEnum):
    """Where a stream is."""

    LOCATING = "locating"
    COPYING = "copying"
    STOPPED = "stopped"


class Parcel(NamedTuple):
    """A batch for the target, and the position behind it."""

    batch: bytearray
    after: Position
    max_timestamp: int


class Rot(NamedTuple):
    """Offsets of the source; the last one is UNKNOWN where its bytes are no batch."""

    first: int
    last: int

    def is_ended_by(self, order: SkipOrder) -> bool:
        """Whether a person gave these offsets up; where nobody knows their end, the person chose one."""
        is_end = order.last_offset == self.last or self.last == UNKNOWN <= self.first <= order.last_offset
        return order.rot == self.name and is_end

    @property
    def name(self) -> str:
        return f"rot:{self.first}"

    @property
    def offsets(self) -> str:
        """As `--offsets` takes them."""
        return f"{self.first}-{'LAST' if self.last == UNKNOWN else self.last}"


class Stream:
    """See the module's text; `position` is what the offset registry has."""

    def __init__(self, position: Position) -> None:
        self.position = position
        self.phase = Phase.LOCATING
        self.problem = ""
        self.outbox: deque[Parcel] = deque()
        self.rotten: Rot | None = None
        self._read = position
        self._owed = 0

    # -- where it goes on

    def survey(self, topic_id: UUID, leader_epoch: int) -> Survey:
        """What to ask the partition's leader at the source."""
        known = self.position.leader_epoch
        return Survey(
            topic_id=topic_id,
            leader_epoch=leader_epoch,
            log_end_offset=self.position.offset,
            epoch=known if known != NO_EPOCH else None,
            tail=self.position.tail.header if self.position.tail is not None else None,
        )

    def located(
        self,
        survey: Survey,
        found: Surveyed,
        next_sequence: int | None,
        *,
        target_offset: int = -1,
        lost: str = "",
    ) -> None:
        """What the source and the target say now; `next_sequence` is None where the target has nothing of the producer.

        What the target has beyond the position must be committed. `target_offset` is up to where its log was, before that was
        asked; `lost` why nobody knows what it has.
        """
        if self.phase is Phase.COPYING or survey.log_end_offset != self.position.offset:
            return
        owed = 0 if next_sequence is None else self.position.ahead(next_sequence)
        stop = self._stop_of(survey, found, owed) or lost
        if stop:
            self._stop(stop)
            return
        self.outbox.clear()
        if not owed:
            self._has_nothing_below(target_offset)
        self._read, self._owed = self.position, owed
        self.phase, self.problem = Phase.COPYING, ""

    def look_again(self) -> None:
        """Have it located anew, so that the place from which on the target would be searched is not an old one."""
        if self.phase is Phase.COPYING and not self.outbox and not self._owed:
            self.phase = Phase.LOCATING

    def _has_nothing_below(self, target_offset: int) -> None:
        """Of what comes next."""
        if target_offset > self.position.target_offset:
            self.position = replace(self.position, target_offset=target_offset)

    def _stop_of(self, survey: Survey, found: Surveyed, owed: int) -> str:
        position = self.position
        if NO_ID not in (position.topic_id, survey.topic_id) and position.topic_id != survey.topic_id:
            return (
                f"recreation: the topic's id was {position.topic_id} and is {survey.topic_id}: it was deleted and "
                "created again"
            )
        if found.log_start_offset > position.offset:
            return f"gap: the source begins at {found.log_start_offset}, and {position.offset} comes next"
        lost = truncation(survey, found)
        if lost is not None:
            return f"truncation: {lost[1]}"
        if owed < 0:
            return f"loss: the target has lost the last {-owed} messages that it had acknowledged"
        return ""

    def _stop(self, reason: str) -> None:
        self.phase, self.problem, self.rotten = Phase.STOPPED, reason, None
        self.outbox.clear()

    # -- what comes next

    def wants(self) -> int | None:
        """The source's offset to fetch from; None while there is something else to do first."""
        return self._read.offset if self.phase is Phase.COPYING and not self.outbox else None

    def fetched(self, offset: int, records: memoryview, aborted: Iterable[Aborted]) -> None:
        """Batches that were asked for from `offset` on; the last may be cut."""
        if offset != self.wants():
            return
        committed = Committed(aborted)
        found, failure = places(records)
        for place in found:
            is_committed = committed.holds(records, place)
            if place.header.next_offset <= self._read.offset:
                continue
            reason = self._departure(records, place)
            if reason:
                is_rotten = reason.startswith(ROT)
                self._end(reason, Rot(self._read.offset, place.header.last_offset) if is_rotten else None)
                break
            if not self._take(records, place, is_committed=is_committed):
                break
        else:
            if failure is not None:
                reason = _reason_of(failure)
                self._end(reason, Rot(self._read.offset, UNKNOWN) if reason.startswith(ROT) else None)
        self._settle()

    def _departure(self, records: memoryview, place: Place) -> str:
        """Why a batch cannot be the next; or nothing."""
        header, comes_next = place.header, self._read.offset
        if not check_crc(records, *place):
            return f"{ROT}: the checksum of the source's batch at offset {comes_next} is wrong"
        if header.base_offset > comes_next:
            return f"gap: the source goes on at {header.base_offset}, and {comes_next} comes next"
        if header.base_offset < comes_next:
            return f"truncation: the source's batch at {header.base_offset} reaches over {comes_next}, where another one ended"
        if header.record_count != header.last_offset_delta + 1:
            return f"compaction: the source's batch at offset {comes_next} lacks messages that were in it"
        return ""

    def _end(self, reason: str, rotten: Rot | None) -> None:
        """What came before goes to the target first; the reason is found again behind it."""
        if not self.outbox:
            self._stop(reason)
            # Of what the target has beyond the position some may be from there: nobody knows how much.
            self.rotten = None if self._owed else rotten

    def passed_over(self, last_offset: int) -> Position:
        """Where it goes on when the rot up to there is given up."""
        assert self.rotten is not None, "it stopped at rot"
        assert last_offset >= self._read.offset, "the rot lies there"
        return replace(self._read.passed_over(last_offset), target_offset=self.position.target_offset)

    def _take(self, records: memoryview, place: Place, *, is_committed: bool) -> bool:
        """Take the next batch; False where the target has other batches than the source."""
        header = place.header
        count = header.record_count if is_committed else 0
        after = self._read.passed(header, count)
        if count > self._owed > 0:
            self._stop(
                f"truncation: the target has {self._owed} messages where the source's batch at offset "
                f"{header.base_offset} has {count}"
            )
            return False
        if count and not self._owed:
            self.outbox.append(Parcel(rewritten(records, place, self._read), after, header.max_timestamp))
        self._owed = max(0, self._owed - count)
        self._read = after
        return True

    def _settle(self) -> None:
        """Batches without a committed message are passed when all before them is in the target."""
        if self.phase is Phase.COPYING and not self.outbox and not self._owed:
            self._is_at(self._read)

    def _is_at(self, position: Position) -> None:
        self.position = replace(position, target_offset=self.position.target_offset)

    # -- what became of it

    def acknowledged(self, base_offset: int = -1) -> None:
        """The target has the first parcel, committed, there; -1 where it does not say."""
        self._is_at(self.outbox.popleft().after)
        self._has_nothing_below(base_offset + 1 if base_offset >= 0 else -1)
        self.problem = ""
        self._settle()

    def refused(self, reason: str) -> None:
        """The target refused it, or nobody knows: all of it is looked at anew."""
        self.outbox.clear()
        self.problem = reason
        if self.phase is Phase.COPYING:
            self.phase = Phase.LOCATING


def _reason_of(failure: KafkaError) -> str:
    if isinstance(failure, UnsupportedForMessageFormatError):
        return f"format: {failure}; the source must keep format 2"
    return f"{ROT}: {failure}"
