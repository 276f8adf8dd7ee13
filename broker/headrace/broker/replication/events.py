"""What the controller hears (nouns) and what it wants done (verbs)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.model import Broker, PartitionState, ReplicaAssignment, TopicAssignment
from headrace.broker.wire.partitions import PartitionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """This broker is controller, and this is all that ZooKeeper holds."""

    epoch: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicAssignment]
    states: Mapping[PartitionKey, PartitionState]
    deletions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersChanged:
    """These brokers are alive now; one with a new epoch was away in between."""

    brokers: Mapping[int, Broker]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged:
    """Topics that are new or have a changed assignment, and names that are gone."""

    topics: Mapping[str, TopicAssignment]
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionsRequested:
    """Somebody wants these topics deleted."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesWritten:
    """The outcome of `WriteStates`: what was written, and what was found instead (None: the znode is
    gone).
    """

    written: Mapping[PartitionKey, PartitionState]
    conflicts: Mapping[PartitionKey, PartitionState | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasDeleted:
    """A broker deleted these replicas."""

    broker_id: int
    partitions: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsHidden:
    """A broker no longer tells its clients of these topics, which are being deleted."""

    broker_id: int
    topics: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemoved:
    """The znodes of a deleted topic are gone."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChanged:
    """Leaders changed the in-sync replicas of these partitions, as their state znodes say."""

    states: Mapping[PartitionKey, PartitionState]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedIsr:
    """One partition's in-sync replicas as its leader wants them, and the state that it knows; `topic` is a name or an id.

    `broker_epochs` are those of the members' registrations, NO_EPOCH where the leader does not tell.
    """

    topic: str | UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_recovery_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposed:
    """A broker proposes in-sync replicas of partitions that it leads; `AnswerIsrProposal` answers."""

    broker_id: int
    broker_epoch: int
    proposals: tuple[ProposedIsr, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectoriesFailed:
    """Data directories of these brokers failed: they have to be asked which replicas were there (KIP-112)."""

    brokers: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasAnswered:
    """A broker's answer to LeaderAndIsr: replicas in data directories that failed, and such as it took."""

    broker_id: int
    offline: frozenset[PartitionKey]
    online: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownRequested:
    """A broker is about to stop and asks that others lead what it leads."""

    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredLeadersRequested:
    """Somebody wants the first replicas of these partitions to lead; `EndPreferredElection` ends it."""

    partitions: frozenset[PartitionKey]


class Refusal(NamedTuple):
    """Why something is not done for a partition."""

    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadersRequested:
    """A client wants the first replicas of these partitions to lead or, `unclean`, any that is alive where nobody leads.

    `AnswerLeaders` answers.
    """

    partitions: frozenset[PartitionKey]
    unclean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceDue:
    """It is time to look whether brokers lead the partitions whose first replica they hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElectionsAllowed:
    """Replicas that are not in sync may lead these topics from now on, or all those that say nothing else (None)."""

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentsRequested:
    """A client wants these replicas for partitions, or the reassignments under way cancelled (None).

    `AnswerReassignments` answers.
    """

    targets: Mapping[PartitionKey, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentsWished:
    """What `/admin/reassign_partitions` names; `ForgetReassignmentWishes` takes out what is done and what cannot be."""

    targets: Mapping[PartitionKey, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentsAsked:
    """A client asks for the reassignments under way, of all partitions (None) or of these; `AnswerReassignmentsAsked`."""

    partitions: frozenset[PartitionKey] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsWritten:
    """The outcome of `WriteAssignments`: what znodes name now; None where there is no such partition any more."""

    assignments: Mapping[PartitionKey, ReplicaAssignment | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookDue:
    """The next of the partitions that were not looked at yet in this term have their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerBehind:
    """A broker did not keep up and what was queued for it is lost: it must be told everything again."""

    broker_id: int


Question = IsrProposed | LeadersRequested | ReassignmentsRequested | ReassignmentsAsked
"""What somebody asks the controller who waits for an `Answer`."""

Event = (
    Elected
    | LookDue
    | BrokerBehind
    | BrokersChanged
    | TopicsChanged
    | DeletionsRequested
    | StatesWritten
    | ReplicasDeleted
    | TopicsHidden
    | TopicRemoved
    | IsrChanged
    | IsrProposed
    | LogDirectoriesFailed
    | ReplicasAnswered
    | ShutdownRequested
    | PreferredLeadersRequested
    | LeadersRequested
    | BalanceDue
    | UncleanElectionsAllowed
    | ReassignmentsRequested
    | ReassignmentsWished
    | ReassignmentsAsked
    | AssignmentsWritten
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookOn:
    """There are partitions that were not looked at in this term: `LookDue` is due once others had their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWrite:
    """One partition's new state; `zk_version` inside is the version to replace, `create` makes the znode
    instead. `reason` says to people why.
    """

    topic: str
    partition: int
    state: PartitionState
    create: bool
    reason: str = field(default="", compare=False)


class PartitionWord(NamedTuple):
    """What the controller says of one partition."""

    topic: str
    topic_id: UUID
    partition: int
    state: PartitionState
    assignment: ReplicaAssignment
    is_new: bool = False
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStates:
    """Write these states under the controller's epoch; the outcome comes back before any other event."""

    writes: tuple[StateWrite, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLeaderAndIsr:
    """Tell a broker who leads these partitions."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionWord, ...]
    leaders: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendUpdateMetadata:
    """Tell a broker who is alive and what became of these partitions."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[PartitionWord, ...]
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendStopReplica:
    """Tell a broker to stop these replicas, and to delete them."""

    broker_id: int
    broker_epoch: int
    partitions: tuple[tuple[str, int, int], ...]
    delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetBroker:
    """A broker is gone: what was not sent to it yet is void."""

    broker_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopic:
    """All replicas are gone: remove the topic's znodes, then the wish to delete it."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseDeletion:
    """Nothing to delete (or deleting is switched off): remove the wish."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAssignments:
    """Have the topics' znodes name these replicas; the outcome comes back before any other event."""

    changes: Mapping[PartitionKey, ReplicaAssignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReassignmentWishes:
    """Take these partitions out of `/admin/reassign_partitions`, and remove it when it names no other."""

    partitions: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPreferredElection:
    """All preferred leaders that can lead do: remove the wish for them."""


IsrAnswer = PartitionState | ErrorCode
"""The state that a partition has now, as it was proposed, or why it has another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerIsrProposal:
    """The answer to `IsrProposed`: an answer for each proposal, in their order, or an error for all of them."""

    answers: tuple[IsrAnswer, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLeaders:
    """The answer to `LeadersRequested`: who leads now, and which partitions nobody was elected for."""

    leaders: Mapping[PartitionKey, int]
    refusals: Mapping[PartitionKey, Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReassignments:
    """The answer to `ReassignmentsRequested`: what is not begun; all else is, and znodes say so."""

    refusals: Mapping[PartitionKey, Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReassignmentsAsked:
    """The answer to `ReassignmentsAsked`."""

    assignments: Mapping[PartitionKey, ReplicaAssignment]


Answer = AnswerIsrProposal | AnswerLeaders | AnswerReassignments | AnswerReassignmentsAsked
"""What somebody waits for who asked the controller."""

Act = (
    WriteStates
    | SendLeaderAndIsr
    | SendUpdateMetadata
    | SendStopReplica
    | ForgetBroker
    | RemoveTopic
    | RefuseDeletion
    | EndPreferredElection
    | WriteAssignments
    | ForgetReassignmentWishes
    | LookOn
)
Command = Act | Answer
