"""The topics of this cluster that a source's are brought into: made, marked with whose messages they have, given partitions.

Invariant: a topic is marked before the first message is brought into it, so that none goes round between two clusters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.server.embedding import EmbeddingHost, NewTopic
from headrace.broker.structured_log import get_logger
from headrace.mirror import lineage
from headrace.mirror.config_sync import copied
from headrace.mirror.source import Source, SourceTopic

logger = get_logger(__name__)
TIMEOUT_MS = 10_000
_THERE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS})


async def keep_in_step(host: EmbeddingHost, source: Source) -> None:
    """Have a topic for each of the source's, with no fewer partitions; what cannot be had is told, and not brought."""
    found = dict(source.unreadable)
    for topic in source.topics.values():
        reason = refusal(host, topic) or await _have(host, source, topic)
        if reason:
            found[topic.name] = reason
    for name in found.keys() - source.not_brought.keys():
        logger.error("aggregate is not brought", topic=name, source=source.config.name, reason=found[name])
    source.not_brought = found


def refusal(host: EmbeddingHost, topic: SourceTopic) -> str:
    """Why a topic cannot be brought into an aggregate, or nothing."""
    if not topic.configs:
        return "its configuration is not known yet"
    if topic.clusters:
        return "it is a mirror's copy at the source: bring it from where it was published"
    if topic.is_compacted:
        return "it is compacted: only copies, which keep offsets, can be (mirror.<datacenter>.mode=copy)"
    if topic.configs.get("message.timestamp.type") == "LogAppendTime":
        return "its messages have their brokers' times (message.timestamp.type=LogAppendTime), which no client may write"
    if host.cluster_id in lineage.merged_of(topic.configs):
        return "messages of this cluster are brought into it there: they would go round and round"
    if lineage.clusters_of(host.configurations.of_topic(topic.name)):
        return "the topic of that name here is a mirror's copy, which nothing else is brought into"
    return ""


async def _have(host: EmbeddingHost, source: Source, topic: SourceTopic) -> str:
    """Have the topic with enough partitions, and marked; why it cannot be had, or nothing."""
    known, count = host.metadata.topics(topic.name), len(topic.partitions)
    if known is None:
        merged = lineage.merged({}, source.cluster_id, topic.configs)
        new = NewTopic(name=topic.name, partition_count=count, configs={**copied(topic.configs), **merged})
        (result,) = await host.topics.create([new], timeout_ms=TIMEOUT_MS)
    elif len(known) < count:
        result = await host.topics.grow(topic.name, count, None, timeout_ms=TIMEOUT_MS, validate_only=False)
    else:
        return await _mark(host, source, topic)
    if result.error not in _THERE:
        return f"it cannot have {count} partitions here: {result.message or result.error.name}"
    is_marked = known is None and result.error is ErrorCode.NONE
    return "" if is_marked else await _mark(host, source, topic)


async def _mark(host: EmbeddingHost, source: Source, topic: SourceTopic) -> str:
    """Have the topic say whose messages are brought into it; why it cannot, or nothing."""

    def marked(overrides: Mapping[str, str]) -> dict[str, str]:
        return {**overrides, **lineage.merged(overrides, source.cluster_id, topic.configs)}

    known = host.configurations.of_topic(topic.name)
    if marked(known) == known:
        return ""
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await host.configurations.alter_topic(topic.name, marked, validate_only=False)
    except (TimeoutError, KafkaError) as error:
        return f"it cannot be marked: {str(error) or 'ZooKeeper does not answer'}"
    return ""
