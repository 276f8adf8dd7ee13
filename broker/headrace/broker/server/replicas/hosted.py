"""The partitions that live on this broker: performs the controller's LeaderAndIsr and StopReplica requests.

Invariants: a request of an older controller epoch, of an older broker epoch or with an older leader epoch
changes nothing; a partition's leader epoch never goes back; everyone who watches (`on_change`) is told
after the change. Logs are made and deleted in threads: the caller sees to it that the next request waits until the one
before is answered. Must not know ZooKeeper: the only source is the controller's requests.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.clock import Clock
from headrace.broker.errors import (
    ErrorCode,
    KafkaError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.replication.control_requests import (
    ControlRequest,
    LeaderAndIsr,
    StopReplica,
    ToldPartition,
    ToldReplica,
    ToldStop,
)
from headrace.broker.replication.model import LEADER_DURING_DELETE, NO_LEADER, RECOVERED, ids_text
from headrace.broker.replication.partition import Host, Partition
from headrace.broker.replication.topic_requests import is_legal_name
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.replicas.logs import BeforeDeletion, ReplicaLogs
from headrace.broker.structured_log import Event, get_logger
from headrace.broker.tasks import paced
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH

if TYPE_CHECKING:
    from headrace.broker.log.store import LogStore

logger = get_logger(__name__)
TAKEN_AT_ONCE = 25
"""Partitions of a request: some milliseconds."""
LOOKED_AT_ONCE = 100
"""Partitions that are asked who lags: a millisecond, or some where many propose something."""
PartitionCallback = Callable[[Partition], None]


class Partitions:
    """All replicas of this broker by (topic, partition)."""

    def __init__(
        self,
        host: Host,
        logs: LogStore,
        metadata: MetadataCache,
        clock: Clock,
    ) -> None:
        self.broker_id = host.broker_id
        self._host = host
        self.logs = logs
        self.controller_epoch = 0
        self.broker_epoch = -1
        self._metadata = metadata
        self._partitions: dict[PartitionKey, Partition] = {}
        self._replica_logs = ReplicaLogs(host.broker_id, logs, clock)
        # Replicas in data directories that failed.
        self._offline: set[PartitionKey] = set()
        # Replicas that could not be taken, as on a full disk: the controller has to be asked for them again.
        self.refused: set[PartitionKey] = set()
        # Those for which it was asked, and that were not refused since.
        self._asked: set[PartitionKey] = set()
        # Replicas that others shall lead, for the disks of their logs have no room.
        self._handed_over: set[PartitionKey] = set()
        # How often this broker would not lead, as its log had lost what was committed.
        self.leaderships_refused = 0
        self._callbacks: list[PartitionCallback] = []
        # What is still to be logged.
        self._changes: list[Event] = []
        # Held while replicas are taken, stopped or sent to other directories.
        self.changing = asyncio.Lock()

    def leader_of(self, topic: str, partition: int) -> Partition:
        """The partition when this broker leads it.

        Raises NotLeaderOrFollowerError (the cluster has it, this broker does not lead it), StorageError (its
        data directory failed) or UnknownTopicOrPartitionError (this broker does not know it).
        """
        found = self._partitions.get((topic, partition))
        if found is not None and found.is_leader:
            return found
        if found is not None:
            raise NotLeaderOrFollowerError(f"this broker does not lead {topic}-{partition}")
        return self.replica(topic, partition)

    def replica(self, topic: str, partition: int) -> Partition:
        """The replica, whoever leads it.

        Raises NotLeaderOrFollowerError (it is elsewhere, or not ready yet), StorageError (its data directory
        failed) or UnknownTopicOrPartitionError.
        """
        found = self._partitions.get((topic, partition))
        if found is not None:
            return found
        if self.is_offline(topic, partition):
            raise StorageError(
                f"{topic}-{partition} is in a data directory that failed: repair its disk and restart the broker"
            )
        if (
            self._replica_logs.is_expected((topic, partition))
            or self._metadata.partition(topic, partition) is not None
        ):
            raise NotLeaderOrFollowerError(f"this broker does not lead {topic}-{partition}")
        raise UnknownTopicOrPartitionError(f"this broker does not know {topic}-{partition}")

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether this replica went with a data directory that failed."""
        return (topic, partition) in self._offline

    def offline_count(self) -> int:
        """How many replicas went with data directories that failed."""
        return len(self._offline)

    def get(self, topic: str, partition: int) -> Partition | None:
        """The replica, whoever leads it, or None."""
        return self._partitions.get((topic, partition))

    def is_settled(self, topic: str, partition: int) -> bool:
        """Whether this replica was taken, or will not be before something changes."""
        key = (topic, partition)
        return key in self._partitions or key in self._offline or key in self.refused

    def all(self) -> Iterable[Partition]:
        """Every replica, led or not."""
        return list(self._partitions.values())

    def led(self) -> Iterable[Partition]:
        """The partitions that this broker leads now, which stay those while the caller goes through them."""
        return [p for p in self.all() if p.is_leader]

    async def check_lag(self) -> None:
        """Have followers that lag for too long leave the in-sync replicas; call every now and then."""
        async for partition in paced(self.led(), LOOKED_AT_ONCE):
            # What is led no longer by its turn proposes nothing.
            partition.check_lag()

    def on_change(self, callback: PartitionCallback) -> None:
        """Call `callback(partition)` after it became led (`is_leader`), stopped being led, or was deleted."""
        self._callbacks.append(callback)

    def before_deletion(self, callback: BeforeDeletion) -> None:
        """Await `callback(partitions)` before their logs are deleted: nobody works on them afterwards."""
        self._replica_logs.before_deletion = callback

    def take_offline(self, keys: Iterable[PartitionKey]) -> None:
        """The data directory of these replicas failed: they are out of reach until the broker starts again."""
        for key in keys:
            self._offline.add(key)
            partition = self._forget(key)
            if partition is not None:
                self._end(partition)

    def newness(self, request: LeaderAndIsr) -> dict[str, bool]:
        """The topics of a LeaderAndIsr request: True where this broker lacks a log, or has one of a namesake."""
        topics: dict[str, bool] = {}
        for told in filter(_has_name_of_a_log, request.partitions):
            own_log = self.logs.get(told.topic, told.partition)
            is_new = own_log is None or own_log.topic_id != told.topic_id
            topics[told.topic] = topics.get(told.topic, False) or is_new
        return topics

    async def leader_and_isr(self, request: LeaderAndIsr) -> dict[str, Any]:
        """Perform a LeaderAndIsr request; answers the response message once all its logs are there."""
        error = self.fenced(request)
        if error is not ErrorCode.NONE:
            return request.refused(error)
        self.controller_epoch = request.controller_epoch
        async with self.changing:
            try:
                await self._open_logs(request.partitions)
                return request.answer(await self._take_all(request.partitions))
            finally:
                self._replica_logs.end()

    async def _take_all(self, replicas: Sequence[ToldReplica]) -> list[ErrorCode]:
        """One after the other; clients have their turn in between, for they wait for other partitions."""
        codes: list[ErrorCode] = []
        for count, told in enumerate(replicas):
            if count and count % TAKEN_AT_ONCE == 0:
                self._log_changes()
                await asyncio.sleep(0)
            codes.append(self._take(told))
        self._log_changes()
        return codes

    async def stop_replica(self, request: StopReplica) -> dict[str, Any]:
        """Perform a StopReplica request; answers the response message once the logs are put away."""
        error = self.fenced(request)
        if error is not ErrorCode.NONE:
            return {"error_code": error}
        self.controller_epoch = request.controller_epoch
        async with self.changing:
            return request.answer(await self._stop_all(request.replicas))

    async def leave_what_moved_away(self, told: Iterable[ToldPartition]) -> None:
        """Have nothing to do any more with replicas that others have instead: a reassignment ends without a broker that has no
        session, and nobody tells it to stop when it is back. Their logs stay, as no word came to delete them.
        """
        moved = [word for word in told if self._moved_away(word)]
        if moved:
            async with self.changing:
                for word in moved:
                    self._leave(word)
            self._log_changes()

    def _moved_away(self, told: ToldPartition) -> bool:
        found, metadata = self._partitions.get((told.topic, told.partition)), told.metadata
        return (
            found is not None
            and metadata.leader != LEADER_DURING_DELETE
            and metadata.leader_epoch > found.leader_epoch
            and self.broker_id not in metadata.replicas
            and not _is_of_another_topic(found, told.topic_id)
        )

    async def _stop_all(self, replicas: Sequence[ToldStop]) -> dict[PartitionKey, ErrorCode]:
        codes: dict[PartitionKey, ErrorCode] = {}
        deleted: list[PartitionKey] = []
        for topic, partition, leader_epoch, delete in replicas:
            code = codes[topic, partition] = self._stop(topic, partition, leader_epoch, delete=delete)
            if delete and code is ErrorCode.NONE:
                deleted.append((topic, partition))
        self._log_changes()
        failures = await self._replica_logs.delete(deleted)
        return codes | {key: failure.code for key, failure in failures.items()}

    def fenced(self, request: ControlRequest) -> ErrorCode:
        """STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH for a request of the past, else NONE."""
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if NO_EPOCH != request.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        return ErrorCode.NONE

    async def _open_logs(self, replicas: Sequence[ToldReplica]) -> None:
        """Have threads make ready the logs that this request needs and nobody has yet."""
        wanted = [
            told
            for told in replicas
            if (told.topic, told.partition) not in self._partitions and self._refusal(told) is ErrorCode.NONE
        ]
        self._offline.update(await self._replica_logs.make_ready(wanted))

    def _refusal(self, told: ToldReplica) -> ErrorCode:
        """Why this broker does not take a partition of a LeaderAndIsr request; NONE when it does."""
        topic, topic_id, number = told.topic, told.topic_id, told.partition
        if (topic, number) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.broker_id not in told.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = self._partitions.get((topic, number))
        if found is None and not _has_name_of_a_log(told):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if found is not None and _is_of_another_topic(found, topic_id):
            logger.error("topic id differs from the log's", topic=topic, partition=number, told=topic_id)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if self._is_for_others(told):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if found is not None and told.state.leader_epoch <= found.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.KAFKA_STORAGE_ERROR if self._may_not_lead(told) else ErrorCode.NONE

    def _is_for_others(self, told: ToldReplica) -> bool:
        """Whether it was handed over, and somebody else in sync can have it; the last one in sync keeps it, for readers."""
        return (told.topic, told.partition) in self._handed_over and told.state.isr != (self.broker_id,)

    def _may_not_lead(self, told: ToldReplica) -> bool:
        """Whether this broker's log lost, in an unclean stop, what was committed, and there is no leader to have it from
        (KIP-966). It leads what it has after an unclean election, and where such are allowed and nobody else is in sync.

        That goes for a partition without leader, too: by taking it this broker would say that it can lead it.
        """
        state = told.state
        if state.leader not in (self.broker_id, NO_LEADER) or len(told.replicas) == 1:
            return False
        own_log = self.logs.get(told.topic, told.partition)
        if own_log is None or own_log.lost_end is None or state.leader_recovery_state != RECOVERED:
            return False
        return state.isr != (self.broker_id,) or not own_log.config.unclean_leader_election_enable

    def _take(self, told: ToldReplica) -> ErrorCode:
        """One partition of a LeaderAndIsr request, its log being ready."""
        topic, number = told.topic, told.partition
        refusal = self._refusal(told)
        if refusal is ErrorCode.KAFKA_STORAGE_ERROR and (topic, number) not in self._offline:
            (self._step_back if self._is_for_others(told) else self._refuse_lead)(told)
        if refusal is ErrorCode.STALE_CONTROLLER_EPOCH and self._stays_refused(told):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if refusal is ErrorCode.INVALID_TOPIC_EXCEPTION:
            logger.error("not the name of a partition", topic=topic, partition=number)
        if refusal is not ErrorCode.NONE:
            return refusal
        partition = self._partitions.get((topic, number))
        if partition is not None and told.state.zk_version < partition.partition_epoch:
            # The controller has answered for a later state since: its word on that comes, too (kafka.cluster.Partition).
            logger.info(
                "older state passed over",
                topic=topic,
                partition=number,
                partition_epoch=partition.partition_epoch,
                told=told.state.zk_version,
            )
            return ErrorCode.NONE
        try:
            partition = partition or self._opened(topic, number, told.topic_id)
            partition.follow(told)
        except KafkaError as error:
            if (topic, number) not in self.refused:
                logger.error("cannot take a partition", topic=topic, partition=number, reason=error)
            self._refuse((topic, number))
            return error.code
        self._changes.append(_change(partition))
        self._tell(partition)
        if self._stays_refused(told):
            return ErrorCode.KAFKA_STORAGE_ERROR
        self.refused.discard((topic, number))
        self._handed_over.discard((topic, number))
        return ErrorCode.NONE

    def _refuse(self, key: PartitionKey) -> None:
        self.refused.add(key)
        self._asked.discard(key)

    def hand_over(self, directories: Collection[str]) -> int:
        """Of what is led in these data directories, whose disks have no room, leave to others what they may lead: the
        controller has to be asked for it. How many partitions those are.

        This broker has nothing to do with them until it is to `ask_again` for them: it does not follow, where it might be
        in sync again, and lead, without room for a message.
        """
        keys = {
            (p.topic, p.partition)
            for p in self.led()
            if _data_directory(p) in directories and p.others_may_lead
        }
        kept = {key for key in self._handed_over if not self._partitions[key].is_leader}
        self._handed_over = kept | keys
        return len(keys)

    def handed_over_in(self) -> set[str]:
        """The data directories of what others have now, for want of room."""
        return {_data_directory(self._partitions[key]) for key in self._handed_over & self.refused}

    def ask_again(self, full: Collection[str] = ()) -> bool:
        """Be ready to try what was refused once more, but for what was handed over in these directories, unless nobody leads
        that; whether there is any, so that the controller has to be asked.
        """
        waiting = {key for key in self._handed_over & self.refused if self._waits_for_room(key, full)}
        self._asked = self.refused - waiting
        self._handed_over -= self._asked
        return bool(self._asked)

    def _waits_for_room(self, key: PartitionKey, full: Collection[str]) -> bool:
        known = self._metadata.partition(*key)
        return (
            _data_directory(self._partitions[key]) in full and known is not None and known.leader != NO_LEADER
        )

    def _stays_refused(self, told: ToldReplica) -> bool:
        """Whether this word is no reason to call the replica well: it has nobody lead, which needs no disk.

        Else the controller would have it lead, and be refused, as fast as they can talk.
        """
        key = told.topic, told.partition
        return told.state.leader == NO_LEADER and key in self.refused and key not in self._asked

    def _refuse_lead(self, told: ToldReplica) -> None:
        key = (told.topic, told.partition)
        if key not in self.refused:
            own_log = self.logs.get(*key)
            assert own_log is not None, "its end was compared"
            self.leaderships_refused += 1
            logger.error(
                "not leading: the log lost what was committed",
                topic=told.topic,
                partition=told.partition,
                leader_epoch=told.state.leader_epoch,
                log_end_offset=own_log.log_end_offset,
                high_watermark=own_log.lost_end,
                isr=ids_text(told.state.isr),
            )
        self._refuse(key)

    def _step_back(self, told: ToldReplica) -> None:
        """Lead it until somebody else does."""
        key = told.topic, told.partition
        partition = self._partitions.get(key)
        if partition is not None and partition.is_leader and told.state.leader_epoch > partition.leader_epoch:
            partition.stop()
            facts = {
                "topic": told.topic,
                "partition": told.partition,
                "leader_epoch": told.state.leader_epoch,
            }
            self._changes.append(("handed over", facts | {"leader": told.state.leader}))
            self._tell(partition)
        self._refuse(key)

    def _log_changes(self) -> None:
        changes, self._changes = self._changes, []
        logger.info_all(changes)

    def _opened(self, topic: str, number: int, topic_id: UUID) -> Partition:
        own_log = self._replica_logs.take((topic, number))
        partition = Partition(self._host, topic, number, topic_id, own_log)
        self._partitions[topic, number] = partition
        return partition

    def _stop(self, topic: str, number: int, leader_epoch: int, *, delete: bool) -> ErrorCode:
        """One partition of a StopReplica request; `leader_epoch` below 0 is no fence."""
        if (topic, number) in self._offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._partitions.get((topic, number))
        if partition is not None and 0 <= leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if delete:
            # What is only stopped may be asked for again: a controller stops replicas that it takes for offline.
            self._forget((topic, number))
        if partition is not None or (delete and self.logs.get(topic, number) is not None):
            epoch = leader_epoch if partition is None else partition.leader_epoch
            facts = {"topic": topic, "partition": number, "leader_epoch": epoch, "deleted": delete}
            self._changes.append(("stopped", facts))
        if partition is not None:
            self._end(partition)
        return ErrorCode.NONE

    def _leave(self, told: ToldPartition) -> None:
        partition = self._forget((told.topic, told.partition))
        assert partition is not None, "it moved away from here"
        facts = {"topic": told.topic, "partition": told.partition, "leader_epoch": told.metadata.leader_epoch}
        self._changes.append(("moved away", facts | {"replicas": ids_text(told.metadata.replicas)}))
        self._end(partition)

    def _forget(self, key: PartitionKey) -> Partition | None:
        """Have nothing to do with the replica any more; what it was."""
        self.refused.discard(key)
        self._handed_over.discard(key)
        return self._partitions.pop(key, None)

    def _end(self, partition: Partition) -> None:
        partition.stop()
        self._tell(partition)

    def _tell(self, partition: Partition) -> None:
        for callback in self._callbacks:
            callback(partition)


def _has_name_of_a_log(told: ToldReplica) -> bool:
    """Whether the name is that of a folder within a data directory, and of a znode."""
    return told.partition >= 0 and is_legal_name(told.topic)


def _is_of_another_topic(partition: Partition, topic_id: UUID) -> bool:
    return ZERO_UUID not in (topic_id, partition.topic_id) and partition.topic_id != topic_id


def _data_directory(partition: Partition) -> str:
    return os.path.dirname(partition.log.directory)


def _change(partition: Partition) -> Event:
    log = partition.log
    return "leads" if partition.is_leader else "follows", {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "controller_epoch": partition.controller_epoch,
        "isr": ids_text(partition.isr),
        "replicas": ids_text(partition.replicas),
        "log_end_offset": log.log_end_offset,
        "high_watermark": log.high_watermark,
    }
