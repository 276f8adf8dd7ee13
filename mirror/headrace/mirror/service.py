"""The mirror of one broker: entry point of the group `headrace.embedded`.

For each source it keeps the target topics in step (created, grown), runs a copier for every target partition that this
broker leads, and lets go of those that it no longer leads. Ends only by cancellation or failure; the embedding point
starts it again. A broker without `mirror.sources` mirrors nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from headrace.broker.errors import KafkaError
from headrace.broker.log.results import AppendResult
from headrace.broker.server.embedding import EmbeddingHost, Partition
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.batches import BatchHeader
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror import lineage
from headrace.mirror.config import MirrorConfig
from headrace.mirror.copier import Copier
from headrace.mirror.journal import Journal, PartitionJournal
from headrace.mirror.lineage import Standing
from headrace.mirror.local_topic import last_batch
from headrace.mirror.metrics import MirrorMetrics
from headrace.mirror.reporter import Reporter
from headrace.mirror.source import Source
from headrace.mirror.targets import Targets

logger = get_logger(__name__)
RECONCILE_SECONDS = 1.0


def check(properties: Mapping[str, str]) -> None:
    """Raises ConfigurationError for a mirror configuration that a broker cannot start with."""
    MirrorConfig.from_properties(properties)


def mirrored_names(properties: Mapping[str, str]) -> Callable[[str], bool]:
    """Tells whether a name is one that this broker's mirror gives to a copy."""
    sources = MirrorConfig.from_properties(properties).sources
    return lambda name: any(source.source_topic(name) is not None for source in sources)


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
                        own_cluster=host.cluster_id,
                        is_here=lambda name: host.metadata.topics(name) is not None,
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
        self._host.start_mirrored_at(self._partition, offset)

    def last_batch(self) -> BatchHeader | None:
        return last_batch(self._log)


class Mirror:
    """All sources of this broker."""

    def __init__(self, host: EmbeddingHost, journal: Journal) -> None:
        self.journal = journal
        self.sources: list[Source] = []
        self._host = host
        self._targets = Targets(host, journal)
        self._partition_of: dict[tuple[str, PartitionKey], Partition] = {}
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
            source.forget_link()

    async def follow(self, source: Source) -> None:
        """Keep up with a source's metadata."""
        while True:
            if await source.refresh():
                # Before its first message is copied, so that nobody is told of a copy whose source was never reached.
                self._reporter.tell(self._host.clock.now_ms())
                self._reconcile(source)
                for key, copier in source.copiers.items():
                    source.locate(key, copier)
                source.assign()
                await self._targets.keep_in_step(source)
                if self._reconcile(source):
                    source.refresh_soon()
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

    # -- partitions

    def _reconcile(self, source: Source) -> bool:
        """Run copiers for exactly the copies that are led here; whether there are new ones."""
        led = self._led_copies(source)
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

    def _led_copies(self, source: Source) -> dict[PartitionKey, Partition]:
        led: dict[PartitionKey, Partition] = {}
        for partition in self._host.led():
            topic = source.config.source_topic(partition.topic)
            if topic is None:
                continue
            if topic in source.refused or self._is_former(partition):
                self.journal.forget(partition)
            elif partition.log.is_mirror_copy:
                led[topic, partition.partition] = partition
        return led

    def _is_former(self, partition: Partition) -> bool:
        if partition.log.is_mirror_copy:
            return False
        configs = self._host.configurations.of_topic(partition.topic)
        return lineage.standing(configs, is_remembered=False) is Standing.FORMER

    def _copier(self, source: Source, key: PartitionKey, partition: Partition) -> Copier:
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
        logger.info(
            "copying" if copier.state.stopped is None else "stopped until it is resumed",
            topic=partition.topic,
            partition=partition.partition,
            log_end_offset=partition.log.log_end_offset,
        )
        return copier

    def _obey(self, source: Source, led: Mapping[PartitionKey, Partition], now_ms: int) -> None:
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
                logger.error("order cannot be carried out", topic=key[0], partition=key[1], reason=error)
            source.refresh_soon()
