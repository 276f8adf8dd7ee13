"""Brokers, their controller and their ZooKeeper in one seeded world of faults.

Whole brokers run on simulated hosts (`tests/world`). They are killed and start again before and after their sessions end, stop
cleanly, freeze; ZooKeeper goes away; connections break and answers get lost; disks are lost; somebody deletes `/controller`,
and an administrator works on topics all the time. After the last fault the cluster has
`RECOVERY_SECONDS_MAX` to be whole: one controller that all brokers name, and a topic can be made and deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from unittest.mock import patch

import world
from cluster_administrator import Administrator
from faulty_files import FaultyFiles
from node import Node
from virtual_time import VirtualLoop
from world import unforeseen_failures, until

from headrace.broker.errors import ErrorCode
from headrace.broker.log.opening import Opening
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.store import LogStore
from headrace.broker.replication.model import TopicAssignment
from headrace.broker.replication.topic_requests import TopicResult
from headrace.broker.tasks import Tasks
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.zk import paths
from headrace.broker.zk.znodes import ZooKeeperError

RECOVERY_SECONDS_MAX = 40.0
BREAK_CHANCE = 0.1
SLOW_JOB_CHANCE, SLOW_JOB_SECONDS_MAX = 0.02, 5.0
FAULTS = (
    "kill",
    "kill",
    "restart",
    "restart",
    "wipe",
    "freeze",
    "zookeeper",
    "break",
    "breaks",
    "stop",
    "depose",
)


class World(world.World):
    """Everything under one seed."""

    def __init__(self, loop: VirtualLoop, seed: int, broker_count: int = 2) -> None:
        super().__init__(loop, seed, broker_count, break_chance=BREAK_CHANCE)
        loop.job_seconds = self._job_seconds

    def _job_seconds(self) -> float:
        if self.random.random() < SLOW_JOB_CHANCE:
            return self.random.uniform(0, SLOW_JOB_SECONDS_MAX)
        return self.network.delay()

    async def run(self, steps: int = 12) -> None:
        self.start_dead()
        clients = Tasks()
        administrator = Administrator(self)
        clients.start("administrator", administrator.run())
        await asyncio.sleep(self.random.uniform(0.1, 3))
        for _ in range(steps):
            await self._fault()
            longest = self.random.choice((0.02, 0.3, 1.5, 5.0))
            await asyncio.sleep(self.random.uniform(0, longest))
        await self._heal()
        try:
            async with asyncio.timeout(RECOVERY_SECONDS_MAX):
                await self._become_whole(administrator)
        except TimeoutError:
            raise AssertionError(f"not whole: {self._description()}") from None

    async def _fault(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if node.is_dead:
            self.tell(f"{node.name} starts")
            node.start()
            return
        kind = self.random.choice(FAULTS)
        self.tell(f"{kind} {node.name}")
        if kind in ("kill", "restart", "wipe"):
            node.kill()
            if kind == "wipe":
                node.disk = FaultyFiles()
            if kind != "kill":
                await asyncio.sleep(self.random.uniform(0, 0.5))
                node.start()
        elif kind == "depose":
            if paths.CONTROLLER in self.ensemble.znodes:
                self.ensemble.delete(paths.CONTROLLER, -1)
        elif kind == "freeze":
            node.pause(self.random.uniform(0.1, 7))
        elif kind == "zookeeper":
            away = self.random.choice((0.1, 1.0, 6.0))
            await self.harm_zookeeper(self.random.uniform(0, away))
        elif kind == "break":
            node.disconnect()
        elif kind == "breaks":
            for other in self.live():
                other.disconnect()
        else:
            await node.stop()

    async def _heal(self) -> None:
        self.tell("heal")
        self.network.is_faulty = False
        self.start_dead()

    async def ask(
        self, work: Callable[[Node], Awaitable[list[TopicResult]]], seconds: float
    ) -> TopicResult | None:
        """The answer of the broker that some broker names as controller; None when there is none in time."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    node = self._controller_by_metadata()
                    if node is not None and node.cluster.control.is_controller:
                        return (await work(node))[0]
                    await asyncio.sleep(0.1)
        except (TimeoutError, ZooKeeperError):
            return None

    def _controller_by_metadata(self) -> Node | None:
        serving = [node for node in self.live() if node.is_serving and not node.is_paused]
        if not serving:
            return None
        named = self.nodes.get(self.random.choice(serving).metadata.controller_id)
        return named if named in serving else None

    async def _become_whole(self, administrator: Administrator) -> None:
        while not self.is_whole():
            await asyncio.sleep(0.2)
            self.start_dead()
        while True:
            result = await administrator.create("last", seconds=15)
            if result is not None and result.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                break
            self.tell(f"the last topic: {result}")
        administrator.is_done = True
        await until(lambda: not self.differences(), seconds=0.2)

    def differences(self) -> list[str]:
        """What brokers say or do other than ZooKeeper holds, but for topics that are being deleted."""
        doomed = set(self.ensemble.children(paths.DELETE_TOPICS))
        topics = {
            name: paths.decode_topic(name, self.ensemble.znodes[paths.topic(name)].data)
            for name in self.ensemble.children(paths.TOPICS)
        }
        found = [f"{name} is not deleted" for name in doomed]
        found += [f"{name} has no id" for name, topic in topics.items() if topic.topic_id == ZERO_UUID]
        if paths.PREFERRED_ELECTION in self.ensemble.znodes:
            found.append("a wish for preferred leaders is not done")
        for node in self.live():
            found += [f"{node.broker_id} shows {t}" for t in node.metadata.topic_names() if t not in topics]
            found += self._leftovers_of(node, topics)
        for name, topic in topics.items():
            for number, assignment in topic.partitions.items():
                if name not in doomed:
                    found += self._differences_of(name, number, topic.topic_id, assignment.replicas[0])
        return found

    def _leftovers_of(self, node: Node, topics: Mapping[str, TopicAssignment]) -> list[str]:
        """What a broker keeps of deleted topics: logs, and configurations that their namesakes do not have."""
        assert node.broker is not None
        assert node.broker.logs is not None
        logs = {(log.topic, log.partition) for log in node.broker.logs.all()}
        found = [
            f"{node.broker_id} keeps a log of {topic}-{partition}"
            for topic, partition in sorted(logs)
            if topic not in topics or partition not in topics[topic].partitions
        ]
        for topic in sorted({topic for topic, _ in logs} & topics.keys()):
            stored = self.ensemble.znodes[paths.entity_config("topics", topic)].data
            used = node.cluster.configurations.of_topic(topic)
            if used != paths.decode_config(topic, stored):
                found.append(f"{node.broker_id} uses {used} for {topic}, not {stored!r}")
        return found

    def _differences_of(self, name: str, number: int, topic_id: Any, leader: int) -> list[str]:
        found = []
        znode = self.ensemble.znodes.get(paths.partition_state(name, number))
        if znode is None:
            return [f"{name}-{number} has no state"]
        state = paths.decode_partition_state(name, znode.data, znode.version)
        for node in self.live():
            shown = node.metadata.partition(name, number)
            if shown is not None and (shown.leader, shown.leader_epoch) != (state.leader, state.leader_epoch):
                found.append(f"{node.broker_id} shows {name}-{number} as {shown}, not {state}")
            if shown is None or shown.leader != leader or node.metadata.topic_id(name) != topic_id:
                found.append(
                    f"{node.broker_id} shows {name}-{number} as {shown}, {node.metadata.topic_id(name)}"
                )
        broker = self.nodes[leader].broker
        if broker is None or broker.partitions is None:
            return [f"{leader} is dead"]
        partition = broker.partitions.get(name, number)
        if partition is None or not partition.is_leader or partition.topic_id != topic_id:
            found.append(
                f"{leader} does not lead {name}-{number} of {topic_id}: {partition and partition.topic_id}"
            )
        elif partition.log.topic_id != topic_id:
            found.append(
                f"{leader} leads {name}-{number} of {topic_id} with the log of {partition.log.topic_id}"
            )
        return found

    def is_whole(self) -> bool:
        """Whether every broker is registered and names the one controller that is active."""
        znode = self.ensemble.znodes.get(paths.CONTROLLER)
        if znode is None:
            return False
        controller = paths.decode_controller(znode.data)
        return all(
            node.is_serving
            and node.metadata.controller_id == controller
            and node.cluster.control.is_controller == (node.broker_id == controller)
            and node.metadata.brokers.keys() == self.nodes.keys()
            for node in self.nodes.values()
        )

    def _description(self) -> str:
        znode = self.ensemble.znodes.get(paths.CONTROLLER)
        lines = [f"/controller {None if znode is None else (znode.data, znode.ephemeralOwner)}"]
        lines += [
            f"{p} {z.czxid} {z.ephemeralOwner}"
            for p, z in self.ensemble.znodes.items()
            if "/brokers/ids/" in p
        ]
        for node in self.live():
            lines.append(
                f"{node.name}: serving={node.is_serving} "
                f"controller={node.cluster.control.is_controller} names={node.metadata.controller_id} "
                f"brokers={sorted(node.metadata.brokers)} epoch={node.cluster.membership.broker_epoch}"
            )
        return "\n".join([*lines, *self.differences()])


def _noting_logs() -> Any:
    """A log that a broker had once is never made anew on its disk: its records would be lost."""
    take = LogStore.opened

    def take_and_note(store: LogStore, opening: Opening) -> PartitionLog:
        if opening.is_new:
            made = vars(opening._files).setdefault("made", set())
            assert (opening.key, opening._topic_id) not in made, f"the log of {opening.key} is lost"
            made.add((opening.key, opening._topic_id))
        return take(store, opening)

    return patch.object(LogStore, "opened", take_and_note)


def run(seed: int, broker_count: int = 2) -> World:
    """One world from its first start to its last check."""
    with unforeseen_failures() as failures, VirtualLoop() as loop, _noting_logs():
        world = World(loop, seed, broker_count)
        try:
            try:
                loop.run_until_complete(world.run())
            finally:
                # Why it is not whole.
                assert not failures, failures[0]
        except AssertionError as error:
            error.add_note(f"seed {seed}\n" + "\n".join(world.stories[-40:]))
            raise
    return world
