"""The topics of this cluster that a source's are brought into: made, marked with whose messages they have, given partitions.

Invariant: a topic is marked before the first message is brought into it, so that none goes round between two clusters.
"""

from __future__ import annotations

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.structured_log import get_logger
from headrace.mirror import lineage
from headrace.mirror.aggregate.cluster import Cluster
from headrace.mirror.source import Source, SourceTopic
from headrace.mirror.sync.configs import copied

logger = get_logger(__name__)
_THERE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS})


async def keep_in_step(cluster: Cluster, source: Source) -> None:
    """Have a topic for each of the source's, with no fewer partitions; what cannot be had is told, and not brought.

    Raises FAILURES and KafkaErrors where the cluster does not answer: nothing is known then.
    """
    await cluster.look_at(source.topics.keys())
    found = dict(source.unreadable)
    for topic in source.topics.values():
        reason = refusal(cluster, topic) or await _have(cluster, source, topic)
        if reason:
            found[topic.name] = reason
    for name in found.keys() - source.not_brought.keys():
        logger.error("aggregate is not brought", topic=name, source=source.config.name, reason=found[name])
    source.not_brought = found


def refusal(cluster: Cluster, topic: SourceTopic) -> str:
    """Why a topic cannot be brought into an aggregate, or nothing."""
    if not topic.configs:
        return "its configuration is not known yet"
    if topic.clusters:
        return "it is a mirror's copy at the source: bring it from where it was published"
    if topic.is_compacted:
        return "it is compacted: only copies, which keep offsets, can be (mirror.<datacenter>.mode=copy)"
    if topic.configs.get("message.timestamp.type") == "LogAppendTime":
        return "its messages have their brokers' times (message.timestamp.type=LogAppendTime), which no client may write"
    if cluster.cluster_id in lineage.merged_of(topic.configs):
        return "messages of this cluster are brought into it there: they would go round and round"
    if lineage.clusters_of(cluster.configs_of(topic.name)):
        return "the topic of that name here is a mirror's copy, which nothing else is brought into"
    return ""


async def _have(cluster: Cluster, source: Source, topic: SourceTopic) -> str:
    """Have the topic with enough partitions, and marked; why it cannot be had, or nothing."""
    known, count = cluster.partition_count(topic.name), len(topic.partitions)
    if known is None:
        merged = lineage.merged({}, source.cluster_id, topic.configs)
        code, message = await cluster.create(topic.name, count, {**copied(topic.configs), **merged})
    elif known < count:
        code, message = await cluster.grow(topic.name, count)
    else:
        return await _mark(cluster, source, topic)
    if code not in _THERE:
        return f"it cannot have {count} partitions here: {message or ErrorCode(code).name}"
    is_marked = known is None and code == ErrorCode.NONE
    return "" if is_marked else await _mark(cluster, source, topic)


async def _mark(cluster: Cluster, source: Source, topic: SourceTopic) -> str:
    """Have the topic say whose messages are brought into it; why it cannot, or nothing."""
    known = cluster.configs_of(topic.name)
    wanted = lineage.merged(known, source.cluster_id, topic.configs)
    if lineage.merged_of(known) == lineage.merged_of(wanted):
        return ""
    try:
        await cluster.mark(topic.name, wanted)
    except (*FAILURES, KafkaError) as error:
        return f"it cannot be marked: {str(error) or 'ZooKeeper does not answer'}"
    return ""
