"""The mirror of one broker: entry point of the group `headrace.embedded`.

For each source it keeps the target topics in step (created, grown), runs a copier for every target partition that this
broker leads, and lets go of those that it no longer leads. Ends only by cancellation or failure; the embedding point
starts it again. A broker without `mirror.sources` mirrors nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import KafkaError
from headrace.broker.server.embedding import EmbeddingHost, Partition
from headrace.broker.server.settings.configurations import IsMirrored
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror import lineage
from headrace.mirror.aggregate import service as aggregates
from headrace.mirror.aggregate.group import Group
from headrace.mirror.config import MirrorConfig, SourceConfig
from headrace.mirror.copy.copier import Copier
from headrace.mirror.copy.log import LedTarget, changed_ms
from headrace.mirror.lineage import Standing
from headrace.mirror.memory import orders
from headrace.mirror.memory.arrival_log import ArrivalLog
from headrace.mirror.memory.arrivals import Arrival
from headrace.mirror.memory.journal import CopyJournal, Journal
from headrace.mirror.memory.lead import Lead
from headrace.mirror.memory.own_topics import ARRIVALS, FINDINGS, OWN_TOPICS, SOURCES, STATES
from headrace.mirror.memory.reports import Report
from headrace.mirror.memory.shared_reader import StateReader, last_report, recorded_ends
from headrace.mirror.memory.shared_topic import SharedTopic, shared_topics
from headrace.mirror.memory.state import State
from headrace.mirror.metrics import MirrorMetrics
from headrace.mirror.names import CopyNames
from headrace.mirror.reporter import Reporter
from headrace.mirror.restorer import Restorer
from headrace.mirror.restoring import Restoring
from headrace.mirror.rounds.acls import follow_acls
from headrace.mirror.rounds.checker import Checker
from headrace.mirror.rounds.configs import ConfigRounds
from headrace.mirror.rounds.groups import follow_groups
from headrace.mirror.source import Source
from headrace.mirror.targets import Targets

logger = get_logger(__name__)
RECONCILE_SECONDS = 1.0
LED_LOOKS = 5
"""At every so manieth of them what is led is looked at though no leadership changed: a copy may be promoted."""
ARRIVALS_SECONDS = 0.1
ARRIVALS_IDLE_SECONDS = 60.0


def check(properties: Mapping[str, str]) -> None:
    """Raises ConfigurationError for a mirror configuration that a broker cannot start with."""
    MirrorConfig.from_properties(properties)


def mirrored_names(properties: Mapping[str, str]) -> IsMirrored:
    """Tells whether a name is one that this broker's mirror gives to a copy, or would."""
    sources = MirrorConfig.from_properties(properties).sources
    return lambda name, *, is_named: any(
        source.source_topic(name, is_named=is_named) is not None for source in sources
    )


async def start(host: EmbeddingHost) -> None:
    """Mirror until cancelled; returns at once when there is nothing to mirror."""
    config = MirrorConfig.from_properties(host.properties)
    if not config.sources and not config.aggregates:
        return
    await shared_topics(host, OWN_TOPICS)
    earlier = await last_report(host)
    async with asyncio.TaskGroup() as tasks:
        states, findings, arrivals, reports = (
            SharedTopic(host, name, tasks) for name in (STATES, FINDINGS, ARRIVALS, SOURCES)
        )
        mirror = Mirror(host, Journal(states, findings, reports), ArrivalLog(arrivals))
        reader = StateReader(host, mirror.journal)
        await reader.open()
        try:
            for source in config.sources:
                mirror.add(_source(source, config, host, mirror, tasks), earlier)
            for running in mirror.sources:
                tasks.create_task(mirror.follow(running))
                tasks.create_task(follow_groups(host, running))
                tasks.create_task(follow_acls(host, running))
                tasks.create_task(mirror.checker(running).run())
            tasks.create_task(
                aggregates.run(
                    host,
                    config.aggregates,
                    mirror.journal,
                    mirror.aggregates,
                    lambda source, own: _source(source, config, host, mirror, own),
                )
            )
            tasks.create_task(mirror.reconcile_often())
            tasks.create_task(mirror.write_arrivals())
            tasks.create_task(mirror.restorer.run())
            await reader.run()
        finally:
            mirror.close()


