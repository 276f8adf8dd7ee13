"""The world of the machines' simulation: one time, ways between hosts that lose and hold, a ZooKeeper, one partition.

Everything is a timed action in one queue under one seed. A message reaches a life of a broker, that is one process: not another
one. A way that is cut holds what goes there, as retransmission does, so that it arrives late; a paused host does nothing. What
ZooKeeper holds is changed by one action each: sessions, registrations, the controller's office, the partition's state.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from history import History

from headrace.broker.replication.events import StatesWritten, StateWrite
from headrace.broker.replication.model import (
    NO_LEADER,
    Broker,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)

if TYPE_CHECKING:
    from machine_broker import Host, Life

    from headrace.broker.replication.partition import Partition

TOPIC, NUMBER = "t", 0
PLACE = (TOPIC, NUMBER)
TOPIC_ID = UUID(int=7)
SESSION_MS = 1500
HELD_MS = 40


@dataclass(frozen=True)
class Ways:
    """How messages go under a seed, and how long is waited for them; a request between brokers may come after all time-outs."""

    loss_chance: float
    slow_chance: float
    slow_ms_max: int
    late_chance: float
    late_ms_max: int
    lag_ms_max: int
    client_timeout_ms: int

    @staticmethod
    def drawn(random: Random) -> Ways:
        slow_chance, slow_ms_max = random.choice(((0.03, 800), (0.03, 800), (0.15, 200), (0.02, 3000)))
        return Ways(
            random.choice((0.01, 0.01, 0.0)),
            slow_chance,
            slow_ms_max,
            random.choice((0.0, 0.0, 0.02, 0.1)),
            random.choice((300, 1500, 6000)),
            random.choice((2000, 2000, 700, 300)),
            random.choice((2000, 2000, 8000)),
        )


class Queue:
    """Timed actions, in order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self._actions: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._actions, (self.now_ms + delay_ms, self._count, action))

    def run_until(self, end_ms: int, is_over: Callable[[], bool] = lambda: False) -> None:
        actions = self._actions
        while actions and actions[0][0] <= end_ms and not is_over():
            self.now_ms, _, action = heapq.heappop(actions)
            action()


