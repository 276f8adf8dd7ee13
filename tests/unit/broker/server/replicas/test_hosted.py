"""How a broker performs the controller's requests: leading, following, stopping, and the fences of the past."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from replica_kit import ScriptedHost

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import (
    ErrorCode,
    InvalidConfigError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.replication.control_requests import (
    LeaderAndIsr,
    StopReplica,
    ToldPartition,
    ToldStop,
    UpdateMetadata,
)
from headrace.broker.replication.model import LEADER_DURING_DELETE, RECOVERED, RECOVERING, PartitionMetadata
from headrace.broker.replication.partition import Partition
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.replicas.hosted import LOOKED_AT_ONCE, TAKEN_AT_ONCE, Partitions
from headrace.broker.tasks import Tasks
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey

TOPIC_ID = UUID(int=7)
Message = dict[str, Any]


class Clock:
    def now_ms(self) -> int:
        return 1000

    def monotonic_ms(self) -> int:
        return 1000


class Log:
    """What a partition needs of its log."""

    def __init__(self, topic_id: UUID) -> None:
        self.topic_id = topic_id
        self.config = LogConfig()
        self.is_mirror_copy = False
        self.log_end_offset = self.log_start_offset = 0
        self.high_watermark = 0
        self.awaits_sync = False
        self.lost_end: int | None = None
        self.epochs: list[tuple[int, int]] = []
        self.directory = "/disk/t-0"

    def assign_epoch(self, epoch: int) -> None:
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs.append((epoch, self.log_end_offset))

    def append_as_leader(self, records: Sized, *, leader_epoch: int, now_ms: int) -> int:
        self.log_end_offset += len(records)
        return leader_epoch

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset


class Logs:
    """A store in memory; `deleted` lists what was deleted."""

    def __init__(self) -> None:
        self.logs: dict[PartitionKey, Log] = {}
        self.deleted: list[PartitionKey] = []
        self.abandoned: list[PartitionKey] = []
        self.has_offline = False
        self.is_full = False
        self.is_misconfigured = False

    def get(self, topic: str, partition: int) -> Any:
        return self.logs.get((topic, partition))

    def create(self, topic: str, partition: int, topic_id: UUID) -> Any:
        self.logs[topic, partition] = Log(topic_id)
        return self.logs[topic, partition]

    def opening(
        self, topic: str, partition: int, topic_id: UUID, *, now_ms: int, epoch: int, is_new: bool
    ) -> Opening:
        if self.is_misconfigured:
            raise InvalidConfigError("no such value")
        if self.has_offline and not is_new and (topic, partition) not in self.logs:
            raise StorageError("it may be in a directory that failed")
        return Opening(self, (topic, partition), topic_id, epoch)

    def name_syncs(self, openings: Iterable[Opening]) -> list[Callable[[], None]]:
        return []

    def opened(self, opening: Opening) -> Log:
        if self.is_full:
            raise StorageError("no space left on device")
        return self.logs[opening.key]

    def abandon(self, openings: Iterable[Opening]) -> None:
        self.abandoned += [opening.key for opening in openings]

    def deletion(
        self, keys: Iterable[PartitionKey], *, now_ms: int
    ) -> Callable[[], dict[PartitionKey, Exception]]:
        def delete() -> dict[PartitionKey, Exception]:
            for key in keys:
                if self.logs.pop(key, None) is not None:
                    self.deleted.append(key)
            return {}

        return delete


class Opening:
    """What a thread does for a new or an existing log; `gate` holds it up."""

    gate: threading.Event | None = None

    def __init__(self, logs: Logs, key: PartitionKey, topic_id: UUID, epoch: int) -> None:
        self.logs, self.key, self.topic_id, self.epoch = logs, key, topic_id, epoch

    def run(self) -> None:
        if self.gate is not None:
            assert self.gate.wait(10), "nothing else ran meanwhile"
        log = self.logs.logs.get(self.key) or self.logs.create(*self.key, self.topic_id)
        if self.epoch >= 0:
            log.assign_epoch(self.epoch)


def state(
    partition: int = 0,
    *,
    leader: int = 1,
    epoch: int = 0,
    isr: Sequence[int] = (1,),
    replicas: Sequence[int] = (1,),
    is_new: bool = False,
    partition_epoch: int = 0,
    recovery: int = RECOVERED,
) -> Message:
    return {
        "partition_index": partition,
        "controller_epoch": 1,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": list(isr),
        "partition_epoch": partition_epoch,
        "leader_recovery_state": recovery,
        "replicas": list(replicas),
        "is_new": is_new,
    }


def leader_and_isr(
    *states: Message, controller_epoch: int = 1, broker_epoch: int = -1, topic_id: UUID = TOPIC_ID
) -> LeaderAndIsr:
    topic = {"topic_name": "t", "topic_id": topic_id, "partition_states": list(states)}
    return LeaderAndIsr.of(
        {
            "controller_id": 1,
            "controller_epoch": controller_epoch,
            "broker_epoch": broker_epoch,
            "topic_states": [topic],
        }
    )


def stop_replica(
    *, partition: int = 0, leader_epoch: int = -2, delete: bool = True, controller_epoch: int = 1
) -> StopReplica:
    return StopReplica(
        controller_id=1,
        controller_epoch=controller_epoch,
        replicas=(ToldStop("t", partition, leader_epoch, delete),),
    )


def codes(response: Message) -> list[int]:
    return [e["error_code"] for t in response["topics"] for e in t["partition_errors"]]


def held(partitions: Partitions) -> Partition:
    found = partitions.get("t", 0)
    assert found is not None
    return found


def take(partitions: Partitions, request: LeaderAndIsr) -> Message:
    return asyncio.run(partitions.leader_and_isr(request))


def stop(partitions: Partitions, request: StopReplica) -> Message:
    return asyncio.run(partitions.stop_replica(request))


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def metadata() -> MetadataCache:
    return MetadataCache()


@pytest.fixture
def partitions(logs: Logs, metadata: MetadataCache, monkeypatch: pytest.MonkeyPatch) -> Partitions:
    # These logs append by themselves.
    monkeypatch.setattr("headrace.broker.replication.partition.Appender", lambda log: log)
    return Partitions(ScriptedHost(), cast(Any, logs), metadata, Clock())


def test_the_named_leader_opens_its_log_begins_the_epoch_and_leads(
    partitions: Partitions, logs: Logs
) -> None:
    changed = []
    partitions.on_change(lambda p: changed.append((p.topic, p.partition, p.is_leader)))
    assert codes(take(partitions, leader_and_isr(state(epoch=3)))) == [ErrorCode.NONE]
    partition = partitions.leader_of("t", 0)
    assert (partition.leader_epoch, partition.isr, partition.topic_id) == (3, (1,), TOPIC_ID)
    assert logs.get("t", 0).epochs == [(3, 0)]
    assert changed == [("t", 0, True)]
    assert list(partitions.led()) == [partition]


def test_each_change_of_a_replica_is_a_line_with_its_epochs(
    partitions: Partitions, caplog: pytest.LogCaptureFixture
) -> None:
    two: Any = {"isr": (1, 2), "replicas": (1, 2)}
    with caplog.at_level(logging.INFO):
        take(partitions, leader_and_isr(state(epoch=3, partition_epoch=4, **two)))
        take(partitions, leader_and_isr(state(epoch=4, partition_epoch=6, leader=2, **two)))
        stop(partitions, stop_replica(leader_epoch=5))
    told = [line for record in caplog.records for line in getattr(record, "events", ())]
    assert [event for event, _ in told] == ["leads", "follows", "stopped"]
    assert told[0][1] == {
        "topic": "t",
        "partition": 0,
        "leader": 1,
        "leader_epoch": 3,
        "partition_epoch": 4,
        "controller_epoch": 1,
        "isr": "1,2",
        "replicas": "1,2",
        "log_end_offset": 0,
        "high_watermark": 0,
    }
    assert (told[1][1]["leader"], told[1][1]["leader_epoch"], told[1][1]["partition_epoch"]) == (2, 4, 6)
    assert told[2][1] == {"topic": "t", "partition": 0, "leader_epoch": 4, "deleted": True}


def test_a_partition_led_elsewhere_is_not_led_here(partitions: Partitions) -> None:
    take(partitions, leader_and_isr(state(leader=2, isr=(2, 1), replicas=(2, 1))))
    with pytest.raises(NotLeaderOrFollowerError):
        partitions.leader_of("t", 0)
    assert held(partitions).leader == 2


def test_an_unknown_partition_and_one_of_another_broker_are_told_apart(
    partitions: Partitions, metadata: MetadataCache
) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        partitions.leader_of("t", 0)
    shown = PartitionMetadata(leader=2, leader_epoch=0, replicas=(2,), isr=(2,), offline_replicas=())
    told = ToldPartition("t", TOPIC_ID, 0, shown)
    metadata.update(UpdateMetadata(controller_id=1, controller_epoch=1, brokers=(), partitions=(told,)))
    with pytest.raises(NotLeaderOrFollowerError):
        partitions.leader_of("t", 0)


def test_an_older_controller_is_fenced(partitions: Partitions) -> None:
    take(partitions, leader_and_isr(state(), controller_epoch=5))
    old = take(partitions, leader_and_isr(state(epoch=9), controller_epoch=4))
    assert old["error_code"] is ErrorCode.STALE_CONTROLLER_EPOCH
    assert codes(old) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert partitions.leader_of("t", 0).leader_epoch == 0
    assert (
        stop(partitions, stop_replica(controller_epoch=4))["error_code"] is ErrorCode.STALE_CONTROLLER_EPOCH
    )


def test_a_request_to_an_earlier_life_of_the_broker_is_fenced(partitions: Partitions) -> None:
    partitions.broker_epoch = 100
    response = take(partitions, leader_and_isr(state(), broker_epoch=99))
    assert response["error_code"] is ErrorCode.STALE_BROKER_EPOCH
    assert codes(response) == [ErrorCode.STALE_BROKER_EPOCH]
    assert take(partitions, leader_and_isr(state(), broker_epoch=100))["error_code"] is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [4, 5])
def test_a_leader_epoch_that_is_not_newer_changes_nothing(partitions: Partitions, epoch: int) -> None:
    take(partitions, leader_and_isr(state(epoch=5)))
    again = take(partitions, leader_and_isr(state(leader=2, epoch=epoch, replicas=(1, 2))))
    assert codes(again) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert partitions.leader_of("t", 0).leader_epoch == 5


def test_a_broker_takes_no_partition_that_is_not_assigned_to_it(partitions: Partitions, logs: Logs) -> None:
    assert codes(take(partitions, leader_and_isr(state(leader=2, replicas=(2,))))) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert logs.logs == {}


@pytest.mark.parametrize(("topic", "partition"), [("../t", 0), ("..", 0), ("", 0), ("x" * 250, 0), ("t", -1)])
def test_what_is_not_the_name_of_a_partition_has_no_log_and_leaves_the_others_alone(
    partitions: Partitions, logs: Logs, topic: str, partition: int
) -> None:
    request = leader_and_isr(state(partition), state(1))
    named = tuple(told._replace(topic=topic) for told in request.partitions[:1]) + request.partitions[1:]
    request = replace(request, partitions=named)
    assert partitions.newness(request) == {"t": True}
    assert codes(take(partitions, request)) == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    assert list(logs.logs) == [("t", 1)]


def test_another_topic_of_the_same_name_is_refused_while_the_first_is_held(partitions: Partitions) -> None:
    take(partitions, leader_and_isr(state()))
    other = take(partitions, leader_and_isr(state(epoch=1), topic_id=UUID(int=8)))
    assert codes(other) == [ErrorCode.INCONSISTENT_TOPIC_ID]


def test_a_topic_is_new_without_a_log_and_with_a_namesakes(partitions: Partitions, logs: Logs) -> None:
    request = leader_and_isr(state(0), state(1))
    assert partitions.newness(request) == {"t": True}
    logs.create("t", 0, TOPIC_ID)
    assert partitions.newness(request) == {"t": True}
    logs.create("t", 1, TOPIC_ID)
    assert partitions.newness(request) == {"t": False}
    logs.create("t", 0, UUID(int=8))
    assert partitions.newness(request) == {"t": True}


def test_the_log_of_a_deleted_topic_of_the_same_name_is_put_away(partitions: Partitions, logs: Logs) -> None:
    logs.create("t", 0, UUID(int=1))
    take(partitions, leader_and_isr(state()))
    assert logs.deleted == [("t", 0)]
    assert partitions.leader_of("t", 0).log.topic_id == TOPIC_ID


def test_a_controller_without_topic_ids_leaves_the_log_alone(partitions: Partitions, logs: Logs) -> None:
    kept = logs.create("t", 0, UUID(int=1))
    take(partitions, leader_and_isr(state(), topic_id=ZERO_UUID))
    assert partitions.leader_of("t", 0).log is kept


def test_a_stopped_replica_is_deleted_and_watchers_hear_of_it(partitions: Partitions, logs: Logs) -> None:
    take(partitions, leader_and_isr(state()))
    changed = []
    partitions.on_change(lambda p: changed.append(p.is_leader))
    response = stop(partitions, stop_replica())
    assert [e["error_code"] for e in response["partition_errors"]] == [ErrorCode.NONE]
    assert (logs.deleted, changed, partitions.get("t", 0)) == ([("t", 0)], [False], None)


def test_a_stop_without_delete_keeps_the_log(partitions: Partitions, logs: Logs) -> None:
    take(partitions, leader_and_isr(state(epoch=3)))
    stop(partitions, stop_replica(leader_epoch=3, delete=False))
    assert logs.get("t", 0) is not None
    with pytest.raises(NotLeaderOrFollowerError):
        partitions.leader_of("t", 0)


def test_a_stop_of_an_older_leader_epoch_is_fenced(partitions: Partitions) -> None:
    take(partitions, leader_and_isr(state(epoch=3)))
    response = stop(partitions, stop_replica(leader_epoch=2))
    assert [e["error_code"] for e in response["partition_errors"]] == [ErrorCode.FENCED_LEADER_EPOCH]
    assert partitions.leader_of("t", 0).leader_epoch == 3


def moved(*, epoch: int = 4, replicas: Sequence[int] = (2, 3), topic_id: UUID = TOPIC_ID) -> ToldPartition:
    """What UpdateMetadata says of the partition: brokers 2 and 3 have it."""
    metadata = PartitionMetadata(
        leader=2, leader_epoch=epoch, replicas=tuple(replicas), isr=(2,), offline_replicas=()
    )
    return ToldPartition("t", topic_id, 0, metadata)


@pytest.mark.parametrize("leader", [1, 2])
def test_what_only_others_have_since_is_neither_led_nor_read_here_and_its_log_stays(
    partitions: Partitions, metadata: MetadataCache, logs: Logs, leader: int
) -> None:
    take(partitions, leader_and_isr(state(epoch=3, leader=leader, isr=(1, 2), replicas=(1, 2))))
    changed = []
    partitions.on_change(lambda p: changed.append((p.is_leader, p.leadership)))
    metadata.update(UpdateMetadata(controller_id=2, controller_epoch=1, brokers=(), partitions=(moved(),)))
    asyncio.run(partitions.leave_what_moved_away([moved()]))
    with pytest.raises(NotLeaderOrFollowerError):
        partitions.replica("t", 0)
    assert changed == [(False, None)]
    assert (logs.get("t", 0) is not None, logs.deleted) == (True, [])
    stop(partitions, stop_replica(leader_epoch=4))
    assert logs.deleted == [("t", 0)]


def test_what_moved_away_can_come_back(partitions: Partitions, logs: Logs) -> None:
    take(partitions, leader_and_isr(state(epoch=3)))
    kept = logs.get("t", 0)
    asyncio.run(partitions.leave_what_moved_away([moved()]))
    take(partitions, leader_and_isr(state(epoch=6, leader=2, isr=(2,), replicas=(1, 2))))
    assert (held(partitions).log, held(partitions).leader) == (kept, 2)


@pytest.mark.parametrize(
    "told",
    [
        moved(epoch=3),
        moved(replicas=(2, 1)),
        moved(topic_id=UUID(int=8)),
        moved()._replace(metadata=replace(moved().metadata, leader=LEADER_DURING_DELETE)),
        moved()._replace(partition=1),
    ],
)
def test_a_word_that_is_older_or_of_another_replica_has_nobody_leave(
    partitions: Partitions, told: ToldPartition
) -> None:
    take(partitions, leader_and_isr(state(epoch=3)))
    asyncio.run(partitions.leave_what_moved_away([told]))
    assert partitions.leader_of("t", 0).leader_epoch == 3


def test_with_one_replica_everything_appended_is_below_the_high_watermark_at_once(
    partitions: Partitions,
) -> None:
    take(partitions, leader_and_isr(state(epoch=2)))
    partition = partitions.leader_of("t", 0)
    appended: Any = partition.append(memoryview(bytearray(5)), required_acks=-1, now_ms=0)
    assert appended == 2
    assert partition.high_watermark == 5


def test_with_followers_the_high_watermark_waits_for_the_slowest_in_sync_replica(
    partitions: Partitions,
) -> None:
    take(partitions, leader_and_isr(state(isr=(1, 2, 3), replicas=(1, 2, 3))))
    partition = partitions.leader_of("t", 0)
    partition.append(memoryview(bytearray(5)), required_acks=1, now_ms=0)
    assert partition.high_watermark == 0
    partition.follower_fetched(2, 5)
    assert partition.high_watermark == 0
    partition.follower_fetched(3, 4)
    assert partition.high_watermark == 4


def test_acks_all_is_refused_below_min_insync_replicas_and_acks_1_is_not(partitions: Partitions) -> None:
    take(partitions, leader_and_isr(state(replicas=(1, 2))))
    partition = partitions.leader_of("t", 0)
    partition.log.config = LogConfig(min_insync_replicas=2)
    with pytest.raises(NotEnoughReplicasError):
        partition.append(memoryview(bytearray(1)), required_acks=-1, now_ms=0)
    partition.append(memoryview(bytearray(1)), required_acks=1, now_ms=0)
    assert partition.log.log_end_offset == 1


def test_min_insync_replicas_asks_for_no_more_replicas_than_there_are(partitions: Partitions) -> None:
    take(partitions, leader_and_isr(state(replicas=(1,))))
    partition = partitions.leader_of("t", 0)
    partition.log.config = LogConfig(min_insync_replicas=2)
    partition.append(memoryview(bytearray(1)), required_acks=-1, now_ms=0)
    assert partition.log.log_end_offset == 1


def test_who_lost_the_lead_appends_no_more(partitions: Partitions) -> None:
    take(partitions, leader_and_isr(state(replicas=(1, 2))))
    partition = partitions.leader_of("t", 0)
    take(partitions, leader_and_isr(state(leader=2, epoch=1, replicas=(1, 2))))
    with pytest.raises(NotLeaderOrFollowerError):
        partition.append(memoryview(bytearray(1)), required_acks=1, now_ms=0)


def test_the_loop_goes_on_while_logs_are_opened_and_clients_are_told_to_try_again(
    partitions: Partitions, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(Opening, "gate", gate)

    async def look_meanwhile() -> None:
        for number in (0, 99):
            with pytest.raises(NotLeaderOrFollowerError):
                partitions.leader_of("t", number)
        gate.set()

    async def script() -> Message:
        request = leader_and_isr(*(state(number) for number in range(100)))
        response: Message
        response, _ = await asyncio.gather(partitions.leader_and_isr(request), look_meanwhile())
        return response

    assert codes(asyncio.run(script())) == [ErrorCode.NONE] * 100
    assert partitions.leader_of("t", 99).log is logs.get("t", 99)
    assert len(logs.abandoned) == 0


def test_what_was_in_a_failed_directory_is_out_of_reach_until_the_next_start(
    partitions: Partitions, logs: Logs
) -> None:
    take(partitions, leader_and_isr(state(0), state(1)))
    changed = []
    partitions.on_change(lambda p: changed.append((p.partition, p.is_leader)))
    logs.has_offline = True
    del logs.logs["t", 0]
    partitions.take_offline([("t", 0)])
    assert changed == [(0, False)]
    assert partitions.offline_count() == 1
    with pytest.raises(StorageError):
        partitions.leader_of("t", 0)
    assert partitions.leader_of("t", 1).is_leader
    again = take(partitions, leader_and_isr(state(0), state(1)))
    assert codes(again) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.STALE_CONTROLLER_EPOCH]
    response = stop(partitions, stop_replica())
    assert [e["error_code"] for e in response["partition_errors"]] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_with_a_failed_directory_only_new_partitions_get_new_logs(partitions: Partitions, logs: Logs) -> None:
    logs.has_offline = True
    answer = take(partitions, leader_and_isr(state(0), state(1, is_new=True)))
    assert codes(answer) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert list(logs.logs) == [("t", 1)]
    with pytest.raises(StorageError):
        partitions.leader_of("t", 0)


def test_what_a_full_disk_refused_is_taken_when_the_controller_asks_again(
    partitions: Partitions, logs: Logs
) -> None:
    logs.is_full = True
    assert codes(take(partitions, leader_and_isr(state(is_new=True)))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert partitions.refused == {("t", 0)}
    logs.is_full = False
    assert codes(take(partitions, leader_and_isr(state(epoch=1)))) == [ErrorCode.NONE]
    assert partitions.refused == set()
    assert partitions.leader_of("t", 0).is_leader


def test_an_epoch_that_a_full_disk_refused_is_taken_when_the_controller_asks_again(
    partitions: Partitions, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(epoch: int) -> None:
        raise StorageError("no space left on device")

    take(partitions, leader_and_isr(state(leader=2, epoch=1)))
    with monkeypatch.context() as full:
        full.setattr(logs.get("t", 0), "assign_epoch", refuse)
        assert codes(take(partitions, leader_and_isr(state(epoch=2)))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not held(partitions).is_leader
    assert held(partitions).leader_epoch == 1
    assert codes(take(partitions, leader_and_isr(state(epoch=2)))) == [ErrorCode.NONE]
    assert held(partitions).is_leader
    assert not partitions.refused


def test_a_refused_replica_is_not_well_because_nobody_leads_it_until_it_was_asked_for_again(
    partitions: Partitions, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(epoch: int) -> None:
        raise StorageError("no space left on device")

    take(partitions, leader_and_isr(state(leader=2, epoch=1)))
    nobody = leader_and_isr(state(leader=-1, epoch=3))
    with monkeypatch.context() as full:
        full.setattr(logs.get("t", 0), "assign_epoch", refuse)
        take(partitions, leader_and_isr(state(epoch=2)))
        assert codes(take(partitions, nobody)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert held(partitions).leader_epoch == 3
        assert codes(take(partitions, nobody)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert partitions.ask_again()
        assert codes(take(partitions, nobody)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
        assert codes(take(partitions, leader_and_isr(state(epoch=4)))) == [ErrorCode.KAFKA_STORAGE_ERROR]
        nobody_again = leader_and_isr(state(leader=-1, epoch=5))
        assert codes(take(partitions, nobody_again)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert partitions.ask_again()
    assert codes(take(partitions, nobody_again)) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert codes(take(partitions, leader_and_isr(state(epoch=6)))) == [ErrorCode.NONE]
    assert not partitions.ask_again()


def test_one_partition_that_cannot_be_opened_leaves_the_others_alone(
    partitions: Partitions, logs: Logs
) -> None:
    take(partitions, leader_and_isr(state(0)))
    logs.is_misconfigured = True
    answer = take(partitions, leader_and_isr(state(0, epoch=1), state(1)))
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
    assert partitions.is_settled("t", 1)
    logs.is_misconfigured = False
    assert codes(take(partitions, leader_and_isr(state(1)))) == [ErrorCode.NONE]
    assert partitions.refused == set()


def handing_over(partitions: Partitions, metadata: MetadataCache) -> None:
    """Broker 1 leads the partition, 2 is in sync, and the disk of 1 has no room."""
    known(metadata, leader=1)
    take(partitions, leader_and_isr(state(epoch=1, isr=(1, 2), replicas=(1, 2))))
    assert partitions.hand_over(["/elsewhere"]) == 0
    assert partitions.hand_over(["/disk"]) == 1


def known(metadata: MetadataCache, *, leader: int) -> None:
    shown = PartitionMetadata(leader=leader, leader_epoch=1, replicas=(1, 2), isr=(1, 2), offline_replicas=())
    told = ToldPartition("t", TOPIC_ID, 0, shown)
    metadata.update(UpdateMetadata(controller_id=1, controller_epoch=1, brokers=(), partitions=(told,)))


def test_what_is_led_on_a_full_disk_is_led_on_until_another_leads_it_and_followed_once_there_is_room(
    partitions: Partitions, metadata: MetadataCache, caplog: pytest.LogCaptureFixture
) -> None:
    handing_over(partitions, metadata)
    as_before = leader_and_isr(state(epoch=1, isr=(1, 2), replicas=(1, 2)))
    assert codes(take(partitions, as_before)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert partitions.leader_of("t", 0).is_leader, "for its readers"
    known(metadata, leader=2)
    others = leader_and_isr(state(leader=2, epoch=2, isr=(2,), replicas=(1, 2)))
    with caplog.at_level(logging.INFO):
        assert codes(take(partitions, others)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    told = [line for record in caplog.records for line in getattr(record, "events", ())]
    facts = {"topic": "t", "partition": 0, "leader_epoch": 2, "leader": 2}
    assert told[-1] == ("handed over", facts)
    assert (held(partitions).is_leader, held(partitions).leader) == (False, -1)
    assert partitions.handed_over_in() == {"/disk"}
    assert not partitions.ask_again(["/disk"])
    assert codes(take(partitions, others)) == [ErrorCode.KAFKA_STORAGE_ERROR], "it has no room yet"
    assert partitions.ask_again(["/elsewhere"])
    assert codes(take(partitions, others)) == [ErrorCode.NONE]
    assert (held(partitions).leader, partitions.refused, partitions.handed_over_in()) == (2, set(), set())


def test_what_nobody_else_can_lead_is_not_handed_over(partitions: Partitions, logs: Logs) -> None:
    take(partitions, leader_and_isr(state(epoch=1, isr=(1,), replicas=(1, 2))))
    assert partitions.hand_over(["/disk"]) == 0
    take(partitions, leader_and_isr(state(epoch=2, isr=(1, 2), replicas=(1, 2))))
    logs.get("t", 0).config = LogConfig(min_insync_replicas=2)
    assert partitions.hand_over(["/disk"]) == 0, "the other one alone would take no more writes than this"


def test_who_is_the_last_in_sync_keeps_what_it_wanted_to_hand_over(
    partitions: Partitions, metadata: MetadataCache
) -> None:
    handing_over(partitions, metadata)
    alone = leader_and_isr(state(epoch=2, isr=(1,), replicas=(1, 2)))
    assert codes(take(partitions, alone)) == [ErrorCode.NONE]
    assert partitions.leader_of("t", 0).leader_epoch == 2
    again = leader_and_isr(state(epoch=3, isr=(1, 2), replicas=(1, 2)))
    assert codes(take(partitions, again)) == [ErrorCode.NONE], "it is said once"


def test_a_disk_that_has_room_again_before_the_controller_asked_leads_on(
    partitions: Partitions, metadata: MetadataCache
) -> None:
    handing_over(partitions, metadata)
    assert partitions.hand_over(()) == 0
    again = leader_and_isr(state(epoch=2, isr=(1, 2), replicas=(1, 2)))
    assert codes(take(partitions, again)) == [ErrorCode.NONE]


def test_what_was_handed_over_and_nobody_leads_is_asked_for_without_room(
    partitions: Partitions, metadata: MetadataCache
) -> None:
    handing_over(partitions, metadata)
    nobody = leader_and_isr(state(leader=-1, epoch=2, isr=(1, 2), replicas=(1, 2)))
    assert codes(take(partitions, nobody)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    known(metadata, leader=-1)
    assert partitions.ask_again(["/disk"])
    assert codes(take(partitions, leader_and_isr(state(epoch=3, isr=(1,), replicas=(1, 2))))) == [
        ErrorCode.NONE
    ]
    assert partitions.leader_of("t", 0).is_leader


def with_lost_tail(logs: Logs) -> Log:
    """A log that holds 5 of the 9 offsets that were committed."""
    log: Log = logs.create("t", 0, TOPIC_ID)
    log.log_end_offset = log.high_watermark = 5
    log.lost_end = 9
    return log


def test_a_log_that_lost_what_was_committed_is_not_led_from_before_it_has_followed(
    partitions: Partitions, logs: Logs
) -> None:
    log = with_lost_tail(logs)
    for epoch, leader in enumerate((1, 1, -1)):
        partitions.ask_again()
        word = leader_and_isr(state(epoch=epoch, leader=leader, isr=(1,), replicas=(1, 2)))
        assert codes(take(partitions, word)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert (partitions.leaderships_refused, log.epochs) == (1, [])
    assert partitions.get("t", 0) is None
    stop(partitions, stop_replica(delete=False))
    assert partitions.refused == {("t", 0)}, "the controller has to be asked for it again"
    take(partitions, leader_and_isr(state(leader=2, epoch=2, isr=(2,), replicas=(1, 2))))
    assert partitions.refused == set()
    log.log_end_offset = 12
    held(partitions).leader_said(12, 0)
    assert codes(take(partitions, leader_and_isr(state(epoch=3, replicas=(1, 2))))) == [ErrorCode.NONE]
    assert partitions.leader_of("t", 0).leader_epoch == 3


@pytest.mark.parametrize(
    "word",
    [state(epoch=1), state(epoch=1, isr=(1,), replicas=(1, 2), recovery=RECOVERING)],
    ids=["the only replica", "an unclean election"],
)
def test_a_lost_tail_is_led_without_where_nobody_else_has_it(
    partitions: Partitions, logs: Logs, word: Message
) -> None:
    log = with_lost_tail(logs)
    assert codes(take(partitions, leader_and_isr(word))) == [ErrorCode.NONE]
    assert (partitions.leader_of("t", 0).log.high_watermark, log.lost_end) == (5, None)


def test_followers_know_whom_to_follow_and_when_nobody(partitions: Partitions) -> None:
    told = []
    partitions.on_change(lambda p: told.append((p.is_leader, p.leader, p.leader_epoch)))
    take(partitions, leader_and_isr(state(leader=2, epoch=3, isr=(2,), replicas=(1, 2))))
    stop(partitions, stop_replica(leader_epoch=3, delete=False))
    assert told == [(False, 2, 3), (False, -1, 3)]


def test_a_state_that_the_controller_has_answered_beyond_is_passed_over(partitions: Partitions) -> None:
    """As where the ISR changed while an election of before was on its way."""
    take(partitions, leader_and_isr(state(epoch=3, isr=(1,), replicas=(1, 2), partition_epoch=7)))
    older = leader_and_isr(state(leader=2, epoch=4, isr=(2,), replicas=(1, 2), partition_epoch=6))
    assert codes(take(partitions, older)) == [ErrorCode.NONE]
    assert partitions.leader_of("t", 0).leader_epoch == 3
    newer = leader_and_isr(state(leader=2, epoch=4, isr=(2,), replicas=(1, 2), partition_epoch=7))
    take(partitions, newer)
    assert held(partitions).leader == 2


@pytest.mark.parametrize(("isr", "code"), [((1,), ErrorCode.NONE), ((1, 2), ErrorCode.KAFKA_STORAGE_ERROR)])
def test_where_unclean_elections_are_allowed_the_last_in_sync_leads_what_it_has(
    partitions: Partitions, logs: Logs, isr: tuple[int, ...], code: ErrorCode
) -> None:
    with_lost_tail(logs).config = LogConfig(unclean_leader_election_enable=True)
    word = leader_and_isr(state(epoch=1, isr=isr, replicas=(1, 2)))
    assert codes(take(partitions, word)) == [code]


def test_others_have_their_turn_while_it_is_looked_who_lags(
    partitions: Partitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    seen: list[int] = []
    monkeypatch.setattr(Partition, "check_lag", lambda self: seen.append(turns))

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def look() -> None:
        tasks = Tasks()
        tasks.start("others", others())
        await partitions.check_lag()
        await tasks.stop()

    take(partitions, leader_and_isr(*(state(number) for number in range(2 * LOOKED_AT_ONCE + 1))))
    asyncio.run(look())
    assert (len(seen), len(set(seen))) == (2 * LOOKED_AT_ONCE + 1, 3)


def test_others_have_their_turn_while_many_partitions_are_taken(partitions: Partitions) -> None:
    request = leader_and_isr(*(state(partition=p) for p in range(4 * TAKEN_AT_ONCE)))
    seen: set[int] = set()

    async def script() -> Message:
        async def look() -> None:
            while True:
                seen.add(len(list(partitions.all())))
                await asyncio.sleep(0)

        tasks = Tasks()
        tasks.start("look", look())
        response = await partitions.leader_and_isr(request)
        await tasks.stop()
        return response

    assert codes(asyncio.run(script())) == [ErrorCode.NONE] * (4 * TAKEN_AT_ONCE)
    assert {TAKEN_AT_ONCE, 2 * TAKEN_AT_ONCE, 3 * TAKEN_AT_ONCE} <= seen
