"""What happens to simulated brokers: processes, disks, clocks, ways and sessions fail, each for a while, several at once.

A power cut, which takes what was not synced, hits one broker at a time: not before the last one that it hit is in sync with
everything again, and only while every partition has another in-sync replica that serves and has done so since the partition's
state was written; that one stays until the controller has acted upon the power cut. More than that no cluster of minimum 2
promises to survive. Where every write is flushed, or nothing is promised, it hits as it likes or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from node import Node
from replicas_seen import assignment_of, places_of, replicas_of, state_of
from world import World

from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk import paths

KINDS = {
    "kill": 3,
    "restart": 3,
    "power cut": 2,
    "stop": 1,
    "pause": 2,
    "cut": 2,
    "isolate": 2,
    "slow": 1,
    "session": 1,
    "expire": 1,
    "alone": 2,
    "zookeeper": 1,
    "depose": 1,
    "clock": 1,
    "full disk": 1,
}
"""By weight: `isolate` cuts off from other brokers but not from clients, `alone` from ZooKeeper only."""
SECONDS = (0.1, 1.0, 5.0, 12.0)
CLOCK_STEP_MS = 3_600_000
TAKE_AWAY = KINDS.keys() - {"cut", "slow", "session", "depose", "clock"}
"""What keeps a broker from being elected, at least for a while."""


class Faults:
    """Each `harm` is one of `KINDS` to a random broker, or the start of one that is dead."""

    def __init__(
        self, world: World, clients: Iterable[str], topics: Iterable[str], factor: int, is_flushed: bool
    ) -> None:
        self._world = world
        self._random = world.random
        self._clients = list(clients)
        self._topics = list(topics)
        self._factor, self._is_flushed = factor, is_flushed
        self._lost_power: Node | None = None
        # Where the controller has not taken it out of sync yet.
        self._unnoticed: set[str] = set()
        world.ensemble.written.append(self._notice)
        self._works: dict[str, Callable[[Node, float], None]] = {
            "kill": lambda node, _: node.kill(),
            "pause": lambda node, seconds: node.pause(seconds),
            "cut": self._cut,
            "isolate": self._isolate,
            "slow": self._slow,
            "session": lambda node, _: node.disconnect(),
            "expire": lambda node, _: node.expire(),
            "alone": self._alone,
            "depose": self._depose,
            "clock": self._step_clock,
            "full disk": self._fill,
        }

    async def harm(self) -> None:
        node = self._random.choice(list(self._world.nodes.values()))
        if node.is_dead:
            self._world.tell(f"{node.name} starts")
            node.start()
            return
        (kind,) = self._random.choices(list(KINDS), list(KINDS.values()))
        if kind in TAKE_AWAY and not self._is_power_cut_known():
            kind = "slow"
        if kind == "power cut" and not self._may_lose_power(node):
            kind = "restart"
        self._world.tell(f"{kind} {node.name}")
        self._world.history.happened[kind] += 1
        seconds = self._random.uniform(0, self._random.choice(SECONDS))
        if kind == "zookeeper":
            await self._world.harm_zookeeper(seconds)
        elif kind == "stop":
            await node.stop()
        elif kind in ("restart", "power cut"):
            node.kill(self._random if kind == "power cut" else None)
            await asyncio.sleep(self._random.uniform(0, self._random.choice((0.1, 4.0))))
            node.start()
        else:
            self._works[kind](node, seconds)

    def heal(self) -> None:
        """Nothing goes wrong any more, and what is cut off or full is so no longer."""
        self._world.network.is_faulty = False
        self._world.network.heal()
        for node in self._world.live():
            node.join_zookeeper()
            node.make_room()

    def _places(self) -> list[PartitionKey]:
        return [place for topic in self._topics for place in places_of(self._world, topic)]

    def _notice(self, path: str, data: bytes) -> None:
        if path not in self._unnoticed or self._lost_power is None:
            return
        if self._lost_power.broker_id not in paths.decode_partition_state(path, data, 0).isr:
            self._unnoticed.discard(path)

    def _is_power_cut_known(self) -> bool:
        """Whether the controller has acted upon the last power cut: until then others have what it took."""
        lost = self._lost_power
        if lost is None:
            return True
        if self._unnoticed or not lost.is_serving:
            return False
        replicas = [
            p for place in self._places() for node, p in replicas_of(self._world, place) if node is lost
        ]
        return all(partition.log.lost_end is None for partition in replicas)

    def _may_lose_power(self, node: Node) -> bool:
        if self._factor == 1:
            return self._is_flushed
        if self._lost_power not in (None, node) and not self._is_in_sync(self._lost_power):
            return False
        hit = [place for place in self._places() if self._is_in_sync_at(place, node)]
        if not all(self._has_another(place, node) for place in hit):
            return False
        self._lost_power = node
        self._unnoticed = {paths.partition_state(*place) for place in hit}
        return True

    def _has_another(self, place: PartitionKey, node: Node) -> bool:
        """Whether one is in sync, will be there, and was all the time since the state was written."""
        state = state_of(self._world, place)
        others = [n for n, _ in replicas_of(self._world, place) if n is not node and n.is_well]
        return state is not None and any(
            other.broker_id in state.isr and other.cluster.membership.broker_epoch < state.written_zxid
            for other in others
        )

    def _is_in_sync(self, node: Node | None) -> bool:
        """With everything that it holds a replica of."""
        assert node is not None
        held = [p for p in self._places() if node.broker_id in assignment_of(self._world, p)]
        return node.is_serving and all(self._is_in_sync_at(place, node) for place in held)

    def _is_in_sync_at(self, place: PartitionKey, node: Node) -> bool:
        state = state_of(self._world, place)
        return state is not None and node.broker_id in state.isr

    def _others(self, node: Node) -> list[str]:
        return [other.name for other in self._world.nodes.values() if other is not node]

    def _way(self, node: Node, others: Sequence[str]) -> tuple[str, str]:
        """To or from one of the others."""
        other = self._random.choice(others)
        return (node.name, other) if self._random.random() < 0.5 else (other, node.name)

    def _cut(self, node: Node, seconds: float) -> None:
        """One way, to or from another broker or a client."""
        ends = self._way(node, [*self._others(node), *self._clients])
        self._world.network.cut(*ends)
        self._world.loop.call_later(seconds, self._world.network.mend, *ends)

    def _slow(self, node: Node, seconds: float) -> None:
        ends = self._way(node, self._others(node))
        self._world.network.slow(*ends, self._random.choice((0.05, 0.5, 2.0)))
        self._world.loop.call_later(seconds, self._world.network.mend, *ends)

    def _isolate(self, node: Node, seconds: float) -> None:
        for other in self._others(node):
            for ends in ((node.name, other), (other, node.name)):
                self._world.network.cut(*ends)
                self._world.loop.call_later(seconds, self._world.network.mend, *ends)
        if self._random.random() < 0.5:
            self._alone(node, seconds)

    def _alone(self, node: Node, seconds: float) -> None:
        node.leave_zookeeper()
        self._world.loop.call_later(seconds, node.join_zookeeper)

    def _depose(self, node: Node, seconds: float) -> None:
        if paths.CONTROLLER in self._world.ensemble.znodes:
            self._world.ensemble.delete(paths.CONTROLLER, -1)

    def _step_clock(self, node: Node, seconds: float) -> None:
        node.clock.step(self._random.randint(-CLOCK_STEP_MS, CLOCK_STEP_MS))

    def _fill(self, node: Node, seconds: float) -> None:
        node.fill_disk(self._random.choice((0, 100, 1000)))
        self._world.loop.call_later(seconds, node.make_room)
