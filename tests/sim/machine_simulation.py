"""Replication's machines under one seed: three brokers on logs in memory, clients, a time of faults and a time without.

After the last fault every replica is in sync within `RECOVERY_MS_MAX` and writes are taken; the history then says what was
lost, doubled, reordered or shown too early. A power cut takes what was not synced from one broker at a time: not before the
last one that it hit is in sync again, and only while another replica in sync serves and has done so since the partition's state
was written, until the controller has acted upon it; or while the one that it hits is alone in sync, once it has synced. Nobody
else loses anything meanwhile; the cluster promises no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from history import Replica, Violation, findings
from machine_broker import Host, Life
from machine_world import PLACE, SESSION_MS, TOPIC, World

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.events import TopicsChanged
from headrace.broker.replication.model import PartitionState

BROKERS = (0, 1, 2)
FAULTY_MS, RECOVERY_MS_MAX = 12_000, 30_000
CLIENT_TIMEOUT_MS = 2000
LEAVES_NOTHING = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
FAULTS = {
    "kill": 3,
    "restart": 3,
    "power cut": 3,
    "pause": 2,
    "cut": 3,
    "isolate": 2,
    "slow": 2,
    "alone": 2,
    "expire": 1,
    "depose": 2,
    "full disk": 1,
}
TAKE_AWAY = {"kill", "restart", "power cut", "pause", "isolate", "alone", "expire", "full disk"}
"""What keeps a broker from being elected, at least for a while."""


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
        self.world.after(CLIENT_TIMEOUT_MS, lambda: over(None))
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
        self.go_on()

    def go_on(self) -> None:
        self.world.after(self.world.random.randint(20, 300), self.read)

    def read(self) -> None:
        position, (epoch, _) = self.position, self.leader

        def answered(answer: Any) -> None:
            if isinstance(answer, tuple):
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
        self._lost_power: Host | None = None
        self.producers = [Producer(world, f"producer-{number}") for number in range(2)]
        self.producers.append(Producer(world, "hasty", required_acks=1))
        self.reader = Reader(world, "reader")

    def run(self) -> list[Violation]:
        world = self.world
        for host in world.hosts.values():
            host.start()
        world.after(200, self._create)
        world.after(self.random.randint(500, 1500), self._harm)
        world.run_until(FAULTY_MS)
        self._heal()
        world.run_until(FAULTY_MS + RECOVERY_MS_MAX, self._is_whole)
        if not self._is_whole():
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

    def _heal(self) -> None:
        world = self.world
        world.tell("heal")
        world.heal()
        for host in world.hosts.values():
            host.paused_until_ms = min(host.paused_until_ms, world.now_ms)
            host.make_room()
            self._join(host)
            if host.life is None:
                host.start()
        self._before = [producer.acknowledged for producer in self.producers]

    def _is_whole(self) -> bool:
        state = self.world.state
        if state is None or set(state.isr) != set(BROKERS):
            return False
        ends = {host.log.high_watermark for host in self.world.hosts.values()}
        has_written = all(
            p.acknowledged > before for p, before in zip(self.producers, self._before, strict=True)
        )
        return has_written and len(ends) == 1

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

    # -- faults

    def _harm(self) -> None:
        if not self.world.is_faulty:
            return
        host = self.random.choice(list(self.world.hosts.values()))
        if host.life is None:
            self.world.tell(f"{host.name} starts")
            host.start()
        else:
            (kind,) = self.random.choices(list(FAULTS), list(FAULTS.values()))
            if kind in TAKE_AWAY and not self._is_power_cut_known():
                kind = "slow"
            if kind == "power cut" and not self._may_lose_power(host):
                kind = "restart"
            self.world.tell(f"{kind} {host.name}")
            self.history.happened[kind] += 1
            self._do(kind, host, self.random.uniform(0, self.random.choice((0.3, 1.5, 4.0))))
        self.world.after(self.random.randint(0, self.random.choice((50, 500, 1500))), self._harm)

    def _do(self, kind: str, host: Host, seconds: float) -> None:
        later = int(seconds * 1000)
        works: dict[str, Callable[[], None]] = {
            "kill": host.kill,
            "restart": lambda: self._restart(host, later, power_cut=False),
            "power cut": lambda: self._restart(host, later, power_cut=True),
            "pause": lambda: self._pause(host, later),
            "cut": lambda: self.world.cut(*self._way(host, [*self._others(host), *self._clients()]), seconds),
            "isolate": lambda: self._isolate(host, seconds),
            "slow": lambda: self.world.slow(*self._way(host, self._others(host)), seconds),
            "alone": lambda: self._alone(host, later),
            "expire": lambda: self._expire(host),
            "depose": self._depose,
            "full disk": lambda: self._fill(host, later),
        }
        works[kind]()

    def _others(self, host: Host) -> list[str]:
        return [other.name for other in self.world.hosts.values() if other is not host]

    def _clients(self) -> list[str]:
        return [client.name for client in (*self.producers, self.reader)]

    def _restart(self, host: Host, later_ms: int, *, power_cut: bool) -> None:
        host.kill(power_cut=power_cut)
        self.world.after(self.random.choice((0, later_ms)), lambda: None if host.life else host.start())

    def _pause(self, host: Host, later_ms: int) -> None:
        host.paused_until_ms = self.world.now_ms + later_ms
        self._away_from_zookeeper(host, later_ms)

    def _isolate(self, host: Host, seconds: float) -> None:
        for other in self._others(host):
            self.world.cut(host.name, other, seconds)
            self.world.cut(other, host.name, seconds)
        if self.random.random() < 0.5:
            self._alone(host, int(seconds * 1000))

    def _depose(self) -> None:
        if self.world.controller is not None:
            self.world.vacate(self.world.controller)

    def _fill(self, host: Host, later_ms: int) -> None:
        host.log.is_full = True
        self.world.after(later_ms, host.make_room)

    def _way(self, host: Host, others: Sequence[str]) -> tuple[str, str]:
        """To or from one of the others."""
        other = self.random.choice(others)
        return (host.name, other) if self.random.random() < 0.5 else (other, host.name)

    def _alone(self, host: Host, later_ms: int) -> None:
        host.is_cut_from_zookeeper = True
        self._away_from_zookeeper(host, later_ms)
        self.world.after(later_ms, lambda: self._join(host))

    def _away_from_zookeeper(self, host: Host, later_ms: int) -> None:
        life = host.life
        if life is not None and later_ms > SESSION_MS:
            host.ending_count += 1
            self.world.after(SESSION_MS, lambda: self._end_session(life))
            self.world.after(later_ms, lambda: life.after(0, life.begin_session))

    @staticmethod
    def _end_session(life: Life) -> None:
        life.host.ending_count -= 1
        life.session_ended()

    def _join(self, host: Host) -> None:
        host.is_cut_from_zookeeper = False
        if host.life is not None:
            host.life.after(0, host.life.begin_session)

    def _expire(self, host: Host) -> None:
        life = host.life
        assert life is not None
        life.session_ended()
        life.after(self.random.randint(10, 600), life.begin_session)

    def _is_power_cut_known(self) -> bool:
        """Whether the controller has acted upon the last power cut: until then the others have what it took."""
        lost = self._lost_power
        return lost is None or (lost.broker_id in self.world.left_isr and lost.log.lost_end is None)

    def _is_steady(self, host: Host, state: PartitionState) -> bool:
        """Whether it has been there since the state was written, so that every controller sees that it lost nothing."""
        return host.life is not None and host.life.broker_epoch < state.written_zxid

    def _may_lose_power(self, host: Host) -> bool:
        state = self.world.state
        if state is None:
            return False
        lost = self._lost_power
        if lost is not None and lost is not host and (lost.life is None or lost.broker_id not in state.isr):
            return False
        if state.isr == (host.broker_id,) and host.log.recovery_point >= self.world.end_when_alone:
            # The last replica has what was committed on its disk (KIP-966).
            return True
        others = [self.world.hosts[b] for b in state.isr if b != host.broker_id]
        if not any(other.is_well and self._is_steady(other, state) for other in others):
            return False
        self._lost_power = host
        self.world.left_isr.clear()
        return True


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
