"""In-sync replicas that leaders propose with AlterPartition (KIP-497), and what the controller answers.

Invariants: a proposal is taken only from the leader, in its present leader epoch and upon the state that it knows (the
partition epoch); members that are dead, about to stop (KIP-841) or another life of their broker (KIP-903) are refused;
the answer leaves after the write. The leader and its epoch stay, so nobody but clients' metadata has to be told.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.controller.sending import metadata_to
from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.events import (
    AnswerIsrProposal,
    Command,
    IsrAnswer,
    IsrProposed,
    ProposedIsr,
    StatesWritten,
    StateWrite,
    WriteStates,
)
from headrace.broker.replication.model import RECOVERED, RECOVERING, PartitionState
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH


class IsrChanges:
    """The request under way, if there is one: its states are being written."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._answers: list[IsrAnswer | None] = []
        # The place in the answers of each partition that is being written.
        self._writing: dict[PartitionKey, int] = {}

    @property
    def is_under_way(self) -> bool:
        """Whether the next `StatesWritten` is the outcome of a proposal."""
        return bool(self._writing)

    def proposed(self, event: IsrProposed) -> list[Command]:
        """Write what is sound; the answer follows at once when nothing is."""
        broker = self._cluster.brokers.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            return [AnswerIsrProposal(error=ErrorCode.STALE_BROKER_EPOCH)]
        names = {assignment.topic_id: name for name, assignment in self._cluster.topics.items()}
        self._answers = []
        writes: list[StateWrite] = []
        for index, proposal in enumerate(event.proposals):
            topic = names.get(proposal.topic) if isinstance(proposal.topic, UUID) else proposal.topic
            decided = self._decided(event.broker_id, topic, proposal)
            self._answers.append(decided if isinstance(decided, PartitionState | ErrorCode) else None)
            if isinstance(decided, StateWrite):
                self._writing[decided.topic, decided.partition] = index
                writes.append(decided)
        return [WriteStates(writes=tuple(writes))] if writes else [self._answer()]

    def written(self, event: StatesWritten) -> list[Command]:
        """Tell of the in-sync replicas that changed, then answer."""
        cluster = self._cluster
        written = {key: state for key, state in event.written.items() if key[0] in cluster.topics}
        cluster.states.update(written)
        for key, index in self._writing.items():
            self._answers[index] = written.get(key) or _refused(event, key)
        self._writing = {}
        words = cluster.words(written)
        told = metadata_to(cluster, cluster.brokers, words) if words else []
        return [*told, self._answer()]

    def _answer(self) -> AnswerIsrProposal:
        assert None not in self._answers, "each was decided or written"
        return AnswerIsrProposal(answers=tuple(answer for answer in self._answers if answer is not None))

    def _decided(
        self, broker_id: int, topic: str | None, proposal: ProposedIsr
    ) -> StateWrite | PartitionState | ErrorCode:
        """What is to be written, or the answer: the present state when it is the proposed one."""
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        state = self._cluster.states.get((topic, proposal.partition))
        if state is None or topic in self._cluster.deleting:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.zk_version:
            # The leader heard of a later state: it will find the later controller, too.
            return ErrorCode.NOT_CONTROLLER
        if proposal.leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if broker_id != state.leader or (topic, proposal.partition) in self._writing:
            return ErrorCode.INVALID_REQUEST
        recovery = proposal.leader_recovery_state
        if (proposal.isr, recovery) == (state.isr, state.leader_recovery_state):
            # Its first answer may have been lost: this goes before the fence of the partition epoch.
            return state
        if proposal.partition_epoch < state.zk_version:
            return ErrorCode.INVALID_UPDATE_VERSION
        error = self._fault(topic, proposal, state)
        if error is not None:
            return error
        changed = replace(
            state, isr=proposal.isr, leader_recovery_state=recovery, controller_epoch=self._cluster.epoch
        )
        return StateWrite(
            topic=topic,
            partition=proposal.partition,
            state=changed,
            create=False,
            reason="its leader proposed it",
        )

    def _fault(self, topic: str, proposal: ProposedIsr, state: PartitionState) -> ErrorCode | None:
        isr, recovery = proposal.isr, proposal.leader_recovery_state
        if recovery not in (RECOVERED, RECOVERING):
            return ErrorCode.INVALID_REQUEST
        if recovery == RECOVERING and (len(isr) > 1 or state.leader_recovery_state == RECOVERED):
            return ErrorCode.INVALID_REQUEST
        replicas = self._cluster.topics[topic].partitions[proposal.partition].replicas
        if state.leader not in isr or len(set(isr)) != len(isr) or not set(isr) <= set(replicas):
            return ErrorCode.INVALID_REQUEST
        if not all(map(self._is_eligible, isr, proposal.broker_epochs)):
            return ErrorCode.INELIGIBLE_REPLICA
        return None

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._cluster.brokers.get(broker_id)
        if broker is None or broker_id in self._cluster.leaving:
            return False
        return broker_epoch in (NO_EPOCH, broker.epoch)


def _refused(event: StatesWritten, key: PartitionKey) -> ErrorCode:
    """Why a state was not written: the topic is gone, or the znode holds another one."""
    if event.conflicts.get(key) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_UPDATE_VERSION
