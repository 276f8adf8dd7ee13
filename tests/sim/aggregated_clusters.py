"""A live cluster whose topic is brought into its namesake of an offline one, whole brokers all, through faults and without.

As `mirrored_clusters`, with `mode=aggregate`: each message of a partition of the source is in the target's once, in the source's
order, whichever brokers owned it, and whatever became of them and of their sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from unittest.mock import patch

import mirrored_clusters
from ensemble import SimulatedKazoo
from history import Replica
from mirrored_clusters import OFFLINE, SOURCE, TOPIC, MirroredClusters
from node import SESSION_SECONDS, Node
from replicas_seen import contents, is_settled, replicas_of

from headrace.broker.zk.access import ZooKeeperAccess
from headrace.broker.zk.client import ZooKeeperClient

_STARTING: ContextVar[Node] = ContextVar("_STARTING")
AGGREGATE = OFFLINE | {f"mirror.{SOURCE}.mode": "aggregate", f"mirror.{SOURCE}.topics": TOPIC}


class AggregatedClusters(MirroredClusters):
    """One run."""

    settings, copy = AGGREGATE, TOPIC

    def _is_copied(self, number: int) -> bool:
        place = TOPIC, number
        return is_settled(self.offline, place, mirrored_clusters.OFFLINE_COUNT) and len(
            _any_of(self.offline, number).values
        ) >= len(_any_of(self.east, number).values)

    def _compare(self, number: int) -> None:
        source, target = _any_of(self.east, number), _any_of(self.offline, number)
        assert list(target.values.values()) == list(source.values.values()), (
            f"{TOPIC}-{number} has other messages than its source"
        )


def _any_of(world: Any, number: int) -> Replica:
    return max(
        (contents(p.log) for _, p in replicas_of(world, (TOPIC, number))),
        key=lambda replica: len(replica.values),
        default=Replica({}, {}, 0),
    )


@contextmanager
def _members_of_nodes() -> Iterator[None]:
    """The session that a member has of its own is stopped and dies with the process of its broker."""
    sessions: dict[Node, list[SimulatedKazoo]] = {}
    start, kill, pause = Node.start, Node.kill, Node.pause

    def started(node: Node) -> None:
        token = _STARTING.set(node)
        start(node)
        _STARTING.reset(token)

    def killed(node: Node, *how: Any, **ways: Any) -> None:
        for session in sessions.pop(node, ()):
            session.die()
        kill(node, *how, **ways)

    def paused(node: Node, seconds: float) -> None:
        for session in sessions.get(node, ()):
            session.freeze(seconds)
        pause(node, seconds)

    def make(hosts: str, timeout_ms: int, access: ZooKeeperAccess) -> SimulatedKazoo:
        node = _STARTING.get()
        session = SimulatedKazoo(node._ensemble, SESSION_SECONDS)
        sessions.setdefault(node, []).append(session)
        return session

    defaults = dict(ZooKeeperClient.__init__.__kwdefaults__ or {}) | {"make_kazoo": make}
    with (
        patch.object(Node, "start", started),
        patch.object(Node, "kill", killed),
        patch.object(Node, "pause", paused),
        patch.object(ZooKeeperClient.__init__, "__kwdefaults__", defaults),
    ):
        yield


def simulate(seed: int) -> AggregatedClusters:
    """A whole run; an AssertionError says what was broken, and its notes the seed and what happened."""
    with _members_of_nodes():
        return mirrored_clusters.simulate(seed, AggregatedClusters)
