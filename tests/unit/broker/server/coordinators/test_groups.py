"""The coordinator's shell over a real log: answers wait for the high watermark, shards load and unload, timers fire."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from replica_kit import ScriptedHost, told
from timed_loop import Loop

from headrace.broker.config.sections import Groups
from headrace.broker.config.topics import LogConfig
from headrace.broker.coordinators import loader, runtime
from headrace.broker.coordinators.records import Record
from headrace.broker.coordinators.topics import OFFSETS_TOPIC
from headrace.broker.errors import ErrorCode, StorageError
from headrace.broker.groups.events import (
    CommitOffsets,
    DescribeGroup,
    FetchAnswer,
    FetchOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    Request,
    SyncAnswer,
    SyncGroup,
)
from headrace.broker.groups.records import OffsetValue, encode_offset_key, encode_offset_value
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.log.files import OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.replication.partition import Partition
from headrace.broker.server.coordinators.groups import GroupCoordinator
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting
from headrace.broker.wire import batches
from headrace.broker.wire.partitions import TopicPartition

T0 = TopicPartition("t", 0)


class Replicas:
    """The partitions of this broker, with the one callback that the coordinator registers."""

    def __init__(self) -> None:
        self.all: list[Partition] = []
        self.changed: Callable[[Partition], None] = lambda _: None

    def led(self) -> list[Partition]:
        return [partition for partition in self.all if partition.is_leader]

    def on_change(self, callback: Any) -> None:
        self.changed = callback


class Topics:
    """A metadata cache of topics; one partition of the offsets topic holds every group."""

    def __init__(self) -> None:
        self.names = [OFFSETS_TOPIC, "t"]
        self.changed: Callable[[], None] = lambda: None

    def topics(self, name: str) -> Mapping[int, Any]:
        return {0: None}

    def topic_names(self) -> list[str]:
        return self.names

    def on_change(self, callback: Any) -> None:
        self.changed = callback


class Broker:
    """A coordinator with one partition, led by broker 1; with `followers` its high watermark waits for broker 2."""

    def __init__(self, directory: Path, *, followers: bool = False) -> None:
        self.loop, self.replicas, self.topics = Loop(), Replicas(), Topics()
        self.followers = followers
        path = str(directory / f"{OFFSETS_TOPIC}-0")
        log, _ = PartitionLog.open(OsFiles(), path, LogConfig(cleanup_policy=("compact",)), now_ms=0)
        self.partition = Partition(ScriptedHost(), OFFSETS_TOPIC, 0, UUID(int=1), log)
        self.replicas.all.append(self.partition)
        self.waiting = Waiting(self.loop)
        self.coordinator = GroupCoordinator(
            Groups(group_initial_rebalance_delay_ms=0),
            clock=self.loop,
            partitions=self.replicas,
            metadata=self.topics,
            waiting=self.waiting,
            scheduler=self.loop,
            refused_writes=RefusedWrites(),
        )
        self.topics.changed()

    def lead(self, epoch: int, leader: int = 1) -> None:
        isr = (1, 2) if self.followers else (1,)
        self.partition.follow(told(leader, epoch, isr))
        self.replicas.changed(self.partition)

    def lead_anew(self, epoch: int) -> None:
        """Another broker leads for a time."""
        self.lead(epoch - 1, leader=2)
        self.lead(epoch)

    def replicate(self) -> None:
        self.partition.follower_fetched(2, self.partition.log.log_end_offset)
        self.waiting.wake(OFFSETS_TOPIC, 0)
        self.loop.run()

    def ask(self, request: Request[Any]) -> list[Any]:
        """A list that holds the answer once there is one."""
        answers: list[Any] = []
        self.coordinator.ask(request).then(answers.append)
        return answers


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = Broker(tmp_path)
    broker.lead(0)
    broker.loop.run()
    return broker


@pytest.fixture
def replicated(tmp_path: Path) -> Broker:
    broker = Broker(tmp_path, followers=True)
    broker.lead(0)
    broker.loop.run()
    return broker


def commit(offset: int, group_id: str = "g") -> CommitOffsets:
    return CommitOffsets(
        group_id=group_id, member_id="", generation=-1, offsets={T0: OffsetValue(offset=offset)}
    )


def fetch(group_id: str = "g") -> FetchOffsets:
    return FetchOffsets(group_id=group_id, partitions=(T0,))


def fetched(answers: list[FetchAnswer]) -> int:
    return answers[0].offsets[T0].offset


def join(**overrides: Any) -> JoinGroup:
    values: dict[str, Any] = {
        "group_id": "g",
        "member_id": "",
        "fresh_id": "1",
        "client_id": "c",
        "client_host": "/h",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", b""),),
    }
    return JoinGroup(**(values | overrides))


def test_a_commit_is_in_the_log_and_in_memory_before_its_answer(broker: Broker) -> None:
    assert broker.ask(commit(5)) == [{T0: ErrorCode.NONE}]
    assert broker.partition.log.log_end_offset == 1
    assert fetched(broker.ask(fetch())) == 5


def test_answers_wait_for_the_high_watermark_reads_included(replicated: Broker) -> None:
    committed, read = replicated.ask(commit(5)), replicated.ask(fetch())
    assert committed == read == []
    replicated.replicate()
    assert committed == [{T0: ErrorCode.NONE}]
    assert fetched(read) == 5
    assert fetched(replicated.ask(fetch())) == 5, "nothing is waiting any more: answered at once"


def test_an_answer_that_is_not_replicated_in_time_tells_the_client_to_ask_again(replicated: Broker) -> None:
    committed = replicated.ask(commit(5))
    replicated.loop.run(4_999)
    assert committed == []
    replicated.loop.run(1)
    assert committed == [{T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]


def test_a_log_that_refuses_answers_with_the_groups_own_error(replicated: Broker) -> None:
    replicated.partition.log.update_config(LogConfig(min_insync_replicas=2))
    replicated.partition.follow(told(epoch=1, replicas=(1, 2)))
    assert replicated.ask(commit(5)) == [{T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]
    assert replicated.partition.log.log_end_offset == 0


def test_groups_that_live_elsewhere_are_refused_in_the_requests_own_form(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    assert broker.ask(commit(1)) == [{T0: ErrorCode.NOT_COORDINATOR}]
    assert broker.ask(fetch())[0].error is ErrorCode.NOT_COORDINATOR
    assert broker.ask(join())[0].error is ErrorCode.NOT_COORDINATOR
    assert broker.ask(LeaveGroup(group_id="g", members=()))[0].error is ErrorCode.NOT_COORDINATOR


def test_a_group_id_must_be_there_where_members_meet_and_must_fit_a_record(broker: Broker) -> None:
    assert broker.ask(join(group_id=""))[0].error is ErrorCode.INVALID_GROUP_ID
    assert broker.ask(join(group_id="x" * 32_001))[0].error is ErrorCode.INVALID_GROUP_ID
    assert broker.ask(commit(1, group_id="")) == [{T0: ErrorCode.NONE}]


def many_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A coordinator that leads, with so many commits that they are loaded in several slices."""
    monkeypatch.setattr(loader, "SLICE_SIZE", 200)
    broker = Broker(tmp_path)
    broker.lead(0)
    broker.loop.run()
    for offset in range(50):
        broker.ask(commit(offset))
    return broker


