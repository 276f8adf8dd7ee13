"""One uninterrupted leadership of one partition: how far its replicas are, who is in sync, what may be committed.

Pure: what happened goes in, with the time; the high watermark and the changes of the in-sync replicas that the controller
shall be asked for come out. Who goes on leading in the very next epoch keeps the object, everyone else who becomes leader
makes a new one: it is the leadership that appended.
Invariants: the high watermark never passes a member of the maximal ISR (the ISR, and who was proposed for it; who was
proposed to leave still counts), nor a caught-up replica that may join; it stands still while fewer replicas are in sync
than `min.insync.replicas` asks for (KAFKA-15583); one change of the ISR is proposed at a time, and only the controller's
word makes it one. Knows no log, no clock, no other partition. Times are monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.broker.errors import ErrorCode, NotLeaderOrFollowerError
from headrace.broker.replication.events import IsrAnswer
from headrace.broker.replication.model import PartitionState
from headrace.broker.wire.special_values import NO_EPOCH

NEVER_MS = -(2**62)
UNKNOWN_OFFSET = -1
NOT_APPLIED = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
"""With these the controller says that the proposal was not performed and that the partition epoch is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """What a leader asks the controller for (AlterPartition); `broker_epochs` are those of the members of `isr`, -1 where
    unknown. With `syncs_first` it goes out once the leader's log is on the disk (KIP-966).
    """

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    joining: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()
    syncs_first: bool = False


