"""One live datacenter as this broker copies from it: its metadata, and the requests that its copiers want sent.

Metadata is asked for at least every `metadata.max.age.ms` and soon after anything went wrong, from any broker that
answers. Each broker of the source has a fetcher, and every partition belongs to its leader's. Decides nothing about a
partition, that is `copy/copier`'s, nor what is asked when: that is `fetch/plan`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace.broker.client.asynchronous import FAILURES, AsyncLink
from headrace.broker.clock import Clock
from headrace.broker.config.copies import MERGED_CLUSTERS, MIRROR_CLUSTERS
from headrace.broker.errors import ErrorCode, KafkaError, error_of, reason_of
from headrace.broker.outage import Outage
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.api import k03_metadata, k32_describe_configs
from headrace.broker.wire.client.repeated import Repeated
from headrace.broker.wire.client.view import Address, addresses_of
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror import lineage
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.copy.copier import Copier
from headrace.mirror.equality.checks import CheckPlan
from headrace.mirror.fetch.fetcher import Fetcher
from headrace.mirror.fetch.window import Limit
from headrace.mirror.memory import orders
from headrace.mirror.memory.reports import SourceReport, SyncReport, shortened
from headrace.mirror.names import CopyNames
from headrace.mirror.questions import Located
from headrace.mirror.restoring import Restoring
from headrace.mirror.sync.configs import SYNCED_CONFIGS

logger = get_logger(__name__)
REFRESH_PAUSE_SECONDS = 0.2
PATIENCE_SECONDS = 10.0
"""How long metadata is waited for before another broker is asked; twice as long each time it does not come, up to a request's
time-out.
"""
CONFIG_MAX_AGE_MS = 60_000
CONFIG_PAUSE_MS = 30_000
"""Between two questions for configurations of which the first had no answer."""
TOPIC_RESOURCE = 2
ASKED_CONFIGS = (*SYNCED_CONFIGS, MIRROR_CLUSTERS, MERGED_CLUSTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A topic that is copied, as the source's metadata shows it; partition → (leader, leader epoch)."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, tuple[int, int]]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def clusters(self) -> lineage.Clusters:
        """Those that it came through; none for a topic of the source's own."""
        return lineage.clusters_of(self.configs)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "")