def test_a_new_leader_loads_in_slices_and_says_so_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = many_slices(tmp_path, monkeypatch)
    broker.lead_anew(2)
    broker.loop.step()
    assert broker.ask(fetch())[0].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    beat = Heartbeat(group_id="g", generation=1, member_id="m")
    assert broker.ask(beat) == [ErrorCode.NONE], "no member loses its session for a coordinator that moves"
    sync = SyncGroup(group_id="g", generation=1, member_id="m")
    assert broker.ask(sync)[0].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert broker.coordinator.overviews() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    broker.loop.run()
    assert fetched(broker.ask(fetch())) == 49
    error, overviews = broker.coordinator.overviews()
    assert (error, [each.group_id for each in overviews]) == (ErrorCode.NONE, ["g"])


def test_a_leader_that_goes_on_in_a_new_epoch_keeps_its_groups_and_what_they_wait_for(
    replicated: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, joined = replicated.ask(commit(5, "other")), replicated.ask(join())
    replicated.replicate()
    assert committed == [{T0: ErrorCode.NONE}]
    second = replicated.ask(commit(6, "other"))

    def fail(self: PartitionLog, offset: int, **limits: Any) -> Any:
        raise AssertionError("nothing is loaded again")

    monkeypatch.setattr(PartitionLog, "read", fail)
    replicated.lead(1)
    assert second == [], "it is committed in the new epoch, too, once others have it"
    replicated.replicate()
    assert second == [{T0: ErrorCode.NONE}]
    assert fetched(replicated.ask(fetch("other"))) == 6
    (joined_in,) = joined
    beat = Heartbeat(group_id="g", generation=1, member_id=joined_in.member_id)
    assert replicated.ask(beat) == [ErrorCode.NONE]


def test_loading_goes_on_in_a_new_epoch_of_the_same_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = many_slices(tmp_path, monkeypatch)
    reading = PartitionLog.read
    reads: list[int] = []

    def read(self: PartitionLog, offset: int, **limits: Any) -> Any:
        reads.append(offset)
        return reading(self, offset, **limits)

    monkeypatch.setattr(PartitionLog, "read", read)
    broker.lead_anew(2)
    broker.loop.step()
    broker.lead(3)
    assert broker.ask(fetch())[0].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    broker.loop.run()
    assert fetched(broker.ask(fetch())) == 49
    assert len(reads) == len(set(reads)) > 1, "what was read is not read again"


def test_loading_goes_on_when_the_disk_answers_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = many_slices(tmp_path, monkeypatch)
    reading = PartitionLog.read
    reads_at_ms: list[int] = []

    def fail(self: PartitionLog, offset: int, **limits: Any) -> Any:
        reads_at_ms.append(broker.loop.ms)
        if len(reads_at_ms) in (3, 4):
            raise StorageError("the disk does not answer")
        return reading(self, offset, **limits)

    monkeypatch.setattr(PartitionLog, "read", fail)
    broker.lead_anew(2)
    began_ms = broker.loop.ms
    broker.loop.run(2_999)
    assert broker.ask(fetch())[0].error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [at - began_ms for at in reads_at_ms] == [0, 0, 0, 1_000], "each pause is twice the one before"
    broker.loop.run(1)
    assert fetched(broker.ask(fetch())) == 49
    assert broker.ask(commit(50)) == [{T0: ErrorCode.NONE}]


def test_nothing_is_loaded_again_for_a_leadership_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)
    broker.lead(0)
    broker.loop.run()
    broker.ask(commit(7))
    reads: list[int] = []

    def fail(self: PartitionLog, offset: int, **limits: Any) -> Any:
        reads.append(offset)
        raise StorageError("the disk does not answer")

    monkeypatch.setattr(PartitionLog, "read", fail)
    broker.lead_anew(2)
    broker.loop.run()
    broker.lead(3, leader=2)
    broker.loop.run(600_000)
    assert reads == [0]


