"""Reading what a client's Fetch requests ask for: while one waits, and in the next, only what may have changed.

A partition that had nothing to give keeps the answer it got until it moves, so that a wake-up, or the next request,
costs a client of many partitions little more than one of a single partition. Invariants: what is kept is as a fresh
read would have it; a client has one request at a time; where a follower is is noted once, when its request arrives.
Knows nothing of how sessions are kept or how an answer is encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from headrace.broker.handlers.fetch.found import Answer, Found
from headrace.broker.handlers.fetch.head import encode_nothing
from headrace.broker.handlers.fetch.partition import NOT_IN_CLUSTER, gives_what_there_is, read_partition
from headrace.broker.handlers.fetch_request import AskedPartition, FetchPartition, FetchRequest, FetchTopic
from headrace.broker.handlers.fetch_sessions import Turn
from headrace.broker.handlers.services import Services
from headrace.broker.log.results import NOTHING_YET, LogSlice
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.watch import Watch
from headrace.broker.wire.special_values import NO_EPOCH

T = TypeVar("T")
_new_tuple = tuple.__new__  # half the time of a call of the class


class Reading:
    """The partitions of a client's requests, one after the other, and what those with nothing to give had.

    A client of many partitions asks for nearly the same ones again and again: for these the answers and the watch are
    kept from one request to the next.
    """

    __slots__ = (
        "_broker",
        "_by_key",
        "_is_known",
        "_is_plain",
        "_kind",
        "_max_bytes",
        "_places",
        "_request",
        "_version",
        "_watch",
    )

    def __init__(self, broker: Services) -> None:
        self._broker = broker
        self._places: list[AskedPartition] = []
        # What the last requests asked for, as far as their answers may serve again, and the watch of it.
        self._by_key: dict[tuple[str | None, int], AskedPartition] = {}
        self._watch: Watch | None = None
        self._is_known = False
        self._kind: tuple[int, int, int] | None = None

    def ask(self, request: FetchRequest, version: int, max_bytes: int, rights_version: int = 0) -> None:
        """Take up the client's next request; the one before is answered.

        What was kept may be told only as long as `rights_version` is the same.
        """
        self._request, self._version = request, version
        self._max_bytes = max_bytes
        self._is_plain = gives_what_there_is(self._broker, request)
        kind = (version, request.isolation_level, rights_version) if self._is_plain else None
        if kind != self._kind:
            self.close()
            self._kind = kind
        by_key, topic_name = self._by_key, self._broker.metadata.topic_name
        places, known_count = [], 0
        for topic in request.topics:
            name = topic.name if topic.topic_id is None else topic_name(topic.topic_id)
            for wanted in topic.partitions:
                place = by_key.get((name, wanted[0]))
                if place is None:
                    place = AskedPartition(topic, name, wanted)
                else:
                    known_count += 1
                    self._ask_again(place, topic, wanted)
                places.append(place)
        self._places = places
        self._is_known = known_count == len(places) == len(by_key)
        if known_count > 1 and len(set(places)) < len(places):
            # A partition that is named twice may be asked for at two offsets.
            self.close()
            self.ask(request, version, max_bytes, rights_version)

    def _ask_again(self, place: AskedPartition, topic: FetchTopic, wanted: FetchPartition) -> None:
        """What was kept serves again if neither the question nor the log has changed."""
        kept = place.kept
        if kept is not None:
            partition = self._broker.partitions.get(place.name, wanted[0])  # type: ignore[arg-type]
            is_current = (
                place.wanted == wanted
                and partition is not None
                and partition.is_leader
                and partition.leader_epoch == place.epoch
                and partition.topic_id is place.topic_id
                and partition.log.high_watermark == kept.high_watermark
                and partition.log.last_stable_offset == kept.last_stable_offset
                and partition.log.log_start_offset == kept.log_start_offset
                and place.topic.key == topic.key
            )
            if not is_current:
                kept = place.kept = None
        if kept is None:
            place.epoch = NO_EPOCH
        place.topic = topic
        place.wanted = wanted

    def wait(
        self, timeout_ms: int, attempt: Callable[[Collection[tuple[str, int]] | None], T | None]
    ) -> Deferred[T]:
        """Park `attempt` until one of the partitions moves; a topic id that nobody knows ends no wait."""
        if not self._is_known:
            self._remember()
        return self._broker.waiting.park(
            self._watch or self._keys(), timeout_ms, attempt, for_end=self._request.is_follower
        )

    def close(self) -> None:
        """The client is gone, or asks for something else."""
        if self._watch is not None:
            self._broker.waiting.forget(self._watch)
            self._watch = None
        self._by_key = {}
        self._is_known = False

    def _remember(self) -> None:
        self.close()
        by_key = {(place.name, place.wanted.partition_index): place for place in self._places}
        if self._is_plain and len(by_key) == len(self._places) and all(place.name for place in self._places):
            self._watch = self._broker.waiting.keep(self._keys())
            if self._watch is not None:
                self._by_key = by_key

    def _keys(self) -> list[tuple[str, int]]:
        return [
            (place.name, place.wanted.partition_index) for place in self._places if place.name is not None
        ]

    def read(self, *, is_first: bool = True) -> tuple[Answer, int, bool]:
        """See `read_places`; `is_first`: the request has just arrived."""
        return read_places(
            self._broker,
            self._request,
            self._version,
            self._max_bytes,
            self._places,
            is_plain=self._is_plain,
            notes=is_first,
        )

    def read_again(self, moved: Collection[tuple[str, int]] | None) -> tuple[Answer, int, bool]:
        """As `read`, with all that may have changed since: the partitions that moved, or all (None)."""
        if moved is not None and self._watch is not None:
            for key in moved:
                self._by_key[key].kept = None
            return self.read(is_first=False)
        for place in self._places:
            if moved is None or (place.name, place.wanted[0]) in moved:
                place.kept = None
        return self.read(is_first=False)


class SessionReading:
    """The same for one request of a session, which keeps what its partitions had."""

    __slots__ = ("_broker", "_max_bytes", "_request", "_turn", "_version")

    def __init__(
        self, broker: Services, request: FetchRequest, version: int, max_bytes: int, turn: Turn
    ) -> None:
        self._broker = broker
        self._request, self._version, self._max_bytes = request, version, max_bytes
        self._turn = turn

    def wait(
        self, timeout_ms: int, attempt: Callable[[Collection[tuple[str, int]] | None], T | None]
    ) -> Deferred[T]:
        """As `Reading.wait`."""
        return self._broker.waiting.park(
            self._turn.watched, timeout_ms, attempt, for_end=self._request.is_follower
        )

    def read(self, *, is_first: bool = True) -> tuple[Answer, int, bool]:
        """See `read_places`."""
        broker, turn = self._broker, self._turn
        places = turn.places
        return read_places(
            broker,
            self._request,
            self._version,
            self._max_bytes,
            places,
            is_plain=gives_what_there_is(broker, self._request),
            notes=is_first,
            has_others=len(places) < turn.partition_count,
        )

    def read_again(self, moved: Collection[tuple[str, int]] | None) -> tuple[Answer, int, bool]:
        """As `Reading.read_again`."""
        self._turn.moved(moved)
        return self.read(is_first=False)


def read_places(
    broker: Services,
    request: FetchRequest,
    version: int,
    max_bytes: int,
    places: Sequence[AskedPartition],
    *,
    is_plain: bool,
    notes: bool,
    has_others: bool = False,
) -> tuple[Answer, int, bool]:
    """(what every partition has, bytes of records, whether to answer at once).

    A batch that no longer fits counts up to the limit it met: nobody waits for more when an answer is full.
    An error, a diverging epoch, a replica to read from rather and a segment that others follow are answered at once, but
    for partitions that the cluster does not have from the beginning: these go last, and only when there are no others is
    there nothing to wait for. `notes`: where a follower is is noted; `has_others`: there are partitions without news.
    """
    answer: Answer = []
    absent: Answer = []
    left, total, unfit, is_urgent = max_bytes, 0, 0, False
    answering: FetchTopic | None = None
    found: list[Found] = []
    for place in places:
        topic, item = place.topic, place.kept
        if item is None:
            item = read_partition(
                broker, request, place, left, is_plain=is_plain, notes=notes, at_least_one=total == 0
            )
            if item.records is NOTHING_YET:
                # It may serve for many answers.
                item = place.kept = _new_tuple(Found, (*item[:-1], encode_nothing(version, item)))
            elif item.records is not None:
                size = item.records.size
                if not size and type(item.records) is LogSlice:
                    unfit += min(place.wanted.size_max, left)
                total += size
                left -= size
                is_urgent = is_urgent or item.is_behind
            elif item.error_code in NOT_IN_CLUSTER:
                absent.append((topic, [item]))
                # It was there when the wait began.
                is_urgent = is_urgent or place.epoch != NO_EPOCH
                continue
            elif item.error_code != 0 or item.diverging_epoch is not None or item.preferred_read_replica >= 0:
                is_urgent = True
        if topic is not answering and (answering is None or topic.key != answering.key):
            answering, found = topic, []
            answer.append((topic, found))
        found.append(item)
    is_urgent = is_urgent or not (answer or has_others)
    _add_absent(answer, absent)
    return answer, total + unfit, is_urgent


def _add_absent(answer: Answer, absent: Answer) -> None:
    for topic, found in absent:
        if answer and answer[-1][0].key == topic.key:
            answer[-1][1].extend(found)
        else:
            answer.append((topic, found))
