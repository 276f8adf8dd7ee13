"""What tests of partitions share: a broker that hosts them and keeps what they ask for, and the controller's word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from headrace.broker.replication.control_requests import ToldReplica
from headrace.broker.replication.leader import IsrProposal
from headrace.broker.replication.model import RECOVERED, PartitionState
from headrace.broker.replication.partition import Partition

LAG_MS_MAX = 30_000


class ScriptedHost:
    """Broker `broker_id` at `now_ms`; `dead` brokers may not join, what partitions ask for is kept in order."""

    def __init__(
        self, broker_id: int = 1, request_sync: Callable[[Partition], None] = lambda _: None
    ) -> None:
        self.broker_id = broker_id
        self.replica_lag_ms_max = LAG_MS_MAX
        self.request_sync = request_sync
        self.now_ms = 1_000_000
        self.dead: set[int] = set()
        self.proposals: list[IsrProposal] = []
        self.secured: list[Partition] = []
        self.woken: list[Partition] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    def is_alive(self, broker_id: int) -> bool:
        return broker_id not in self.dead

    def secure(self, partition: Partition) -> None:
        self.secured.append(partition)

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self.proposals.append(proposal)

    def committed(self, partition: Partition) -> None:
        self.woken.append(partition)


def told(
    leader: int = 1,
    epoch: int = 0,
    isr: Sequence[int] = (1,),
    replicas: Sequence[int] | None = None,
    *,
    partition_epoch: int = 0,
    recovery: int = RECOVERED,
    topic: str = "t",
    partition: int = 0,
) -> ToldReplica:
    """The controller's word for one replica; `replicas` are those of the ISR when it does not say."""
    return ToldReplica(
        topic,
        UUID(int=1),
        partition,
        PartitionState(
            leader=leader,
            leader_epoch=epoch,
            isr=tuple(isr),
            controller_epoch=1,
            zk_version=partition_epoch,
            leader_recovery_state=recovery,
        ),
        tuple(isr if replicas is None else replicas),
    )
