"""A member that claims, releases and loses its session, with a registry that answers at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.outage import REPEAT_MS
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk.znodes import ZooKeeperError
from headrace.mirror.aggregate import group
from headrace.mirror.aggregate.group import Group
from headrace.mirror.aggregate.ownership import Ownership

KEYS = [("clicks", n) for n in range(2)]


class Registry:
    def __init__(self) -> None:
        self.owned: set[PartitionKey] = set()
        self.callback: Any = None

    def watch_members(self, callback: Any) -> None:
        self.callback = callback

    async def register(self) -> None:
        self.callback(["a"])

    async def claim(self, key: PartitionKey) -> bool:
        self.owned.add(key)
        return True

    async def give_up(self, key: PartitionKey) -> None:
        self.owned.discard(key)


class World:
    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.registry = Registry()
        self.lose: list[Any] = []
        self.session = SimpleNamespace(number=7, on_lost=self.lose.append)
        self.now_ms = 0
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms, now_ms=lambda: 0)
        source = SimpleNamespace(
            config=SimpleNamespace(name="dc"),
            topics={},
            addresses={},
            tunables=SimpleNamespace(retry_backoff_ms=1, retry_backoff_max_ms=1),
        )
        self.ownership = Ownership("a", retry_ms=0)
        self.ownership.partitions_changed(KEYS)
        host: Any = SimpleNamespace(clock=clock)
        orders = SimpleNamespace(is_paused=lambda topic: topic == "paused")
        session, registry, journal = (cast("Any", part) for part in (self.session, self.registry, orders))
        self.group = Group(host, journal, cast("Any", source), self.ownership, registry, session, tasks)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_is_claimed_is_held_and_what_is_anothers_is_given_up_when_its_round_is_over() -> None:
    async def script() -> None:
        async with asyncio.TaskGroup() as tasks:
            world = World(tasks)
            owning = tasks.create_task(world.group.own())
            await settled()
            assert set(world.group.held) == world.registry.owned == set(KEYS)
            busy = world.group.held[KEYS[1]]
            busy.is_idle.clear()
            world.registry.callback(["a", "b"])
            await settled()
            assert set(world.group.held) == {KEYS[0]}
            assert world.registry.owned == set(KEYS), "its round is not over"
            busy.is_idle.set()
            await settled()
            assert world.registry.owned == {KEYS[0]}
            owning.cancel()

    asyncio.run(script())


def test_that_a_member_is_not_registered_is_told_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group, "LOOK_SECONDS", 0)

    async def script() -> None:
        async with asyncio.TaskGroup() as tasks:
            world = World(tasks)

            async def refused() -> None:
                world.now_ms += 5000
                if world.now_ms > 2 * REPEAT_MS:
                    raise asyncio.CancelledError
                raise ZooKeeperError("it is away")

            world.registry.register = refused  # type: ignore[method-assign]
            await asyncio.wait([tasks.create_task(world.group.own())])

    asyncio.run(script())
    told = [record for record in caplog.records if "member is not registered" in record.getMessage()]
    assert len(told) == 2


def test_a_session_that_ends_while_something_is_to_be_released_ends_nothing_else() -> None:
    async def script() -> None:
        async with asyncio.TaskGroup() as tasks:
            world = World(tasks)
            owning = tasks.create_task(world.group.own())
            await settled()
            held = world.group.held[KEYS[0]]
            world.ownership.members_changed(["a", "b"])
            world.group._command()
            world.session.number = 8
            for lose in world.lose:
                lose()
            assert held.is_leaving
            assert not world.group.held
            await settled()
            assert set(world.group.held) == set(KEYS), "it owns all in its new session"
            owning.cancel()

    asyncio.run(script())
