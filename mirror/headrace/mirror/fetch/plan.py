"""What is asked of one broker of a source, over which of its connections, and when. Pure: events in, commands out.

    plan.assign(copiers, now)          events: the partitions that this broker leads, and where they are
    plan.opened / failed               … a connection
    plan.took / ended / surveyed       … an answer
    plan.next(lane, now)               → Open | Close | AskFetch | AskSurvey | Wait: what that connection does next

A connection is a lane, with one request in flight. Lane 0 is the tail: one fetch session (KIP-227) of all partitions that
have what their source has, which costs what moved. The other lanes survey, and bring what lags: as many of them, and of as
large requests, as the window (bandwidth times delay) says, each with partitions of its own, in turns. Between leaving a lane
and the tail's next request, which may be a whole wait away, a partition that does not lag is a stray, and asked for too.

Invariants: a question is handed back to the copier that asked it, as it was when it was sent; a partition is in one other
request than the tail's at most; copiers that have nothing to ask are looked at when something of theirs changed, or now and
then while only time or the journal can change it. Copiers are called, nothing else is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.wire.client.fetch_session import FULL_EPOCH, FetchSession
from headrace.broker.wire.client.replica_fetch import (
    FetchedPartition,
    ReplicaFetchAnswer,
    ReplicaFetchRequest,
    WireKey,
)
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import READ_UNCOMMITTED
from headrace.mirror.config import Tunables
from headrace.mirror.fetch import encoding
from headrace.mirror.fetch.commands import (
    AskFetch,
    Asking,
    AskSurvey,
    Close,
    Command,
    Now,
    Open,
    Wait,
)
from headrace.mirror.fetch.encoding import IDS_VERSION, NAMES_VERSION
from headrace.mirror.fetch.window import Limit, Window
from headrace.mirror.memory.state import NO_ID
from headrace.mirror.pause import Pause
from headrace.mirror.questions import UNKNOWN, Fetch, Located, Survey, Surveyed

TAIL = 0
LANES_MAX = 8
LANE_SIZE = 4 * 1024 * 1024
"""A window is parted into requests of about so much: a cache's worth, and a buffer that is kept."""
PARTITION_SIZE_MAX = 32 * 1024 * 1024
"""What one partition may fill of an answer: it is appended in one go."""
SIZE_SLACK = 64 * 1024
"""Buffers are powers of two: an answer with its heads stays below one."""
STRAYS_COUNT_MAX = 500
STRAY_WAIT_MS = 50
SURVEYS_COUNT_MAX = 500
LOOK_MS_MIN = 10
"""Copiers that only time can help are looked at so often; many of them less."""
LOOKS_A_MS = 20
HEARD_MS = 5_000
CLOSE_AFTER_MS = 60_000
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


@dataclass(slots=True, eq=False)
class _Part:
    """A partition: its newest question and, once asked for by a lane that is not the tail, that lane."""

    key: PartitionKey
    copier: Asking
    want: Fetch | None = None
    wire: WireKey | None = None
    located_at: Located | None = None
    lane: int | None = None
    readable_end: int = UNKNOWN
    is_in_session: bool = False

    @property
    def lags(self) -> bool:
        return self.want is not None and self.want.offset < self.readable_end


@dataclass(slots=True)
class _Lane:
    pause: Pause
    is_open: bool = False
    used_ms: int = 0
    asked_ms: int = 0
    fetches: dict[WireKey, tuple[_Part, Fetch]] = field(default_factory=dict)
    surveys: dict[PartitionKey, tuple[_Part, Survey]] = field(default_factory=dict)


