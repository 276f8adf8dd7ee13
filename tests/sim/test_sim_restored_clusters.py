"""A whole offline cluster whose copy is promoted, written to and restored, while brokers and the command are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from click import ClickException
from clients import PlainProducer, RefusedError
from history import History
from long_runs import first_of
from mirrored_clusters import (
    COPY,
    OFFLINE_COUNT,
    PARTITIONS,
    RECOVERY_SECONDS_MAX,
    MirroredClusters,
    simulate,
)
from replicas_seen import replicas_of
from virtual_time import VirtualLoop
from world import until

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.verbs import promotion, restoration

OFFLINE_ADDRESSES = [(f"broker-{number}", 9092) for number in range(OFFLINE_COUNT)]


class PatientProducer(PlainProducer):
    """Tries again where a broker has not heard of the promotion."""

    async def run(self) -> None:
        while not self.is_over:
            try:
                await super().run()
            except RefusedError as error:
                if error.code is not ErrorCode.POLICY_VIOLATION:
                    raise
                await self.pause()


class RestoredClusters(MirroredClusters):
    """Nothing else fails than what is killed here; nobody reads the copy, whose offsets are used twice."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        super().__init__(loop, seed)
        self.cut_count = 0
        self.readers = [reader for reader in self.readers if reader.world is self.east]

    async def _drive(self) -> None:
        for _ in range(2):
            async with asyncio.timeout(RECOVERY_SECONDS_MAX):
                await until(lambda: all(self._is_whole(number) for number in range(PARTITIONS)))
                await self._promote()
                await self._write_own()
                await self._restore()
        async with asyncio.timeout(RECOVERY_SECONDS_MAX):
            await self._get_on()

    def _is_whole(self, number: int) -> bool:
        """Whether a leader of the copy has all replicas in sync."""
        replicas = replicas_of(self.offline, (COPY, number))
        return any(p.is_leader and len(p.isr) == OFFLINE_COUNT for _, p in replicas)

    async def _promote(self) -> None:
        async def promote(client: ClusterClient) -> None:
            await promotion.promote(client, await promotion.check(client, [COPY]))

        await self._again_and_again(promote)
        self.offline.tell("promoted")

    async def _write_own(self) -> None:
        places = [(COPY, number) for number in range(PARTITIONS)]
        own = PatientProducer(self.offline, "producer here", History(), places)
        writing = asyncio.get_running_loop().create_task(own.run())
        await until(lambda: all(own.acknowledged[place] > 3 for place in places))
        own.is_over = True
        await writing

    async def _restore(self) -> None:
        """The same command again and again, until it says that it is done."""
        killing = asyncio.get_running_loop().create_task(self._kill())
        await self._again_and_again(self._command)
        await killing

    async def _again_and_again(self, work: Callable[[ClusterClient], Awaitable[None]]) -> None:
        """A command that is killed, or fails, until it does not."""
        while True:
            try:
                async with (
                    asyncio.timeout(self.random.choice((0.5, 2.0, 30.0))),
                    ClusterClient(OFFLINE_ADDRESSES, "command-99") as client,
                ):
                    await work(client)
                    return
            except (TimeoutError, ClickException, KafkaError, *FAILURES) as error:
                self.offline.tell(f"the command ends: {error!r}")
                await asyncio.sleep(0.1)

    async def _command(self, client: ClusterClient) -> None:
        plan = await restoration.plan(client, [COPY])
        self.cut_count += sum(cut.end > cut.order.end_offset for cut in plan.cuts)
        await restoration.order(client, plan)
        self.offline.tell(f"ordered {[str(cut) for cut in plan.cuts]} {plan.begun} {plan.done}")
        if plan.marks or plan.begun:
            await restoration.until_done(client, [COPY], 60)

    async def _kill(self) -> None:
        """The leader of a partition, at some moment, and have it back."""
        await asyncio.sleep(self.random.uniform(0, 5))
        for node, partition in replicas_of(self.offline, (COPY, 0)):
            if partition.is_leader and not node.is_dead:
                self.offline.tell(f"kill {node.name}, which leads")
                node.kill()
                await asyncio.sleep(self.random.uniform(0, 4))
                while not node.is_serving:
                    # Until its last session is over ZooKeeper knows it as alive, and it ends again.
                    self.offline.start_dead()
                    await asyncio.sleep(0.2)
                break


@pytest.mark.parametrize("seed", first_of(1, range(30)))
def test_a_restored_copy_is_what_its_source_is_whoever_is_killed(seed: int) -> None:
    clusters = simulate(seed, RestoredClusters)
    assert clusters.cut_count >= PARTITIONS
