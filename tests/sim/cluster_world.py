"""Brokers, their controller and their ZooKeeper in one seeded world of faults.

The membership, the controller, the topics and the peers are the real ones; ZooKeeper, the connections between brokers
and the logs are simulated. Brokers are killed and start again before and after their sessions end, stop cleanly, freeze;
ZooKeeper goes away; connections break and answers get lost; disks are lost; somebody deletes `/controller`, and an
administrator works on topics all the time. After the last fault the cluster has
`RECOVERY_SECONDS_MAX` to be whole: one controller that all brokers name, and a topic can be made and deleted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from cluster_administrator import Administrator
from ensemble import Ensemble, SimulatedKazoo
from virtual_time import LoopClock, VirtualLoop

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode
from headrace.broker.replication.control_requests import control_request
from headrace.broker.replication.model import Endpoint, TopicAssignment
from headrace.broker.replication.topic_requests import TopicResult
from headrace.broker.server.cluster import Cluster
from headrace.broker.server.later import Later
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.replicas import Partitions
from headrace.broker.tasks import Tasks
from headrace.broker.wire.api import k07_controlled_shutdown
from headrace.broker.wire.client.exchange import ProtocolError
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperError

SESSION_SECONDS = 3.0
RECOVERY_SECONDS_MAX = 40.0
RECOVERY_OF_LOGS_SECONDS = (0.2, 0.2, 5.0)
PORT = 9000
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


class Log:
    """What a partition needs of its log."""

    def __init__(self, topic_id: Any) -> None:
        self.topic_id = topic_id
        self.config = LogConfig()
        self.log_end_offset = self.high_watermark = 0
        self.awaits_sync = False

    def assign_epoch(self, epoch: int) -> None:
        pass

    def advance_high_watermark(self, offset: int) -> None:
        pass


class Logs:
    """A broker's disk: it outlives the process."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], Log] = {}
        self.made: set[tuple[tuple[str, int], Any]] = set()

    def get(self, topic: str, partition: int) -> Log | None:
        return self.logs.get((topic, partition))

    def opening(self, topic: str, partition: int, topic_id: Any, **_: Any) -> Opening:
        return Opening(self, (topic, partition), topic_id)

    def name_syncs(self, openings: Sequence[Opening]) -> list[Any]:
        return []

    def epoch_jobs(self, epochs: Iterable[tuple[Log, int]]) -> list[Any]:
        return []

    def opened(self, opening: Opening) -> Log:
        return self.logs[opening.key]

    def update_config(self, topic: str, overrides: Mapping[str, str]) -> None:
        pass

    def abandon(self, openings: Iterable[Opening]) -> None:
        pass

    def deletion(self, keys: Sequence[tuple[str, int]], *, now_ms: int) -> Callable[[], dict[Any, Any]]:
        def delete() -> dict[Any, Any]:
            for key in keys:
                self.logs.pop(key, None)
            return {}

        return delete


class Opening:
    """What a thread does for a new or an existing log."""

    def __init__(self, logs: Logs, key: tuple[str, int], topic_id: Any) -> None:
        self.logs, self.key, self.topic_id = logs, key, topic_id

    def run(self) -> None:
        if self.key not in self.logs.logs:
            assert (self.key, self.topic_id) not in self.logs.made, f"the log of {self.key} is lost"
            self.logs.made.add((self.key, self.topic_id))
            self.logs.logs[self.key] = Log(self.topic_id)


