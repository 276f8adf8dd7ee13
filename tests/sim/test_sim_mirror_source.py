"""A source of real brokers in the simulated world, its network breaking now and then, and all of the mirror but its journal:
metadata, fetch plans and sessions, copiers. Every partition's copy becomes the source's log, batch by batch.
"""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from clients import IdempotentProducer, TopicMaker
from long_runs import first_of
from mirror_kit import CopiedHeaders
from network import SimulatedLink
from replicas_seen import replicas_of
from virtual_time import VirtualLoop
from world import World

from headrace.broker.wire.batches import iter_batches
from headrace.mirror import source
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.copy.copier import Copier
from headrace.mirror.memory.state import State
from headrace.mirror.source import Source

TOPIC, PARTITIONS = "events", 6
SECONDS, SETTLE_SECONDS_MAX = 20.0, 60.0


class Mirror:
    """One source, and copiers of all partitions of its topic."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch, tasks: asyncio.TaskGroup) -> None:
        class Link(SimulatedLink):
            @classmethod
            async def open(cls, address: Any, client_id: str, timeout_ms: int, **_: Any) -> Any:  # type: ignore[override]
                return await super().open(world.network, "mirror", address, client_id, timeout_ms)

            def version(self, api: Any, highest: int) -> int:
                return self._exchange.version(api, highest)

        patch.setattr(source, "AsyncLink", Link)
        self.targets = {(TOPIC, number): CopiedHeaders() for number in range(PARTITIONS)}
        self.stopped: list[Any] = []
        clock = SimpleNamespace(
            now_ms=lambda: int(world.loop.time() * 1000), monotonic_ms=lambda: int(world.loop.time() * 1000)
        )
        config = SourceConfig(
            name="dc-east",
            bootstrap_servers=tuple(node.address for node in world.nodes.values()),
            topics=re.compile(TOPIC),
        )
        tunables = Tunables(
            fetch_max_bytes=1024,
            fetch_response_max_bytes=2048,
            request_timeout_ms=5000,
            metadata_max_age_ms=500,
        )
        self.source = Source(
            config,
            tunables,
            cast("Any", clock),
            tasks,
            "mirror",
            lambda _: None,
            own_cluster="OWN",
            is_here=lambda _: False,
        )
        for key, target in self.targets.items():
            self.source.copiers[key] = Copier(
                "dc-east",
                *key,
                target=target,
                journal=cast("Any", SimpleNamespace(write=self._write, arrived=lambda *_: None)),
                state=State(target_id=UUID(int=1)),
            )

    def _write(self, state: State, findings: Any, written: Any) -> None:
        self.stopped += [] if state.stopped is None else [state.stopped]
        written()

    async def follow(self) -> None:
        while True:
            if await self.source.refresh():
                for key, copier in self.source.copiers.items():
                    self.source.locate(key, copier)
                self.source.assign()
            await self.source.wait_until_due()


async def _live(world: World, patch: pytest.MonkeyPatch) -> None:
    world.start_dead()
    places = [(TOPIC, number) for number in range(PARTITIONS)]
    maker = TopicMaker(world, "maker", world.history, 3)
    await maker.until_done([], lambda: maker.create(TOPIC, PARTITIONS))
    producers = [IdempotentProducer(world, f"producer-{n}", world.history, places) for n in range(2)]
    async with asyncio.TaskGroup() as tasks:
        mirror = Mirror(world, patch, tasks)
        following = tasks.create_task(mirror.follow())
        publishing = [tasks.create_task(producer.run()) for producer in producers]
        await asyncio.sleep(SECONDS)
        for producer in producers:
            producer.is_over = True
        await asyncio.wait(publishing)
        deadline = world.loop.time() + SETTLE_SECONDS_MAX
        while not _is_copied(world, mirror):
            assert world.loop.time() < deadline, "the copies do not get there"
            await asyncio.sleep(0.5)
        assert mirror.stopped == []
        following.cancel()
        for _, running in mirror.source._fetchers.values():
            running.cancel()
    for node in world.live():
        await node.stop()


def _is_copied(world: World, mirror: Mirror) -> bool:
    found = {}
    for key in mirror.targets:
        for _, partition in replicas_of(world, key):
            if partition.is_leader:
                log = partition.log
                data = log.read(0, size_max=2**24, upper_offset=log.log_end_offset).read()
                found[key] = [(header.base_offset, header.crc) for _, header in iter_batches(data)]
    copied = {
        key: [(header.base_offset, header.crc) for header in target.headers]
        for key, target in mirror.targets.items()
    }
    return found == copied and any(copied.values())


@pytest.mark.parametrize("seed", first_of(2, range(20)))
def test_copies_of_a_source_whose_network_breaks_are_its_logs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with VirtualLoop() as loop:
        world = World(loop, seed, 3, {"min.insync.replicas": "2"})
        loop.run_until_complete(_live(world, monkeypatch))