def _source(
    source: SourceConfig, config: MirrorConfig, host: EmbeddingHost, mirror: Mirror, tasks: asyncio.TaskGroup
) -> Source:
    return Source(
        source,
        config.tunables,
        host.clock,
        tasks,
        f"headrace-mirror-{host.broker_id}",
        mirror.fetched,
        own_cluster=host.cluster_id,
        is_here=lambda name: host.metadata.topics(name) is not None,
        copied_from=lambda running: lineage.last_clusters(
            host.configurations.of_topic(name)
            for name in host.configurations.marked_topics()
            if running.original_of(name) is not None
        ),
    )


class Mirror:
    """All sources of this broker."""

    def __init__(self, host: EmbeddingHost, journal: Journal, arrival_log: ArrivalLog) -> None:
        self.journal = journal
        self.sources: list[Source] = []
        self.aggregates: list[Group] = []
        self._host = host
        self._arrivals = arrival_log
        self._arrivals_due = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_changed = True
        self._targets = Targets(host, journal)
        self._configs = ConfigRounds(host)
        self.restorer = Restorer(host, journal)
        self._leads: dict[tuple[str, PartitionKey], Lead] = {}
        self._metrics = MirrorMetrics(self.sources, journal.findings_count, host.clock, self.aggregates)
        self._reporter = Reporter(host.broker_id, journal, self.sources, self.aggregates)
        self._end_watch = host.on_change(lambda _: self._changed.set())
        host.registry.register(self._metrics)

    def add(self, source: Source, earlier: Report | None) -> None:
        """Mirror this source as well; `earlier` is what this broker told last before its start."""
        self._reporter.remember(source, earlier)
        self.sources.append(source)

    def close(self) -> None:
        self._end_watch()
        self._host.registry.unregister(self._metrics)
        for source in self.sources:
            source.forget_link()

    def checker(self, source: Source) -> Checker:
        """What compares its copies with it."""
        return Checker(self._host, source, lambda key: self._leads.get((source.config.name, key)))

    async def follow(self, source: Source) -> None:
        """Keep up with a source's metadata."""
        while True:
            self._choose(source)
            if await source.refresh():
                # Before its first message is copied, so that nobody is told of a copy whose source was never reached.
                self._reporter.tell(self._host.clock.now_ms())
                self._reconcile(source)
                for key, copier in source.copiers.items():
                    source.locate(key, copier)
                source.assign()
                await self._targets.keep_in_step(source)
                await self._configs.keep_in_step(source)
                self._reconcile(source)
            await source.wait_until_due()

    async def reconcile_often(self) -> None:
        """Follow what this broker leads, and what it is told to do; tell what it hears."""
        for look in itertools.count():
            is_due = self._is_changed or look % LED_LOOKS == 0
            self._is_changed = False
            for source in self.sources:
                if self._choose(source) or is_due:
                    self._reconcile(source)
                else:
                    self._obey(source)
            self._reporter.tell(self._host.clock.now_ms())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECONCILE_SECONDS):
                    await self._changed.wait()
                self._is_changed = True
            self._changed.clear()

    # -- arrivals

    def fetched(self, _: int) -> None:
        """A source answered."""
        if self._arrivals.is_waiting:
            self._arrivals_due.set()

    async def write_arrivals(self) -> None:
        """Write what arrived, some times a second at most, and what predecessors did not come to write."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ARRIVALS_IDLE_SECONDS):
                    await self._arrivals_due.wait()
            await asyncio.sleep(ARRIVALS_SECONDS)
            if unrecorded := self._arrivals.unrecorded:
                await self._complete_arrivals(unrecorded)
            self._arrivals.flush(self._host.clock.now_ms())
            if not self._arrivals.is_waiting:
                self._arrivals_due.clear()

    async def _complete_arrivals(self, places: set[bytes]) -> None:
        try:
            self._arrivals.complete(await recorded_ends(self._host, places), places)
        except (*FAILURES, KafkaError) as error:
            logger.warning("arrivals cannot be read, it is tried again", reason=repr(error))
            await asyncio.sleep(RECONCILE_SECONDS)

    # -- partitions

    def _reconcile(self, source: Source) -> None:
        """Run copiers for exactly the copies that are led here, each under its present leadership."""
        led = self._led_copies(source)
        name = source.config.name
        known = {key: lead for (of, key), lead in self._leads.items() if of == name}
        # Of a copy that was promoted and is to be restored this broker may have missed the former.
        gone = [
            key for key, lead in known.items() if led.get(key) != lead or self._is_to_restore(source, key)
        ]
        source.forget(gone)
        for key in gone:
            # Whoever holds a partition holds the files of its log open, deleted or not.
            self._arrivals.let_go(self._leads.pop((name, key)))
        for key in led.keys() - (known.keys() - set(gone)):
            self._take_over(source, key, led[key])
        if gone:
            source.assign()
        self._obey(source)

    def _is_to_restore(self, source: Source, key: PartitionKey) -> bool:
        """Whether a copy that is copied to was ordered to be restored first."""
        lead = self._leads[source.config.name, key]
        return key in source.copiers and self.journal.restore_of(lead) is not None

    def _led_copies(self, source: Source) -> dict[PartitionKey, Lead]:
        led: dict[PartitionKey, Lead] = {}
        for partition in self._host.led():
            topic = source.original_of(partition.topic)
            if topic is None or not orders.chooses(source.choice, topic):
                continue
            if topic in source.refused or self._is_former(partition):
                self.journal.forget(partition)
                if partition.log.is_mirror_copy:
                    # What is a copy here is none at the source, or not for long: it was promoted there, then restored here.
                    source.doubt(topic)
            elif partition.log.is_mirror_copy:
                led[topic, partition.partition] = Lead(partition, partition.leader_epoch)
        return led

    def _is_former(self, partition: Partition) -> bool:
        if partition.log.is_mirror_copy:
            return False
        configs = self._host.configurations.of_topic(partition.topic)
        return lineage.standing(configs, is_remembered=False) is Standing.FORMER

    def _take_over(self, source: Source, key: PartitionKey, lead: Lead) -> None:
        """Have the copy's state, restore it where that is ordered, then go on with it."""
        self._leads[source.config.name, key] = lead
        source.awaited[key] = self._host.clock.now_ms()

        def holds() -> bool:
            return self._leads.get((source.config.name, key)) == lead and lead.holds

        def copy(state: State) -> None:
            if holds():
                del source.awaited[key]
                source.restoring.pop(key, None)
                self._arrivals.take_over(lead, changed_ms(lead.partition.log))
                self._arrivals_due.set()
                source.copiers[key] = self._copier(source, key, lead, state)
                source.refresh_soon()

        def ready(state: State) -> None:
            order = self.journal.restore_of(lead)
            if order is None:
                copy(state)
            elif holds():
                source.restoring[key] = restoring = Restoring(order, lead.partition)
                self.restorer.begin(lead, restoring, state, copy)

        self.journal.take_over(lead, source.config.bootstrap, ready, start=source.config.start)

    def _copier(self, source: Source, key: PartitionKey, lead: Lead, state: State) -> Copier:
        tunables, partition = source.tunables, lead.partition

        def arrived(first_offset: int, last_offset: int, now_ms: int) -> None:
            self._arrivals.arrived(lead, Arrival(first_offset, last_offset, now_ms))

        copier = Copier(
            source.config.name,
            *key,
            target=LedTarget(self._host, lead),
            journal=CopyJournal(self.journal, lead, arrived),
            state=state,
            backoff_ms=(tunables.retry_backoff_ms, tunables.retry_backoff_max_ms),
            now_ms=self._host.clock.now_ms(),
        )
        logger.info(
            "copying" if copier.state.stopped is None else "stopped until it is resumed",
            topic=partition.topic,
            partition=partition.partition,
            leader_epoch=lead.leader_epoch,
            log_end_offset=partition.log.log_end_offset,
        )
        return copier

    def _choose(self, source: Source) -> bool:
        """Take the choice of topics that a person ordered, and the names of copies; whether they are others."""
        before = source.choice, source.names
        source.choice = self.journal.choice_of(source.config.name)
        source.names = CopyNames(self._host.configurations.remote_topics())
        if (source.choice, source.names) == before:
            return False
        source.refresh_soon()
        return True

    def _obey(self, source: Source) -> None:
        """Carry out what a person ordered."""
        now_ms, config = self._host.clock.now_ms(), source.config
        source.limit_to(self.journal.limit_of(config.name))
        paused = {topic for topic in source.topics if self.journal.is_paused(source.copy_of(topic))}
        for key, copier in source.copiers.items():
            if copier.is_paused != (key[0] in paused):
                copier.pause(is_paused=key[0] in paused)
                source.refresh_soon()
            if copier.state.rotten is None and copier.state.stopped is None:
                continue
            partition = self._leads[source.config.name, key].partition
            stop, skip = self.journal.resume_of(partition), self.journal.skip_of(partition)
            try:
                if skip is not None and copier.state.rotten is not None:
                    copier.skip(skip, now_ms)
                if stop is None or copier.state.stopped is None:
                    continue
                copier.resume(stop, now_ms)
            except KafkaError as error:
                logger.error("order cannot be carried out", topic=key[0], partition=key[1], reason=error)
            source.refresh_soon()
