"""One source as this member brings it into aggregates: its topics there, its partitions by Algorithm 1, pullers by leader."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Protocol

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import KafkaError
from headrace.broker.outage import Outage
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk.znodes import ZooKeeperError
from headrace.mirror.aggregate.cluster import Cluster
from headrace.mirror.aggregate.held import Held
from headrace.mirror.aggregate.merged_notes import SourceNotes
from headrace.mirror.aggregate.ownership import Claim, Ownership, Release
from headrace.mirror.aggregate.puller import Puller, write_position
from headrace.mirror.aggregate.registry import Registry
from headrace.mirror.aggregate.session import Session
from headrace.mirror.aggregate.target import Target
from headrace.mirror.aggregate.topics import keep_in_step
from headrace.mirror.copy.progress import Progress
from headrace.mirror.memory.state import SkipOrder, place_of
from headrace.mirror.pause import Pause
from headrace.mirror.source import Source

logger = get_logger(__name__)
LOOK_SECONDS = 0.25
TARGET_SILENT, UNREGISTERED = "target does not answer", "member is not registered"


class Orders(Protocol):
    """What people ordered, by the source's name, the topic's, or `<source>.<topic>-<partition>`."""

    def choice_of(self, source: str) -> re.Pattern[str] | None: ...

    def limit_of(self, source: str) -> int | None: ...

    def is_paused(self, topic: str) -> bool: ...

    def skip_at(self, place: bytes) -> SkipOrder | None: ...


class Group:
    """`held` is what this member owns now; `source` is asked for metadata only, its copiers are nobody's."""

    def __init__(
        self,
        cluster: Cluster,
        orders: Orders,
        source: Source,
        ownership: Ownership,
        registry: Registry,
        session: Session,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.source = source
        self.held: dict[PartitionKey, Held] = {}
        self._cluster = cluster
        self._orders = orders
        self._tasks = tasks
        self._ownership = ownership
        self._members: list[str] = []
        self._pullers: dict[int, tuple[Puller, asyncio.Task[None]]] = {}
        self._registry = registry
        self._session = session
        self._registered = 0
        self._news = asyncio.Event()
        self._notes = SourceNotes(source)
        self._outages = {what: Outage() for what in (TARGET_SILENT, UNREGISTERED)}

    async def follow(self) -> None:
        """Keep up with the source's metadata."""
        while True:
            self._obey()
            if await self.source.refresh() and await self._notes.look() and await self._has_topics():
                self._place()
            await self.source.wait_until_due()

    async def _has_topics(self) -> bool:
        """Whether it is known which topics are there to bring the source's into."""
        try:
            await keep_in_step(self._cluster, self.source)
        except (*FAILURES, KafkaError) as error:
            self._tell(TARGET_SILENT, error)
            self._cluster.refresh_soon()
            return False
        return True

    def _tell(self, what: str, error: Exception) -> None:
        outage, now_ms = self._outages[what], self._monotonic_ms()
        if outage.is_over(now_ms):
            outage = self._outages[what] = Outage()
        if outage.failed(now_ms):
            told = {"source": self.source.config.name, "failed": outage.count, "seconds": outage.seconds}
            logger.warning(what, **told, reason=repr(error))

    def _obey(self) -> None:
        """Carry out what a person ordered."""
        name = self.source.config.name
        self.source.choice = self._orders.choice_of(name)
        self.source.limit_to(self._orders.limit_of(name))
        for held in self.held.values():
            held.is_paused = self._orders.is_paused(held.key[0])

    # -- partitions

    def _place(self) -> None:
        """Say what there is to own, and where the source leads what is owned."""
        topics = {name: t for name, t in self.source.topics.items() if name not in self.source.not_brought}
        keys = [(name, partition) for name, topic in topics.items() for partition in topic.partitions]
        self._ownership.partitions_changed(keys)
        for held in self.held.values():
            self._locate(held)
        for puller, _ in self._pullers.values():
            puller.leaders_changed()
        self._pull()
        self._news.set()

    def _locate(self, held: Held) -> None:
        topic = self.source.topics.get(held.key[0])
        place = None if topic is None else topic.partitions.get(held.key[1])
        if topic is None or place is None:
            held.leader = -1
            return
        held.topic_id, (held.leader, held.leader_epoch) = topic.topic_id, place

    def _pull(self) -> None:
        """Have a puller for each broker of the source that leads anything of it."""
        wanted = {held.leader for held in self.held.values()} & self.source.addresses.keys()
        for node in wanted:
            if node not in self._pullers or self._pullers[node][1].done():
                puller = Puller(
                    self.source, node, self.held, self._registry, self._session, self._target, self._skip_of
                )
                self._pullers[node] = puller, self._tasks.create_task(puller.run())

    def _skip_of(self, key: PartitionKey) -> SkipOrder | None:
        return self._orders.skip_at(place_of(f"{self.source.config.name}.{key[0]}", key[1]))

    def _target(self) -> Target:
        return Target(self._cluster, self.source.tunables.request_timeout_ms)

    # -- Algorithm 1

    async def own(self) -> None:
        """Take part in the group, session after session."""
        self._session.on_lost(self._lose)
        self._registry.watch_members(self._seen)
        while True:
            try:
                await self._register()
            except ZooKeeperError as error:
                self._tell(UNREGISTERED, error)
                await asyncio.sleep(LOOK_SECONDS)
                continue
            self._command()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            self._news.clear()

    def _lose(self) -> None:
        """The session is over: all of it may be somebody else's."""
        self._ownership.session_lost()
        self._registered = 0
        for held in self.held.values():
            held.is_leaving = True
        self.held.clear()
        self._news.set()

    def _seen(self, members: list[str]) -> None:
        self._members = members
        self._ownership.members_changed(members)
        self._news.set()

    async def _register(self) -> None:
        number = self._session.number
        if self._registered == number:
            return
        await self._registry.register()
        if self._session.number == number:
            self._registered = number
            self._ownership.joined(number)
            self._ownership.members_changed(self._members)

    def _command(self) -> None:
        for command in self._ownership.commands(self._monotonic_ms()):
            doing = self._claim(command) if isinstance(command, Claim) else self._release(command)
            self._tasks.create_task(doing)

    async def _claim(self, claim: Claim) -> None:
        try:
            is_owner = await self._registry.claim(claim.key)
        except ZooKeeperError as error:
            logger.warning(
                "partition is not claimed", topic=claim.key[0], partition=claim.key[1], reason=error
            )
            is_owner = False
        if not is_owner:
            self._ownership.refused(claim, self._monotonic_ms())
        elif self._ownership.claimed(claim):
            tunables = self.source.tunables
            pause = Pause(tunables.retry_backoff_ms, tunables.retry_backoff_max_ms)
            held = Held(key=claim.key, pause=pause, progress=Progress(began_ms=self._cluster.clock.now_ms()))
            held.is_paused = self._orders.is_paused(claim.key[0])
            self.held[claim.key] = held
            self._locate(held)
            self._pull()
            logger.info(
                "partition is owned",
                source=self.source.config.name,
                topic=claim.key[0],
                partition=claim.key[1],
            )

    async def _release(self, release: Release) -> None:
        """What is under way ends first; a session that ended meanwhile has released all."""
        held = self.held.pop(release.key, None)
        if held is None:
            return
        held.is_leaving = True
        await held.is_idle.wait()
        try:
            if not held.is_written:
                await write_position(self._registry, held, self._monotonic_ms())
            await self._registry.give_up(release.key)
        except ZooKeeperError as error:
            logger.warning(
                "partition is not released", topic=release.key[0], partition=release.key[1], reason=error
            )
        self._ownership.released(release)
        self._news.set()

    async def leave(self) -> None:
        """Have what is under way end, and the offset registry say how far all of it is; nothing is brought afterwards."""
        leaving = list(self.held.values())
        self.held.clear()
        for held in leaving:
            held.is_leaving = True
        for held in leaving:
            await held.is_idle.wait()
            if not held.is_written:
                with contextlib.suppress(ZooKeeperError):
                    await write_position(self._registry, held, self._monotonic_ms())

    def _monotonic_ms(self) -> int:
        return self._cluster.clock.monotonic_ms()
