"""A cluster of any engine that a member in a process of its own brings sources into: all by requests, as clients ask.

`headrace` keeps whose messages a topic has as one of the topic's configurations; Apache Kafka refuses configurations that it
does not know, so that is written to `headrace.mirror` there. One request is under way at a time, whoever asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.clock import Clock
from headrace.broker.config.copies import MERGED_CLUSTERS, MIRROR_CLUSTERS
from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.broker.outage import Outage
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.api import k19_create_topics, k37_create_partitions
from headrace.broker.wire.client.view import NO_LEADER, Address
from headrace.mirror import lineage
from headrace.mirror.aggregate.cluster import Outcome
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.memory import orders
from headrace.mirror.memory.own_topics import STATES, WRITTEN_PARTITION
from headrace.mirror.source import CONFIG_MAX_AGE_MS

Answer = TypeVar("Answer")
logger = get_logger(__name__)
TIMEOUT_MS: Final = 10_000
CREATE_VERSION, GROW_VERSION = 5, 1
LOOK_PAUSE_SECONDS: Final = 0.2
MARKS = (MIRROR_CLUSTERS, MERGED_CLUSTERS)
RELEASE: Final = "headrace.version"
"""A broker's configuration that only headrace has."""


class WireCluster:
    """A `Cluster`; `max_age_ms` is how old what it knows of leaders may be."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        properties: Mapping[str, str],
        member_id: int,
        clock: Clock,
        max_age_ms: int,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        self.member_id = member_id
        self.security = security
        self.properties = properties
        self.clock = clock
        self.keeps_marks = False
        self._client = ClusterClient(bootstrap, f"headrace-mirror-{member_id}", security)
        self._max_age_ms = max_age_ms
        self._lock = asyncio.Lock()
        self._due = asyncio.Event()
        self._outage = Outage()
        self._configs: dict[str, tuple[int, dict[str, str]]] = {}
        self.merged_of: Callable[[str], frozenset[str]] | None = None
        """What is written in `headrace.mirror` of that; None before that is read."""

    async def connect(self) -> None:
        """Know the cluster; raises FAILURES and KafkaErrors."""
        async with self._lock:
            await self._client.refresh()
            broker = min(self._client.brokers)
            self.keeps_marks = RELEASE in await self._client.broker_configs(broker, (RELEASE,))

    def close(self) -> None:
        self._client.close()

    async def follow(self) -> None:
        """Keep up with who leads what, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._max_age_ms / 1000):
                    await self._due.wait()
            self._due.clear()
            try:
                await self._look()
            except (*FAILURES, KafkaError) as error:
                self._tell_silence(error)
            else:
                self._tell_answer()

    def _tell_silence(self, error: Exception) -> None:
        outage = self._outage
        if outage.failed(self.clock.monotonic_ms()):
            told = {"failed": outage.count, "seconds": outage.seconds, "reason": repr(error)}
            logger.warning("target does not answer", **told)

    def _tell_answer(self) -> None:
        outage = self._outage
        if outage.is_over(self.clock.monotonic_ms()):
            self._outage = Outage()
            logger.info("target answers again", failed=outage.count, seconds=outage.seconds)

    async def with_client(self, work: Callable[[ClusterClient], Awaitable[Answer]]) -> Answer:
        """Do this while nobody else asks; raises FAILURES and KafkaErrors."""
        async with self._lock:
            try:
                return await work(self._client)
            except FAILURES:
                self._client.close()
                raise

    async def _look(self) -> None:
        async with self._lock:
            await self._client.refresh()

    # -- what is known

    @property
    def cluster_id(self) -> str:
        return self._client.cluster_id

    @property
    def brokers(self) -> Collection[int]:
        return self._client.brokers

    def leader_address(self, topic: str, partition: int) -> Address | None:
        return self._client.leader_address(topic, partition)

    def refresh_soon(self) -> None:
        self._due.set()

    def partition_count(self, topic: str) -> int | None:
        return sum(name == topic for name, _ in self._client.leaders) or None

    def configs_of(self, topic: str) -> Mapping[str, str]:
        if not self.keeps_marks:
            merged = self._noted(topic)
            return {MERGED_CLUSTERS: ",".join(sorted(merged))} if merged else {}
        found = self._configs.get(topic)
        return {} if found is None else found[1]

    async def look_at(self, topics: Collection[str]) -> None:
        there = {topic for topic, _ in self._client.leaders}
        if not there.issuperset(topics):
            await self._look()
            there = {topic for topic, _ in self._client.leaders}
        now_ms = self.clock.monotonic_ms()
        self._configs = {
            topic: found
            for topic, found in self._configs.items()
            if topic in there and now_ms - found[0] < CONFIG_MAX_AGE_MS
        }
        wanted = sorted(there.intersection(topics) - self._configs.keys())
        if wanted and self.keeps_marks:
            configs = await self.with_client(lambda client: client.configs_of(wanted, MARKS))
            self._configs |= {topic: (now_ms, found) for topic, found in configs.items()}

    # -- what is done

    async def create(self, topic: str, count: int, configs: Mapping[str, str]) -> Outcome:
        return await self.create_replicated(topic, count, configs, replicas=-1)

    async def create_replicated(
        self, topic: str, count: int, configs: Mapping[str, str], *, replicas: int
    ) -> Outcome:
        """With so many replicas; -1: as the cluster has it."""
        kept = {key: value for key, value in configs.items() if self.keeps_marks or key not in MARKS}
        new = {
            "name": topic,
            "num_partitions": count,
            "replication_factor": replicas,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in kept.items()],
        }
        message = {"topics": [new], "timeout_ms": TIMEOUT_MS // 2, "validate_only": False}
        merged = lineage.merged_of(configs)
        if merged and not self.keeps_marks:
            # Before the topic, so that it never has messages without.
            await self._note(topic, merged | self._noted(topic))
        answer = await self.with_client(
            lambda client: client.ask(_controller(client), k19_create_topics.API, CREATE_VERSION, message)
        )
        (made,) = answer["topics"]
        return self._outcome(made)

    async def grow(self, topic: str, count: int) -> Outcome:
        more = {"name": topic, "count": count, "assignments": None}
        message = {"topics": [more], "timeout_ms": TIMEOUT_MS // 2, "validate_only": False}
        answer = await self.with_client(
            lambda client: client.ask(_controller(client), k37_create_partitions.API, GROW_VERSION, message)
        )
        (made,) = answer["results"]
        return self._outcome(made)

    def _outcome(self, made: Mapping[str, object]) -> Outcome:
        self.refresh_soon()
        return int(str(made["error_code"])), str(made["error_message"] or "")

    async def mark(self, topic: str, configs: Mapping[str, str]) -> None:
        if not self.keeps_marks:
            await self._note(topic, lineage.merged_of(lineage.with_merged(self.configs_of(topic), configs)))
            return

        async def change(client: ClusterClient) -> None:
            known = (await client.configs_of((topic,), MARKS)).get(topic, {})
            await client.set_topic_configs(topic, lineage.with_merged(known, configs))

        await self.with_client(change)
        self._configs.pop(topic, None)

    def _noted(self, topic: str) -> frozenset[str]:
        return frozenset() if self.merged_of is None else self.merged_of(topic)

    async def _note(self, topic: str, merged: Collection[str]) -> None:
        if self.merged_of is None:
            raise error_of(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{STATES} is not read yet")
        key, value = orders.key_of(topic, orders.MERGED), orders.encode_merged(merged)
        code = await self.with_client(lambda client: client.publish(STATES, WRITTEN_PARTITION, key, value))
        if code:
            raise error_of(code, f"{STATES} does not take whose messages are brought into {topic}")


def _controller(client: ClusterClient) -> int:
    if client.controller == NO_LEADER:
        raise error_of(ErrorCode.NOT_CONTROLLER, "the target has no controller now")
    return client.controller
