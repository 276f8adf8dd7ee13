"""The connections to one broker of a source: each does what the plan says, and tells it what came of that.

Owns sockets and tasks; decides nothing. Invariant: an answer is taken in while the receive buffer holds it, before the next
request on its connection; between partitions with much data the broker's other work has its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.broker.client.asynchronous import FAILURES, AsyncLink
from headrace.broker.clock import Clock
from headrace.broker.errors import KafkaError, reason_of
from headrace.broker.outage import Outage
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.api import k18_api_versions
from headrace.broker.wire.client.exchange import VERSIONS_VERSION, ProtocolError
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.copy.copier import Copier
from headrace.mirror.fetch.commands import AskFetch, AskSurvey, Close, Now, Open, Wait
from headrace.mirror.fetch.encoding import IDS_VERSION, SOURCE_FETCH
from headrace.mirror.fetch.plan import FetchPlan
from headrace.mirror.fetch.surveyor import survey
from headrace.mirror.fetch.window import Limit

logger = get_logger(__name__)
ROUND_TRIPS = 3
"""Measured on each new connection: the shortest tells of the road, the others of a broker that is busy."""
TAKEN_SIZE = 1024 * 1024
"""After so many bytes others have their turn."""


class FetchedSource(Protocol):
    """What a fetcher knows of its source, and tells it."""

    config: SourceConfig
    tunables: Tunables
    limit: Limit
    clock: Clock
    client_id: str
    addresses: dict[int, Address]
    outages: dict[int, Outage]
    after_fetch: Callable[[int], None]

    async def link_to(self, address: Address) -> AsyncLink:
        """A connection to one of its brokers; raises the client's FAILURES."""
        ...

    def heard(self, now_ms: int) -> None:
        """A broker of the source answered."""
        ...

    def refresh_soon(self) -> None:
        """Something suggests that the metadata is out of date."""
        ...


class Fetcher:
    """`node` is the broker's id at the source."""

    def __init__(self, source: FetchedSource, node: int) -> None:
        self._source = source
        self._node = node
        self._plan = FetchPlan(source.tunables, source.limit, source.config.isolation)
        self._news: list[asyncio.Event] = []
        self._more_lanes = asyncio.Event()

    def assign(self, copiers: Mapping[PartitionKey, Copier]) -> None:
        """The partitions to ask for from now on; what is known of them may have changed."""
        self._plan.assign(copiers)
        self._tell()

    async def run(self) -> None:
        """Ask for ever; ends only by cancellation."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                while len(self._news) < self._plan.lanes:
                    self._news.append(asyncio.Event())
                    tasks.create_task(self._serve(len(self._news) - 1))
                self._more_lanes.clear()
                await self._more_lanes.wait()

    def _tell(self) -> None:
        """Something changed: whoever waits asks the plan again."""
        for news in self._news:
            news.set()
        if len(self._news) < self._plan.lanes:
            self._more_lanes.set()

    def _now(self) -> Now:
        return Now(self._source.clock.now_ms(), self._source.clock.monotonic_ms())

    async def _serve(self, lane: int) -> None:
        """One connection's life, and the next one's."""
        link: AsyncLink | None = None
        try:
            while True:
                self._news[lane].clear()
                try:
                    link = await self._do(lane, link)
                except (*FAILURES, KafkaError) as error:
                    self._failed(lane, link, error)
                    link = None
        finally:
            if link is not None:
                link.close()

    async def _do(self, lane: int, link: AsyncLink | None) -> AsyncLink | None:
        """What the plan says; the connection that there is then."""
        command = self._plan.next(lane, self._now())
        match command:
            case Wait():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(command.ms / 1000):
                        await self._news[lane].wait()
            case Open():
                return await self._open(lane)
            case Close() if link is not None:
                link.close()
                self._plan.closed(lane)
                return None
            case AskFetch() if link is not None:
                await self._fetch(lane, link, command)
            case AskSurvey() if link is not None:
                await self._survey(lane, link, command)
        return link

    async def _open(self, lane: int) -> AsyncLink:
        source = self._source
        address = source.addresses.get(self._node)
        if address is None:
            raise ProtocolError(f"the source has no broker {self._node} any more")
        link = await source.link_to(address)
        try:
            delay_ms = min([await self._round_trip_ms(link) for _ in range(ROUND_TRIPS)])
        except BaseException:
            link.close()
            raise
        has_ids = link.version(SOURCE_FETCH, IDS_VERSION) >= IDS_VERSION
        self._plan.opened(lane, delay_ms, self._now(), has_ids=has_ids)
        return link

    async def _round_trip_ms(self, link: AsyncLink) -> int:
        began_ms = self._source.clock.monotonic_ms()
        await link.ask(k18_api_versions.API, VERSIONS_VERSION, {})
        return self._source.clock.monotonic_ms() - began_ms

    def _failed(self, lane: int, link: AsyncLink | None, error: Exception) -> None:
        source, reason = self._source, reason_of(error)
        outage = source.outages.setdefault(self._node, Outage())
        if outage.failed(self._now().ms):
            logger.warning(
                "broker of a source failed",
                source=source.config.name,
                node=self._node,
                failed=outage.count,
                seconds=outage.seconds,
                reason=reason,
            )
        if link is not None:
            link.close()
        self._plan.failed(lane, reason, self._now())
        source.refresh_soon()
        self._tell()

    def _heard(self, now: Now) -> None:
        self._source.heard(now.wall_ms)
        outage = self._source.outages.get(self._node)
        if outage is not None and outage.is_over(now.ms):
            del self._source.outages[self._node]
            logger.info(
                "broker of a source answers again",
                source=self._source.config.name,
                node=self._node,
                failed=outage.count,
                seconds=outage.seconds,
            )

    async def _survey(self, lane: int, link: AsyncLink, command: AskSurvey) -> None:
        found = await survey(link, command.asked, self._source.config.isolation)
        now = self._now()
        self._heard(now)
        if self._plan.surveyed(lane, found, now):
            self._source.refresh_soon()
        self._tell()

    async def _fetch(self, lane: int, link: AsyncLink, command: AskFetch) -> None:
        answer = await link.ask(SOURCE_FETCH, command.version, command.request)
        now = self._now()
        self._heard(now)
        size = sum(len(found.records) for _, found in answer.partitions if found.records is not None)
        self._plan.arrived(lane, size, now)
        taken = 0
        try:
            for wire, found in answer.partitions:
                if self._plan.took(lane, wire, found, self._now()):
                    self._source.refresh_soon()
                taken += 0 if found.records is None else len(found.records)
                if taken >= TAKEN_SIZE:
                    taken = 0
                    await asyncio.sleep(0)
        finally:
            self._source.after_fetch(now.wall_ms)
        self._plan.ended(lane, answer, self._now())
        self._tell()
