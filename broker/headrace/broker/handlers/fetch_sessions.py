"""Incremental fetch sessions (KIP-227): what a client asked for is remembered, and only what changed is answered.

`FetchSessions.begin` turns a request into the partitions to read; `Turn.finish` takes what was found and says what of
it to answer. Invariants: at most `slots_max` sessions with `PARTITIONS_COUNT_MAX` partitions together, so that a client
that gets no session fetches in full, as ever; a session answers one request per epoch, in order. Pure: `now_ms` comes
in. Must not know logs, sockets or how an answer is encoded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from random import randrange
from typing import NamedTuple, Protocol, TypeVar

from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.handlers.fetch_request import (
    INITIAL_SESSION_EPOCH,
    NO_SESSION,
    NO_SESSION_EPOCH,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)

INT32_MAX = 2**31 - 1
EVICTION_MS = 120_000
PARTITIONS_COUNT_MAX = 500_000


class Found(Protocol):
    """What a read of one partition gave, as far as a session compares it."""

    @property
    def partition_index(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def records(self) -> Sized | None: ...
    @property
    def diverging_epoch(self) -> object | None: ...


class Sized(Protocol):
    @property
    def size(self) -> int: ...


F = TypeVar("F", bound=Found)
CachedKey = tuple[bytes, int]


class _Cached:
    """A partition of a session: what is asked, and what was answered last."""

    __slots__ = ("asked", "high_watermark", "log_start_offset", "topic")

    def __init__(self, topic: FetchTopic, asked: FetchPartition) -> None:
        self.topic = topic
        self.asked = asked
        self.high_watermark = -1
        self.log_start_offset = -1

    def take(self, found: Found) -> bool:
        """Remember what is answered; whether it has to be. After an error the partition is answered again."""
        changed = (
            found.error_code != 0
            or (found.records is not None and found.records.size > 0)
            or found.high_watermark != self.high_watermark
            or found.log_start_offset != self.log_start_offset
            or found.diverging_epoch is not None
        )
        self.high_watermark = -1 if found.error_code else found.high_watermark
        self.log_start_offset = found.log_start_offset
        return changed


class _Session:
    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged", "uses_topic_ids")

    def __init__(self, number: int, *, privileged: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = number
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = INITIAL_SESSION_EPOCH + 1
        self.partitions: dict[CachedKey, _Cached] = {}

    @property
    def worth(self) -> tuple[bool, int, int]:
        return self.privileged, len(self.partitions), self.id


class Turn(NamedTuple):
    """One request of a session, or one that may begin a session."""

    sessions: FetchSessions
    session: _Session | None
    topics: list[FetchTopic]
    epoch: int
    privileged: bool
    uses_topic_ids: bool

    def finish(
        self, answer: Sequence[tuple[FetchTopic, list[F]]], now_ms: int
    ) -> tuple[ErrorCode, int, list[tuple[FetchTopic, list[F]]]]:
        """(error of the whole, the session's id, what of `answer` to send)."""
        if self.session is None:
            return ErrorCode.NONE, self.sessions.created(self, answer, now_ms), list(answer)
        if self.session.epoch != self.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, self.session.id, []
        return ErrorCode.NONE, self.session.id, list(_changed(self.session, answer))


class FetchSessions:
    """All sessions of a broker, least recently used first."""

    def __init__(self, slots_max: int, new_id: Callable[[], int] = lambda: randrange(1, INT32_MAX)) -> None:
        self._slots_max = slots_max
        self._new_id = new_id
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, *, uses_topic_ids: bool, now_ms: int) -> Turn | None:
        """The turn of a request, or None for one outside of any session.

        Raises the KafkaErrors of FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH and
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        epoch, privileged = request.session_epoch, request.replica_id >= 0
        if epoch in (INITIAL_SESSION_EPOCH, NO_SESSION_EPOCH):
            self._remove(request.session_id)
            if epoch == NO_SESSION_EPOCH:
                return None
            return Turn(self, None, request.topics, epoch, privileged, uses_topic_ids)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise error_of(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise error_of(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise error_of(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, request)
        if not session.partitions:
            self._remove(session.id)
            return None
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)
        session.epoch = 1 if session.epoch == INT32_MAX else session.epoch + 1
        return Turn(self, session, _topics_of(session), session.epoch, privileged, uses_topic_ids)

    def created(self, turn: Turn, answer: Sequence[tuple[FetchTopic, list[F]]], now_ms: int) -> int:
        """Begin a session with what was asked and answered; its id, or 0 when there is no room."""
        asked = {
            (topic.key, partition.partition_index): _Cached(topic, partition)
            for topic in turn.topics
            for partition in topic.partitions
        }
        if not self._has_room(len(asked), turn.privileged, now_ms):
            return NO_SESSION
        session = _Session(
            self._free_id(), privileged=turn.privileged, uses_topic_ids=turn.uses_topic_ids, now_ms=now_ms
        )
        for topic, found in answer:
            for item in found:
                asked[topic.key, item.partition_index].take(item)
        session.partitions = asked
        self.partition_count += len(asked)
        self._sessions[session.id] = session
        return session.id

    def _update(self, session: _Session, request: FetchRequest) -> None:
        """Take what an incremental request adds, changes and forgets."""
        partitions = session.partitions
        before = len(partitions)
        for topic in request.topics:
            for partition in topic.partitions:
                cached = partitions.get((topic.key, partition.partition_index))
                if cached is None:
                    partitions[topic.key, partition.partition_index] = _Cached(topic, partition)
                else:
                    cached.asked = partition
        for key in request.forgotten:
            partitions.pop(key, None)
        self.partition_count += len(partitions) - before
        if self.partition_count > PARTITIONS_COUNT_MAX:
            self._remove(session.id)
            raise error_of(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _remove(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _free_id(self) -> int:
        number = self._new_id()
        while number in self._sessions:
            number = self._new_id()
        return number

    def _has_room(self, size: int, privileged: bool, now_ms: int) -> bool:
        """Whether one more session of `size` partitions may be; evicts one when the slots are taken."""
        if self.partition_count + size > PARTITIONS_COUNT_MAX or self._slots_max == 0:
            return False
        if len(self._sessions) < self._slots_max:
            return True
        victim = self._victim(size, privileged, now_ms)
        if victim is None:
            return False
        self._remove(victim.id)
        return True

    def _victim(self, size: int, privileged: bool, now_ms: int) -> _Session | None:
        """Whom a new session may displace: a stale one, else one of less worth that is not new (or not a follower's)."""
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return oldest
        evictable = [
            session
            for session in self._sessions.values()
            if session.last_used_ms - session.created_ms > EVICTION_MS
            or (privileged and not session.privileged)
        ]
        least = min(evictable, key=lambda session: session.worth, default=None)
        if least is None or (privileged, size, 0) < least.worth:
            return None
        return least


def _topics_of(session: _Session) -> list[FetchTopic]:
    """The session's partitions in their order; a topic comes again when others stand in between."""
    topics: list[FetchTopic] = []
    for cached in session.partitions.values():
        if not topics or topics[-1].key != cached.topic.key:
            topics.append(cached.topic._replace(partitions=[]))
        topics[-1].partitions.append(cached.asked)
    return topics


def _changed(
    session: _Session, answer: Iterable[tuple[FetchTopic, list[F]]]
) -> Iterable[tuple[FetchTopic, list[F]]]:
    """What is new to the client; partitions that had records go last, so that next time the others come first."""
    partitions = session.partitions
    for topic, found in answer:
        kept = []
        for item in found:
            key = (topic.key, item.partition_index)
            cached = partitions[key]
            if not cached.take(item):
                continue
            kept.append(item)
            if item.records is not None and item.records.size:
                partitions[key] = partitions.pop(key)
        if kept:
            yield topic, kept
