"""Having partitions led on in a new leader epoch: by asking the controller for the same replicas in another order, and for
their order back. Their leader stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.broker.errors import ErrorCode
from headrace.broker.wire.api import (
    k03_metadata,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
)
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.cluster_client import METADATA_VERSION, TIMEOUT_MS, ClusterClient

Replicas = Mapping[PartitionKey, list[int]]


async def renew(client: ClusterClient, places: Collection[PartitionKey]) -> str:
    """Do so for those of these that have followers; why it was not done, or nothing. Raises FAILURES and KafkaErrors."""
    topics = [{"name": topic} for topic in sorted({topic for topic, _ in places})]
    named = {"topics": topics, "allow_auto_topic_creation": False}
    found = await client.ask(client.brokers[0], k03_metadata.API, METADATA_VERSION, named)
    controller = found["controller_id"]
    replicas = {
        (topic["name"], partition["partition_index"]): partition["replica_nodes"]
        for topic in found["topics"]
        for partition in topic["partitions"]
    }
    asked = {"timeout_ms": TIMEOUT_MS, "topics": None}
    moving = await client.ask(controller, k46_list_partition_reassignments.API, 0, asked)
    busy = {(topic["name"], p["partition_index"]) for topic in moving["topics"] for p in topic["partitions"]}
    wanted = {
        place: replicas[place] for place in places if place not in busy and len(replicas.get(place, ())) > 1
    }
    if not wanted:
        return ""
    turned = {place: [*own[1:], own[0]] for place, own in wanted.items()}
    return await _assign(client, controller, turned) or await _assign(client, controller, wanted)


async def _assign(client: ClusterClient, controller: int, wanted: Replicas) -> str:
    topics: dict[str, list[Message]] = {}
    for (topic, partition), replicas in sorted(wanted.items()):
        topics.setdefault(topic, []).append({"partition_index": partition, "replicas": replicas})
    message = {
        "timeout_ms": TIMEOUT_MS,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    answer = await client.ask(controller, k45_alter_partition_reassignments.API, 0, message)
    codes = [answer["error_code"]]
    codes += [found["error_code"] for topic in answer["responses"] for found in topic["partitions"]]
    code = max(codes)
    return f"the controller refuses a new leader epoch: {ErrorCode(code).name}" if code else ""
