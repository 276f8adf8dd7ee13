"""How a cluster is, and whether one of its brokers may stop: decided from what was seen of it, without asking anybody.

A partition that moves has replicas to come; these are not missed (as in kafka-topics). Nor are those of brokers that somebody
drained, as long as enough others are in sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.cli.broker_look import BrokerLook
from headrace.cli.cluster_admin import ClusterLook, Move, PartitionView
from headrace.cli.reassignment_plan import Key

PARTITIONS_NAMED_MAX: Final = 10
ZOOKEEPER_SILENT: Final = (
    "ZooKeeper does not answer the brokers: "
    "min.insync.replicas is not known, and leaders that die are not replaced"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """All that was seen; `min_isr` is `min.insync.replicas` by topic, None where ZooKeeper does not tell the brokers.
    Nothing is known of `moves` then.

    `drained` are the brokers that are stopped on purpose.
    """

    look: ClusterLook
    brokers: Mapping[int, BrokerLook]
    moves: Mapping[Key, Move]
    min_isr: Mapping[str, int] | None
    drained: frozenset[int] = frozenset()

    def without_leader(self) -> list[Key]:
        return [key for key, p in self._partitions() if p.leader < 0]

    def under_replicated(self) -> dict[Key, tuple[int, ...]]:
        """The replicas out of sync, by partition."""
        found = {}
        for key, partition in self._partitions():
            coming = self.moves[key].adding if key in self.moves else ()
            late = tuple(r for r in partition.replicas if r not in partition.isr and r not in coming)
            if late:
                found[key] = late
        return found

    def lagging(self) -> list[Key]:
        """Under-replicated partitions that do not wait for drained brokers alone."""
        return [key for key, late in self.under_replicated().items() if not self.drained.issuperset(late)]

    def waiting_for_drained(self) -> list[Key]:
        """Under-replicated partitions that will be until drained brokers are restored."""
        return [key for key, late in self.under_replicated().items() if self.drained.issuperset(late)]

    def below_min_isr(self) -> list[Key] | None:
        return self._with_spare(lambda spare: spare < 0)

    def at_min_isr(self) -> list[Key] | None:
        return self._with_spare(lambda spare: spare == 0)

    def answers(self, broker_id: int) -> bool:
        return broker_id in self.brokers and self.brokers[broker_id].failure is None

    def absent(self) -> list[int]:
        """Brokers that have replicas and are not alive."""
        return sorted(self._holders() - self.look.addresses.keys())

    def knows(self, broker_id: int) -> bool:
        """Whether a broker is alive or has replicas."""
        return broker_id in self._holders() | self.look.addresses.keys()

    def _holders(self) -> set[int]:
        return {replica for _, p in self._partitions() for replica in p.replicas}

    def _with_spare(self, is_wanted: Callable[[int], bool]) -> list[Key] | None:
        """Those with so many replicas in sync above `min.insync.replicas`; None where nobody knows."""
        min_isr = self.min_isr
        if min_isr is None:
            return None
        return [key for key, p in self._partitions() if is_wanted(len(p.isr) - min_isr[key[0]])]

    def _partitions(self) -> Iterable[tuple[Key, PartitionView]]:
        return sorted(self.look.partitions.items(), key=lambda item: item[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """What would be if a broker stopped: partitions that fall below min.insync.replicas, with what would be left in sync.

    `hindered` would not if their other replicas were in sync; `never` are of topics with too few replicas to keep the rule.
    """

    hindered: Mapping[Key, int]
    never: Mapping[Key, int]


def stopping(state: ClusterState, broker_id: int) -> Stopping:
    """Whom it would hurt if this broker stopped now; who is silent is in sync only until the session in ZooKeeper ends."""
    assert state.min_isr is not None, "without ZooKeeper nobody asks"
    hindered: dict[Key, int] = {}
    never: dict[Key, int] = {}
    for key, partition in sorted(state.look.partitions.items(), key=lambda item: item[0]):
        needed = state.min_isr[key[0]]
        left = sum(replica != broker_id and state.answers(replica) for replica in partition.isr)
        if broker_id in partition.isr and left < needed:
            (never if len(partition.replicas) <= needed else hindered)[key] = left
    return Stopping(hindered=hindered, never=never)


def problems(state: ClusterState) -> list[str]:
    """One sentence for each thing that is not well; none: all is."""
    found = []
    if state.min_isr is None:
        found.append(f"{ZOOKEEPER_SILENT}.")
    if state.look.controller not in state.look.addresses:
        found.append("No broker is the controller: leaders that die are not replaced.")
    if absent := [broker_id for broker_id in state.absent() if broker_id not in state.drained]:
        found.append(f"Brokers that have replicas and are not alive: {', '.join(map(str, absent))}.")
    for broker_id, broker in sorted(state.brokers.items()):
        if broker.failure is not None:
            found.append(f"Broker {broker_id} is registered, but does not answer: {broker.failure}.")
        if broker.offline_log_dirs:
            found.append(f"Broker {broker_id} lost log directories: {', '.join(broker.offline_log_dirs)}.")
    if without := state.without_leader():
        found.append(f"Partitions without a leader ({len(without)}): {named(without)}.")
    if below := state.below_min_isr():
        found.append(f"Partitions below min.insync.replicas ({len(below)}): {named(below)}.")
    if late := state.lagging():
        found.append(f"Partitions with replicas out of sync ({len(late)}): {named(late)}.")
    return found


def as_json(state: ClusterState) -> dict[str, Any]:
    """What `headrace cluster status --json` prints."""
    wrong = problems(state)
    return {
        "well": not wrong,
        "problems": wrong,
        "controller": state.look.controller,
        "brokers": [
            {
                "broker": broker_id,
                "address": "{}:{}".format(*address),
                "rack": state.look.racks[broker_id],
                "engine": state.brokers[broker_id].engine,
                "version": state.brokers[broker_id].version,
                "protocol": state.brokers[broker_id].protocol,
                "answers": state.answers(broker_id),
                "leads": sum(p.leader == broker_id for p in state.look.partitions.values()),
                "offline_log_dirs": list(state.brokers[broker_id].offline_log_dirs),
            }
            for broker_id, address in sorted(state.look.addresses.items())
        ],
        "absent": state.absent(),
        "partitions": len(state.look.partitions),
        "without_leader": [name_of(key) for key in state.without_leader()],
        "under_replicated": {name_of(key): list(late) for key, late in state.under_replicated().items()},
        "drained": sorted(state.drained),
        "waiting_for_drained": [name_of(key) for key in state.waiting_for_drained()],
        "below_min_isr": _names(state.below_min_isr()),
        "at_min_isr": _names(state.at_min_isr()),
        "reassigning": None if state.min_isr is None else _names(sorted(state.moves)),
    }


def _names(keys: Sequence[Key] | None) -> list[str] | None:
    return None if keys is None else [name_of(key) for key in keys]


def name_of(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def named(keys: Sequence[Key]) -> str:
    """The first partitions by name, and how many more there are."""
    names = ", ".join(map(name_of, keys[:PARTITIONS_NAMED_MAX]))
    return (
        names if len(keys) <= PARTITIONS_NAMED_MAX else f"{names} and {len(keys) - PARTITIONS_NAMED_MAX} more"
    )