class World(Queue):
    """See the module's text; `hosts` by broker id."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.hosts: dict[int, Host] = {}
        self.history = History()
        self.is_faulty = True
        self.ways = Ways.drawn(self.random)
        # At what moments faults strike, how often, and what is called then.
        self.strikes: Mapping[str, float] = {}
        self.strike: Callable[[str, Sequence[Host]], None] = lambda moment, hosts: None
        self.stories: list[str] = []
        self._cut: set[tuple[str, str]] = set()
        self._slow: set[tuple[str, str]] = set()
        self.zxid = 0
        self.registered: dict[int, tuple[Life, Broker]] = {}
        self.controller: Life | None = None
        self.controller_epoch = 0
        self.topic = TopicAssignment(topic=TOPIC, topic_id=TOPIC_ID)
        self.state: PartitionState | None = None
        # What controllers are about to write.
        self.writing: list[tuple[StateWrite, ...]] = []
        # Whom a power cut hit, until the controller has acted upon it.
        self.lost_power: Host | None = None
        # Called after each change of the state.
        self.written: Callable[[], None] = lambda: None
        # Where the log of the only one in sync ended when it was left alone.
        self.end_when_alone = 0

    def tell(self, story: str) -> None:
        self.stories.append(f"{self.now_ms:6} {story}")

    def at(self, moment: str, *broker_ids: int) -> None:
        """Something is under way in which these brokers have a part, the leader first."""
        chance = self.strikes.get(moment, 0.0)
        if chance and self.is_faulty and self.random.random() < chance:
            self.strike(moment, [self.hosts[b] for b in broker_ids if b in self.hosts])

    # -- ways

    def cut(self, source: str, target: str, seconds: float) -> None:
        self._cut.add((source, target))
        self.after(int(seconds * 1000), lambda: self._cut.discard((source, target)))

    def slow(self, source: str, target: str, seconds: float) -> None:
        self._slow.add((source, target))
        self.after(int(seconds * 1000), lambda: self._slow.discard((source, target)))

    def heal(self) -> None:
        self.is_faulty = False
        self._cut.clear()
        self._slow.clear()

    def send(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """Have it arrive some time, or never while there are faults."""
        delay = self.random.randint(1, 4)
        if self.is_faulty:
            ways, chance = self.ways, self.random.random()
            if chance < ways.loss_chance:
                return
            if chance < ways.loss_chance + ways.slow_chance or (source, target) in self._slow:
                delay = self.random.randint(1, ways.slow_ms_max)
        self.after(delay, lambda: self._arrive(source, target, arrive))

    def send_request(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """From one broker to another: now and then it comes when nobody waits for an answer any more."""
        if self.is_faulty and self.random.random() < self.ways.late_chance:
            delay = self.random.randint(1, self.ways.late_ms_max)
            self.after(delay, lambda: self._arrive(source, target, arrive))
        else:
            self.send(source, target, arrive)

    def _arrive(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        if (source, target) in self._cut:
            self.after(HELD_MS, lambda: self._arrive(source, target, arrive))
        else:
            arrive()

    # -- what is committed

    def committed(self, leader: Life, partition: Partition, begin: int) -> None:
        """A leader counts all as committed from `begin` up to its watermark: each replica in sync must have it.

        Who lost power may lack it until the controller has it out of sync, and as far as this leader knows even longer.
        """
        entries, end = leader.host.log.entries, partition.high_watermark
        members = set(partition.isr)
        is_deposed = self.state is None or self.state.leader_epoch != partition.leader_epoch
        if self.state is not None and not is_deposed:
            members |= set(self.state.isr)
        for member in members - {leader.broker_id}:
            host = self.hosts[member]
            since_ms = -1 if is_deposed else leader.leads_since_ms
            may_lack = host is self.lost_power or host.lost_power_ms > since_ms
            if not may_lack and host.log.entries[begin:end] != entries[begin:end]:
                self.history.uncovered.append(
                    f"{leader.host.name} has {PLACE} up to {end} committed, {host.name} lacks it"
                )

    # -- ZooKeeper

    def register(self, life: Life) -> int:
        """A broker's registration in its present session, in place of one of an earlier life; its epoch."""
        broker_id = life.host.broker_id
        self.zxid += 1
        self.registered[broker_id] = life, Broker(broker_id=broker_id, epoch=self.zxid, endpoints=())
        if self.controller is not None and self.controller is not life and self.controller.host is life.host:
            self.vacate(self.controller)
        self.brokers_changed()
        return self.zxid

    def end_session(self, life: Life) -> None:
        """Its ephemeral znodes go."""
        found = self.registered.get(life.host.broker_id)
        if found is not None and found[0] is life:
            del self.registered[life.host.broker_id]
            self.brokers_changed()
        self.vacate(life)

    def brokers(self) -> dict[int, Broker]:
        return {broker_id: broker for broker_id, (_, broker) in self.registered.items()}

    def brokers_changed(self) -> None:
        if self.controller is not None:
            self.controller.watched()

    def vacate(self, life: Life) -> None:
        """The controller's office is free: everybody hears of it, sooner or later."""
        if self.controller is life:
            self.controller = None
            for host in self.hosts.values():
                if host.life is not None:
                    host.life.office_is_free()

    def write_states(self, writes: tuple[StateWrite, ...], epoch: int) -> StatesWritten | None:
        """The outcome; None when another controller was elected since."""
        self.writing.remove(writes)
        if epoch != self.controller_epoch:
            return None
        (write,) = writes
        if write.create == (self.state is None) and (
            self.state is None or self.state.zk_version == write.state.zk_version
        ):
            version = 0 if self.state is None else self.state.zk_version + 1
            self.zxid += 1
            written = write.state
            self.tell(f"state {written.leader} in {written.leader_epoch}, in sync {written.isr}")
            if len(written.isr) == 1:
                self.end_when_alone = self.hosts[written.isr[0]].log.log_end_offset
            if self.state is not None and self.state.leader != written.leader:
                self.at(
                    "elected",
                    *(b for b in (written.leader, self.state.leader, *written.isr) if b != NO_LEADER),
                )
            self.state = replace(write.state, zk_version=version, written_zxid=self.zxid)
            self.written()
            return StatesWritten(written={PLACE: self.state})
        return StatesWritten(written={}, conflicts={PLACE: self.state})

    def is_joining(self, broker_id: int) -> bool:
        """Whether a controller is about to have a broker in sync."""
        return any(broker_id in write.state.isr for writes in self.writing for write in writes)

    def assign(self, replicas: tuple[int, ...]) -> None:
        self.topic = TopicAssignment(
            topic=TOPIC, topic_id=TOPIC_ID, partitions={NUMBER: ReplicaAssignment(replicas=replicas)}
        )