class Progress:
    """How far a follower is, by its fetches. `caught_up_ms`: when it last had everything that the leader had."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "leader_end_offset",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: int) -> None:
        self.end_offset = self.log_start_offset = self.leader_end_offset = UNKNOWN_OFFSET
        self.broker_epoch = NO_EPOCH
        self.caught_up_ms = caught_up_ms
        self.fetched_ms = NEVER_MS

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """It asked for `offset`. Who has what the leader had at the fetch before was caught up then."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset = max(leader_end_offset, self.leader_end_offset)
        self.fetched_ms = now_ms

    def go_on(self, leader_end_offset: int, since_ms: int) -> None:
        """The same leader goes on in its next epoch: what is known of the follower stands, its lag is measured anew."""
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = self.caught_up_ms = since_ms

    def cut(self, end_offset: int) -> None:
        """The leader cut its log there: who was at that offset or beyond may have what was cut, or be about to get it."""
        if self.end_offset >= end_offset:
            self.end_offset = UNKNOWN_OFFSET
        self.leader_end_offset = min(self.leader_end_offset, end_offset)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """Whether it has everything, or had within the time that it may lag."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms_max


class Leadership:
    """See the module's text. `followers` are all other replicas; `proposed` is the change that the controller has to
    answer, or that is settled only by its next word (LeaderAndIsr).
    """

    __slots__ = (
        "_broker_id",
        "_is_alive",
        "_lag_ms_max",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "maximal_isr",
        "partition_epoch",
        "proposed",
    )

    def __init__(
        self,
        broker_id: int,
        state: PartitionState,
        replicas: Sequence[int],
        *,
        end_offset: int,
        lag_ms_max: int,
        is_alive: Callable[[int], bool],
        now_ms: int,
    ) -> None:
        """The controller named this broker; its log ends at `end_offset`. `is_alive(broker)`: whether it may join."""
        self._broker_id = broker_id
        self._lag_ms_max = lag_ms_max
        self._is_alive = is_alive
        self.followers: dict[int, Progress] = {}
        self._take(state, replicas, end_offset, now_ms)

    def told(self, state: PartitionState, replicas: Sequence[int], *, end_offset: int, now_ms: int) -> None:
        """The controller has this broker lead on, in the next epoch."""
        for replica, progress in self.followers.items():
            progress.go_on(end_offset, now_ms if replica in state.isr else NEVER_MS)
        self._take(state, replicas, end_offset, now_ms)

    def _take(self, state: PartitionState, replicas: Sequence[int], end_offset: int, now_ms: int) -> None:
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = end_offset
        self.followers = {
            replica: self.followers.get(replica) or Progress(now_ms if replica in state.isr else NEVER_MS)
            for replica in replicas
            if replica != self._broker_id
        }
        self._settle(state.isr, state.zk_version)

    def _settle(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.isr = self.maximal_isr = isr
        self.partition_epoch = partition_epoch
        self.proposed: IsrProposal | None = None

    def fetched(
        self,
        replica: int,
        offset: int,
        *,
        log_start_offset: int,
        broker_epoch: int,
        end_offset: int,
        now_ms: int,
    ) -> None:
        """A follower asks for `offset`, so it has everything before; `end_offset` is where the leader's log ends.

        Raises NotLeaderOrFollowerError for a request of an earlier life of the follower's broker.
        """
        progress = self.followers[replica]
        if broker_epoch != NO_EPOCH:
            if broker_epoch < progress.broker_epoch:
                raise NotLeaderOrFollowerError(
                    f"broker {replica} is in its epoch {progress.broker_epoch}: this request is of epoch {broker_epoch}"
                )
            progress.broker_epoch = broker_epoch
        progress.fetched(offset, log_start_offset, end_offset, now_ms)

    def committed(self, end_offset: int, isr_size_min: int, now_ms: int) -> int:
        """Up to where everything is committed as far as this leadership knows; the high watermark never goes back."""
        if len(self.isr) < isr_size_min:
            return UNKNOWN_OFFSET
        offset = end_offset
        for replica, progress in self.followers.items():
            if progress.end_offset < offset and (
                replica in self.maximal_isr
                or (progress.is_caught_up(end_offset, now_ms, self._lag_ms_max) and self._is_alive(replica))
            ):
                offset = progress.end_offset
        return offset

    def low_watermark(self, log_start_offset: int) -> int:
        """Where the logs of all live replicas begin at the latest; `log_start_offset` is where the leader's does."""
        return min(
            [
                log_start_offset,
                *(p.log_start_offset for replica, p in self.followers.items() if self._is_alive(replica)),
            ]
        )

    def joining(self, replica: int, high_watermark: int) -> IsrProposal | None:
        """The proposal to have a follower in the ISR, once it is at the high watermark and past the start of the epoch.

        Before that start it may lack what was committed and this leader does not know yet to be.
        """
        if self.proposed is not None or replica in self.isr:
            return None
        end_offset = self.followers[replica].end_offset
        if end_offset < high_watermark or end_offset < self.epoch_start_offset or not self._is_alive(replica):
            return None
        proposal = self._proposal((*self.isr, replica), joining=(replica,))
        self.maximal_isr = proposal.isr
        return proposal

    def cut(self, end_offset: int) -> None:
        """This leader cut its log there, below what was committed: nobody is known to be there before it asks again."""
        self.epoch_start_offset = min(self.epoch_start_offset, end_offset)
        for progress in self.followers.values():
            progress.cut(end_offset)

    def in_sync_have(self, end_offset: int) -> bool:
        """Whether whoever may lead next has all up to this end of the log, and asked for what comes there."""
        return all(
            progress.end_offset >= end_offset
            for replica, progress in self.followers.items()
            if replica in self.maximal_isr
        )

    def all_have(self, end_offset: int, now_ms: int) -> bool:
        """Whether every follower is in the ISR and has all up to this end of the log, as it then has until now."""
        progresses = self.followers.values()
        if self.proposed is not None or len(self.isr) <= len(progresses):
            return False
        for progress in progresses:
            if progress.end_offset != end_offset:
                return False
        for progress in progresses:
            progress.caught_up_ms = max(progress.caught_up_ms, now_ms)
        return True

    def lagging(self, end_offset: int, isr_size_min: int, now_ms: int) -> IsrProposal | None:
        """The proposal to have those out of the ISR that were not caught up for too long."""
        if self.proposed is not None or len(self.isr) == 1:
            return None
        leaving = tuple(
            replica
            for replica in self.isr
            if replica != self._broker_id and self._lags(replica, end_offset, now_ms)
        )
        if not leaving:
            return None
        isr = tuple(replica for replica in self.isr if replica not in leaving)
        return self._proposal(isr, leaving=leaving, syncs_first=len(isr) < isr_size_min)

    def _lags(self, replica: int, end_offset: int, now_ms: int) -> bool:
        progress = self.followers.get(replica)
        if progress is None:
            return True
        if progress.end_offset == end_offset:
            # Requests of a session do not name partitions that rest: no fetch says that it still has everything.
            progress.caught_up_ms = max(progress.caught_up_ms, now_ms)
        return not progress.is_caught_up(end_offset, now_ms, self._lag_ms_max)

    def _proposal(
        self,
        isr: tuple[int, ...],
        *,
        joining: tuple[int, ...] = (),
        leaving: tuple[int, ...] = (),
        syncs_first: bool = False,
    ) -> IsrProposal:
        self.proposed = IsrProposal(
            isr=isr,
            broker_epochs=tuple(
                self.followers[replica].broker_epoch if replica in self.followers else NO_EPOCH
                for replica in isr
            ),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            joining=joining,
            leaving=leaving,
            syncs_first=syncs_first,
        )
        return self.proposed

    def answered(self, proposal: IsrProposal, answer: IsrAnswer) -> bool:
        """The controller answered, with the state as it is now or why not; whether that is what the leader knows now.

        What is refused for another reason than `NOT_APPLIED` stays proposed until the controller's next word: nobody
        knows whether it was performed.
        """
        if self.proposed is not proposal:
            return False
        if isinstance(answer, ErrorCode):
            if answer in NOT_APPLIED:
                self._settle(self.isr, self.partition_epoch)
            return False
        if answer.leader_epoch != self.leader_epoch or answer.zk_version < self.partition_epoch:
            return False
        self._settle(answer.isr, answer.zk_version)
        return True