def test_lost_leadership_answers_what_is_parked_and_forgets_the_groups(replicated: Broker) -> None:
    joined, committed = replicated.ask(join()), replicated.ask(commit(1, "other"))
    replicated.lead(1, leader=2)
    assert joined[0].error is ErrorCode.NOT_COORDINATOR
    assert committed == [{T0: ErrorCode.NOT_COORDINATOR}]
    assert replicated.ask(fetch())[0].error is ErrorCode.NOT_COORDINATOR
    replicated.loop.run(600_001)


def test_sessions_expire_by_the_loops_clock(broker: Broker) -> None:
    joined: list[JoinAnswer] = broker.ask(join())
    broker.loop.run()
    member_id = joined[0].member_id
    synced: list[SyncAnswer] = broker.ask(SyncGroup(group_id="g", generation=1, member_id=member_id))
    assert synced[0].error is ErrorCode.NONE
    beat = Heartbeat(group_id="g", generation=1, member_id=member_id)
    for _ in range(5):
        broker.loop.run(9_000)
        assert broker.ask(beat) == [ErrorCode.NONE]
    broker.loop.run(10_000)
    assert broker.ask(beat) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert broker.ask(DescribeGroup(group_id="g"))[0].state == "Empty"


def test_others_have_turns_while_a_large_group_times_out(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "TIMERS_SLICE_COUNT", 4)
    for number in range(41):
        broker.ask(join(fresh_id=str(number)))
    # They form a generation, for which nobody syncs.
    broker.loop.run()

    def members() -> int:
        return len(broker.ask(DescribeGroup(group_id="g"))[0].members)

    counts = []
    broker.loop.ms += 10_000
    while members():
        counts.append(members())
        broker.loop.step()
    assert counts[0] == 41
    assert max(before - after for before, after in itertools.pairwise(counts)) <= 4


