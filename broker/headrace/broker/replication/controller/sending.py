"""The commands that tell brokers what the controller knows: which broker hears which words.

Every command bears the epoch of the broker's registration, so that a later life of the broker does not obey it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.events import (
    Command,
    PartitionWord,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from headrace.broker.replication.model import EPOCH_DURING_DELETE
from headrace.broker.wire.partitions import PartitionKey


def leaders_to(
    cluster: ClusterState,
    broker_ids: Iterable[int],
    words: tuple[PartitionWord, ...],
    led: Mapping[PartitionKey, int] = MappingProxyType({}),
) -> list[Command]:
    """LeaderAndIsr to each broker for the replicas that it holds; `led` says who led partitions until now.

    A broker that is about to stop hears of what it leads or led: its other replicas were stopped, and stay so.
    """
    held: dict[int, list[PartitionWord]] = {broker_id: [] for broker_id in sorted(broker_ids)}
    leaving = cluster.leaving
    for word in words:
        adding = word.assignment.adding
        for replica in word.assignment.replicas:
            if replica in held and (
                replica not in leaving
                or replica in (word.state.leader, led.get((word.topic, word.partition)))
            ):
                # An added replica may be made anew in any data directory until it is in sync.
                is_new = replica in adding and replica not in word.state.isr
                held[replica].append(word._replace(is_new=True) if is_new else word)
    # Who hears the same is given the same: it is made into a request once.
    common: dict[tuple[int, ...], tuple[PartitionWord, ...]] = {}
    return [
        _leader_and_isr(cluster, broker_id, common.setdefault(tuple(map(id, own)), tuple(own)))
        for broker_id, own in held.items()
        if own
    ]


def _leader_and_isr(
    cluster: ClusterState, broker_id: int, own: tuple[PartitionWord, ...]
) -> SendLeaderAndIsr:
    leaders = sorted({w.state.leader for w in own})
    return SendLeaderAndIsr(
        broker_id=broker_id,
        broker_epoch=cluster.brokers[broker_id].epoch,
        partitions=own,
        leaders=tuple(cluster.brokers[b] for b in leaders if b in cluster.brokers),
    )


def metadata_to(
    cluster: ClusterState, broker_ids: Iterable[int], words: tuple[PartitionWord, ...]
) -> list[Command]:
    """UpdateMetadata to each broker: who is alive, and these words."""
    brokers = tuple(cluster.brokers[b] for b in sorted(cluster.brokers))
    return [
        SendUpdateMetadata(
            broker_id=broker_id,
            broker_epoch=cluster.brokers[broker_id].epoch,
            partitions=words,
            brokers=brokers,
        )
        for broker_id in sorted(broker_ids)
    ]


def stops_to(cluster: ClusterState, broker_id: int, keys: Iterable[PartitionKey]) -> list[Command]:
    """StopReplica without deletion to this broker, for replicas with a state."""
    own = tuple((topic, p, cluster.states[topic, p].leader_epoch) for topic, p in keys)
    if not own:
        return []
    epoch = cluster.brokers[broker_id].epoch
    return [SendStopReplica(broker_id=broker_id, broker_epoch=epoch, partitions=own, delete=False)]


def deletions_to(cluster: ClusterState, broker_ids: Iterable[int], topic: str) -> list[Command]:
    """StopReplica with delete to each of these brokers for what is left of the topic there."""
    commands: list[Command] = []
    for broker_id in sorted(broker_ids):
        own = tuple(
            (topic, p, EPOCH_DURING_DELETE) for p, r in sorted(cluster.deleting[topic]) if r == broker_id
        )
        if own:
            epoch = cluster.brokers[broker_id].epoch
            commands.append(
                SendStopReplica(broker_id=broker_id, broker_epoch=epoch, partitions=own, delete=True)
            )
    return commands


def removals_to(cluster: ClusterState, stops: Mapping[PartitionKey, Iterable[int]]) -> list[Command]:
    """StopReplica with delete to the brokers, as far as they are alive, that are replicas of these partitions no longer."""
    by_broker: dict[int, list[tuple[str, int, int]]] = {}
    for (topic, partition), replicas in stops.items():
        for replica in replicas:
            if replica in cluster.brokers:
                epoch = cluster.states[topic, partition].leader_epoch
                by_broker.setdefault(replica, []).append((topic, partition, epoch))
    return [
        SendStopReplica(
            broker_id=broker_id,
            broker_epoch=cluster.brokers[broker_id].epoch,
            partitions=tuple(own),
            delete=True,
        )
        for broker_id, own in sorted(by_broker.items())
    ]