class Source:
    """`topics` is the newest metadata, `copiers` what this broker copies (partition of the source → copier), `awaited` what it
    will copy once the state is there, and since when, `restoring` those of them that are restored first.

    `answered_ms` is when the source last answered anything, `problem` why it did not answer the last time, `not_brought`
    why a topic of it has no copy, or one with too few partitions, `unreadable` those of them that it does not tell about;
    both by the copy's name. `outages` are those of its brokers, by their ids, and outlive their fetchers: who is dead leads
    nothing. `checks` is how far its copies are compared with it, `syncs` what else this broker brings of it, `choice` which
    topics a person chose of those that are configured, `names` which are copies under other names.
    `refused` are topics of it that are wanted and must not be copied, and why. `own_cluster` is the id of this cluster,
    `is_here(name)` tells of its topics, `copied_from(source)` from which clusters this source's copies here are.
    """

    def __init__(
        self,
        config: SourceConfig,
        tunables: Tunables,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        client_id: str,
        after_fetch: Callable[[int], None],
        *,
        own_cluster: str,
        is_here: Callable[[str], bool],
        copied_from: Callable[[Source], Collection[str]] = lambda _: (),
    ) -> None:
        self.config = config
        self.tunables = tunables
        self.clock = clock
        self.client_id = client_id
        self.after_fetch = after_fetch
        self.limit = Limit(config.bytes_per_second)
        self.checks = CheckPlan(tunables.verify_max_bytes_per_second)
        self.cluster_id = ""
        self.topics: dict[str, SourceTopic] = {}
        self.refused: dict[str, str] = {}
        self.copiers: dict[PartitionKey, Copier] = {}
        self.awaited: dict[PartitionKey, int] = {}
        self.restoring: dict[PartitionKey, Restoring] = {}
        self.addresses: dict[int, Address] = {}
        self.outages: dict[int, Outage] = {}
        self.is_known = False
        self.began_ms = clock.now_ms()
        self.answered_ms: int | None = None
        self.problem = ""
        self._is_another = False
        self.not_brought: dict[str, str] = {}
        self.unreadable: dict[str, str] = {}
        self.syncs: dict[str, SyncReport] = {}
        self.choice: re.Pattern[str] | None = None
        self.names = CopyNames()
        self._own_cluster = own_cluster
        self._is_here = is_here
        self._copied_from = copied_from
        self._tasks = tasks
        self._fetchers: dict[int, tuple[Fetcher, asyncio.Task[None]]] = {}
        self._link: AsyncLink | None = None
        self._asked: Address | None = None
        """Which broker is asked for metadata."""
        self._failed: list[Address] = []
        """Which brokers failed, the last one last: they are asked after the others, and in this order."""
        self._patience_seconds = PATIENCE_SECONDS
        self._outage = Outage()
        self._metadata = Repeated(k03_metadata.API)
        self._configs: dict[tuple[str, UUID], tuple[int, dict[str, str]]] = {}
        self._configs_due_ms = 0
        """When configurations may be asked for again."""
        self._config_problem = ""
        self._due = asyncio.Event()

    # -- names

    def copy_of(self, topic: str) -> str:
        """What the copy, or the aggregate, of a topic of the source is called here."""
        name = self.config.target_topic(topic)
        return name if self.config.is_aggregate else self.names.topic_of(name)

    def original_of(self, name: str) -> str | None:
        """The source's topic that a topic here is the copy of; None of one that is no copy from this source."""
        remote = self.names.remote_of(name)
        if self.names.topic_of(remote) != name:
            return None
        return self.config.source_topic(remote, is_named=remote != name)

    def _is_wanted(self, topic: str) -> bool:
        is_named = self.names.is_named(self.config.target_topic(topic))
        return self.config.may_be_named(topic) if is_named else self.config.matches(topic)

    # -- metadata

    def refresh_soon(self) -> None:
        """Something suggests that the metadata is out of date."""
        self._due.set()

    async def wait_until_due(self) -> None:
        """Returns when the metadata should be asked for again."""
        await asyncio.sleep(REFRESH_PAUSE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.tunables.metadata_max_age_ms / 1000 - REFRESH_PAUSE_SECONDS):
                await self._due.wait()
        self._due.clear()

    async def refresh(self) -> bool:
        """Ask for metadata; False, with a line in the log, when no broker of the source answers."""
        try:
            answer = await self._answer()
        except (*FAILURES, KafkaError) as error:
            self._patience_seconds *= 2
            self.problem = shortened(reason_of(error))
            self._tell_silence()
            return False
        if self._is_refused(answer):
            return False
        self.heard(self.clock.now_ms())
        self._tell_answer()
        self.problem = ""
        self._patience_seconds = PATIENCE_SECONDS
        self.addresses = addresses_of(answer)
        topics = self._topics_of(answer)
        await self._learn_configs(topics)
        self._take({name: self._with_configs(topic) for name, topic in topics.items()})
        self.is_known = True
        return True

    def _tell_silence(self) -> None:
        outage = self._outage
        if outage.failed(self.clock.monotonic_ms()):
            logger.warning(
                "source does not answer",
                source=self.config.name,
                failed=outage.count,
                seconds=outage.seconds,
                reason=self.problem,
            )

    def _tell_answer(self) -> None:
        outage = self._outage
        if outage.is_over(self.clock.monotonic_ms()):
            self._outage = Outage()
            logger.info(
                "source answers again",
                source=self.config.name,
                failed=outage.count,
                seconds=outage.seconds,
            )

    async def _answer(self) -> Mapping[str, Any]:
        """The metadata of the first broker that answers; raises what the last of them failed with."""
        tried: set[Address] = set()
        while True:
            try:
                return await self._metadata_of_one(tried)
            except (*FAILURES, KafkaError):
                self.forget_link()
                self._note_failed(tried)
                if tried.issuperset(self._known_addresses()):
                    raise

    async def _metadata_of_one(self, tried: set[Address]) -> Mapping[str, Any]:
        """Of the one that is connected, or of the first that can be and was not `tried`."""
        async with asyncio.timeout(min(self._patience_seconds, self.tunables.request_timeout_ms / 1000)):
            link = self._link or await self._connect(tried)
            answer = await link.ask(self._metadata, 12, {"topics": None, "allow_auto_topic_creation": False})
        if not answer["brokers"]:
            raise error_of(ErrorCode.BROKER_NOT_AVAILABLE, "the source's metadata lists no broker")
        found: Mapping[str, Any] = answer
        return found

    def _is_refused(self, answer: Mapping[str, Any]) -> bool:
        """Whether who answers is this cluster, or another than its copies are of; told once."""
        cluster_id = answer.get("cluster_id") or ""
        reason = lineage.refusal_of_source(cluster_id, self._own_cluster, self._copied_from(self))
        self.cluster_id = cluster_id
        self._is_another = reason is not None
        if reason is None:
            return False
        if self.problem != reason:
            logger.error("source is not mirrored", source=self.config.name, reason=reason)
        self.problem = reason
        # By then the address may lead elsewhere.
        self.forget_link()
        return True

    def _take(self, topics: Mapping[str, SourceTopic]) -> None:
        """Part what is copied from what must not be; the latter is told once."""
        refused = {}
        for topic in topics.values():
            reason = lineage.refusal(
                self.config.name, topic.name, topic.clusters, self._own_cluster, self._is_here
            )
            if reason is not None:
                refused[topic.name] = reason
                if self.refused.get(topic.name) != reason:
                    logger.info(
                        "topic is not copied", source=self.config.name, topic=topic.name, reason=reason
                    )
        self.refused = refused
        self.topics = {name: topic for name, topic in topics.items() if name not in refused}

    def heard(self, now_ms: int) -> None:
        """A broker of the source answered."""
        self.answered_ms = now_ms

    def silent_ms(self, now_ms: int) -> int:
        """How long the source has been silent: since the start where it never answered."""
        return max(0, now_ms - (self.began_ms if self.answered_ms is None else self.answered_ms))

    def report(self) -> SourceReport:
        """What there is to tell of it."""
        return SourceReport(
            name=self.config.name,
            bootstrap=self.config.bootstrap,
            # Its other connections may still get answers, from whoever that is.
            answered_ms=None if self._is_another else self.answered_ms,
            problem=self.problem,
            is_aggregate=self.config.is_aggregate,
            checked_ms=self.checks.completed_ms,
            unchecked=self.checks.left_out_count,
            check_problem=self.checks.problem,
        )

    @property
    def bytes_copied(self) -> int:
        """By the copiers that it has."""
        return sum(copier.progress.bytes_copied for copier in self.copiers.values())

    def limit_to(self, ordered: int | None) -> None:
        """Fetch so many bytes a second at most, as a person ordered; None: as it is configured."""
        self.limit.change(self.config.bytes_per_second if ordered is None else ordered)

    def forget_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    async def link_to(self, address: Address) -> AsyncLink:
        """A connection of its own to one of the source's brokers; raises the client's FAILURES."""
        return await AsyncLink.open(
            address, self.client_id, self.tunables.request_timeout_ms, security=self.config.security
        )

    def _known_addresses(self) -> list[Address]:
        """Known brokers before the configured ones, and those that failed last."""
        known = dict.fromkeys((*self.addresses.values(), *self.config.bootstrap_servers))
        self._failed = [address for address in self._failed if address in known]
        return [*(address for address in known if address not in self._failed), *self._failed]

    async def _connect(self, tried: set[Address]) -> AsyncLink:
        """A connection to the first address that answers and was not `tried`; raises what the last failed with."""
        failure: Exception = error_of(ErrorCode.BROKER_NOT_AVAILABLE)
        for address in self._known_addresses():
            if address in tried:
                continue
            self._asked = address
            try:
                self._link = await self.link_to(address)
                return self._link
            except FAILURES as error:
                failure = error
                self._note_failed(tried)
        raise failure

    def _note_failed(self, tried: set[Address]) -> None:
        """Who was asked last has been tried, and is asked after all others."""
        if self._asked is not None:
            tried.add(self._asked)
            self._failed = [*(address for address in self._failed if address != self._asked), self._asked]

    def _topics_of(self, answer: Mapping[str, Any]) -> dict[str, SourceTopic]:
        topics = {}
        self.unreadable = {}
        for topic in answer["topics"]:
            if not (self._is_wanted(topic["name"]) and orders.chooses(self.choice, topic["name"])):
                continue
            if topic["error_code"]:
                self._note_unreadable(topic["name"], str(error_of(topic["error_code"])))
            else:
                topics[topic["name"]] = SourceTopic(
                    name=topic["name"],
                    topic_id=topic["topic_id"],
                    partitions={
                        p["partition_index"]: (p["leader_id"], p["leader_epoch"]) for p in topic["partitions"]
                    },
                )
        return topics

    async def _learn_configs(self, topics: Mapping[str, SourceTopic]) -> None:
        """Ask for those that are not known, or for long; what is known stays while nobody tells anything newer."""
        now_ms = self.clock.monotonic_ms()
        keys = {(topic.name, topic.topic_id) for topic in topics.values()}
        self._configs = {key: found for key, found in self._configs.items() if key in keys}
        old = {key for key, found in self._configs.items() if now_ms - found[0] >= CONFIG_MAX_AGE_MS}
        wanted = sorted((keys - self._configs.keys()) | old)
        if wanted and now_ms >= self._configs_due_ms:
            await self._ask_configs(wanted)
        for name, topic_id in wanted:
            if self._config_problem and (name, topic_id) not in self._configs:
                self._note_no_configs(name, self._config_problem)

    async def _ask_configs(self, wanted: Sequence[tuple[str, UUID]]) -> None:
        """Who is asked looks into ZooKeeper for them, and may answer everything else while that is away."""
        resources = [
            {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": ASKED_CONFIGS}
            for name, _ in wanted
        ]
        try:
            link = self._link or await self._connect(set())
            answer = await link.ask(k32_describe_configs.API, 1, {"resources": resources})
        except (*FAILURES, KafkaError) as error:
            self.forget_link()
            self._configs_due_ms = self.clock.monotonic_ms() + CONFIG_PAUSE_MS
            self._config_problem = (
                f"{reason_of(error)}; its brokers have them from its ZooKeeper, see that it runs"
            )
            return
        self._config_problem = ""
        ids = dict(wanted)
        now_ms = self.clock.monotonic_ms()
        for result in answer["results"]:
            name = result["resource_name"]
            if result["error_code"]:
                self._configs.pop((name, ids[name]), None)
                self._note_no_configs(name, result["error_message"] or str(error_of(result["error_code"])))
                continue
            found = {c["name"]: c["value"] for c in result["configs"] if c["value"] is not None}
            self._configs[name, ids[name]] = (now_ms, found)

    def _note_no_configs(self, topic: str, reason: str) -> None:
        self._note_unreadable(topic, f"{self.config.name} does not tell its configuration: {reason}")

    def doubt(self, topic: str) -> None:
        """What is known of the topic's configuration may be out of date: it is asked for anew with the next metadata."""
        self._configs = {key: found for key, found in self._configs.items() if key[0] != topic}

    def _note_unreadable(self, topic: str, reason: str) -> None:
        self.unreadable[self.copy_of(topic)] = reason

    def _with_configs(self, topic: SourceTopic) -> SourceTopic:
        found = self._configs.get((topic.name, topic.topic_id))
        return SourceTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=topic.partitions,
            configs=found[1] if found is not None else {},
        )

    # -- copiers

    def locate(self, key: PartitionKey, copier: Copier) -> None:
        """Tell a copier where the newest metadata shows its partition."""
        if not self.is_known:
            return
        topic = self.topics.get(key[0])
        place = topic.partitions.get(key[1]) if topic is not None else None
        found = None
        if topic is not None and place is not None:
            found = Located(
                topic_id=topic.topic_id,
                # Without its configuration nobody knows whether gaps are legal: wait for it.
                leader=place[0] if topic.configs else -1,
                leader_epoch=place[1],
                is_compacted=topic.is_compacted,
                bootstrap=self.config.bootstrap,
            )
        copier.located(found, self.clock.now_ms())

    def assign(self) -> None:
        """Give every copier to the fetcher of its leader; start and end fetchers as that needs."""
        wanted: dict[int, dict[PartitionKey, Copier]] = {}
        for key, copier in self.copiers.items():
            found = copier.located_at
            if found is not None and found.leader in self.addresses:
                wanted.setdefault(found.leader, {})[key] = copier
        for node in self._fetchers.keys() - wanted.keys():
            self._fetchers.pop(node)[1].cancel()
        for node, copiers in wanted.items():
            if node not in self._fetchers or self._fetchers[node][1].done():
                fetcher = Fetcher(self, node)
                self._fetchers[node] = fetcher, self._tasks.create_task(fetcher.run())
            self._fetchers[node][0].assign(copiers)

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """These partitions are no longer this broker's."""
        for key in keys:
            self.copiers.pop(key, None)
            self.awaited.pop(key, None)
            self.restoring.pop(key, None)
            self.checks.forget(key)
