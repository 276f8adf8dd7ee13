"""What clients ask about offsets: where logs begin and end (ListOffsets), where leader epochs end (KIP-101, KIP-320). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import CONSUMER_REPLICA_ID, NO_EPOCH, READ_UNCOMMITTED

LIST_OFFSETS_VERSION = 5
EPOCH_ENDS_VERSION = 3


def list_offsets(
    leader_epochs: Mapping[PartitionKey, int],
    timestamp: int,
    *,
    replica_id: int = CONSUMER_REPLICA_ID,
    isolation_level: int = READ_UNCOMMITTED,
) -> Message:
    """A request for one offset of each partition, by the leader epoch that it is believed to be in; -1: any."""
    wanted = {place: (epoch, timestamp) for place, epoch in leader_epochs.items()}
    return listed_by(wanted, replica_id=replica_id, isolation_level=isolation_level)


def listed_by(
    places: Mapping[PartitionKey, tuple[int, int]],
    *,
    replica_id: int = CONSUMER_REPLICA_ID,
    isolation_level: int = READ_UNCOMMITTED,
) -> Message:
    """The same of partition → (leader epoch, timestamp)."""
    wanted = (
        (place, {"partition_index": place[1], "current_leader_epoch": epoch, "timestamp": timestamp})
        for place, (epoch, timestamp) in places.items()
    )
    topics = [{"name": topic, "partitions": partitions} for topic, partitions in by_topic(wanted).items()]
    return {"replica_id": replica_id, "isolation_level": isolation_level, "topics": topics}


def listed_offsets(answer: Message) -> dict[PartitionKey, tuple[int, int]]:
    """Partition → (error code, offset)."""
    return {
        (topic["name"], partition["partition_index"]): (partition["error_code"], partition["offset"])
        for topic in answer["topics"]
        for partition in topic["partitions"]
    }


def epoch_ends(epochs: Mapping[PartitionKey, tuple[int, int]]) -> Message:
    """A request for the ends of epochs: partition → (the leader epoch that it is believed to be in, the one asked for)."""
    wanted = (
        (place, {"partition": place[1], "current_leader_epoch": current, "leader_epoch": epoch})
        for place, (current, epoch) in epochs.items()
    )
    topics = [{"topic": topic, "partitions": partitions} for topic, partitions in by_topic(wanted).items()]
    return {"replica_id": CONSUMER_REPLICA_ID, "topics": topics}


def told_epoch_ends(answer: Message) -> dict[PartitionKey, tuple[int, int, int]]:
    """Partition → (error code, epoch, end offset); a broker of an old version tells no epoch: -1."""
    return {
        (topic["topic"], partition["partition"]): (
            partition["error_code"],
            partition.get("leader_epoch", NO_EPOCH),
            partition["end_offset"],
        )
        for topic in answer["topics"]
        for partition in topic["partitions"]
    }


def by_topic(wanted: Iterable[tuple[PartitionKey, Message]]) -> dict[str, list[Message]]:
    """What is wanted of each topic's partitions, in order."""
    topics: dict[str, list[Message]] = {}
    for (topic, _), partition in wanted:
        topics.setdefault(topic, []).append(partition)
    return topics
