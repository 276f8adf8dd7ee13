"""One replica on this broker: its log, and what the broker does with it as leader or as follower.

Performs what `replication.leader` decides. Invariants: only the leader appends what clients send, in its own leader epoch,
which its log has noted before any data; the high watermark never goes back but where the log is cut below it; with this
broker as the only replica it is the log end offset, at once, but where `flush.messages` wants a sync first: there a log ends
for others where it is on the disk. Knows nothing of sockets, ZooKeeper or other partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from headrace.broker.config import copies
from headrace.broker.errors import (
    FencedLeaderEpochError,
    KafkaError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from headrace.broker.log.appender import Appender
from headrace.broker.replication.control_requests import ToldReplica
from headrace.broker.replication.events import IsrAnswer
from headrace.broker.replication.leader import UNKNOWN_OFFSET, IsrProposal, Leadership
from headrace.broker.replication.model import NO_LEADER
from headrace.broker.wire.special_values import NO_EPOCH

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog
    from headrace.broker.log.producers import Marker
    from headrace.broker.log.results import AppendResult


class Host(Protocol):
    """The broker, as its partitions know it."""

    @property
    def broker_id(self) -> int: ...

    @property
    def replica_lag_ms_max(self) -> int:
        """replica.lag.time.max.ms."""
        ...

    def monotonic_ms(self) -> int: ...

    def is_alive(self, broker_id: int) -> bool:
        """Whether that broker is a live member of the cluster."""
        ...

    def request_sync(self, partition: Partition) -> None:
        """Have the log synced, soon, as `flush.messages` asks, and call `partition.synced` afterwards."""
        ...

    def secure(self, partition: Partition) -> None:
        """Have all of the log on the disk, soon: too few others have it."""
        ...

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller, and call `partition.proposal_answered` with what it says."""
        ...

    def committed(self, partition: Partition) -> None:
        """The high watermark moved, other than by an append, or the log's start: wake who waits for it."""
        ...


