"""Partitions on their way to other brokers, in the phases of Apache Kafka's `KafkaController.onPartitionReassignment`.

A request first makes the topic's znode name all replicas, the new and the old ones, and which are added and removed, so that
a controller of either kind can go on from there. Then a new leader epoch tells all of them. Once every wanted replica is in
sync, a last leader epoch leaves the others out, they are told to delete what they have, and the znode names the wanted ones
alone. A later request takes the place of an earlier one; a cancelled one has the original replicas as its target.

Invariants: a replica is deleted only after a state that leaves it out of the in-sync replicas was written; the in-sync
replicas never become none; whether a move can end is asked again whenever its partition's state changed, whoever changed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.controller.deletions import Deletions
from headrace.broker.replication.controller.elections import Elections
from headrace.broker.replication.controller.sending import removals_to
from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.election import elect_reassigned
from headrace.broker.replication.events import (
    AnswerReassignments,
    AnswerReassignmentsAsked,
    AssignmentsWritten,
    Command,
    DeletionsRequested,
    ForgetReassignmentWishes,
    ReassignmentsAsked,
    ReassignmentsRequested,
    ReassignmentsWished,
    Refusal,
    StatesWritten,
    StateWrite,
    WriteAssignments,
)
from headrace.broker.replication.model import NO_LEADER, PartitionState, ReplicaAssignment
from headrace.broker.wire.partitions import PartitionKey

UNKNOWN = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
NOT_MOVING = Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")


@dataclass(slots=True)
class _Move:
    """One partition under way."""

    # What the znode named until now and names no longer, and what is therefore to be stopped once no state needs it.
    dropped: tuple[int, ...] = ()
    # Whether all replicas were told of each other in this term.
    is_told: bool = False
    # The replicas that stay, from when the state that leaves the others out is being written.
    ending: ReplicaAssignment | None = None
    # The state for which there was nothing to do.
    looked_at: PartitionState | None = None


MOVING = "its replicas are reassigned"


class Reassignments:
    """The moves under way; `cluster.moving` has their names."""

    def __init__(self, cluster: ClusterState, elections: Elections, deletions: Deletions) -> None:
        self._cluster = cluster
        self._elections = elections
        self._deletions = deletions
        self._moves: dict[PartitionKey, _Move] = {}
        # The partitions that `/admin/reassign_partitions` names.
        self._wished: set[PartitionKey] = set()
        # The answer to the request whose assignments are being written.
        self._answer: AnswerReassignments | None = None

    def resume(self) -> None:
        """Go on with what earlier controllers began."""
        for topic, partition, assignment in self._cluster.partitions():
            if assignment.is_moving:
                self._begin((topic, partition), ())

    def requested(self, event: ReassignmentsRequested) -> list[Command]:
        """Begin, replace or cancel by a client's request; it goes before what `/admin/reassign_partitions` says."""
        refusals = {key: self._refusal(key, target) for key, target in event.targets.items()}
        sound = {key: target for key, target in event.targets.items() if refusals[key] is None}
        answer = AnswerReassignments(refusals={key: r for key, r in refusals.items() if r is not None})
        forgotten = self._forget_wishes(sound)
        changes = self._changes(sound)
        if not changes:
            return [*forgotten, answer]
        self._answer = answer
        return [*forgotten, WriteAssignments(changes=changes)]

    def wished(self, event: ReassignmentsWished) -> list[Command]:
        """Begin or replace what `/admin/reassign_partitions` names; brokers that are away are waited for.

        What cannot be done, and what is done already, is taken out of the znode at once.
        """
        sound = {
            key: target
            for key, target in event.targets.items()
            if _fault(target) is None and self._is_known(key) and not self._would_lose(key, target)
        }
        changes = self._changes(sound)
        self._wished = set(event.targets)
        if not event.targets:
            return [ForgetReassignmentWishes(partitions=frozenset())]
        done = event.targets.keys() - changes.keys() - self._moves.keys()
        written: list[Command] = [WriteAssignments(changes=changes)] if changes else []
        return [*self._forget_wishes(done), *written]

    def asked(self, event: ReassignmentsAsked) -> list[Command]:
        """The moves under way, of all partitions or of these."""
        keys = self._moves.keys() if event.partitions is None else event.partitions
        found = {
            key: a for key in sorted(keys) if (a := self._cluster.assignment(key)) is not None and a.is_moving
        }
        return [AnswerReassignmentsAsked(assignments=found)]

    def assignments_written(self, event: AssignmentsWritten) -> list[Command]:
        """What znodes name now: moves begin, or are over."""
        cluster = self._cluster
        before = {key: cluster.assignment(key) for key in event.assignments}
        found = {k: a for k, a in event.assignments.items() if a is not None and before[k] is not None}
        cluster.assign(found)
        over = [k for k in event.assignments if k not in found or self._is_ending(k)]
        for key in found.keys() - over:
            old = before[key]
            assert old is not None, "found"
            self._begin(key, tuple(r for r in old.replicas if r not in found[key].replicas))
        return [*self._ended(over), *self._answered(event)]

    def writes(self) -> list[StateWrite]:
        """The states that let moves begin and end, as far as the present ones allow."""
        found = []
        for key, move in list(self._moves.items()):
            state = self._cluster.states.get(key)
            if state is None or state is move.looked_at:
                if key[0] not in self._cluster.topics:
                    self._end(key)
                continue
            write = self._next_write(key, move, state)
            if write is None:
                move.looked_at = state
            else:
                found.append(write)
        return found

    def states_written(self, event: StatesWritten) -> None:
        """To be called before anybody is told of these states: from now on only those that stay are replicas."""
        for key in self._moves.keys() & event.conflicts.keys():
            self._moves[key].ending = None
        endings: dict[PartitionKey, ReplicaAssignment] = {}
        for key in self._moves.keys() & event.written.keys():
            move, old = self._moves[key], self._cluster.assignment(key)
            if move.ending is not None and old is not None:
                move.dropped = tuple(dict.fromkeys((*move.dropped, *old.removing)))
                endings[key] = move.ending
        self._cluster.assign(endings)

    def states_told(self, event: StatesWritten) -> list[Command]:
        """To be called after everybody was told: who is no replica any more deletes what it has; the znode follows."""
        stops: dict[PartitionKey, tuple[int, ...]] = {}
        endings: dict[PartitionKey, ReplicaAssignment] = {}
        for key in sorted(self._moves.keys() & event.written.keys()):
            move = self._moves[key]
            if not set(move.dropped) & set(event.written[key].isr):
                stops[key], move.dropped = move.dropped, ()
            move.is_told = True
            if move.ending is not None:
                endings[key] = move.ending
        commands = removals_to(self._cluster, stops)
        return [*commands, WriteAssignments(changes=endings)] if endings else commands

    def _refusal(self, key: PartitionKey, target: Sequence[int] | None) -> Refusal | None:
        """Why a client's request is not done, checked in Kafka's order."""
        if target is None:
            assignment = self._cluster.assignment(key)
            if key not in self._moves or assignment is None:
                return NOT_MOVING
            target = assignment.origin
        else:
            refusal = _fault(target) or self._dead(key, target)
            if refusal is not None:
                return refusal
        if not self._is_known(key):
            return UNKNOWN
        if self._would_lose(key, target):
            return Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"None of the replicas {list(target)} would be in sync: wait until one is, or name one that is.",
            )
        return None

    def _dead(self, key: PartitionKey, target: Sequence[int]) -> Refusal | None:
        adding = (self._cluster.assignment(key) or ReplicaAssignment(replicas=())).moved_to(target).adding
        live = self._cluster.brokers.keys() - self._cluster.leaving
        if set(adding) <= live:
            return None
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Replica assignment has brokers that are not alive. "
            f"Replica list: {list(adding)}, live broker list: {sorted(live)}",
        )

    def _is_known(self, key: PartitionKey) -> bool:
        """Whether there is such a partition, and it is not about to be deleted."""
        return self._cluster.assignment(key) is not None and not self._cluster.is_doomed(key[0])

    def _would_lose(self, key: PartitionKey, target: Sequence[int]) -> bool:
        """Whether all that is in sync would be deleted at once, with replicas that a replaced move was adding."""
        assignment, state = self._cluster.assignment(key), self._cluster.states.get(key)
        if assignment is None or state is None:
            return False
        return not set(state.isr) & set(assignment.moved_to(target).replicas)

    def _changes(
        self, targets: Mapping[PartitionKey, Sequence[int] | None]
    ) -> dict[PartitionKey, ReplicaAssignment]:
        """The assignments that are not there already."""
        changes = {}
        for key, target in targets.items():
            old = self._cluster.assignment(key)
            assert old is not None, "checked"
            new = old.moved_to(old.origin if target is None else target)
            if new != old:
                changes[key] = new
        return changes

    def _next_write(self, key: PartitionKey, move: _Move, state: PartitionState) -> StateWrite | None:
        """The last leader epoch of the move when it can end, its first one when it has not begun in this term."""
        assignment = self._cluster.assignment(key)
        if assignment is None or key[0] in self._cluster.deleting:
            return None
        isr = tuple(r for r in state.isr if r not in move.dropped)
        if not isr:
            return None
        online = self._cluster.online(*key) - self._cluster.leaving
        target = assignment.target
        leader = elect_reassigned(state.leader, target, isr, online)
        # Where nobody is added or removed any more, as after a cancellation, there is nothing to wait for.
        can_end = set(target) <= set(isr) and leader is not None
        if can_end or not assignment.is_moving:
            move.ending = ReplicaAssignment(replicas=target)
            isr = tuple(r for r in isr if r in target)
            return self._elections.successor(
                key, state, NO_LEADER if leader is None else leader, isr, reason=MOVING
            )
        if move.is_told and not move.dropped:
            return None
        if state.leader not in move.dropped:
            return self._elections.successor(key, state, state.leader, isr, reason=MOVING)
        leader = elect_reassigned(NO_LEADER, assignment.replicas, isr, online)
        return self._elections.successor(
            key, state, NO_LEADER if leader is None else leader, isr, reason=MOVING
        )

    def _is_ending(self, key: PartitionKey) -> bool:
        move = self._moves.get(key)
        return move is not None and move.ending is not None

    def _begin(self, key: PartitionKey, dropped: tuple[int, ...]) -> None:
        assignment, earlier = self._cluster.assignment(key), self._moves.get(key)
        assert assignment is not None, "known"
        left = (*(earlier.dropped if earlier is not None else ()), *dropped)
        self._moves[key] = _Move(dropped=tuple(r for r in left if r not in assignment.replicas))
        self._cluster.moving.setdefault(key[0], set()).add(key[1])

    def _end(self, key: PartitionKey) -> None:
        self._moves.pop(key, None)
        partitions = self._cluster.moving.get(key[0], set())
        partitions.discard(key[1])
        if not partitions:
            self._cluster.moving.pop(key[0], None)

    def _ended(self, keys: Iterable[PartitionKey]) -> list[Command]:
        """Moves are over: nobody wishes them any more, and what waited for them goes on."""
        ended = list(keys)
        for key in ended:
            self._end(key)
        commands = self._forget_wishes(ended)
        waiting = {t for t, _ in ended} & self._cluster.doomed - self._cluster.moving.keys()
        if waiting:
            commands += self._deletions.requested(DeletionsRequested(topics=frozenset(waiting)))
        return commands

    def _answered(self, event: AssignmentsWritten) -> list[Command]:
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        gone = {key: UNKNOWN for key, assignment in event.assignments.items() if assignment is None}
        return [replace(answer, refusals={**answer.refusals, **gone})]

    def _forget_wishes(self, keys: Iterable[PartitionKey]) -> list[Command]:
        known = frozenset(self._wished & set(keys))
        self._wished -= known
        return [ForgetReassignmentWishes(partitions=known)] if known else []


def _fault(target: Sequence[int]) -> Refusal | None:
    """What is wrong with a list of replicas whatever the cluster is."""
    if not target:
        message = "Empty replica list specified in partition reassignment."
    elif len(set(target)) != len(target):
        message = f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
    elif min(target) < 0:
        message = f"Invalid broker id in replica list: {list(target)}"
    else:
        return None
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
