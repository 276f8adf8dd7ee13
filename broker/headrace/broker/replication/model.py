"""The facts of a cluster as plain values: brokers, replica assignments, partition states.

Everything here is frozen and comparable, so that a controller decision is a function from values to
values. Names and meaning are those of Apache Kafka's ZooKeeper mode; how the values are stored is
`zk.paths`' matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

NO_LEADER = -1
"""The leader of a partition none of whose in-sync replicas is alive."""
LEADER_DURING_DELETE = -2
"""The leader that UpdateMetadata names for a partition that is being deleted."""
INITIAL_LEADER_EPOCH = 0
NO_ZXID = -1
"""Of a state that was not read from ZooKeeper."""
RECOVERED, RECOVERING = 0, 1
"""Leader recovery states (KIP-704): RECOVERING is a leader that was elected without being in sync, until it says otherwise."""
EPOCH_DURING_DELETE = -2
"""The leader epoch in a StopReplica request that ends a topic: it overrules every other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One address of a broker under its listener name."""

    listener: str
    security_protocol: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker; `epoch` is the creation zxid of its registration (KIP-380)."""

    broker_id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address of that listener, or None when the broker has no such listener."""
        return next((e for e in self.endpoints if e.listener == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    """The brokers that hold a partition, preferred leader first; the other two lists are filled while it
    moves.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(r for r in self.replicas if r not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(r for r in self.replicas if r not in self.removing)

    def moved_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """The reassignment to `target` from where the partition was before any reassignment under way."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return ReplicaAssignment(
            replicas=replicas,
            adding=tuple(r for r in replicas if r not in origin),
            removing=tuple(r for r in replicas if r not in target),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """A topic as `/brokers/topics/<t>` holds it."""

    topic: str
    topic_id: UUID
    partitions: Mapping[int, ReplicaAssignment] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Leader and in-sync replicas as `/brokers/topics/<t>/partitions/<p>/state` holds them; `zk_version`
    is the znode's version, which a later write must name, `written_zxid` the transaction that wrote what was read."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    zk_version: int = 0
    leader_recovery_state: int = RECOVERED
    written_zxid: int = field(default=NO_ZXID, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition as clients see it; `leader` is -1 while no in-sync replica is alive."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


def ids_text(broker_ids: Iterable[int]) -> str:
    """How lines of a log write several brokers."""
    return ",".join(map(str, broker_ids))
