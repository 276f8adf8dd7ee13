"""What is asked of a source's broker, and over which connection, as scripts of events and commands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.wire.client.replica_fetch import (
    FetchedPartition,
    ReplicaFetchAnswer,
    ReplicaFetchRequest,
    WireKey,
)
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import READ_COMMITTED, READ_UNCOMMITTED
from headrace.mirror.config import Tunables
from headrace.mirror.fetch import plan
from headrace.mirror.fetch.commands import AskFetch, AskSurvey, Close, Command, Now, Open, Wait
from headrace.mirror.fetch.plan import TAIL, FetchPlan
from headrace.mirror.fetch.window import Limit
from headrace.mirror.questions import Fetch, Located, Survey, Surveyed

ID = UUID(int=5)
SESSION = 77
MIB = 1024 * 1024


@dataclass
class Copy:
    """A copier that takes whatever comes, and remembers what it was told."""

    offset: int = 0
    leader_epoch: int = 1
    topic_id: UUID = ID
    is_surveyed: bool = True
    is_silent: bool = False
    awaits_metadata: bool = False
    located_at: Located | None = None
    told: list[object] = field(default_factory=list)

    def wants(self, now_ms: int) -> Survey | Fetch | None:
        if self.is_silent:
            return None
        if not self.is_surveyed:
            return Survey(
                topic_id=self.topic_id, leader_epoch=1, log_end_offset=self.offset, epoch=None, tail=None
            )
        return Fetch(topic_id=self.topic_id, leader_epoch=self.leader_epoch, offset=self.offset)

    def fetched(
        self, request: Fetch, records: memoryview, *, high_watermark: int, log_start_offset: int, now_ms: int
    ) -> None:
        self.told.append(("fetched", request, len(records)))
        self.offset += len(records)

    def unchanged(self, now_ms: int) -> None:
        self.told.append("unchanged")

    def surveyed(self, request: Survey, found: Surveyed, now_ms: int) -> None:
        self.is_surveyed = True

    def refused(self, request: Survey | Fetch, code: int, now_ms: int) -> None:
        self.told.append(("refused", request, code))
        self.is_surveyed = False

    def failed(self, reason: str, now_ms: int) -> None:
        self.told.append(("failed", reason))
        self.is_surveyed = False


class Script:
    """A plan, the clock, and answers as a source would give them: a byte of records an offset."""

    def __init__(
        self,
        *copies: Copy,
        tunables: Tunables | None = None,
        limit: int | None = None,
        isolation: int = READ_UNCOMMITTED,
    ) -> None:
        self.ms = 1_000
        self.delay_ms = 1.0
        self.copies: dict[PartitionKey, Copy] = {("t", number): copy for number, copy in enumerate(copies)}
        self.plan = FetchPlan(tunables or Tunables(), Limit(limit), isolation)
        self.plan.assign(self.copies)

    @property
    def now(self) -> Now:
        return Now(10**12 + self.ms, self.ms)

    def next(self, lane: int) -> Command:
        """What a lane does, opened first if that is what it is to do."""
        command = self.plan.next(lane, self.now)
        if isinstance(command, Open):
            self.plan.opened(lane, self.delay_ms, self.now, has_ids=True)
            command = self.plan.next(lane, self.now)
        return command

    def ask(self, lane: int) -> ReplicaFetchRequest:
        command = self.next(lane)
        assert isinstance(command, AskFetch), command
        return command.request

    def asked(self, lane: int) -> dict[int, int]:
        """Partition → offset, of the fetch that the lane sends."""
        return offsets(self.ask(lane))

    def answer(
        self,
        lane: int,
        *found: tuple[int, int, int],
        code: int = 0,
        after_ms: int = 1,
        session: int = SESSION,
        stable: int = -1,
    ) -> None:
        """(partition, bytes of records, high watermark)…, and the last stable offset of all."""
        self.ms += after_ms
        partitions = [
            (wire(number), FetchedPartition(0, end, 0, None, memoryview(bytes(size)), stable))
            for number, size, end in found
        ]
        answer = ReplicaFetchAnswer(code, session, partitions)
        self.plan.arrived(lane, sum(size for _, size, _ in found), self.now)
        for key, partition in partitions:
            self.plan.took(lane, key, partition, self.now)
        self.plan.ended(lane, answer, self.now)


def wire(number: int) -> WireKey:
    return ID.bytes, number


def offsets(request: ReplicaFetchRequest) -> dict[int, int]:
    return {number: question.offset for (_, number), question in request.asked}


def test_partitions_that_have_everything_share_a_session_that_speaks_of_what_moved() -> None:
    script = Script(*(Copy() for _ in range(3)))
    first = script.ask(TAIL)
    assert (first.session_id, first.session_epoch, offsets(first)) == (0, 0, {0: 0, 1: 0, 2: 0})
    script.answer(TAIL)
    second = script.ask(TAIL)
    assert (second.session_id, second.session_epoch, offsets(second)) == (SESSION, 1, {})
    script.answer(TAIL, (1, 10, 10))
    assert script.asked(TAIL) == {1: 10}


def test_what_lags_leaves_the_session_for_a_lane_and_comes_back() -> None:
    script = Script(Copy(), Copy())
    script.ask(TAIL)
    script.answer(TAIL, (0, 100, 5_000), (1, 10, 10))
    tail = script.ask(TAIL)
    assert (offsets(tail), list(tail.forgotten)) == ({1: 10}, [wire(0)])
    assert script.asked(1) == {0: 100}
    assert isinstance(script.next(2), Wait), "one partition, one request"
    script.answer(1, (0, 4_900, 5_000))
    stray = script.ask(1)
    assert (offsets(stray), stray.max_wait_ms) == ({0: 5_000}, plan.STRAY_WAIT_MS)
    script.answer(TAIL)
    assert script.asked(TAIL) == {0: 5_000}, "also while a lane still asks for it"
    script.answer(1)
    assert isinstance(script.next(1), Wait)


def test_what_waits_behind_an_open_transaction_does_not_lag() -> None:
    script = Script(Copy(), isolation=READ_COMMITTED)
    assert script.ask(TAIL).isolation_level == READ_COMMITTED
    script.answer(TAIL, (0, 10, 5_000), stable=10)
    assert isinstance(script.next(1), Wait), "there is nothing to bring before the transaction ends"
    assert script.asked(TAIL) == {0: 10}
    script.answer(TAIL, (0, 10, 5_000), stable=5_000)
    lagging = script.ask(1)
    assert (offsets(lagging), lagging.isolation_level) == ({0: 20}, READ_COMMITTED)
    script.answer(1, (0, 10, 5_000))
    assert script.asked(1) == {0: 30}, "a source that tells no stable offset has no transactions"


def test_lagging_partitions_have_lanes_and_turns_of_their_own() -> None:
    script = Script(*(Copy() for _ in range(5)))
    script.ask(TAIL)
    script.answer(TAIL, *((number, 1, 10**9) for number in range(5)))
    assert script.plan.lanes == 3
    first, second = script.asked(1), script.asked(2)
    assert not first.keys() & second.keys()
    assert isinstance(script.next(3), Wait)
    script.answer(1, *((number, 1, 10**9) for number in first))
    assert script.asked(1).keys() & (set(range(5)) - first.keys() - second.keys()), "the others' turn"


def test_a_long_road_brings_larger_requests_and_more_connections() -> None:
    script = Script(*(Copy() for _ in range(24)))
    script.delay_ms = 200
    script.ask(TAIL)
    script.answer(TAIL, *((number, 1, 10**9) for number in range(24)), after_ms=200)
    assert script.plan.lanes == 3
    sizes = []
    for _ in range(12):
        commands = {lane: script.next(lane) for lane in range(1, script.plan.lanes)}
        requests = {lane: found.request for lane, found in commands.items() if isinstance(found, AskFetch)}
        sizes.append(sum(request.max_bytes for request in requests.values()))
        script.ms += 200
        for lane, request in requests.items():
            got = [
                (number, min(request.partition_max_bytes, request.max_bytes // len(offsets(request))), 10**9)
                for number in offsets(request)
            ]
            script.answer(lane, *got, after_ms=0)
    assert sizes[0] < 5 * MIB
    assert sizes[-1] > 50 * MIB, "as nothing but the delay holds it up, all of the window"
    assert script.plan.lanes == 1 + plan.LANES_MAX
    assert all(size <= 64 * MIB for size in sizes)


def test_a_short_road_does_not() -> None:
    script = Script(*(Copy() for _ in range(24)))
    script.ask(TAIL)
    script.answer(TAIL, *((number, 1, 10**9) for number in range(24)))
    for _ in range(300):
        request = script.ask(1)
        script.answer(1, *((number, MIB, 10**9) for number in offsets(request)), after_ms=2)
    assert script.plan.lanes == 3
    assert script.ask(1).max_bytes <= 2 * MIB


def test_a_limit_holds_for_all_connections_and_is_shared_by_turns() -> None:
    script = Script(*(Copy() for _ in range(4)), limit=MIB)
    script.ask(TAIL)
    script.answer(TAIL, *((number, 1, 10**9) for number in range(4)))
    began_ms, got = script.ms, dict.fromkeys(range(4), 0)
    while script.ms - began_ms < 20_000:
        for lane in (1, 2):
            command = script.next(lane)
            if isinstance(command, AskFetch):
                size = command.request.partition_max_bytes
                for number in offsets(command.request):
                    got[number] += size
                found = [(number, size, 10**9) for number in offsets(command.request)]
                script.answer(lane, *found)
            else:
                assert isinstance(command, Wait)
        script.ms += 10
    assert sum(got.values()) == pytest.approx(20 * MIB, rel=0.1)
    assert max(got.values()) < 1.2 * min(got.values())


def test_surveys_go_over_a_lane_and_never_hold_the_tail() -> None:
    script = Script(Copy(is_surveyed=False), Copy())
    assert script.asked(TAIL) == {1: 0}
    command = script.next(1)
    assert isinstance(command, AskSurvey)
    assert set(command.asked) == {("t", 0)}
    found = Surveyed(log_start_offset=0, log_end_offset=50)
    assert not script.plan.surveyed(1, {("t", 0): found}, script.now)
    assert script.asked(1) == {0: 0}, "the survey said that it lags"


def test_an_answer_is_for_the_question_that_was_sent() -> None:
    script = Script(Copy())
    copy = script.copies["t", 0]
    script.ask(TAIL)
    copy.leader_epoch = 2
    copy.located_at = Located(topic_id=ID, leader=1, leader_epoch=2, is_compacted=False)
    script.plan.assign(script.copies)
    assert isinstance(script.next(1), Wait)
    script.answer(TAIL, (0, 3, 3))
    assert copy.told == [("fetched", Fetch(topic_id=ID, leader_epoch=1, offset=0), 3)]
    assert script.asked(TAIL) == {0: 3}


def test_a_refused_partition_leaves_the_session_and_a_strangers_answer_is_passed_over() -> None:
    script = Script(Copy(), Copy())
    script.ask(TAIL)
    refusal = FetchedPartition(ErrorCode.FENCED_LEADER_EPOCH, -1, -1, None, None)
    assert script.plan.took(TAIL, wire(0), refusal, script.now)
    assert not script.plan.took(TAIL, wire(9), refusal, script.now)
    script.answer(TAIL)
    request = script.ask(TAIL)
    assert (offsets(request), list(request.forgotten)) == ({}, [wire(0)])
    assert isinstance(script.next(1), AskSurvey)


def test_another_copier_of_a_partition_gets_no_answer_to_the_first_ones_question() -> None:
    script = Script(Copy())
    former = script.copies["t", 0]
    script.ask(TAIL)
    script.copies["t", 0] = Copy(offset=7)
    script.plan.assign(script.copies)
    script.answer(TAIL, (0, 3, 3))
    assert former.told == script.copies["t", 0].told == []
    assert script.asked(TAIL) == {0: 7}


def test_a_failure_is_told_to_those_it_served_and_the_tail_begins_anew() -> None:
    script = Script(Copy(), Copy(), Copy())
    script.ask(TAIL)
    script.answer(TAIL, (0, 1, 10**9))
    script.ask(TAIL)
    script.ask(1)
    script.plan.failed(TAIL, "reset", script.now)
    assert [copy.told[-1] for copy in script.copies.values()] == [
        ("fetched", Fetch(topic_id=ID, leader_epoch=1, offset=0), 1),
        ("failed", "reset"),
        ("failed", "reset"),
    ]
    script.answer(1)
    for copy in script.copies.values():
        copy.is_surveyed = True
    script.plan.assign(script.copies)
    assert isinstance(script.next(TAIL), Wait), "a pause first"
    script.ms += 200
    assert script.ask(TAIL).session_epoch == 0


def test_a_session_that_the_source_forgot_is_begun_again_and_other_errors_are_failures() -> None:
    script = Script(Copy())
    script.ask(TAIL)
    script.answer(TAIL)
    script.ask(TAIL)
    script.answer(TAIL, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session=0)
    request = script.ask(TAIL)
    assert (request.session_id, request.session_epoch, offsets(request)) == (0, 0, {0: 0})
    with pytest.raises(KafkaError):
        script.answer(TAIL, code=ErrorCode.UNKNOWN_SERVER_ERROR)


def test_a_source_without_topic_ids_is_asked_by_name() -> None:
    script = Script(replace(Copy(), topic_id=UUID(int=0)))
    request = script.ask(TAIL)
    assert [key for key, _ in request.asked] == [(b"t", 0)]


def test_copiers_that_only_time_can_help_are_looked_at_now_and_then_and_the_others_are_not() -> None:
    silent, stopped = Copy(is_silent=True), Copy(is_silent=True, awaits_metadata=True)
    script = Script(silent, stopped)
    assert script.next(TAIL) == Wait(plan.LOOK_MS_MIN)
    silent.is_silent = stopped.is_silent = False
    script.ms += plan.LOOK_MS_MIN
    assert script.asked(TAIL) == {0: 0}
    script.plan.assign(script.copies)
    script.answer(TAIL)
    assert script.asked(TAIL) == {1: 0}, "located anew"


def test_an_idle_session_says_that_nothing_changed_and_an_idle_lane_is_closed() -> None:
    script = Script(Copy())
    script.ask(TAIL)
    script.answer(TAIL, (0, 1, 10**9))
    script.ask(1)
    script.answer(1, (0, 10**9 - 1, 10**9))
    script.ask(TAIL)
    script.answer(TAIL)
    script.ask(TAIL)
    script.answer(TAIL, after_ms=plan.HEARD_MS)
    assert script.copies["t", 0].told[-1] == "unchanged"
    assert isinstance(script.next(1), Wait)
    script.ms += plan.CLOSE_AFTER_MS
    assert isinstance(script.next(1), Close)
