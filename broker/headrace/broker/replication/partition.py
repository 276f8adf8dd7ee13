"""One partition as this broker leads it: appends, required acknowledgements, the high watermark.

Invariants: only the leader appends, in its own leader epoch; the high watermark is the smallest log end
offset of the in-sync replicas and never goes back while one leader leads. With this broker as the only
in-sync replica it is the log end offset, at once, but where `flush.messages` wants a sync first: there a log ends for
others where it is on the disk. Knows nothing of sockets, ZooKeeper or other partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.broker.config import copies
from headrace.broker.errors import KafkaError, NotEnoughReplicasError, NotLeaderOrFollowerError
from headrace.broker.log.appender import Appender
from headrace.broker.replication.model import PartitionState

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog
    from headrace.broker.log.results import AppendResult


class Partition:
    """A replica that lives on this broker; `log` is always there, `is_leader` changes with the
    controller's word.
    """

    __slots__ = (
        "appender",
        "broker_id",
        "controller_epoch",
        "follower_ends",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "partition",
        "replicas",
        "request_sync",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        broker_id: int,
        topic: str,
        partition: int,
        topic_id: UUID,
        log: PartitionLog,
        request_sync: Callable[[Partition], None],
    ) -> None:
        """`request_sync(partition)` has the log synced, soon, and `synced` called afterwards."""
        self.broker_id = broker_id
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.log = log
        self.appender = Appender(log)
        self.request_sync = request_sync
        self.is_leader = False
        self.leader = -1
        self.leader_epoch = -1
        self.controller_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.follower_ends: dict[int, int] = {}

    def follow(self, state: PartitionState, replicas: tuple[int, ...]) -> None:
        """Take the controller's word: lead when it names this broker, else stop leading.

        Raises StorageError when the log cannot begin the epoch; all is then as before, for the controller to ask again.
        """
        is_leader = state.leader == self.broker_id
        if is_leader:
            self.log.assign_epoch(state.leader_epoch)
        self._take(state, replicas)
        self.is_leader = is_leader
        self.follower_ends = {}
        if is_leader:
            self._advance()

    def append(self, records: memoryview, *, required_acks: int, now_ms: int) -> AppendResult:
        """Append batches as the leader.

        Raises NotLeaderOrFollowerError when this broker does not lead, PolicyViolationError for a mirror's copy,
        NotEnoughReplicasError when `required_acks` is -1 and fewer replicas than `min.insync.replicas` are in sync,
        and whatever the log refuses.
        """
        self._check_may_append(required_acks)
        result = self.appender.append_as_leader(records, leader_epoch=self.leader_epoch, now_ms=now_ms)
        self._advance()
        return result

    def append_each(
        self, appends: Iterable[memoryview], *, required_acks: int, now_ms: int
    ) -> list[AppendResult | KafkaError]:
        """`append` for each, one after the other; what the log refuses has its error in the answer."""
        self._check_may_append(required_acks)
        outcomes = self.appender.append_each_as_leader(appends, leader_epoch=self.leader_epoch, now_ms=now_ms)
        self._advance()
        return outcomes

    def _check_may_append(self, required_acks: int) -> None:
        if not self.is_leader:
            raise NotLeaderOrFollowerError(f"this broker does not lead {self.topic}-{self.partition}")
        if self.log.is_mirror_copy:
            raise copies.refusal(self.topic)
        if required_acks == -1 and len(self.isr) < self._isr_size_min:
            raise NotEnoughReplicasError(
                f"{self.topic}-{self.partition} has {len(self.isr)} in-sync replicas, "
                f"min.insync.replicas asks for {self._isr_size_min}"
            )

    def appended(self) -> None:
        """Something was appended to the log by another road (a mirror's copier): move the high watermark."""
        self._advance()

    def synced(self) -> None:
        """The log is on the disk up to its recovery point: move the high watermark."""
        self._advance()

    def follower_fetched(self, replica: int, log_end_offset: int) -> None:
        """A follower asked for `log_end_offset`, so it has everything before."""
        self.follower_ends[replica] = log_end_offset
        self._advance()

    @property
    def high_watermark(self) -> int:
        """The first offset that consumers may not see yet."""
        return self.log.high_watermark

    @property
    def is_committed(self) -> bool:
        """Whether all that the log holds is committed."""
        return self.log.high_watermark == self.log.log_end_offset

    @property
    def _isr_size_min(self) -> int:
        """min.insync.replicas, but never more than the partition has replicas, as in Kafka."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def _take(self, state: PartitionState, replicas: tuple[int, ...]) -> None:
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.controller_epoch = state.controller_epoch
        self.isr = state.isr
        self.replicas = replicas

    def _advance(self) -> None:
        offset = self.log.log_end_offset
        if self.log.awaits_sync and self.log.is_sync_due:
            offset = self.log.recovery_point
            self.request_sync(self)
        for replica in self.isr:
            if replica != self.broker_id:
                offset = min(offset, self.follower_ends.get(replica, -1))
        if offset > self.log.high_watermark:
            self.log.advance_high_watermark(offset)
