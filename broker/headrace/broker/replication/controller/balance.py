"""Other leaders for partitions that have one: wished by a client or in ZooKeeper, or to restore the balance.

A wish is asked for again after each write until every partition that can follow it does: a state that somebody else changed
is tried again. Invariant: one wish at a time, for its writes are out until the next event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.controller.elections import Elections
from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.election import elect_offline, elect_preferred
from headrace.broker.replication.events import (
    AnswerLeaders,
    BalanceDue,
    Command,
    EndPreferredElection,
    LeadersRequested,
    PreferredLeadersRequested,
    Refusal,
    StateWrite,
)
from headrace.broker.wire.partitions import PartitionKey

UNKNOWN = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
DELETED = Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
NOT_NEEDED = Refusal(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


class Balance:
    """The wish under way; `imbalance_percentage` of a broker's preferred partitions may be led by others."""

    def __init__(self, cluster: ClusterState, elections: Elections, *, imbalance_percentage: int) -> None:
        self._cluster = cluster
        self._elections = elections
        self._imbalance_percentage = imbalance_percentage
        self._wanted: frozenset[PartitionKey] = frozenset()
        # Whether a replica that is not in sync may lead, instead of whether the first one shall.
        self._unclean = False
        self._is_stored = False
        self._refusals: dict[PartitionKey, Refusal] | None = None

    @property
    def is_wished(self) -> bool:
        """Whether a wish is under way."""
        return bool(self._wanted) or self._is_stored or self._refusals is not None

    def preferred_leaders_requested(self, event: PreferredLeadersRequested) -> list[Command]:
        """The first replica of each partition leads, as far as it can; `EndPreferredElection` ends it."""
        self._wanted, self._unclean, self._is_stored = event.partitions, False, True
        return []

    def leaders_requested(self, event: LeadersRequested) -> list[Command]:
        """What a client wants; `AnswerLeaders` tells which partitions follow, and why the others do not."""
        self._unclean = event.unclean
        self._refusals = {
            key: refusal
            for key in event.partitions
            if (refusal := self._refusal(key, event.unclean)) is not None
        }
        self._wanted = event.partitions - self._refusals.keys()
        return []

    def due(self, event: BalanceDue) -> list[Command]:
        """It is time to look for brokers that lead too few of the partitions whose first replica they hold."""
        preferred: dict[int, list[PartitionKey]] = defaultdict(list)
        for topic, partition, assignment in self._cluster.partitions():
            if assignment.replicas and not self._cluster.is_doomed(topic):
                preferred[assignment.replicas[0]].append((topic, partition))
        wanted: set[PartitionKey] = set()
        for broker_id, keys in preferred.items():
            strayed = [k for k in keys if (s := self._cluster.states.get(k)) and s.leader != broker_id]
            if len(strayed) * 100 > len(keys) * self._imbalance_percentage:
                wanted.update(strayed)
        self._wanted, self._unclean = frozenset(wanted), False
        return []

    def writes(self, taken: Collection[PartitionKey]) -> list[StateWrite]:
        """The states that the wish still needs, but for partitions whose states are being written already."""
        write = self._unclean_write if self._unclean else self._preferred_write
        return [w for key in sorted(self._wanted) if key not in taken and (w := write(key)) is not None]

    def ended(self) -> list[Command]:
        """The wish has what it can have."""
        commands: list[Command] = [EndPreferredElection()] if self._is_stored else []
        if self._refusals is not None:
            commands.append(self._answer(self._refusals))
        self._wanted, self._is_stored, self._refusals = frozenset(), False, None
        return commands

    def _refusal(self, key: PartitionKey, unclean: bool) -> Refusal | None:
        """Why nothing is tried for a partition."""
        topic, partition = key
        assignment = self._cluster.topics.get(topic)
        if assignment is None or partition not in assignment.partitions:
            return UNKNOWN
        if self._cluster.is_doomed(topic):
            return DELETED
        return NOT_NEEDED if self._is_led_as_wished(key, unclean) else None

    def _is_led_as_wished(self, key: PartitionKey, unclean: bool) -> bool:
        state = self._cluster.states.get(key)
        if state is None:
            return False
        if unclean:
            return state.leader in self._cluster.brokers
        return self._cluster.topics[key[0]].partitions[key[1]].replicas[:1] == (state.leader,)

    def _answer(self, refusals: dict[PartitionKey, Refusal]) -> AnswerLeaders:
        failed = {k for k in self._wanted if not self._is_led_as_wished(k, self._unclean)}
        error, whose = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "its first replica is not alive and in sync"
        if self._unclean:
            error, whose = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of its replicas is alive"
        failures = {
            k: Refusal(error, f"Failed to elect a leader for {k[0]}-{k[1]}: {whose}.") for k in failed
        }
        return AnswerLeaders(
            leaders={k: self._cluster.states[k].leader for k in self._wanted - failed},
            refusals={**refusals, **failures},
        )

    def _preferred_write(self, key: PartitionKey) -> StateWrite | None:
        """None for what is unknown or being deleted, and when the preferred leader leads already or cannot."""
        topic, partition = key
        cluster = self._cluster
        state = cluster.states.get(key)
        if state is None or cluster.is_doomed(topic) or partition not in cluster.topics[topic].partitions:
            return None
        replicas = cluster.topics[topic].partitions[partition].replicas
        choice = elect_preferred(replicas, state.isr, cluster.online(topic, partition) - cluster.leaving)
        if choice is None or choice[0] == state.leader:
            return None
        return self._elections.successor(key, state, *choice, reason="its first replica is to lead")

    def _unclean_write(self, key: PartitionKey) -> StateWrite | None:
        """Any replica that is alive leads a partition that has no leader, one in sync if there is one."""
        state = self._cluster.states.get(key)
        if state is None or state.leader in self._cluster.brokers:
            return None
        replicas = self._cluster.topics[key[0]].partitions[key[1]].replicas
        choice = elect_offline(replicas, state.isr, self._cluster.online(*key), unclean=True)
        if choice is None:
            return None
        return self._elections.successor(key, state, *choice, reason="somebody is to lead, in sync or not")
