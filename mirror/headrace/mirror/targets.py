"""The copies of a source's topics in this cluster: created, marked as copies, given the partitions that they lack.

Invariant: nothing is done to a topic that has a copy's name and is none: somebody else made it, or it was promoted.
Decides by `lineage`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from uuid import UUID

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.server.embedding import EmbeddingHost, NewTopic, Partition, TopicResult
from headrace.broker.structured_log import get_logger
from headrace.mirror import lineage
from headrace.mirror.lineage import Standing
from headrace.mirror.memory.journal import Journal
from headrace.mirror.source import Source, SourceTopic
from headrace.mirror.sync.configs import copied

logger = get_logger(__name__)
TOPIC_TIMEOUT_MS = 10_000
TOPICS_AT_ONCE = 50
MARK_MAX_AGE_MS = 60_000
ZOOKEEPER_SILENT = "cannot be looked at: ZooKeeper does not answer"
_IN_STEP = frozenset(
    {
        ErrorCode.NONE,
        # Another broker of this cluster was faster.
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REQUEST,
    }
)


class Targets:
    """Of all sources of this broker."""

    def __init__(self, host: EmbeddingHost, journal: Journal) -> None:
        self._host = host
        self._journal = journal
        # Copies that were found marked: the topic's id, the mark, and when.
        self._marked: dict[str, tuple[UUID, Mapping[str, str], int]] = {}

    async def keep_in_step(self, source: Source) -> None:
        """Have a copy of each of the source's topics, with no fewer partitions, and note which cannot be had."""
        led: dict[str, list[Partition]] = {}
        for partition in self._host.led():
            led.setdefault(partition.topic, []).append(partition)
        found = dict(source.unreadable)
        # Without its configuration nobody knows whether a topic is a copy itself, or compacted.
        topics = {source.copy_of(topic.name): topic for topic in source.topics.values() if topic.configs}
        missing = [name for name in topics if self._host.metadata.topics(name) is None]
        for begin in range(0, len(missing), TOPICS_AT_ONCE):
            names = missing[begin : begin + TOPICS_AT_ONCE]
            found |= await self._create({name: topics[name] for name in names}, source)
        is_silent = False
        for name in sorted(topics.keys() - set(missing)):
            # Who waited in vain for ZooKeeper once does not wait for it with each topic: the source's metadata is due.
            known = source.not_brought.get(name, "")
            reason = known if is_silent else await self._keep(name, source, topics[name], led.get(name, ()))
            is_silent = is_silent or reason == ZOOKEEPER_SILENT
            if reason and not (reason == ZOOKEEPER_SILENT and self._was_whole(name, source, topics[name])):
                found[name] = reason
        for name in found.keys() - source.not_brought.keys():
            logger.error("target topic is not in step", topic=name, reason=found[name])
        source.not_brought = found

    async def _keep(self, name: str, source: Source, topic: SourceTopic, led: Collection[Partition]) -> str:
        """Have the copy of one topic; why that is not to be done, or nothing."""
        mark = lineage.mark(topic.clusters, source.cluster_id)
        count = len(topic.partitions)
        known = self._host.metadata.topics(name)
        if known is None:
            return ""
        try:
            async with asyncio.timeout(TOPIC_TIMEOUT_MS / 1000):
                # A copy that was promoted a moment ago gets nothing more.
                standing = await self._standing(name, mark, led, is_fresh=len(known) < count)
        except (TimeoutError, KafkaError) as error:
            return f"cannot be looked at: {error}" if str(error) else ZOOKEEPER_SILENT
        if standing is Standing.FOREIGN and led:
            ((key, value),) = mark.items()
            return (
                "somebody else made a topic of that name, which is left alone: delete it and the mirror makes the copy, "
                f"or set its configuration {key}={value} to have it copied to"
            )
        if standing is Standing.COPY and len(known) < count:
            result = await self._host.topics.grow(
                name, count, None, timeout_ms=TOPIC_TIMEOUT_MS, validate_only=False
            )
            return _reason(f"cannot have {count} partitions", result)
        return ""

    def _was_whole(self, name: str, source: Source, topic: SourceTopic) -> bool:
        """Whether the copy was found marked, and nothing that has been learned since has to be written for it."""
        topic_id, mark, _ = self._marked.get(name, (None, {}, 0))
        partitions = self._host.metadata.topics(name) or {}
        is_same = topic_id == self._host.metadata.topic_id(name)
        is_marked = mark == lineage.mark(topic.clusters, source.cluster_id)
        return is_same and is_marked and len(partitions) >= len(topic.partitions)

    async def _create(self, topics: Mapping[str, SourceTopic], source: Source) -> dict[str, str]:
        """Have these made, all with one request; why some cannot be."""
        new = []
        for name, topic in topics.items():
            mark = lineage.mark(topic.clusters, source.cluster_id)
            new.append(
                NewTopic(
                    name=name,
                    partition_count=len(topic.partitions),
                    configs={**copied(topic.configs), **mark},
                )
            )
        results = await self._host.topics.create(new, timeout_ms=TOPIC_TIMEOUT_MS)
        reasons = {
            topic.name: _reason("cannot be created", result)
            for topic, result in zip(new, results, strict=True)
        }
        return {name: reason for name, reason in reasons.items() if reason}

    async def _standing(
        self, name: str, mark: Mapping[str, str], led: Collection[Partition], *, is_fresh: bool
    ) -> Standing:
        """What a topic that is there is; a copy that was found marked is looked at again from time to time, or afresh."""
        topic_id = self._host.metadata.topic_id(name)
        now_ms = self._host.clock.monotonic_ms()
        if name in self._marked and not is_fresh:
            *known, since_ms = self._marked[name]
            if known == [topic_id, mark] and now_ms - since_ms < MARK_MAX_AGE_MS:
                return Standing.COPY
        standing = await self._marked_anew(name, mark, led)
        if standing is Standing.COPY:
            self._marked[name] = topic_id, mark, now_ms
        return standing

    async def _marked_anew(self, name: str, mark: Mapping[str, str], led: Collection[Partition]) -> Standing:
        """What the topic is, once it has the mark that it should have."""
        configurations = self._host.configurations
        is_remembered = any(self._journal.remembers(partition) for partition in led)
        stored = (await configurations.stored_of_topics([name]))[name]
        standing = lineage.standing(stored, is_remembered=is_remembered)
        if standing in (Standing.FORMER, Standing.FOREIGN) or mark.items() <= stored.items():
            return standing

        def change(overrides: dict[str, str]) -> Mapping[str, str]:
            nonlocal standing
            standing = lineage.standing(overrides, is_remembered=is_remembered)
            return overrides if standing in (Standing.FORMER, Standing.FOREIGN) else {**overrides, **mark}

        await configurations.alter_topic(name, change, validate_only=False)
        logger.info("topic is marked as a copy", topic=name, **mark)
        return Standing.COPY if standing is Standing.UNMARKED else standing


def _reason(what: str, result: TopicResult) -> str:
    return "" if result.error in _IN_STEP else f"{what}: {result.message or result.error.name}"