class FetchPlan:
    """See the module's text; `limit` is the source's, shared by its brokers, and `isolation` says up to where it is read."""

    def __init__(self, tunables: Tunables, limit: Limit, isolation: int = READ_UNCOMMITTED) -> None:
        self._isolation = isolation
        self.window = Window(tunables.fetch_response_max_bytes, tunables.fetch_window_max_bytes)
        self._tunables = tunables
        self._limit = limit
        self._parts: dict[PartitionKey, _Part] = {}
        self._lanes: dict[int, _Lane] = {}
        self._session = FetchSession()
        # What the tail's session has, as it was asked last, and what it may still answer to that was asked before.
        self._tailed: dict[WireKey, tuple[_Part, Fetch]] = {}
        self._lagging: dict[_Part, None] = {}
        self._strays: dict[_Part, None] = {}
        self._surveys: dict[_Part, Survey] = {}
        self._due: dict[_Part, None] = {}
        self._held: dict[_Part, None] = {}
        self._looked_ms = self._heard_ms = 0
        self._by_ids = True
        self._is_tail_asked = False

    # -- events

    def assign(self, copiers: Mapping[PartitionKey, Asking]) -> None:
        """The partitions to ask for from now on; those that were located anew or have no question are looked at."""
        for key in [key for key, part in self._parts.items() if copiers.get(key) is not part.copier]:
            self._leave(self._parts.pop(key))
        for key, copier in copiers.items():
            part = self._parts.get(key)
            if part is None:
                part = self._parts[key] = _Part(key, copier)
            located_at = copier.located_at
            if not part.is_in_session or part.located_at is not located_at:
                part.located_at = located_at
                self._due[part] = None

    def _leave(self, part: _Part) -> None:
        self._unask(part)
        self._due.pop(part, None)
        self._held.pop(part, None)

    def opened(self, lane: int, delay_ms: float, now: Now, *, has_ids: bool) -> None:
        """The connection is there, its first exchange took so long; whether its broker fetches by topic ids."""
        state = self._lane(lane)
        state.is_open, state.used_ms = True, now.ms
        self.window.delayed(delay_ms)
        if lane == TAIL:
            self._session.failed()
        if has_ids != self._by_ids:
            self._by_ids = has_ids
            for part in self._parts.values():
                self._unask(part)
                self._due[part] = None

    def closed(self, lane: int) -> None:
        """The connection was closed on command."""
        self._lane(lane).is_open = False

    def failed(self, lane: int, reason: str, now: Now) -> None:
        """The connection could not be opened, or is of no use any more: whom it served is told."""
        state = self._lane(lane)
        was_open, state.is_open = state.is_open, False
        state.pause.begin(now.ms)
        told = [part for part, _ in (*state.fetches.values(), *state.surveys.values())]
        if lane == TAIL:
            told += [part for part in self._parts.values() if part.is_in_session]
            self._session.forget_all()
            self._tailed.clear()
            self._is_tail_asked = False
        if not was_open and lane <= 1:
            told = list(self._parts.values())
        state.fetches, state.surveys = {}, {}
        for part in told:
            if part.lane == lane:
                part.lane = None
            self._unask(part)
            if self._parts.get(part.key) is part:
                part.copier.failed(reason, now.wall_ms)
                self._due[part] = None

    def took(self, lane: int, wire: WireKey, found: FetchedPartition, now: Now) -> bool:
        """Hand one partition's answer to who asked; whether it was refused. One that nobody asked for is passed over."""
        asked = (self._tailed if lane == TAIL else self._lane(lane).fetches).get(wire)
        if asked is None or self._parts.get(asked[0].key) is not asked[0]:
            return False
        part, fetch = asked
        self._due[part] = None
        if found.error_code:
            part.copier.refused(fetch, found.error_code, now.wall_ms)
            return True
        part.readable_end = encoding.readable_end(found, self._isolation)
        part.copier.fetched(
            fetch,
            memoryview(b"") if found.records is None else found.records,
            high_watermark=found.high_watermark,
            log_start_offset=found.log_start_offset,
            now_ms=now.wall_ms,
        )
        if found.records and part in self._lagging:
            # Whoever got data asks last the next time, or one busy partition would fill every answer.
            del self._lagging[part]
            self._lagging[part] = None
        return False

    def ended(self, lane: int, answer: ReplicaFetchAnswer, now: Now) -> None:
        """All of an answer was taken; raises the error of the whole answer, other than a session's."""
        state = self._lane(lane)
        state.pause.end()
        state.used_ms = now.ms
        if lane == TAIL:
            self._is_tail_asked = False
            is_new = self._session.epoch == FULL_EPOCH
            if not self._session.answered(answer.error_code, answer.session_id) and (
                is_new or answer.error_code not in SESSION_ERRORS
            ):
                raise error_of(answer.error_code)
            self._hear(now)
        else:
            for part, _ in state.fetches.values():
                part.lane = None
                self._due[part] = None
            state.fetches = {}
            if answer.error_code:
                raise error_of(answer.error_code)
        self._look(now)

    def arrived(self, lane: int, size: int, now: Now) -> None:
        """An answer with so many bytes of records has come, and is about to be taken."""
        self._limit.took(size)
        state = self._lane(lane)
        if size and (lane != TAIL or size >= self._tunables.fetch_response_max_bytes // 2):
            self.window.delivered(size, state.asked_ms, now.ms)

    def _hear(self, now: Now) -> None:
        """Partitions that the session does not speak of are as they were."""
        if now.ms - self._heard_ms >= HEARD_MS:
            self._heard_ms = now.ms
            for part, _ in self._tailed.values():
                if part.is_in_session:
                    part.copier.unchanged(now.wall_ms)

    def surveyed(self, lane: int, found: Mapping[PartitionKey, Surveyed | int], now: Now) -> bool:
        """What a survey's questions brought, by partition: an answer or an error code; whether any was refused."""
        state = self._lane(lane)
        state.pause.end()
        state.used_ms = now.ms
        asked, state.surveys = state.surveys, {}
        for key, (part, survey) in asked.items():
            part.lane = None
            if self._parts.get(key) is not part:
                continue
            self._due[part] = None
            answer = found[key]
            if isinstance(answer, Surveyed):
                part.readable_end = answer.log_end_offset
                part.copier.surveyed(survey, answer, now.wall_ms)
            else:
                part.copier.refused(survey, answer, now.wall_ms)
        self._look(now)
        return any(not isinstance(answer, Surveyed) for answer in found.values())

    # -- commands

    @property
    def lanes(self) -> int:
        """How many connections there should be: the tail, and as many as are of use for what lags."""
        wanted = max(self._tunables.num_fetchers, -(-self.window.size // LANE_SIZE))
        return 1 + max(1, min(len(self._lagging), LANES_MAX, wanted))

    def next(self, lane: int, now: Now) -> Command:
        """What that connection does now; every other command than Wait is answered by an event before the next call."""
        state = self._lane(lane)
        self._look(now)
        if not self._has_work(lane):
            if state.is_open and now.ms - state.used_ms >= CLOSE_AFTER_MS:
                return Close()
            look_ms = self._look_pause_ms() if lane <= 1 else None
            return Wait(CLOSE_AFTER_MS if look_ms is None else look_ms)
        if state.pause.lasts(now.ms):
            return Wait(self._tunables.retry_backoff_ms)
        if not state.is_open:
            return Open()
        if lane != TAIL and self._surveys:
            return self._survey(lane, state)
        pause_ms = self._limit.pause_ms(now.ms)
        if pause_ms > 0:
            return Wait(pause_ms)
        state.asked_ms = now.ms
        return self._tail() if lane == TAIL else self._bring(lane, state)

    def _has_work(self, lane: int) -> bool:
        if lane == TAIL:
            return bool(self._strays) or not self._session.is_empty
        strays = self._strays if self._is_tail_asked else ()
        return lane < self.lanes and bool(
            self._surveys or any(part.lane is None for part in (self._lagging or strays))
        )

    def _lane(self, lane: int) -> _Lane:
        state = self._lanes.get(lane)
        if state is None:
            pause = Pause(self._tunables.retry_backoff_ms, self._tunables.retry_backoff_max_ms)
            state = self._lanes[lane] = _Lane(pause)
        return state

    # -- what partitions want

    def _look_pause_ms(self) -> float | None:
        return max(LOOK_MS_MIN, len(self._held) / LOOKS_A_MS) if self._held else None

    def _look(self, now: Now) -> None:
        pause_ms = self._look_pause_ms()
        if pause_ms is not None and now.ms - self._looked_ms >= pause_ms:
            self._looked_ms = now.ms
            self._due.update(self._held)
        if not self._due:
            return
        due, self._due = self._due, {}
        for part in due:
            if part.lane is None:
                self._look_at(part, now)
            else:
                self._due[part] = None

    def _look_at(self, part: _Part, now: Now) -> None:
        want = part.copier.wants(now.wall_ms)
        if want == part.want and want is not None and part.is_in_session and not part.lags:
            return
        self._held.pop(part, None)
        if isinstance(want, Fetch):
            self._wanted(part, want)
            return
        self._unask(part)
        if isinstance(want, Survey):
            self._surveys[part] = want
        elif not part.copier.awaits_metadata:
            self._held[part] = None

    def _wanted(self, part: _Part, want: Fetch) -> None:
        wire = encoding.wire_key(part.key, want, by_ids=self._by_ids and want.topic_id != NO_ID)
        if wire != part.wire:
            self._unask(part)
        part.want, part.wire = want, wire
        self._surveys.pop(part, None)
        if part.lags:
            self._strays.pop(part, None)
            self._leave_session(part)
            self._lagging.setdefault(part)
            return
        self._lagging.pop(part, None)
        if part.is_in_session:
            self._session.ask(wire, encoding.question(want))
        else:
            self._strays[part] = None

    def _unask(self, part: _Part) -> None:
        """Nothing is asked of the partition."""
        self._leave_session(part)
        for waiting in (self._lagging, self._strays):
            waiting.pop(part, None)
        self._surveys.pop(part, None)
        part.want = part.wire = None

    def _leave_session(self, part: _Part) -> None:
        if part.is_in_session:
            assert part.wire is not None, "what is in the session has a name there"
            self._session.forget(part.wire)
            part.is_in_session = False

    # -- requests

    def _survey(self, lane: int, state: _Lane) -> AskSurvey:
        for part, survey in list(self._surveys.items())[:SURVEYS_COUNT_MAX]:
            del self._surveys[part]
            part.lane = lane
            state.surveys[part.key] = part, survey
        return AskSurvey({key: survey for key, (_, survey) in state.surveys.items()})

    def _tail(self) -> AskFetch:
        for part in self._strays:
            assert part.wire is not None, "a stray has a question"
            assert part.want is not None, "a stray has a question"
            part.is_in_session = True
            self._session.ask(part.wire, encoding.question(part.want))
        moved = {part.wire: part for part in self._strays}
        self._strays.clear()
        self._is_tail_asked = True
        due = self._session.due()
        if due.epoch == FULL_EPOCH:
            moved = {part.wire: part for part in self._parts.values() if part.is_in_session}
            self._tailed = {}
        for wire in due.forgotten:
            self._tailed.pop(wire, None)
        for wire, _ in due.asked:
            part = moved.get(wire) or self._tailed[wire][0]
            assert part.want is not None, "what is in the session has a question"
            self._tailed[wire] = part, part.want
        request = encoding.request(
            due.asked,
            wait_ms=self._tunables.fetch_wait_max_ms,
            min_bytes=self._tunables.fetch_min_bytes,
            size_max=self._limit.share(self.window.size),
            partition_size_max=self._limit.share(self._tunables.fetch_max_bytes),
            session=(due.session_id, due.epoch),
            forgotten=due.forgotten,
            isolation_level=self._isolation,
        )
        return self._ask(request)

    def _bring(self, lane: int, state: _Lane) -> AskFetch:
        lagging = [part for part in self._lagging if part.lane is None]
        wait_ms = self._tunables.fetch_wait_max_ms if lagging else STRAY_WAIT_MS
        size, partition_size = self._sizes(len(self._lagging))
        if lagging:
            parts = lagging[: max(1, size // partition_size)]
        else:
            parts = [part for part in self._strays if part.lane is None][:STRAYS_COUNT_MAX]
        for part in parts:
            assert part.wire is not None, "what lags has a question"
            assert part.want is not None, "what lags has a question"
            part.lane = lane
            state.fetches[part.wire] = part, part.want
        asked = [(wire, encoding.question(want)) for wire, (_, want) in state.fetches.items()]
        request = encoding.request(
            asked,
            wait_ms=wait_ms,
            min_bytes=self._tunables.fetch_min_bytes,
            size_max=max(size - SIZE_SLACK, partition_size),
            partition_size_max=partition_size,
            isolation_level=self._isolation,
        )
        return self._ask(request)

    def _sizes(self, count: int) -> tuple[int, int]:
        """What a lane's request asks for, and of each partition, where so many lag: the window, parted."""
        lanes = self.lanes - 1
        floor, least = self._tunables.fetch_response_max_bytes, self._tunables.fetch_max_bytes
        size = max(floor, self.window.size // lanes)
        at_once = max(1, min(-(-count // lanes), size // least))
        partition_size = min(max(least, size // at_once - SIZE_SLACK), PARTITION_SIZE_MAX)
        size = self._limit.share(size)
        return size, min(partition_size, max(1, self._limit.share(size) // at_once))

    def _ask(self, request: ReplicaFetchRequest) -> AskFetch:
        return AskFetch(request, IDS_VERSION if self._by_ids else NAMES_VERSION)