class Partition:
    """A replica that lives on this broker; `log` is always there, `is_leader` changes with the controller's word.

    `leadership` is there while it leads, and the same object for as long as it does without a break.
    """

    __slots__ = (
        "adding",
        "appender",
        "broker_id",
        "controller_epoch",
        "host",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "leadership",
        "log",
        "partition",
        "partition_epoch",
        "removing",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(self, host: Host, topic: str, partition: int, topic_id: UUID, log: PartitionLog) -> None:
        self.host = host
        self.broker_id = host.broker_id
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.log = log
        self.appender = Appender(log)
        self.is_leader = False
        self.leadership: Leadership | None = None
        self.leader = NO_LEADER
        self.leader_epoch = self.partition_epoch = self.controller_epoch = NO_EPOCH
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()

    # -- the controller's word

    def follow(self, told: ToldReplica) -> None:
        """Take the controller's word: lead when it names this broker, else stop leading.

        Raises StorageError when the log cannot begin the epoch; all is then as before, for the controller to ask again.
        """
        is_leader = told.state.leader == self.broker_id
        if is_leader:
            self.log.lost_end = None
            self.log.assign_epoch(told.state.leader_epoch)
            self._lead(told)
        else:
            self.leadership = None
        self._take(told)
        self.is_leader = is_leader
        if is_leader:
            self._secure_below_minimum()
            self._move()

    def stop(self) -> None:
        """Lead and follow no more; whoever leads next, this broker among them, begins anew."""
        self.is_leader = False
        self.leader = NO_LEADER
        self.leadership = None

    def _lead(self, told: ToldReplica) -> None:
        end_offset, now_ms = self.log.log_end_offset, self.host.monotonic_ms()
        if self.leadership is not None and told.state.leader_epoch == self.leader_epoch + 1:
            self.leadership.told(told.state, told.replicas, end_offset=end_offset, now_ms=now_ms)
        else:
            self.leadership = Leadership(
                self.broker_id,
                told.state,
                told.replicas,
                end_offset=end_offset,
                lag_ms_max=self.host.replica_lag_ms_max,
                is_alive=self.host.is_alive,
                now_ms=now_ms,
            )

    def _take(self, told: ToldReplica) -> None:
        state = told.state
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.zk_version
        self.controller_epoch = state.controller_epoch
        self.isr = state.isr
        self.replicas = told.replicas
        self.adding = told.adding
        self.removing = told.removing

    # -- leading

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

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, *, now_ms: int
    ) -> AppendResult:
        """End a producer's transaction as the leader, for all replicas in sync; raises as `append` does."""
        self._check_may_append(-1)
        result = self.appender.append_marker(
            producer_id, producer_epoch, marker, leader_epoch=self.leader_epoch, now_ms=now_ms
        )
        self._advance()
        return result

    def append_own(self, records: memoryview, *, now_ms: int) -> AppendResult:
        """Append a coordinator's own batch as the leader, for all replicas in sync; raises as `append` does."""
        self._check_may_append(-1)
        result = self.appender.append_own(records, leader_epoch=self.leader_epoch, now_ms=now_ms)
        self._advance()
        return result

    def _check_may_append(self, required_acks: int) -> None:
        if not self.is_leader:
            raise NotLeaderOrFollowerError(f"this broker does not lead {self.topic}-{self.partition}")
        if self.log.is_mirror_copy:
            raise copies.refusal(self.topic)
        if required_acks == -1 and len(self.isr) < self.isr_size_min:
            raise NotEnoughReplicasError(
                f"{self.topic}-{self.partition} has {len(self.isr)} in-sync replicas, "
                f"min.insync.replicas asks for {self.isr_size_min}"
            )

    def appended(self) -> None:
        """Something was appended to the log by another road (a mirror's copier): move the high watermark."""
        self._advance()

    def cut(self, end_before: int) -> None:
        """The log that is led here was cut, below what was committed: its leader epoch begins anew, so followers part from it.

        Raises StorageError when the log cannot begin the epoch; to be called again then.
        """
        end_offset = self.log.log_end_offset
        if self.leadership is not None and end_offset < end_before:
            self.leadership.cut(end_offset)
        self.log.assign_epoch(self.leader_epoch)

    @property
    def leads_since_its_last_message(self) -> bool:
        """Whether nothing was appended in this leader epoch, so that the epochs tell the log from one that was cut in it."""
        return len(self.replicas) == 1 or self.log.epoch_at(self.log.log_end_offset - 1) < self.leader_epoch

    @property
    def is_on_all_in_sync(self) -> bool:
        """Whether whoever may lead next ends where this leader's log does, as far as it asked since that was cut."""
        return self.leadership is not None and self.leadership.in_sync_have(self.log.log_end_offset)

    def synced(self) -> None:
        """The log is on the disk up to its recovery point: move the high watermark."""
        self._advance()

    def follower_fetched(
        self,
        replica: int,
        offset: int,
        *,
        log_start_offset: int = UNKNOWN_OFFSET,
        broker_epoch: int = NO_EPOCH,
    ) -> None:
        """A follower asked for `offset`, so it has everything before; its log begins at `log_start_offset`.

        Raises NotLeaderOrFollowerError when this broker does not lead, or the request is of an earlier life of the
        follower's broker; UnknownLeaderEpochError for who is no replica, as far as this broker was told.
        """
        leadership = self.leadership
        if leadership is None:
            raise NotLeaderOrFollowerError(f"this broker does not lead {self.topic}-{self.partition}")
        if replica not in leadership.followers:
            raise UnknownLeaderEpochError(f"broker {replica} is no follower of {self.topic}-{self.partition}")
        leadership.fetched(
            replica,
            offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            end_offset=self.log.log_end_offset,
            now_ms=self.host.monotonic_ms(),
        )
        if replica not in leadership.maximal_isr:
            self._propose_joining(leadership, replica)
        self._move()

    def _propose_joining(self, leadership: Leadership, replica: int) -> None:
        proposal = leadership.joining(replica, self.log.high_watermark)
        if proposal is not None:
            self.host.propose(self, proposal)

    def _propose_who_waits(self, leadership: Leadership) -> None:
        """Have those in the ISR that caught up while another change was under way: with nothing to fetch, they do not say
        again where they are. Who just left it for lagging has something to fetch, and joins once it does.
        """
        end_offset = self.log.log_end_offset
        for replica, progress in leadership.followers.items():
            if progress.end_offset == end_offset and replica not in leadership.maximal_isr:
                self._propose_joining(leadership, replica)

    def check_lag(self) -> None:
        """Propose to have those out of the ISR that lag for too long, or who caught up in it; call every now and then."""
        leadership = self.leadership
        if leadership is None or not leadership.followers:
            return
        log, now_ms = self.log, self.host.monotonic_ms()
        end_offset = log.log_end_offset
        if (
            log.high_watermark == end_offset
            and not log.awaits_sync
            and leadership.all_have(end_offset, now_ms)
        ):
            return
        proposal = leadership.lagging(end_offset, self.isr_size_min, now_ms)
        if proposal is not None:
            self.host.propose(self, proposal)
        else:
            self._propose_who_waits(leadership)
        # Who was caught up, and out of the ISR, is waited for only as long as it may lag.
        self._move()

    def proposal_answered(self, proposal: IsrProposal, answer: IsrAnswer) -> bool:
        """The controller answered; whether the ISR is what it says. An answer to an earlier leadership changes nothing."""
        leadership = self.leadership
        if leadership is None or not leadership.answered(proposal, answer):
            return False
        self.isr, self.partition_epoch = leadership.isr, leadership.partition_epoch
        self._secure_below_minimum()
        self._move()
        self._propose_who_waits(leadership)
        return True

    @property
    def high_watermark(self) -> int:
        """The first offset that consumers may not see yet."""
        return self.log.high_watermark

    @property
    def isr_size_min(self) -> int:
        """min.insync.replicas, but never more than the partition has replicas, as in Kafka."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether what is committed now counts as acknowledged by `min.insync.replicas` replicas (acks=all)."""
        leadership = self.leadership
        return leadership is not None and len(leadership.maximal_isr) >= self.isr_size_min

    @property
    def others_may_lead(self) -> bool:
        """Whether it is led here and as many other live replicas are in sync as acks=all waits for."""
        others = [
            replica for replica in self.isr if replica != self.broker_id and self.host.is_alive(replica)
        ]
        return self.is_leader and len(others) >= self.isr_size_min

    @property
    def is_under_min_isr(self) -> bool:
        """Whether it is led here and fewer replicas are in sync than `min.insync.replicas` asks for."""
        return self.is_leader and len(self.isr) < self.isr_size_min

    @property
    def is_under_replicated(self) -> bool:
        """Whether it is led here and a replica is not in sync that is not just being added."""
        return self.is_leader and len(self.isr) < len(self.replicas) - len(
            set(self.adding) & set(self.replicas)
        )

    @property
    def is_reassigning(self) -> bool:
        """Whether it is led here and on its way to other brokers."""
        return self.is_leader and bool(self.adding or self.removing)

    @property
    def low_watermark(self) -> int:
        """Where the logs of all live replicas begin at the latest."""
        start_offset = self.log.log_start_offset
        return start_offset if self.leadership is None else self.leadership.low_watermark(start_offset)

    # -- following

    def append_as_follower(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append whole batches that the leader of that epoch sent; a last one that is cut is left.

        Raises FencedLeaderEpochError once the controller has told of another epoch, CorruptMessageError and
        InvalidRecordError for batches that cannot be of that leader's log, StorageError.
        """
        if self.is_leader or leader_epoch != self.leader_epoch:
            raise FencedLeaderEpochError(
                f"{self.topic}-{self.partition} is not followed in leader epoch {leader_epoch} any more"
            )
        return self.appender.append_as_follower(records, epoch_max=leader_epoch, now_ms=now_ms)

    def leader_said(self, high_watermark: int, log_start_offset: int) -> None:
        """The leader answered a fetch: what is below its watermark is committed, as far as this log has it.

        The log begins no earlier than the leader's. Raises StorageError.
        """
        log = self.log
        if high_watermark > log.high_watermark:
            before = log.high_watermark
            log.advance_high_watermark(high_watermark)
            if log.high_watermark > before:
                self.host.committed(self)
        if log_start_offset > log.log_start_offset:
            log.delete_before(min(log_start_offset, log.high_watermark))
            # Who reads here has kept where the log began.
            self.host.committed(self)
        # A new leader may not know yet of all that is committed; past the start of its epoch it is all here.
        if (
            log.lost_end is not None
            and high_watermark <= log.log_end_offset
            and (high_watermark >= log.lost_end or log.latest_epoch >= self.leader_epoch)
        ):
            log.lost_end = None

    def _secure_below_minimum(self) -> None:
        if len(self.isr) < self.isr_size_min and self.log.recovery_point < self.log.log_end_offset:
            self.host.secure(self)

    def _move(self) -> None:
        """Move the high watermark for another reason than an append, and tell who waits for it."""
        before = self.log.high_watermark
        self._advance()
        if self.log.high_watermark > before:
            self.host.committed(self)

    def _advance(self) -> None:
        log = self.log
        offset = log.log_end_offset
        if log.awaits_sync and log.is_sync_due:
            offset = log.recovery_point
            self.host.request_sync(self)
        leadership = self.leadership
        if leadership is None:
            return
        if leadership.followers:
            offset = leadership.committed(offset, self.isr_size_min, self.host.monotonic_ms())
        if offset > log.high_watermark:
            log.advance_high_watermark(offset)
