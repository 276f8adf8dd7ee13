"""A group coordinator and its consumers in one seeded world: clock, network, replicated log, faults.

The coordinator is the broker's: runtime, shard, journal, partition and its log on a disk in memory; a follower's fetches move
the high watermark. The consumers are models of an eager Kafka consumer that stall, die, come back, leave, and lose requests
and replies. Of the log stays what is below its high watermark when the coordinator crashes, and a random part of the rest;
it is also deposed, and led in a new epoch without a break. The world checks at every step:
- within one generation no partition has two owners (`check_owners`);
- the stored offsets of a partition never go back in the log, nor below what a client saw acknowledged;
at every crash and at the end that what the shard's memory says is what its log says (`check_replay`); and at the end,
after a time without faults, that the group is stable with every partition owned.
A `Mutation` switches one safety rule off.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any
from unittest.mock import patch

from group_clients import GROUP, PARTITION_COUNT, Client
from group_coordinator import Coordinator

from headrace.broker.coordinators.decision import Decision, Timer
from headrace.broker.coordinators.runtime import Host, Runtime
from headrace.broker.groups.events import SessionExpired
from headrace.broker.groups.machine import Shard
from headrace.broker.server.coordinators.journal import PartitionJournal
from headrace.broker.wire.partitions import TopicPartition


class Mutation(Enum):
    """A safety rule of the runtime that is switched off."""

    NONE = auto()
    REPLY_BEFORE_COMMIT = auto()
    APPLY_BEFORE_APPEND = auto()
    NO_SESSION_TIMERS = auto()


@dataclass
class World:
    """Everything, driven by one queue of timed actions."""

    seed: int
    mutation: Mutation = Mutation.NONE
    now_ms: int = 0
    faulty: bool = True
    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)
    stories: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.coordinator = Coordinator(self)
        self.clients: list[Client] = []
        for number in range(self.random.randint(2, 4)):
            instance_id = f"i{number}" if self.random.random() < 0.3 else None
            self.clients.append(Client(self, f"c{number}", instance_id))

    def run(self, faulty_ms: int = 60_000, quiet_ms: int = 60_000) -> None:
        """A time of faults, then a time without, after which the group must be whole."""
        with _without(self.mutation):
            self._run(faulty_ms, quiet_ms)

    def _run(self, faulty_ms: int, quiet_ms: int) -> None:
        for client in self.clients:
            self.after(self.random.randint(0, 3_000), client.start)
        self.after(self.random.randint(1_000, 5_000), self.do_harm)
        self._run_until(faulty_ms)
        self.faulty = False
        if self.random.random() < 0.5:
            self.clients.pop().vanish()
        self._run_until(faulty_ms + quiet_ms)
        self.check_converged()

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._sequence, action))

    def tell(self, story: str) -> None:
        """Note what happened: a failing seed prints the end of its story."""
        self.stories.append(f"{self.now_ms} {story}")

    def _run_until(self, end_ms: int) -> None:
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
            self.check_owners()
        self.now_ms = end_ms

    def do_harm(self) -> None:
        if not self.faulty:
            return
        client = self.random.choice(self.clients)
        harm = self.random.choice(
            [
                client.stall,
                client.stall,
                client.die,
                client.leave,
                self.coordinator.crash,
                self.coordinator.change_epoch,
            ]
        )
        harm()
        self.after(self.random.randint(500, 6_000), self.do_harm)

    def delivery(self) -> int | None:
        """How long a message travels; None when it is lost."""
        if self.faulty and self.random.random() < 0.03:
            return None
        return self.random.randint(1, 150 if self.faulty else 20)

    # Invariants.

    def check_owners(self) -> None:
        owners: dict[tuple[int, int], str] = {}
        for client in self.clients:
            for partition in client.positions:
                other = owners.setdefault((client.generation, partition), client.name)
                assert other == client.name, (
                    f"partition {partition} of generation {client.generation} has two owners: "
                    f"{other} and {client.name}"
                )

    def check_fetched(self, floor: dict[TopicPartition, int], partition: TopicPartition, offset: int) -> None:
        assert offset >= floor.get(partition, -1), (
            f"{partition}: offset {floor[partition]} was acknowledged, then {offset} was fetched"
        )

    def check_converged(self) -> None:
        generations = {client.generation for client in self.clients}
        owned = sorted(partition for client in self.clients for partition in client.positions)
        states = [client.state for client in self.clients]
        assert owned == list(range(PARTITION_COUNT)), (
            f"not whole at the end: {owned}, {states}, {generations}"
        )
        assert len(generations) == 1
        self.coordinator.check_replay()
        assert self.coordinator.shard().groups[GROUP].is_stable


@contextmanager
def _without(mutation: Mutation) -> Iterator[None]:
    """The broker's code with that rule switched off."""
    append, set_timer = Runtime._append, Runtime._set_timer

    def apply_and_append(
        runtime: Runtime[Shard], journal: PartitionJournal, decision: Decision[Any], now_ms: int
    ) -> None:
        for record in decision.records:
            runtime._hosts[journal.index].shard.apply(record)
        append(runtime, journal, decision, now_ms)

    def commit_at_once(journal: PartitionJournal, told: Callable[[bool], None], timeout_ms: int) -> None:
        told(True)

    def set_other_timers(runtime: Runtime[Shard], host: Host[Shard], timer: Timer[Any], now_ms: int) -> None:
        if not isinstance(timer.event, SessionExpired):
            set_timer(runtime, host, timer, now_ms)

    changes: dict[Mutation, tuple[type, str, Any]] = {
        Mutation.REPLY_BEFORE_COMMIT: (PartitionJournal, "when_committed", commit_at_once),
        Mutation.APPLY_BEFORE_APPEND: (Runtime, "_append", apply_and_append),
        Mutation.NO_SESSION_TIMERS: (Runtime, "_set_timer", set_other_timers),
    }
    with ExitStack() as changed:
        if mutation in changes:
            changed.enter_context(patch.object(*changes[mutation]))
        yield
