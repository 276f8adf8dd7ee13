"""Brokers, their network and their ZooKeeper under one seed; what happens to them is noted for whoever reads a failure."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ensemble import Ensemble
from faulty_files import Died
from history import History, Violation
from network import Network
from node import Node
from virtual_time import VirtualLoop

from headrace.broker.replication.partition import Partition

TICK_SECONDS = 0.1


class World:
    """`nodes` by broker id from `first_id` on, none of them started. Two clusters may share a `network`."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int,
        broker_count: int,
        settings: Mapping[str, str] | None = None,
        break_chance: float = 0.01,
        *,
        first_id: int = 0,
        network: Network | None = None,
    ) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        # What the broker draws itself.
        random.seed(seed)
        self.ensemble = Ensemble(loop, self.random)
        self.network = network or Network(loop, self.random, break_chance)
        loop.job_seconds = self.network.delay
        self.history = History()
        self.nodes = {
            number: Node(loop, self.ensemble, self.network, number, settings, leads=self._leads)
            for number in range(first_id, first_id + broker_count)
        }
        self.stories: list[str] = []
        loop.set_exception_handler(_pass_over_the_dead)
        loop.call_later(TICK_SECONDS, self._expire_sessions)

    def tell(self, story: str) -> None:
        """Note what happened."""
        self.stories.append(f"{self.loop.time():9.3f} {story}")

    def live(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.is_dead]

    def start_dead(self) -> None:
        for node in self.nodes.values():
            if node.is_dead:
                self.tell(f"{node.name} starts")
                node.start()

    async def harm_zookeeper(self, seconds: float) -> None:
        """All of its servers are away for so long."""
        self.ensemble.is_up = False
        for node in self.live():
            node.disconnect()
        await asyncio.sleep(seconds)
        self.ensemble.is_up = True

    def _leads(self, partition: Partition, broker_id: int) -> None:
        # A topic that was deleted has nothing to do with its namesake.
        place = f"{partition.topic} {partition.topic_id}", partition.partition
        self.history.leads(place, partition.leader_epoch, broker_id)

    def _expire_sessions(self) -> None:
        if self.ensemble.is_up:
            self.ensemble.expire_silent_sessions()
        self.loop.call_later(TICK_SECONDS, self._expire_sessions)


def _pass_over_the_dead(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a dead process leaves behind ends at its next operation on the disk."""
    if not isinstance(context.get("exception"), Died):
        loop.default_exception_handler(context)


class _Failures(logging.Handler):
    """Takes note of what the broker's code did not foresee: those lines have a stack."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        facts = getattr(record, "facts", {})
        if "stack" in facts:
            self.found.append(f"{record.getMessage()}: {facts['stack']}")


_listening: set[_Failures] = set()
"""Several may listen at once, and end in any order: the last one puts back what the first one found."""
_before: list[tuple[int, bool]] = []


@contextmanager
def unforeseen_failures() -> Iterator[list[str]]:
    """What brokers log of failures that nobody foresaw; nothing else of their logs goes anywhere."""
    logger, failures = logging.getLogger("headrace"), _Failures()
    if not _listening:
        _before[:] = [(logger.level, logger.propagate)]
        logger.setLevel(logging.ERROR)
        logger.propagate = False
    _listening.add(failures)
    logger.addHandler(failures)
    try:
        yield failures.found
    finally:
        logger.removeHandler(failures)
        _listening.remove(failures)
        if not _listening:
            ((level, logger.propagate),) = _before
            logger.setLevel(level)


def run_and_check(
    world: World, seed: int, run: Coroutine[Any, Any, list[Violation]], failures: list[str]
) -> None:
    """Run to the end; an error that says what was broken has notes with the seed and what happened last."""
    try:
        found = world.loop.run_until_complete(run)
        assert not failures, failures[0]
        assert not found, "\n".join(map(str, found[:20]))
    except Exception as error:
        error.add_note(f"seed {seed}\n" + "\n".join(world.stories[-40:]))
        raise


async def until(holds: Callable[[], bool], seconds: float = TICK_SECONDS) -> None:
    """Look again after each `seconds`."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(seconds)
