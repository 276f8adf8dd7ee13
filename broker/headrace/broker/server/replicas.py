"""The partitions that live on this broker: performs the controller's LeaderAndIsr and StopReplica requests.

Invariants: a request of an older controller epoch, of an older broker epoch or with an older leader epoch
changes nothing; a partition's leader epoch never goes back; everyone who watches (`on_change`) is told
after the change. Must not know ZooKeeper: the only source is the controller's requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.clock import Clock
from headrace.broker.errors import (
    ErrorCode,
    KafkaError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.replication.leader import Partition
from headrace.broker.replication.model import ZERO_UUID, PartitionState
from headrace.broker.server.metadata import MetadataCache, partition_states
from headrace.broker.structured_log import get_logger

if TYPE_CHECKING:
    from headrace.broker.log.store import LogStore

log = get_logger(__name__)
PartitionCallback = Callable[[Partition], None]
EPOCH_DURING_DELETE = -2
NO_EPOCH = -1


class Partitions:
    """All replicas of this broker by (topic, partition)."""

    def __init__(self, broker_id: int, logs: LogStore, metadata: MetadataCache, clock: Clock) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self.controller_epoch = 0
        self.broker_epoch = -1
        self._metadata = metadata
        self._clock = clock
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._callbacks: list[PartitionCallback] = []

    def leader_of(self, topic: str, partition: int) -> Partition:
        """The partition when this broker leads it.

        Raises NotLeaderOrFollowerError (the cluster has it, this broker does not lead it) or
        UnknownTopicOrPartitionError (this broker does not know it).
        """
        found = self._partitions.get((topic, partition))
        if found is not None and found.is_leader:
            return found
        if found is not None or self._metadata.partition(topic, partition) is not None:
            raise NotLeaderOrFollowerError(f"this broker does not lead {topic}-{partition}")
        raise UnknownTopicOrPartitionError(f"this broker does not know {topic}-{partition}")

    def get(self, topic: str, partition: int) -> Partition | None:
        """The replica, whoever leads it, or None."""
        return self._partitions.get((topic, partition))

    def all(self) -> Iterable[Partition]:
        """Every replica, led or not."""
        return list(self._partitions.values())

    def led(self) -> Iterable[Partition]:
        """The partitions that this broker leads now."""
        return [p for p in self._partitions.values() if p.is_leader]

    def on_change(self, callback: PartitionCallback) -> None:
        """Call `callback(partition)` after it became led (`is_leader`), stopped being led, or was deleted."""
        self._callbacks.append(callback)

    def leader_and_isr(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Perform a LeaderAndIsr request; answers the response message."""
        error = self.fenced(request)
        if error is not ErrorCode.NONE:
            return {"error_code": error}
        self.controller_epoch = request["controller_epoch"]
        topics: dict[str, tuple[UUID, list[dict[str, Any]]]] = {}
        for topic, topic_id, state in partition_states(request):
            code = self._take(topic, topic_id, state)
            answer = {"topic_name": topic, "partition_index": state["partition_index"], "error_code": code}
            topics.setdefault(topic, (topic_id, []))[1].append(answer)
        return {
            "error_code": ErrorCode.NONE,
            "partition_errors": [answer for _, answers in topics.values() for answer in answers],
            "topics": [{"topic_id": id_, "partition_errors": answers} for id_, answers in topics.values()],
        }

    def stop_replica(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Perform a StopReplica request; answers the response message."""
        error = self.fenced(request)
        if error is not ErrorCode.NONE:
            return {"error_code": error}
        self.controller_epoch = request["controller_epoch"]
        return {
            "error_code": ErrorCode.NONE,
            "partition_errors": [
                {
                    "topic_name": topic,
                    "partition_index": partition,
                    "error_code": self._stop(topic, partition, leader_epoch, delete=delete),
                }
                for topic, partition, leader_epoch, delete in _stopping(request)
            ],
        }

    def fenced(self, request: Mapping[str, Any]) -> ErrorCode:
        """STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH for a request of the past, else NONE."""
        if request["controller_epoch"] < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if NO_EPOCH != request.get("broker_epoch", NO_EPOCH) < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.NONE

    def _take(self, topic: str, topic_id: UUID, state: Mapping[str, Any]) -> ErrorCode:
        """One partition of a LeaderAndIsr request."""
        number = state["partition_index"]
        if self.broker_id not in state["replicas"]:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = self._partitions.get((topic, number))
        if found is not None and ZERO_UUID not in (topic_id, found.topic_id) and found.topic_id != topic_id:
            log.error("topic id differs from the log's", topic=topic, partition=number, told=topic_id)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if found is not None and state["leader_epoch"] <= found.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        try:
            partition = found or self._open(topic, number, topic_id)
            partition.follow(_state_of(state), tuple(state["replicas"]))
        except KafkaError as error:
            log.error("cannot take a partition", topic=topic, partition=number, reason=error)
            return error.code
        self._tell(partition)
        return ErrorCode.NONE

    def _open(self, topic: str, number: int, topic_id: UUID) -> Partition:
        own_log = self.logs.get(topic, number)
        if (
            own_log is not None
            and own_log.topic_id not in (None, ZERO_UUID, topic_id)
            and topic_id != ZERO_UUID
        ):
            log.warning("log of a deleted topic of the same name is put away", topic=topic, partition=number)
            self.logs.delete(topic, number, now_ms=self._clock.now_ms())
            own_log = None
        if own_log is None:
            known_id = None if topic_id == ZERO_UUID else topic_id
            own_log = self.logs.create(topic, number, known_id, now_ms=self._clock.now_ms())
        partition = Partition(self.broker_id, topic, number, topic_id, own_log)
        self._partitions[topic, number] = partition
        return partition

    def _stop(self, topic: str, number: int, leader_epoch: int, *, delete: bool) -> ErrorCode:
        """One partition of a StopReplica request; `leader_epoch` below 0 is no fence."""
        partition = self._partitions.get((topic, number))
        if partition is not None and 0 <= leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        try:
            if delete:
                self._partitions.pop((topic, number), None)
                if self.logs.get(topic, number) is not None:
                    self.logs.delete(topic, number, now_ms=self._clock.now_ms())
        except KafkaError as error:
            log.error("cannot delete a log", topic=topic, partition=number, reason=error)
            return error.code
        if partition is not None:
            partition.is_leader = False
            self._tell(partition)
        return ErrorCode.NONE

    def _tell(self, partition: Partition) -> None:
        for callback in self._callbacks:
            callback(partition)


def _state_of(state: Mapping[str, Any]) -> PartitionState:
    return PartitionState(
        leader=state["leader"],
        leader_epoch=state["leader_epoch"],
        isr=tuple(state["isr"]),
        controller_epoch=state["controller_epoch"],
        zk_version=state["partition_epoch"],
    )


def _stopping(request: Mapping[str, Any]) -> Iterator[tuple[str, int, int, bool]]:
    """(topic, partition, leader epoch, delete) of a StopReplica request of any version."""
    for topic in request.get("topic_states") or ():
        for state in topic["partition_states"]:
            leader_epoch = state["leader_epoch"]
            yield topic["topic_name"], state["partition_index"], leader_epoch, state["delete_partition"]
    delete = bool(request.get("delete_partitions"))
    for topic in request.get("topics") or ():
        for partition in topic["partition_indexes"]:
            yield topic["name"], partition, NO_EPOCH, delete
    for partition in request.get("ungrouped_partitions") or ():
        yield partition["topic_name"], partition["partition_index"], NO_EPOCH, delete
