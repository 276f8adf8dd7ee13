"""Which brokers hold the partitions of a new topic: Apache Kafka's way of spreading (kafka.admin.AdminUtils).

The first replicas go round robin from a random broker, the others follow with a shift that grows by one
each round; with racks, brokers alternate between racks and a partition's replicas lie in different ones as
far as possible. The random numbers come in: `start` and `shift` are drawn below the number of brokers.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.errors import InvalidPartitionsError, InvalidReplicationFactorError


def assign_replicas(
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Partition number → replicas, the preferred leader first; `brokers` maps live broker ids to racks.

    Raises InvalidPartitionsError and InvalidReplicationFactorError with a sentence.
    """
    if partition_count <= 0:
        raise InvalidPartitionsError("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}."
        )
    racks = {b: r for b, r in brokers.items() if r is not None}
    use_racks = len(racks) == len(brokers)
    order = _alternate(racks) if use_racks else sorted(brokers)
    assignment = {}
    shift = max(0, shift)
    for index in range(partition_count):
        partition = first_partition + index
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (partition + start) % len(order)
        assignment[partition] = (
            _with_racks(order, racks, first, shift, replication_factor)
            if use_racks
            else _plain(order, first, shift, replication_factor)
        )
    return assignment


def _plain(order: list[int], first: int, shift: int, replication_factor: int) -> tuple[int, ...]:
    return (
        order[first],
        *(order[_position(first, shift, j, len(order))] for j in range(replication_factor - 1)),
    )


def _position(first: int, shift: int, replica: int, count: int) -> int:
    return (first + 1 + (shift + replica) % (count - 1)) % count


def _with_racks(
    order: list[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    chosen = [order[first]]
    used_racks = {racks[order[first]]}
    step = 0
    while len(chosen) < replication_factor:
        candidate = order[(first + 1 + (shift * rack_count + step) % (len(order) - 1)) % len(order)]
        step += 1
        rack_is_free = racks[candidate] not in used_racks or len(used_racks) == rack_count
        if rack_is_free and candidate not in chosen:
            chosen.append(candidate)
            used_racks.add(racks[candidate])
    return tuple(chosen)


def _alternate(racks: Mapping[int, str]) -> list[int]:
    """Brokers in an order that alternates between racks."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    order = []
    while any(queues):
        order += [queue.pop(0) for queue in queues if queue]
    return order
