"""A log that is cut below what is committed, on whole brokers: every replica ends there, and goes on as the leader does."""

from __future__ import annotations

import asyncio

import pytest
from clients import TopicMaker
from history import History
from node import Node
from virtual_time import VirtualLoop
from world import World, until

from headrace.broker.replication.events import ReassignmentsRequested
from headrace.broker.replication.partition import Partition
from headrace.broker.server.embedding import BrokerHost
from headrace.broker.wire.batches import Record, encode_batch

PLACE = "t", 0
SHARED, OWN, CUT_TO = 20, 9, 12


def batch(text: str, base_offset: int = 0) -> memoryview:
    return memoryview(encode_batch([Record(0, 1, None, text.encode(), [])], base_offset=base_offset))


class CutWorld(World):
    """Three brokers with a replica each of `t`, which began with so many messages of one kind, then of another."""

    async def run(self, *, lags: bool) -> None:
        self.start_dead()
        await until(lambda: all(node.is_serving for node in self.live()))
        maker = TopicMaker(self, "maker", History(), factor=3)
        await maker.until_done([], lambda: maker.create("t", 1))
        await until(lambda: self.led is not None and len(self.led[1].isr) == 3)
        for number in range(SHARED):
            await self.append(f"shared {number}")
        away = self.followers[0]
        if lags:
            await until(lambda: len({self.end_of(node) for node in self.live()}) == 1)
        for number in range(OWN):
            await self.append(f"own {number}")
        if lags:
            away.kill()
        # As the configuration of a topic that the brokers mirror would have it.
        self.leader[1].log.is_mirror_copy = True
        await self.turn()
        await until(lambda: self.leader[1].leads_since_its_last_message)
        node, partition = self.leader
        host = self.host_of(node)
        await host.cut_mirrored(partition, CUT_TO, leader_epoch=partition.leader_epoch)
        assert (partition.log.log_end_offset, partition.high_watermark) == (CUT_TO, CUT_TO)
        await until(lambda: partition.is_on_all_in_sync)
        assert {self.end_of(one) for one in self.live() if one.broker_id in partition.isr} == {CUT_TO}
        for number in range(5):
            host.append_mirrored(partition, batch(f"source {number}", CUT_TO + number))
        if lags:
            away.start()
        await until(lambda: len(self.leader[1].isr) == 3 and self.leader[1].high_watermark == CUT_TO + 5)
        assert len({self.bytes_of(one) for one in self.live()}) == 1

    # -- what they have

    @property
    def led(self) -> tuple[Node, Partition] | None:
        for node in self.live():
            found = self.replica(node)
            if found is not None and found.is_leader:
                return node, found
        return None

    @property
    def leader(self) -> tuple[Node, Partition]:
        assert self.led is not None, "somebody leads"
        return self.led

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.live() if node.cluster.control.is_controller]

    @property
    def followers(self) -> list[Node]:
        return [node for node in self.live() if node is not self.leader[0]]

    @staticmethod
    def replica(node: Node) -> Partition | None:
        partitions = None if node.broker is None else node.broker.partitions
        return None if partitions is None else partitions.get(*PLACE)

    def end_of(self, node: Node) -> int:
        found = self.replica(node)
        return -1 if found is None else found.log.log_end_offset

    def bytes_of(self, node: Node) -> bytes:
        found = self.replica(node)
        assert found is not None
        return found.log.read(0, size_max=2**20, upper_offset=found.log.log_end_offset).read()

    # -- what is done

    async def append(self, text: str) -> None:
        self.leader[1].append(batch(text), required_acks=1, now_ms=1)
        await asyncio.sleep(self.random.choice((0, 0.01, 0.7)))

    async def turn(self) -> None:
        """The same replicas in another order, and back: a new leader epoch."""
        replicas = self.leader[1].replicas
        await until(lambda: bool(self.controllers))
        (controller,) = self.controllers
        for target in ((*replicas[1:], replicas[0]), replicas):
            await controller.cluster.control.answer(ReassignmentsRequested(targets={PLACE: target}))

    @staticmethod
    def host_of(node: Node) -> BrokerHost:
        broker = node.broker
        assert broker is not None, "it leads"
        assert broker.partitions is not None, "it leads"
        return BrokerHost(
            broker.config,
            broker.clock,
            broker.cluster,
            broker.metadata,
            broker.partitions,
            broker.waiting,
            broker.metrics,
        )


@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_replica_is_cut_and_goes_on_alike(seed: int, *, lags: bool) -> None:
    with VirtualLoop() as loop:
        world = CutWorld(loop, seed, 3, {"replica.lag.time.max.ms": "3000"}, break_chance=0)

        async def script() -> None:
            async with asyncio.timeout(200):
                await world.run(lags=lags)

        loop.run_until_complete(script())
