"""The mirror of one broker: entry point of the group `headrace.embedded`.

For each source it keeps the target topics in step (created, grown), runs a copier for every target partition that this
broker leads, and lets go of those that it no longer leads. Ends only by cancellation or failure; the embedding point
starts it again. A broker without `mirror.sources` mirrors nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.log.results import AppendResult
from headrace.broker.server.embedding import EmbeddingHost, NewTopic, Partition
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.batches import BatchHeader
from headrace.mirror.config import MirrorConfig, SourceConfig
from headrace.mirror.copier import Copier
from headrace.mirror.journal import Journal, PartitionJournal
from headrace.mirror.local_topic import last_batch
from headrace.mirror.metrics import MirrorMetrics
from headrace.mirror.reporter import Reporter
from headrace.mirror.source import Key, Source, SourceTopic

log = get_logger(__name__)
TOPIC_TIMEOUT_MS = 10_000
RECONCILE_SECONDS = 1.0
_IN_STEP = frozenset(
    {
        ErrorCode.NONE,
        # Another broker of this cluster was faster.
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REQUEST,
    }
)


def check(properties: Mapping[str, str]) -> None:
    """Raises ConfigurationError for a mirror configuration that a broker cannot start with."""
    MirrorConfig.from_properties(properties)


async def start(host: EmbeddingHost) -> None:
    """Mirror until cancelled; returns at once when there is nothing to mirror."""
    config = MirrorConfig.from_properties(host.properties)
    if not config.sources:
        return
    mirror = Mirror(host, await Journal.open(host))
    try:
        async with asyncio.TaskGroup() as tasks:
            for source in config.sources:
                mirror.add(
                    Source(
                        source,
                        config.tunables,
                        host.clock,
                        tasks,
                        f"headrace-mirror-{host.broker_id}",
                        mirror.journal.flush,
                    )
                )
            for running in mirror.sources:
                tasks.create_task(mirror.follow(running))
            tasks.create_task(mirror.reconcile_often())
    finally:
        mirror.close()


class LedTarget:
    """The local log behind a copier's `Target`."""

    def __init__(self, host: EmbeddingHost, partition: Partition) -> None:
        self._host = host
        self._partition = partition
        self._log = partition.log

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    def append(self, records: memoryview) -> AppendResult:
        return self._host.append_mirrored(self._partition, records)

    def start_at(self, offset: int) -> None:
        self._log.start_at(offset)

    def last_batch(self) -> BatchHeader | None:
        return last_batch(self._log)


class Mirror:
    """All sources of this broker."""

    def __init__(self, host: EmbeddingHost, journal: Journal) -> None:
        self.journal = journal
        self.sources: list[Source] = []
        self._host = host
        self._partition_of: dict[tuple[str, Key], Partition] = {}
        self._metrics = MirrorMetrics(self.sources, journal.findings_count, host.clock)
        self._reporter = Reporter(host.broker_id, journal, self.sources)
        host.registry.register(self._metrics)

    def add(self, source: Source) -> None:
        """Mirror this source as well."""
        self._reporter.remember(source)
        self.sources.append(source)

    def close(self) -> None:
        self._host.registry.unregister(self._metrics)
        for source in self.sources:
            source.forget_connection()

    async def follow(self, source: Source) -> None:
        """Keep up with a source's metadata."""
        while True:
            if await source.refresh():
                await self._bring_topics(source)
                self._reconcile(source)
                for key, copier in source.copiers.items():
                    source.locate(key, copier)
                source.assign()
            await source.wait_until_due()

    async def reconcile_often(self) -> None:
        """Follow what this broker leads, and what it is told to do; tell what it hears."""
        while True:
            self.journal.read_states()
            for source in self.sources:
                if self._reconcile(source):
                    source.refresh_soon()
            self._reporter.tell(self._host.clock.now_ms())
            await asyncio.sleep(RECONCILE_SECONDS)

    # -- topics

    async def _bring_topics(self, source: Source) -> None:
        """Keep the targets of a source's topics in step, and note which cannot be."""
        found = dict(source.unreadable)
        for topic in list(source.topics.values()):
            reason = await self._keep_in_step(source.config, topic)
            if reason:
                found[source.config.target_topic(topic.name)] = reason
        for name in found.keys() - source.not_brought.keys():
            log.error("target topic is not in step", topic=name, reason=found[name])
        source.not_brought = found

    async def _keep_in_step(self, config: SourceConfig, topic: SourceTopic) -> str:
        """Create the target of a source's topic, or give it the partitions that it lacks; why that is not to be done."""
        name = config.target_topic(topic.name)
        count = len(topic.partitions)
        known = self._host.metadata.topics(name)
        if not topic.configs or (known is not None and len(known) >= count):
            return ""
        if known is None:
            new = NewTopic(name=name, partition_count=count, configs=dict(topic.configs))
            result = (await self._host.cluster.create_topics([new], timeout_ms=TOPIC_TIMEOUT_MS))[0]
        else:
            result = await self._host.cluster.create_partitions(
                name, count, None, timeout_ms=TOPIC_TIMEOUT_MS, validate_only=False
            )
        if result.error in _IN_STEP:
            return ""
        what = "cannot be created" if known is None else f"cannot have {count} partitions"
        return f"{what}: {result.message or result.error.name}"

    # -- partitions

    def _reconcile(self, source: Source) -> bool:
        """Run copiers for exactly the partitions that are led here; whether there are new ones."""
        led: dict[Key, Partition] = {}
        for partition in self._host.led():
            topic = source.config.source_topic(partition.topic)
            if topic is not None:
                led[topic, partition.partition] = partition
        name = source.config.name
        gone = [key for key in source.copiers if led.get(key) is not self._partition_of.get((name, key))]
        source.forget(gone)
        for key in gone:
            # Whoever holds a partition holds the files of its log open, deleted or not.
            del self._partition_of[name, key]
        new = led.keys() - source.copiers.keys()
        now_ms = self._host.clock.now_ms()
        self.journal.complete_arrivals([led[key] for key in new], now_ms)
        for key in new:
            self._partition_of[name, key] = led[key]
            source.copiers[key] = self._copier(source, key, led[key])
        if gone:
            source.assign()
        self._obey(source, led, now_ms)
        return bool(new)

    def _copier(self, source: Source, key: Key, partition: Partition) -> Copier:
        tunables = source.tunables
        copier = Copier(
            source.config.name,
            *key,
            target=LedTarget(self._host, partition),
            journal=PartitionJournal(self.journal, partition),
            state=self.journal.state_of(partition, source.config.bootstrap),
            backoff_ms=(tunables.retry_backoff_ms, tunables.retry_backoff_max_ms),
            now_ms=self._host.clock.now_ms(),
        )
        log.info(
            "copying" if copier.state.stopped is None else "stopped until it is resumed",
            topic=partition.topic,
            partition=partition.partition,
            log_end_offset=partition.log.log_end_offset,
        )
        return copier

    def _obey(self, source: Source, led: Mapping[Key, Partition], now_ms: int) -> None:
        """Carry out what a person told stopped and rotten partitions to do."""
        for key, copier in source.copiers.items():
            stop, skip = self.journal.resume_of(led[key]), self.journal.skip_of(led[key])
            try:
                if skip is not None and copier.state.rotten is not None:
                    copier.skip(skip, now_ms)
                if stop is None or copier.state.stopped is None:
                    continue
                copier.resume(stop, now_ms)
            except KafkaError as error:
                log.error("order cannot be carried out", topic=key[0], partition=key[1], reason=error)
            source.refresh_soon()
