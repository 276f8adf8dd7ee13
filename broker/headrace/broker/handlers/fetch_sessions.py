"""Incremental fetch sessions (KIP-227): what a client asked for is remembered, and only what changed is answered.

`FetchSessions.begin` turns a request into the partitions to read; `Turn.finish` takes what was found and says what of
it to answer. A request costs what moved, not what its session holds: partitions that had nothing to give, and of which
that was told, are read again once they move, which the session's watch notes, or are asked for anew; all others are
`due` with each request. Invariants: at most `slots_max` sessions with `PARTITIONS_COUNT_MAX` partitions together, so that
a client that gets no session fetches in full, as ever; a session answers one request per epoch, in order. Pure: `now_ms`
comes in. Must not know logs, sockets or how an answer is encoded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from random import randrange
from typing import Protocol, TypeVar
from uuid import UUID

from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.handlers.fetch_request import (
    INITIAL_SESSION_EPOCH,
    NO_SESSION,
    NO_SESSION_EPOCH,
    AskedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from headrace.broker.waiting.watch import Watch
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH

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
    @property
    def preferred_read_replica(self) -> int: ...
    @property
    def encoded(self) -> bytes | None:
        """There when it had nothing, and will have as long as it does not move."""
        ...


class Sized(Protocol):
    @property
    def size(self) -> int: ...


class Watches(Protocol):
    """`waiting.parking.Waiting`, as far as sessions need it."""

    def keep(self, keys: Iterable[PartitionKey], *, for_end: bool = False) -> Watch | None: ...

    def extend(self, watch: Watch, keys: Iterable[PartitionKey]) -> bool: ...

    def drop(self, watch: Watch, key: PartitionKey) -> None: ...

    def forget(self, watch: Watch) -> None: ...

    def answer(self, watch: Watch) -> None: ...


F = TypeVar("F", bound=Found)
CachedKey = tuple[bytes, int]
TopicName = Callable[[UUID], str | None]


class _Cached(AskedPartition):
    """A partition of a session: what is asked, what was answered last, and its place among the others."""

    __slots__ = ("high_watermark", "log_start_offset", "place")

    def __init__(self, topic: FetchTopic, name: str | None, asked: FetchPartition, place: int) -> None:
        super().__init__(topic, name, asked)
        self.place = place
        self.high_watermark = -1
        self.log_start_offset = -1

    @property
    def key(self) -> CachedKey:
        return self.topic.key, self.wanted.partition_index

    @property
    def name_key(self) -> PartitionKey | None:
        """None while nobody knows what the topic is called."""
        return None if self.name is None else (self.name, self.wanted.partition_index)

    def take(self, found: Found) -> bool:
        """Remember what is answered; whether it has to be. After an error the partition is answered again."""
        changed = (
            found.error_code != 0
            or (found.records is not None and found.records.size > 0)
            or found.high_watermark != self.high_watermark
            or found.log_start_offset != self.log_start_offset
            or found.diverging_epoch is not None
            or found.preferred_read_replica >= 0
        )
        self.high_watermark = -1 if found.error_code else found.high_watermark
        self.log_start_offset = found.log_start_offset
        return changed


def _place_of(cached: _Cached) -> int:
    return cached.place


class _Session:
    """`watch` is None until it is granted; `due` are the partitions that have to be read, in any order."""

    __slots__ = (
        "_by_name",
        "_place",
        "created_ms",
        "due",
        "epoch",
        "id",
        "last_used_ms",
        "partitions",
        "privileged",
        "rights_version",
        "uses_topic_ids",
        "watch",
    )

    def __init__(self, *, privileged: bool, uses_topic_ids: bool, now_ms: int, rights_version: int) -> None:
        self.id = NO_SESSION
        self.rights_version = rights_version
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = INITIAL_SESSION_EPOCH + 1
        self.partitions: dict[CachedKey, _Cached] = {}
        self.due: dict[_Cached, None] = {}
        self.watch: Watch | None = None
        self._by_name: dict[PartitionKey, _Cached] = {}
        self._place = 0

    @property
    def worth(self) -> tuple[bool, int, int]:
        return self.privileged, len(self.partitions), self.id

    @property
    def name_keys(self) -> Collection[PartitionKey]:
        """Its partitions, by the names of their topics, as far as they are known."""
        return self._by_name

    def ask(self, topics: Iterable[FetchTopic], topic_name: TopicName) -> list[PartitionKey]:
        """Take what a request adds and changes; answers what is to be watched, too."""
        new = []
        for topic in topics:
            name = topic.name if topic.topic_id is None else topic_name(topic.topic_id)
            for wanted in topic.partitions:
                cached = self.partitions.get((topic.key, wanted.partition_index))
                if cached is None:
                    cached = _Cached(topic, name, wanted, self._next_place())
                    self.partitions[cached.key] = cached
                    new += self._named(cached)
                else:
                    cached.wanted = wanted
                self._is_due(cached)
        return new

    def name_again(self, topic_name: TopicName) -> list[PartitionKey]:
        """Look for the names of topics that nobody knew; answers what is to be watched, too."""
        new = []
        for cached in list(self.due):
            if cached.name is None and cached.topic.topic_id is not None:
                cached.name = topic_name(cached.topic.topic_id)
                new += self._named(cached)
        return new

    def _named(self, cached: _Cached) -> list[PartitionKey]:
        key = cached.name_key
        if key is None:
            return []
        namesake = self._by_name.get(key)
        if namesake is not None:
            # It was made anew: nobody hears of the one before any more.
            self._is_due(namesake)
        self._by_name[key] = cached
        return [key]

    def forget(self, key: CachedKey) -> PartitionKey | None:
        """The client asks for it no more; answers what is to be watched no more."""
        cached = self.partitions.pop(key, None)
        if cached is None:
            return None
        self.due.pop(cached, None)
        name_key = cached.name_key
        if name_key is None or self._by_name.get(name_key) is not cached:
            return None
        del self._by_name[name_key]
        return name_key

    def moved(self, keys: Collection[PartitionKey]) -> None:
        """These have to be read again."""
        for key in keys:
            cached = self._by_name.get(key)
            if cached is not None:
                self._is_due(cached)

    def hold_to(self, rights_version: int) -> None:
        """Clients may be allowed to read other topics than they were: all has to be read again."""
        if rights_version != self.rights_version:
            self.rights_version = rights_version
            for cached in self.partitions.values():
                self._is_due(cached)

    def begin(self) -> None:
        """A request begins: what is due is read anew, perhaps for another version."""
        for cached in self.due:
            cached.kept = None
            cached.epoch = NO_EPOCH

    def take(self, answer: Iterable[tuple[FetchTopic, list[F]]]) -> Iterable[tuple[FetchTopic, list[F]]]:
        """What of the answer is new to the client; what had records goes last, so that next time the others come first."""
        for topic, found in answer:
            told = []
            for item in found:
                cached = self.partitions[topic.key, item.partition_index]
                if item.encoded is not None and not cached.lags:
                    self.due.pop(cached, None)
                if not cached.take(item):
                    continue
                told.append(item)
                if item.records is not None and item.records.size:
                    cached.place = self._next_place()
            if told:
                yield topic, told

    def _is_due(self, cached: _Cached) -> None:
        cached.kept = None
        self.due[cached] = None

    def _next_place(self) -> int:
        self._place += 1
        return self._place


class Turn:
    """One request of a session, or one that may begin a session."""

    __slots__ = ("_epoch", "_is_new", "_session", "_sessions")

    def __init__(self, sessions: FetchSessions, session: _Session, *, is_new: bool) -> None:
        self._sessions = sessions
        self._session = session
        self._epoch = session.epoch
        self._is_new = is_new

    @property
    def places(self) -> list[_Cached]:
        """What has to be read, in order."""
        due = self._session.due
        return sorted(due, key=_place_of) if len(due) > 1 else list(due)

    @property
    def partition_count(self) -> int:
        """How many partitions the session has, read or not."""
        return len(self._session.partitions)

    @property
    def watched(self) -> Watch | Iterable[PartitionKey]:
        """What to park with."""
        return self._session.watch or self._session.name_keys

    def moved(self, keys: Collection[PartitionKey] | None) -> None:
        """These moved while the request waited; None: its time is over."""
        session = self._session
        if keys is None:
            keys = session.name_keys if session.watch is None else session.watch.take_moved()
        session.moved(keys)

    def hold_back(self) -> tuple[ErrorCode, int]:
        """(error of the whole, the session's id) of an answer without anything: what is due stays due."""
        if self._is_new:
            return ErrorCode.NONE, NO_SESSION
        is_current = self._session.epoch == self._epoch
        return ErrorCode.NONE if is_current else ErrorCode.INVALID_FETCH_SESSION_EPOCH, self._session.id

    def finish(
        self, answer: Sequence[tuple[FetchTopic, list[F]]], now_ms: int
    ) -> tuple[ErrorCode, int, list[tuple[FetchTopic, list[F]]]]:
        """(error of the whole, the session's id, what of `answer` to send)."""
        session = self._session
        if self._is_new:
            for _ in session.take(answer):
                pass
            return ErrorCode.NONE, self._sessions.granted(session, now_ms), list(answer)
        if session.epoch != self._epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, []
        return ErrorCode.NONE, session.id, list(session.take(answer))


class FetchSessions:
    """All sessions of a broker, least recently used first."""

    def __init__(
        self,
        slots_max: int,
        watches: Watches,
        new_id: Callable[[], int] = lambda: randrange(1, INT32_MAX),
    ) -> None:
        self._slots_max = slots_max
        self._watches = watches
        self._new_id = new_id
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        request: FetchRequest,
        topic_name: TopicName,
        *,
        uses_topic_ids: bool,
        now_ms: int,
        rights_version: int = 0,
    ) -> Turn | None:
        """The turn of a request, or None for one outside of any session. `topic_name` tells what a topic id stands for,
        `rights_version` changes when clients may have other rights.

        Raises the KafkaErrors of FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH and
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        epoch = request.session_epoch
        if epoch in (INITIAL_SESSION_EPOCH, NO_SESSION_EPOCH):
            self._remove(request.session_id)
            if epoch == NO_SESSION_EPOCH:
                return None
            session = _Session(
                privileged=request.is_follower,
                uses_topic_ids=uses_topic_ids,
                now_ms=now_ms,
                rights_version=rights_version,
            )
            session.ask(request.topics, topic_name)
            return Turn(self, session, is_new=True)
        found = self._sessions.get(request.session_id)
        if found is None:
            raise error_of(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if found.epoch != epoch:
            raise error_of(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if found.uses_topic_ids != uses_topic_ids:
            raise error_of(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        found.hold_to(rights_version)
        self._update(found, request, topic_name)
        if not found.partitions:
            self._remove(found.id)
            return None
        found.last_used_ms = now_ms
        self._sessions.move_to_end(found.id)
        return Turn(self, found, is_new=False)

    def granted(self, session: _Session, now_ms: int) -> int:
        """Keep a session whose first answer is there; its id, or 0 when there is no room."""
        size = len(session.partitions)
        if not self._has_room(size, session.privileged, now_ms):
            return NO_SESSION
        session.watch = self._watches.keep(session.name_keys, for_end=session.privileged)
        if session.watch is None:
            return NO_SESSION
        session.id = self._free_id()
        session.created_ms = session.last_used_ms = now_ms
        self.partition_count += size
        self._sessions[session.id] = session
        return session.id

    def _update(self, session: _Session, request: FetchRequest, topic_name: TopicName) -> None:
        """Take what moved since the request before, and what an incremental request adds, changes and forgets."""
        watch = session.watch
        assert watch is not None
        session.epoch = 1 if session.epoch == INT32_MAX else session.epoch + 1
        # A request of before that still waits: this one overtook it.
        self._watches.answer(watch)
        before = len(session.partitions)
        session.moved(watch.take_moved())
        new = [*session.name_again(topic_name), *session.ask(request.topics, topic_name)]
        for key in request.forgotten:
            unwatched = session.forget(key)
            if unwatched is not None and unwatched in watch.keys:
                self._watches.drop(watch, unwatched)
        session.begin()
        self.partition_count += len(session.partitions) - before
        is_watched = not new or self._watches.extend(watch, [key for key in new if key in session.name_keys])
        if self.partition_count > PARTITIONS_COUNT_MAX or not is_watched:
            self._remove(session.id)
            raise error_of(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _remove(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            assert session.watch is not None
            self.partition_count -= len(session.partitions)
            self._watches.forget(session.watch)
            session.watch = None

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
