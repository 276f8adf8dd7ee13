"""A group coordinator and its consumers in one seeded world: clock, network, replicated log, faults.

The coordinator is the real `Shard` in a model of the runtime; the consumers are models of an eager Kafka consumer that
stall, die, come back, leave, and lose requests and replies. The log keeps what is below its high watermark when the
coordinator crashes, and a random part of the rest. The world checks at every step:
- within one generation no partition has two owners (`check_owners`);
- the stored offsets of a partition never go back in the log, nor below what a client saw acknowledged;
at every crash and at the end that what the shard's memory says is what its log says (`check_replay`); and at the end,
after a time without faults, that the group is stable with every partition owned.
A `Mutation` switches one safety rule off.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from group_clients import GROUP, PARTITION_COUNT, Client

from headrace.broker.config.sections import Groups
from headrace.broker.coordinators.decision import TimerKey
from headrace.broker.coordinators.records import Record
from headrace.broker.coordinators.timers import TimerQueue
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.decision import GroupDecision
from headrace.broker.groups.events import Event, Request, SessionExpired, ShardLoaded
from headrace.broker.groups.machine import Shard
from headrace.broker.groups.records import (
    GroupKey,
    OffsetKey,
    decode_key,
    decode_offset_value,
)
from headrace.broker.groups.refusals import refusal
from headrace.broker.wire.partitions import TopicPartition

CONFIG = Groups(group_initial_rebalance_delay_ms=200, group_max_size=5)


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
            [client.stall, client.stall, client.die, client.leave, self.coordinator.crash]
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
        assert self.coordinator.shard.groups[GROUP].is_stable


class Coordinator:
    """A model of the runtime around one shard: append, high watermark, replies, timers, crash and reload."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log: list[Record] = []
        self.stored: dict[int, int] = {}
        self.high_watermark = 0
        self.life = 0
        self.loading = False
        self.down = False
        self._token = 0
        self._begin_life()

    def _begin_life(self) -> None:
        self.life += 1
        self.shard = Shard(CONFIG)
        self.timers: TimerQueue[TimerKey, Event] = TimerQueue()
        self.requests: dict[int, tuple[Request[Any], Callable[[Any], None]]] = {}
        self.held: list[tuple[int, int, Any]] = []

    def receive(self, request: Request[Any], reply: Callable[[Any], None]) -> None:
        if self.down:
            return
        if self.loading:
            reply(refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._token += 1
        self.requests[self._token] = (request, reply)
        self._decide(request, self._token)  # type: ignore[arg-type]

    def _decide(self, event: Event, token: int = 0) -> None:
        world, shard = self.world, self.shard
        before = repr(shard.groups)
        decision = shard.decide(event, world.now_ms, token)
        assert repr(shard.groups) == before, "a decision changes nothing"
        assert sum(isinstance(decode_key(r.key), GroupKey) for r in decision.records) <= 1
        taken = False
        if decision.records:
            if world.mutation is Mutation.APPLY_BEFORE_APPEND:
                self._take(decision)
                taken = True
            if world.faulty and world.random.random() < 0.05:
                world.tell(f"append of {type(event).__name__} fails")
                error = ErrorCode.NOT_ENOUGH_REPLICAS
                decision = shard.append_failed(event, decision, error, world.now_ms, token)
                taken = False
            else:
                self._append(decision.records)
        if not taken:
            self._take(decision)
        for timer in decision.timers:
            self._set_timer(timer.key, timer.deadline_ms, timer.event)
        needed = 0 if world.mutation is Mutation.REPLY_BEFORE_COMMIT else len(self.log)
        self.held += [(needed, reply.to, reply.answer) for reply in decision.replies]
        self._release()

    def _append(self, records: list[Record]) -> None:
        for record in records:
            self._note(record)
            self.log.append(record)
        life, end = self.life, len(self.log)
        self.world.after(self.world.random.randint(0, 400), lambda: self._replicated(life, end))

    def _take(self, decision: GroupDecision) -> None:
        self.shard.adopt(decision)
        self._apply(decision.records)

    def _apply(self, records: list[Record]) -> None:
        for record in records:
            self.shard.apply(record)

    def _note(self, record: Record) -> None:
        """Keep the last stored offset of each partition, which must never go back."""
        key = decode_key(record.key)
        if isinstance(key, OffsetKey) and record.value is not None:
            offset, before = decode_offset_value(record.value).offset, self.stored.get(key.partition, -1)
            assert offset >= before, f"partition {key.partition}: offset {before} goes back to {offset}"
            self.stored[key.partition] = offset

    def _replicated(self, life: int, end: int) -> None:
        if life == self.life and not self.down:
            self.high_watermark = max(self.high_watermark, end)
            self._release()

    def _release(self) -> None:
        ready = [held for held in self.held if held[0] <= self.high_watermark]
        self.held = [held for held in self.held if held[0] > self.high_watermark]
        for _, token, answer in ready:
            request = self.requests.pop(token, None)
            if request is not None:
                request[1](answer)

    def _set_timer(self, key: TimerKey, deadline_ms: int, event: Event | None) -> None:
        if event is None:
            self.timers.cancel(key)
        elif not (self.world.mutation is Mutation.NO_SESSION_TIMERS and isinstance(event, SessionExpired)):
            self.timers.set(key, deadline_ms, event)
            life = self.life
            self.world.after(deadline_ms - self.world.now_ms, lambda: self._fire(life))

    def _fire(self, life: int) -> None:
        if life == self.life and not self.down:
            for event in self.timers.due(self.world.now_ms):
                self._decide(event)

    def crash(self) -> None:
        """Lose memory, parked requests and some of what was not yet replicated; a new leader loads what is left."""
        if self.down or self.loading:
            return
        self.check_replay()
        kept = self.world.random.randint(self.high_watermark, len(self.log))
        self.world.tell(f"coordinator crashes, keeps {kept} of {len(self.log)} records")
        del self.log[kept:]
        self.stored = {}
        for record in self.log:
            self._note(record)
        self.down = True
        self._begin_life()
        self.world.after(self.world.random.randint(100, 4_000), self._come_back)

    def _come_back(self) -> None:
        self.down, self.loading = False, True
        self.world.after(self.world.random.randint(0, 1_000), self._loaded)

    def _loaded(self) -> None:
        self._apply(self.log)
        self.high_watermark = len(self.log)
        self.loading = False
        self._decide(ShardLoaded())

    def check_replay(self) -> None:
        replayed = Shard(CONFIG)
        for record in self.log:
            replayed.apply(record)
        live, stored = self.shard.groups.get(GROUP), replayed.groups.get(GROUP)
        live_offsets, stored_offsets = live and live.offsets, stored and stored.offsets
        assert (live_offsets or {}) == (stored_offsets or {}), "memory has offsets that the log has not"
        if live is not None and live.is_stable:
            assert stored is not None
            assert (live.generation, live.leader) == (stored.generation, stored.leader)
            assert {m.member_id: m.assignment for m in live.members.values()}.items() <= {
                m.member_id: m.assignment for m in stored.members.values()
            }.items()