class Node:
    """A broker process."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.is_dead = False
        self.is_serving = False
        self.tasks = Tasks()
        self.kazoo = SimulatedKazoo(world.ensemble, SESSION_SECONDS)
        self.metadata = MetadataCache()
        properties = {"zookeeper.connect": "zk", "broker.id": str(broker_id)}
        properties["zookeeper.session.timeout.ms"] = str(int(SESSION_SECONDS * 1000))
        config, _ = BrokerConfig.from_properties(properties)
        with patch("headrace.broker.zk.client.KazooClient", lambda **_: self.kazoo):
            self.cluster = Cluster(config, LoopClock(world.loop), self.metadata, self.tasks)
        self.tasks.start("start", self._start())

    async def _start(self) -> None:
        try:
            await self.cluster.connect(None)
            logs: Any = self.world.disks[self.broker_id]
            self.partitions = partitions = Partitions(
                self.broker_id, logs, self.metadata, LoopClock(self.world.loop), lambda _: None
            )
            await asyncio.sleep(
                self.world.random.uniform(0, self.world.random.choice(RECOVERY_OF_LOGS_SECONDS))
            )
            self.is_serving = True
            port = PORT + self.broker_id
            endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=port)
            await self.cluster.join(partitions, (endpoint,))
        except ZooKeeperError as error:
            self.world.story(f"broker {self.broker_id} does not start: {error}")
            self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        self.is_dead = True
        self.is_serving = False
        self.kazoo.die()
        for task in list(self.tasks._tasks):
            task.cancel()

    async def stop(self) -> None:
        """SIGTERM."""
        await self.cluster.leave()
        self.kill()

    @property
    def frozen_seconds(self) -> float:
        return max(0.0, self.kazoo.frozen_until - self.world.loop.time())


async def until(holds: Callable[[], bool], seconds: float) -> None:
    """Look again after each `seconds`."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(seconds)


