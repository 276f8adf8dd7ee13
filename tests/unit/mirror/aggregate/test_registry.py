"""The registries in a ZooKeeper that two members share, and the lease that a session gives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest
from ensemble import Ensemble, SimulatedKazoo
from virtual_time import LoopClock, VirtualLoop

from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.znodes import ZnodeVersionError
from headrace.mirror.aggregate.position import MalformedPositionError, Position
from headrace.mirror.aggregate.registry import Registry
from headrace.mirror.aggregate.session import Session

KEY = ("clicks", 3)
POSITION = Position(producer_id=5, topic_id=UUID(int=1), offset=10, sequence=10)


class Member:
    def __init__(self, loop: VirtualLoop, ensemble: Ensemble, name: str) -> None:
        self.kazoo = SimulatedKazoo(ensemble, 6.0)
        self.client = ZooKeeperClient(
            "", session_timeout_ms=6000, connection_timeout_ms=6000, make_kazoo=lambda *_: self.kazoo
        )
        self.registry = Registry(self.client, "dc-east", name)
        self.session = Session(self.client, 6000, LoopClock(loop))


def is_sure(member: Member) -> bool:
    return member.session.is_sure


def play(script: Callable[[Member, Member], Awaitable[None]]) -> None:
    with VirtualLoop() as loop:
        ensemble = Ensemble(loop, random.Random(1))

        async def both() -> None:
            members = Member(loop, ensemble, "a"), Member(loop, ensemble, "b")
            for member in members:
                await member.client.connect()
            await script(*members)

        loop.run_until_complete(both())


def test_a_partition_has_one_owner_until_it_gives_it_up() -> None:
    async def script(one: Member, other: Member) -> None:
        assert await one.registry.claim(KEY)
        assert await one.registry.claim(KEY), "its own claim, repeated"
        assert not await other.registry.claim(KEY)
        await other.registry.give_up(KEY)
        assert not await other.registry.claim(KEY)
        await one.registry.give_up(KEY)
        assert await other.registry.claim(KEY)

    play(script)


def test_members_are_seen_and_an_earlier_sessions_entry_is_replaced() -> None:
    async def script(one: Member, other: Member) -> None:
        seen: list[list[str]] = []
        one.registry.watch_members(seen.append)
        await one.registry.register()
        await other.registry.register()
        one.kazoo.expire()
        await asyncio.sleep(30)
        await one.registry.register()
        await asyncio.sleep(5)
        assert seen[-1] == ["a", "b"]
        assert await one.registry.claim(KEY)

    play(script)


def test_the_first_position_stands_and_later_ones_are_written_by_compare_and_set() -> None:
    async def script(one: Member, other: Member) -> None:
        assert await one.registry.read(KEY) is None
        assert await one.registry.begin(KEY, POSITION) == (POSITION, 0)
        assert await other.registry.begin(KEY, replace(POSITION, offset=11)) == (POSITION, 0)
        further = replace(POSITION, offset=20, sequence=20)
        assert await one.registry.write(KEY, further, 0) == 1
        with pytest.raises(ZnodeVersionError):
            await other.registry.write(KEY, POSITION, 0)
        assert await other.registry.read(KEY) == (further, 1)
        await other.client.set("/consumers/headrace.mirror.dc-east/offsets/clicks/3", b"7")
        with pytest.raises(MalformedPositionError):
            await one.registry.read(KEY)

    play(script)


def test_a_session_is_sure_for_as_long_as_zookeeper_answers() -> None:
    async def script(one: Member, _: Member) -> None:
        lost: list[None] = []
        one.session.on_lost(lambda: lost.append(None))
        async with asyncio.TaskGroup() as tasks:
            renewing = tasks.create_task(one.session.renew_often())
            await asyncio.sleep(20)
            assert is_sure(one)
            one.kazoo.cut()
            await asyncio.sleep(6.1)
            assert not is_sure(one)
            one.kazoo.heal()
            await asyncio.sleep(20)
            assert is_sure(one)
            assert lost, "it is another session, and who had the last one was told"
            renewing.cancel()

    play(script)
