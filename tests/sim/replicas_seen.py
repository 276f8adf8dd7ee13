"""What the replicas of simulated brokers hold, read off their logs as they lie there; and what ZooKeeper says of them."""

from __future__ import annotations

from collections.abc import Iterator

from history import Replica
from node import Node
from world import World

from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.replication.model import PartitionState
from headrace.broker.replication.partition import Partition
from headrace.broker.wire import batches
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk import paths

PIECE_SIZE = 1 << 20


def replicas_of(world: World, place: PartitionKey) -> Iterator[tuple[Node, Partition]]:
    """The replicas of a partition on brokers that serve."""
    for node in world.live():
        if node.is_serving and node.broker is not None and node.broker.partitions is not None:
            partition = node.broker.partitions.get(*place)
            if partition is not None:
                yield node, partition


def places_of(world: World, topic: str) -> list[PartitionKey]:
    """The partitions of a topic that exists."""
    znode = world.ensemble.znodes.get(paths.topic(topic))
    if znode is None:
        return []
    return [(topic, number) for number in paths.decode_topic(topic, znode.data).partitions]


def assignment_of(world: World, place: PartitionKey) -> tuple[int, ...]:
    """The brokers that hold a partition, or are to hold it, as the topic's znode says."""
    topic, number = place
    znode = world.ensemble.znodes[paths.topic(topic)]
    return paths.decode_topic(topic, znode.data).partitions[number].replicas


def state_of(world: World, place: PartitionKey) -> PartitionState | None:
    znode = world.ensemble.znodes.get(paths.partition_state(*place))
    if znode is None:
        return None
    return paths.decode_partition_state(place[0], znode.data, znode.version, znode.mzxid)


def contents(log: PartitionLog) -> Replica:
    """All that a log holds."""
    values: dict[int, bytes] = {}
    raw: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, size_max=PIECE_SIZE, upper_offset=log.log_end_offset).read()
        for position, header in batches.iter_batches(piece):
            raw[header.base_offset] = piece[position : position + header.size]
            offset = header.next_offset
            if not header.is_control:
                for record in batches.decode_records(piece, position, header):
                    values[record.offset] = record.value or b""
    return Replica(values, raw, log.high_watermark)


def is_settled(world: World, place: PartitionKey, factor: int) -> bool:
    """Whether so many replicas are in sync and hold the same, all of it committed.

    Others may hold some yet: who was away when its replica was moved, and the controller too, is told by nobody, as in Kafka.
    """
    state = state_of(world, place)
    if state is None or len(state.isr) != factor or set(assignment_of(world, place)) != set(state.isr):
        return False
    found = [partition.log for node, partition in replicas_of(world, place) if node.broker_id in state.isr]
    ends = {end for log in found for end in (log.log_end_offset, log.high_watermark)}
    return len(found) == factor and len(ends) == 1
