"""Replication's machines under one seed: three brokers on logs in memory, clients, a time of faults and a time without.

After the last fault every replica is in sync within `RECOVERY_MS_MAX` and writes are taken; the history then says what was
lost, doubled, reordered or shown too early. `machine_faults` has what goes wrong until then, and what may be lost by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from history import Replica, Violation, findings
from machine_broker import Host, Life
from machine_faults import Faults
from machine_world import PLACE, TOPIC, World

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.events import TopicsChanged

BROKERS = (0, 1, 2)
FAULTY_MS, RECOVERY_MS_MAX = 11_000, 30_000
HASTY_CHANCE = 0.6
"""Without a producer that asks for acks=1, nothing is appended while too few replicas are in sync."""
LEAVES_NOTHING = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Client:
    """One that asks whom some broker names as leader; one request at a time."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        # The newest that it was told: the leader's epoch, and who that is (KIP-320).
        self.leader = (-1, -1)

    def ask(
        self, handle: Callable[[Life, Callable[[Any], None]], None], answered: Callable[[Any], None]
    ) -> bool:
        """Answered with None after the time-out; False when there is nobody to ask."""
        host = self.world.hosts.get(self.leader[1])
        if host is None or host.life is None:
            self.look()
            return False
        life, is_over = host.life, False

        def over(answer: Any) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                answered(answer)

        def reply(answer: Any) -> None:
            self.world.send(host.name, self.name, lambda: over(answer))

        self.world.send(self.name, host.name, lambda: life.after(0, lambda: handle(life, reply)))
        self.world.after(self.world.ways.client_timeout_ms, lambda: over(None))
        return True

    def look(self) -> None:
        lives = [
            host.life for host in self.world.hosts.values() if host.life is not None and not host.is_paused
        ]
        if lives:
            self.leader = max(self.leader, self.world.random.choice(lives).leader)


class Producer(Client):
    """Publishes each value once, with acks=all, or with acks=1: then nothing is known of any."""

    def __init__(self, world: World, name: str, required_acks: int = -1) -> None:
        super().__init__(world, name)
        self.required_acks = required_acks
        self.count = 0
        self.acknowledged = 0
        self.is_over = False
        self.go_on()

    def go_on(self) -> None:
        if not self.is_over:
            self.world.after(self.world.random.randint(5, 200), self.publish)

    def publish(self) -> None:
        values = []
        for _ in range(self.world.random.choice((1, 1, 2))):
            self.count += 1
            values.append(f"{self.name}:{self.count}".encode())
        write = self.world.history.begin(PLACE, self.name, values)

        def answered(answer: tuple[ErrorCode, int] | None) -> None:
            error, offset = answer or (None, -1)
            if error is ErrorCode.NONE:
                self.acknowledged += 1
                if self.required_acks == -1:
                    self.world.history.done(write, offset)
            else:
                if error in LEAVES_NOTHING:
                    self.world.history.failed(write)
                self.look()
            self.go_on()

        if not self.ask(lambda life, reply: life.produce(values, self.required_acks, reply), answered):
            self.world.history.failed(write)
            self.go_on()


class Reader(Client):
    """Reads from the first offset on."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.position = 0
        self._lives = 0
        self.go_on()

    def go_back(self, offset: int) -> None:
        """Begin again there, if it is further already."""
        self.position = min(self.position, offset)
        self._lives += 1

    def go_on(self) -> None:
        self.world.after(self.world.random.randint(20, 300), self.read)

    def read(self) -> None:
        position, (epoch, _), life = self.position, self.leader, self._lives

        def answered(answer: Any) -> None:
            if life != self._lives:
                self.look()
            elif isinstance(answer, tuple):
                values, high_watermark = answer
                self.world.history.read(self.name, PLACE, position, values, high_watermark)
                self.position = max(values, default=position - 1) + 1
            else:
                if answer is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.world.history.read(self.name, PLACE, position, None, -1)
                self.look()
            self.go_on()

        if not self.ask(lambda life, reply: life.read(position, epoch, reply), answered):
            self.go_on()


class Simulation:
    """One run."""

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        self.history = world.history
        self.random = world.random
        world.hosts = {number: Host(world, number) for number in BROKERS}
        self.producers = [Producer(world, f"producer-{number}") for number in range(2)]
        if self.random.random() < HASTY_CHANCE:
            self.producers.append(Producer(world, "hasty", required_acks=1))
        self.reader = Reader(world, "reader")
        names = [client.name for client in (*self.producers, self.reader)]
        self.faults = Faults(world, names, self.reader.go_back)

    def run(self) -> list[Violation]:
        world = self.world
        for host in world.hosts.values():
            host.start()
        world.after(200, self._create)
        self.faults.begin(FAULTY_MS)
        world.run_until(FAULTY_MS)
        self.faults.heal()
        self._before = [producer.acknowledged for producer in self.producers]
        world.run_until(FAULTY_MS + RECOVERY_MS_MAX, self._is_whole)
        if not self._is_whole():
            if self.faults.nobody_has_all():
                return []
            self.history.stuck.append(self.description())
        for producer in self.producers:
            producer.is_over = True
        world.run_until(world.now_ms + 1000)
        for host in world.hosts.values():
            log = host.log
            values = {offset: entry.value for offset, entry in enumerate(log.entries)}
            raw = {offset: b"%d %s" % entry for offset, entry in enumerate(log.entries)}
            self.history.replicas[PLACE][host.broker_id] = Replica(values, raw, log.high_watermark)
        return findings(self.history)

    def _create(self) -> None:
        self.world.assign(tuple(self.random.sample(BROKERS, len(BROKERS))))
        if self.world.controller is not None and self.world.controller.office is not None:
            self.world.controller.office.tell(TopicsChanged(topics={TOPIC: self.world.topic}))

    def _is_whole(self) -> bool:
        state = self.world.state
        if state is None or set(state.isr) != set(BROKERS):
            return False
        ends = {host.log.high_watermark for host in self.world.hosts.values()}
        has_written = all(
            p.acknowledged > before for p, before in zip(self.producers, self._before, strict=True)
        )
        return has_written and len(ends) == 1 and all(map(self._tells_what_is, self.world.hosts.values()))

    def _tells_what_is(self, host: Host) -> bool:
        """Whether a broker tells clients who leads and who is there."""
        state, life = self.world.state, host.life
        assert state is not None
        assert life is not None
        return life.leader == (state.leader_epoch, state.leader) and life.alive == set(BROKERS)

    def description(self) -> str:
        lines = [f"state {self.world.state}, brokers {sorted(self.world.registered)}"]
        for host in self.world.hosts.values():
            life, log = host.life, host.log
            partition = life.partition if life else None
            lines.append(
                f"{host.name}: end {log.log_end_offset} watermark {log.high_watermark} "
                f"epochs {log.epochs.entries} "
                f"{partition and (partition.leader, partition.leader_epoch, partition.isr)} "
                f"{life and life.follower and (life.follower.phase, life.follower.problem)} "
                f"office {life and life.office and life.office.epoch}"
            )
        return "\n".join(lines)


def simulate(seed: int) -> Simulation:
    """A whole run; an AssertionError says what is wrong, and its notes what happened."""
    simulation = Simulation(seed)
    try:
        found = simulation.run()
        assert not found, "\n".join(map(str, found[:20]))
    except Exception as error:
        story = "\n".join(simulation.world.stories[-80:])
        error.add_note(f"seed {seed}\n{story}\n{simulation.description()}")
        raise
    return simulation