class SimulatedLink:
    """`peers.PeerLink` to a simulated broker."""

    def __init__(self, world: World, endpoint: Endpoint, timeout_ms: int) -> None:
        self._world = world
        self._broker_id = endpoint.port - PORT
        self._timeout_seconds = timeout_ms / 1000
        self._node: Node | None = None

    async def ask(self, key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(self._timeout_seconds):
            return await self._ask(key, message)

    def close(self) -> None:
        self._node = None

    async def _ask(self, key: int, message: dict[str, Any]) -> dict[str, Any]:
        world = self._world
        await asyncio.sleep(world.delay())
        if self._node is None:
            self._node = world.nodes.get(self._broker_id)
        node = self._node
        if node is None or not node.is_serving or world.breaks():
            self._node = None
            raise ConnectionRefusedError
        await asyncio.sleep(node.frozen_seconds)
        if key == k07_controlled_shutdown.API.key:
            remaining = await node.cluster.control.shut_down(message["broker_id"], message["broker_epoch"])
            return {"error_code": 0, "remaining_partitions": remaining}
        answer = Later(node.tasks)("control", node.cluster.control.perform(control_request(key, message)))
        await until(lambda: answer.done or node.is_dead, seconds=0.005)
        await asyncio.sleep(world.delay())
        if node.is_dead or world.breaks():
            self._node = None
            raise ProtocolError("the connection broke")
        if answer._error is not None:
            world.failures.append(answer._error)
            raise ProtocolError("the broker closed the connection")
        assert answer._value is not None
        return answer._value


class World:
    """Everything under one seed."""

    def __init__(self, loop: VirtualLoop, seed: int, broker_count: int = 2) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        loop.job_seconds = self.delay
        random.seed(seed)
        self.ensemble = Ensemble(loop, self.random)
        self.disks = {n: Logs() for n in range(broker_count)}
        self.nodes: dict[int, Node] = {}
        self.stories: list[str] = []
        self.failures: list[BaseException] = []
        self.is_healed = False

    def story(self, text: str) -> None:
        self.stories.append(f"{self.loop.time():9.3f} {text}")

    def delay(self) -> float:
        return self.random.uniform(0, 0.2 if self.random.random() < 0.05 else 0.004)

    def breaks(self) -> bool:
        return not self.is_healed and self.random.random() < 0.05

    def start(self, broker_id: int) -> None:
        self.story(f"broker {broker_id} starts")
        self.nodes[broker_id] = Node(self, broker_id)

    def live(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.is_dead]

    async def run(self, steps: int = 12) -> None:
        for broker_id in self.disks:
            self.start(broker_id)
        clients = Tasks()
        clients.start("clock", self._sessions())
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
        assert not self.failures, self.failures

    async def _sessions(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            if self.ensemble.is_up:
                self.ensemble.expire_silent_sessions()

    async def _fault(self) -> None:
        broker_id = self.random.choice(sorted(self.disks))
        node = self.nodes[broker_id]
        if node.is_dead:
            self.start(broker_id)
            return
        kind = self.random.choice(FAULTS)
        self.story(f"{kind} {broker_id}")
        if kind in ("kill", "restart", "wipe"):
            node.kill()
            if kind == "wipe":
                self.disks[broker_id] = Logs()
            if kind != "kill":
                await asyncio.sleep(self.random.uniform(0, 0.5))
                self.start(broker_id)
        elif kind == "depose":
            if paths.CONTROLLER in self.ensemble.znodes:
                self.ensemble.delete(paths.CONTROLLER, -1)
        elif kind == "freeze":
            node.kazoo.freeze(self.random.uniform(0.1, 7))
        elif kind == "zookeeper":
            await self._restart_zookeeper()
        elif kind == "break":
            node.kazoo.disconnect()
        elif kind == "breaks":
            for other in self.live():
                other.kazoo.disconnect()
        else:
            await node.stop()

    async def _restart_zookeeper(self) -> None:
        self.ensemble.is_up = False
        for node in self.live():
            node.kazoo.disconnect()
        away = self.random.choice((0.1, 1.0, 6.0))
        await asyncio.sleep(self.random.uniform(0, away))
        self.ensemble.is_up = True

    async def _heal(self) -> None:
        self.story("heal")
        self.is_healed = True
        for broker_id, node in list(self.nodes.items()):
            if node.is_dead:
                self.start(broker_id)

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
        serving = [node for node in self.live() if node.is_serving and node.frozen_seconds == 0]
        if not serving:
            return None
        named = self.nodes.get(self.random.choice(serving).metadata.controller_id)
        return named if named in serving else None

    async def _become_whole(self, administrator: Administrator) -> None:
        while not self.is_whole():
            await asyncio.sleep(0.2)
            for broker_id, node in list(self.nodes.items()):
                if node.is_dead:
                    self.start(broker_id)
        while True:
            result = await administrator.create("last", seconds=15)
            if result is not None and result.error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                break
            self.story(f"the last topic: {result}")
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
        found = [
            f"{node.broker_id} keeps a log of {topic}-{partition}"
            for topic, partition in self.disks[node.broker_id].logs
            if topic not in topics or partition not in topics[topic].partitions
        ]
        for topic in {topic for topic, _ in self.disks[node.broker_id].logs} & topics.keys():
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
        partition = self.nodes[leader].partitions.get(name, number)
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
            and node.metadata.brokers.keys() == self.disks.keys()
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
        for node in self.nodes.values():
            session = node.kazoo._session
            lines.append(
                f"broker {node.broker_id}: dead={node.is_dead} serving={node.is_serving} "
                f"controller={node.cluster.control.is_controller} names={node.metadata.controller_id} "
                f"brokers={sorted(node.metadata.brokers)} epoch={node.cluster.membership.broker_epoch} "
                f"session={session and session.number}"
            )
        return "\n".join([*lines, *self.differences()])


def run(seed: int, broker_count: int = 2) -> World:
    """One world from its first start to its last check."""
    with VirtualLoop() as loop:
        world = World(loop, seed, broker_count)

        def connect(endpoint: Endpoint, client_id: str, timeout_ms: int) -> SimulatedLink:
            return SimulatedLink(world, endpoint, timeout_ms)

        with (
            patch("headrace.broker.server.peers.PeerLink", connect),
            patch("headrace.broker.server.control.PeerLink", connect),
        ):
            try:
                loop.run_until_complete(world.run())
            except AssertionError as error:
                error.add_note(f"seed {seed}\n" + "\n".join(world.stories[-40:]))
                raise
    return world
