"""What a controller counts of its cluster."""

from __future__ import annotations

from uuid import UUID

from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.model import Broker, PartitionState, ReplicaAssignment, TopicAssignment


def cluster() -> ClusterState:
    """Broker 2 is away; of `t`, partition 0 is led by its first replica and 1 by another, 2 by none, 3 never was led."""
    replicas = {0: (1, 2), 1: (2, 1), 2: (2, 3), 3: (2,)}
    states = {0: (1, 1), 1: (1, 1), 2: (2, 2, 3)}
    return ClusterState(
        epoch=1,
        brokers={1: Broker(broker_id=1, epoch=1, endpoints=())},
        topics={
            "t": TopicAssignment(
                topic="t",
                topic_id=UUID(int=1),
                partitions={p: ReplicaAssignment(replicas=r) for p, r in replicas.items()},
            )
        },
        states={
            ("t", p): PartitionState(leader=leader, leader_epoch=0, isr=tuple(isr), controller_epoch=1)
            for p, (leader, *isr) in states.items()
        },
    )


def test_partitions_that_no_live_broker_leads_are_offline() -> None:
    assert cluster().offline_partition_count() == 2


def test_partitions_that_others_lead_are_out_of_balance() -> None:
    assert cluster().imbalance_count() == 1


def test_what_is_being_deleted_is_not_counted() -> None:
    found = cluster()
    found.deleting["t"] = set()
    assert (found.offline_partition_count(), found.imbalance_count()) == (0, 0)