def test_a_client_that_went_away_is_not_answered(broker: Broker) -> None:
    deferred: Deferred[JoinAnswer] = broker.coordinator.ask(join())
    deferred.cancel()
    broker.loop.run()
    assert broker.ask(DescribeGroup(group_id="g"))[0].state == "CompletingRebalance"


def test_offsets_expire_and_leave_tombstones_in_bounded_batches(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "TOMBSTONES_BATCH_COUNT_MAX", 2)
    offsets = {TopicPartition("t", p): OffsetValue(offset=1, commit_timestamp_ms=0) for p in range(5)}
    broker.ask(CommitOffsets(group_id="g", member_id="", generation=-1, offsets=offsets))
    broker.loop.run(600_000)
    assert fetched(broker.ask(fetch())) == -1
    log = broker.partition.log
    data = log.read(0, size_max=1 << 20, upper_offset=log.log_end_offset).read()
    assert [header.record_count for _, header in batches.iter_batches(data)] == [5, 2, 2, 1]
    broker.lead_anew(2)
    broker.loop.run()
    assert broker.coordinator.overviews() == (ErrorCode.NONE, [])


def test_offsets_of_a_deleted_topic_go_with_it(broker: Broker) -> None:
    broker.ask(commit(5))
    broker.topics.names = [OFFSETS_TOPIC]
    broker.topics.changed()
    assert fetched(broker.ask(fetch())) == -1


def append(broker: Broker, value: OffsetValue | None, **attributes: Any) -> None:
    record = Record(encode_offset_key("g", "t", 0), None if value is None else encode_offset_value(value))
    batch = batches.encode_batch([batches.Record(0, 0, record.key, record.value, [])], **attributes)
    broker.partition.append(memoryview(batch), required_acks=-1, now_ms=0)


def test_offsets_of_a_transaction_count_from_its_commit_marker_on(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.lead(0)
    append(broker, OffsetValue(offset=1))
    for offset, marker in ((2, b"\x00\x00\x00\x01"), (3, b"\x00\x00\x00\x00")):
        sequence = offset - 2
        append(
            broker,
            OffsetValue(offset=offset),
            transactional=True,
            producer_id=9,
            producer_epoch=0,
            base_sequence=sequence,
        )
        control = [batches.Record(0, 0, marker, b"\x00\x00\x00\x00\x00\x00", [])]
        batch = batches.encode_batch(
            control, transactional=True, control=True, producer_id=9, producer_epoch=0
        )
        batches.set_base_offset_and_epoch(batch, 0, broker.partition.log.log_end_offset, 0)
        broker.partition.appender.append_as_follower(memoryview(batch), now_ms=0)
        broker.partition.appended()
    broker.loop.run()
    assert fetched(broker.ask(fetch())) == 2


def test_a_record_that_cannot_be_read_does_not_take_the_coordinator_down(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.lead(0)
    batch = batches.encode_batch([batches.Record(0, 0, b"\x00\x01\x00", b"?", [])])
    broker.partition.append(memoryview(batch), required_acks=-1, now_ms=0)
    append(broker, OffsetValue(offset=4))
    broker.loop.run()
    assert fetched(broker.ask(fetch())) == 4


@pytest.mark.parametrize("rotten_at", [8, 16, 17], ids=["size", "magic", "checksum"])
def test_rot_hides_what_its_segment_says_and_takes_no_coordinator_down(
    tmp_path: Path, rotten_at: int
) -> None:
    broker = Broker(tmp_path)
    log = broker.partition.log
    broker.lead(0)
    broker.loop.run()
    broker.ask(commit(1, "read"))
    start = log.size
    broker.ask(commit(2, "read"))
    broker.ask(commit(3, "hidden"))
    log.update_config(LogConfig(cleanup_policy=("compact",), segment_bytes=log.size))
    broker.ask(commit(4, "behind"))
    path = tmp_path / f"{OFFSETS_TOPIC}-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[start + rotten_at] ^= 0x40
    path.write_bytes(data)
    broker.lead_anew(2)
    broker.loop.run()
    assert fetched(broker.ask(fetch("read"))) == 1
    assert fetched(broker.ask(fetch("hidden"))) == (3 if rotten_at == 17 else -1)
    assert fetched(broker.ask(fetch("behind"))) == 4


def test_a_closed_coordinator_answers_everything(replicated: Broker) -> None:
    parked = replicated.ask(join())
    replicated.coordinator.close()
    assert parked[0].error is ErrorCode.NOT_COORDINATOR
    assert replicated.ask(fetch())[0].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
