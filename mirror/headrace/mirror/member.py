"""Wiring of `headrace mirror run`: one member beside a cluster, until it is told to stop.

Start: metrics → target → its ZooKeeper, which must be that cluster's → take part. Stop: what is under way ends, the offset
registry says how far all of it is, the session ends, so that others go on at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import uvloop
from prometheus_client import CollectorRegistry

from headrace.broker.build_info import BuildInfo
from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.clock import SystemClock
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.errors import KafkaError, reason_of
from headrace.broker.page_server import PageServer
from headrace.broker.server.status.metrics_page import MetricsPage
from headrace.broker.server.status.process_metrics import ProcessMetrics
from headrace.broker.stop_signals import stop_signals
from headrace.broker.structured_log import get_logger
from headrace.mirror.aggregate import service
from headrace.mirror.aggregate.group import Group
from headrace.mirror.aggregate.shared_notes import SharedNotes
from headrace.mirror.aggregate.wire_cluster import WireCluster
from headrace.mirror.config import SourceConfig
from headrace.mirror.member_config import (
    BOOTSTRAP_KEY,
    MEMBER_KEY,
    METRICS_KEY,
    MemberConfig,
)
from headrace.mirror.metrics import MirrorMetrics
from headrace.mirror.reporter import Reporter
from headrace.mirror.source import Source

logger = get_logger(__name__)
REPORT_SECONDS: Final = 1.0
LEAVE_SECONDS: Final = 10.0


class CannotStartError(Exception):
    """The target, or its ZooKeeper, is not what the file says."""


def run(config: MemberConfig, announce: Callable[[str], None]) -> None:
    """Take part until SIGTERM, SIGINT or SIGHUP; `announce(the member's number)` is called once it does.

    Raises ConfigurationError for what only the host tells, CannotStartError when it cannot start.
    """
    uvloop.run(_serve(config, announce))


async def _serve(config: MemberConfig, announce: Callable[[str], None]) -> None:
    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    stopping = asyncio.Event()
    member = Member(config)

    def stop() -> None:
        if not stopping.is_set() and serving is not None:
            stopping.set()
            serving.cancel()

    for number in stop_signals():
        loop.add_signal_handler(number, stop)
    try:
        await member.start()
        logger.info("taking part", member=config.member_id, cluster=member.cluster.cluster_id)
        announce(str(config.member_id))
        await member.take_part()
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
    finally:
        logger.info("stopping", member=config.member_id)
        await member.stop()


class Member:
    """Its parts; each method is called once, in their order."""

    def __init__(self, config: MemberConfig) -> None:
        self._config = config
        self._clock = SystemClock()
        self._groups: list[Group] = []
        self._connected: service.Connected | None = None
        tunables = config.mirror.tunables
        self.cluster = WireCluster(
            config.bootstrap_servers,
            config.properties,
            config.member_id,
            self._clock,
            tunables.metadata_max_age_ms,
            config.security,
        )
        self._notes = SharedNotes(self.cluster)
        registry = CollectorRegistry()
        registry.register(BuildInfo())
        registry.register(MirrorMetrics((), {}, self._clock, self._groups))
        self._pages = PageServer({"/metrics": MetricsPage(registry, ProcessMetrics(lambda: ())).answer})

    async def start(self) -> None:
        """Returns once the target and its ZooKeeper are known."""
        if self._config.metrics_listener:
            await self._pages.start(METRICS_KEY, self._config.metrics_listener)
        try:
            await self.cluster.connect()
            if self._config.member_id in self.cluster.brokers:
                allowed = "a number that no broker of the target has: reports are told apart by it"
                raise ConfigurationError(MEMBER_KEY, str(self._config.member_id), allowed)
            await self._notes.open()
        except (*FAILURES, KafkaError) as error:
            raise CannotStartError(
                f"the target at {self._config.properties[BOOTSTRAP_KEY]} does not answer as it should "
                f"({reason_of(error)}): check {BOOTSTRAP_KEY} and that its brokers run"
            ) from error
        try:
            self._connected = await service.connect_to_its_own(self.cluster)
        except service.ConnectError as error:
            raise CannotStartError(str(error)) from error

    async def take_part(self) -> None:
        """Until cancelled."""
        assert self._connected is not None, "start first"
        reporter = Reporter(self._config.member_id, self._notes, (), self._groups)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.cluster.follow())
            tasks.create_task(self._notes.run())
            tasks.create_task(self._report_often(reporter))
            bringing = tasks.create_task(
                service.take_part(
                    self._connected,
                    self.cluster,
                    self._config.mirror.aggregates,
                    self._notes,
                    self._groups,
                    self._source,
                )
            )
            await self._until_left(bringing)

    async def _until_left(self, bringing: asyncio.Task[None]) -> None:
        try:
            await asyncio.shield(bringing)
        except asyncio.CancelledError:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await asyncio.gather(*(group.leave() for group in list(self._groups)))
            raise

    async def _report_often(self, reporter: Reporter) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            reporter.tell(self._clock.now_ms())

    def _source(self, config: SourceConfig, tasks: asyncio.TaskGroup) -> Source:
        return Source(
            config,
            self._config.mirror.tunables,
            self._clock,
            tasks,
            f"headrace-mirror-{self._config.member_id}",
            lambda _: None,
            own_cluster=self.cluster.cluster_id,
            is_here=lambda name: self.cluster.partition_count(name) is not None,
        )

    async def stop(self) -> None:
        if self._connected is not None:
            await self._connected[0].close()
        self.cluster.close()
        await self._pages.stop()
