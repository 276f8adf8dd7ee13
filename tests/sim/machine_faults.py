"""What happens to the brokers of the machines' simulation: faults that come by themselves, and such that strike at a moment.

A seed has a `Profile` of its own, so that some seeds have much of what others have nothing of (swarm testing): a cluster whose
messages come late, whose followers lag for a moment only, that loses leaders just when they were elected. A power cut takes what
was not synced from one broker at a time: not before the last one that it hit is in sync again, and only while another replica in
sync serves and has done so since the partition's state was written, until the controller has acted upon it; or while the one that
it hits is alone in sync, once it has synced. Nobody else loses anything meanwhile; the cluster promises no more. A blackout, the
last of a run's grave faults, takes that from all at once: what some replica in sync had not in its checkpoint may be lost then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from machine_broker import Host, Life
from machine_world import PLACE, SESSION_MS, TOPIC, World

from headrace.broker.replication.events import PreferredLeadersRequested, ShutdownRequested
from headrace.broker.replication.model import PartitionState

KINDS = {
    "kill": 3,
    "restart": 3,
    "power cut": 3,
    "stop": 1,
    "pause": 2,
    "cut": 3,
    "isolate": 2,
    "slow": 2,
    "alone": 2,
    "expire": 1,
    "depose": 2,
    "prefer": 2,
    "full disk": 1,
}
TAKE_AWAY = KINDS.keys() - {"cut", "slow", "depose"}
"""What keeps a broker from leading, or from being elected, at least for a while."""
PLANS = {
    "proposed": (
        (("power cut", "other"), ("kill", "first")),
        (("pause", "other"), ("kill", "first")),
        (("full disk", "other"), ("expire", "first")),
    ),
    "decided": ((("kill", "first"),), (("expire", "first"),), (("isolate", "other"),)),
    "elected": (
        (("alone", "controller"), ("power cut", "first")),
        (("expire", "first"),),
        (("depose", "first"), ("kill", "first")),
        (("slow", "other"), ("prefer", "first")),
    ),
    "cut the log": ((("expire", "other"),), (("restart", "first"),)),
    "parked": ((("prefer", "first"),), (("expire", "first"),), (("kill", "first"),)),
}
"""At which moments faults strike, and what may well happen then: to the first broker that has a part in it (its leader), to
another one, or to the controller.
"""
BLACKOUT_CHANCE, RESTLESS_CHANCE = 0.1, 0.15
RESTLESS_MOVES, MOVE_MS_MAX = 40, 200


@dataclass(frozen=True)
class Profile:
    """What a seed has more or less of than others."""

    weights: dict[str, int]
    strikes: dict[str, float]
    has_blackout: bool
    is_restless: bool
    """Whether the lead goes round the replicas in sync for a while, without anybody failing."""

    @staticmethod
    def drawn(random: Random) -> Profile:
        weights = {kind: weight * random.choice((0, 0, 1, 1, 4)) for kind, weight in KINDS.items()}
        strikes = {moment: random.choice((0.0, 0.0, 0.05, 0.5)) for moment in PLANS}
        strikes["parked"] /= 20
        return Profile(
            {**weights, "cut": 1 + weights["cut"]},
            strikes,
            random.random() < BLACKOUT_CHANCE,
            random.random() < RESTLESS_CHANCE,
        )


class Faults:
    """See the module's text; `clients` by name. `go_back(offset)`: what follows was forgotten, and may be read again."""

    def __init__(self, world: World, clients: Sequence[str], go_back: Callable[[int], None]) -> None:
        self.world = world
        self.random = world.random
        self.profile = Profile.drawn(world.random)
        self._clients = clients
        self._go_back = go_back
        # Whom a power cut hit last, and its registration then.
        self._lost_power: Host | None = None
        self._lost_epoch = -1
        self._is_noticed = False
        world.written = self._notice
        self.had_blackout = False
        world.strikes = self.profile.strikes
        world.strike = self._strike

    def begin(self, end_ms: int) -> None:
        """Have them happen until `end_ms`."""
        self.world.after(self.random.randint(500, 1500), self._go_on)
        if self.profile.is_restless:
            self.world.after(self.random.randint(500, end_ms // 2), lambda: self._move(RESTLESS_MOVES))
        if self.profile.has_blackout:
            self.world.after(end_ms - self.random.randint(200, 2500), self._black_out)

    def heal(self) -> None:
        """What is cut off or full is so no longer, and who is dead or paused comes back."""
        world = self.world
        world.tell("heal")
        world.heal()
        for host in world.hosts.values():
            host.paused_until_ms = min(host.paused_until_ms, world.now_ms)
            host.make_room()
            self._join(host)
            if host.life is None:
                host.start()

    def _go_on(self) -> None:
        self._harm(self.random.choice(list(self.world.hosts.values())))
        if self.world.is_faulty:
            self.world.after(self.random.randint(0, self.random.choice((50, 500, 1500))), self._go_on)

    def _strike(self, moment: str, hosts: Sequence[Host]) -> None:
        """Something is under way between these hosts: harm some of them, now or a little later."""
        controller = self.world.controller
        whom = {"first": hosts[0], "other": self.random.choice(hosts[1:] or hosts)}
        whom["controller"] = hosts[0] if controller is None else controller.host
        delay_ms = 0
        for kind, name in self.random.choice(PLANS[moment]):
            delay_ms += self.random.randint(0, self.random.choice((0, 3, 20, 100)))
            self.world.after(delay_ms, partial(self._harm, whom[name], kind))

    def _harm(self, host: Host, kind: str = "") -> None:
        if not self.world.is_faulty:
            return
        if host.life is None:
            self.world.tell(f"{host.name} starts")
            host.start()
            return
        if not kind:
            (kind,) = self.random.choices(list(self.profile.weights), list(self.profile.weights.values()))
        if kind in TAKE_AWAY and not self._is_power_cut_known():
            kind = "slow"
        if kind == "power cut" and not self._may_lose_power(host):
            kind = "restart"
        self.world.tell(f"{kind} {host.name}")
        self.world.history.happened[kind] += 1
        self._do(kind, host, self.random.uniform(0, self.random.choice((0.3, 1.5, 4.0))))

    def _do(self, kind: str, host: Host, seconds: float) -> None:
        later = int(seconds * 1000)
        works: dict[str, Callable[[], None]] = {
            "kill": host.kill,
            "restart": lambda: self._restart(host, later, power_cut=False),
            "power cut": lambda: self._restart(host, later, power_cut=True),
            "stop": lambda: self._stop(host),
            "pause": lambda: self._pause(host, later),
            "cut": lambda: self.world.cut(*self._way(host, [*self._others(host), *self._clients]), seconds),
            "isolate": lambda: self._isolate(host, seconds),
            "slow": lambda: self.world.slow(*self._way(host, self._others(host)), seconds),
            "alone": lambda: self._alone(host, later),
            "expire": lambda: self._expire(host),
            "depose": self._depose,
            "prefer": self._prefer,
            "full disk": lambda: self._fill(host, later),
        }
        works[kind]()

    def _others(self, host: Host) -> list[str]:
        return [other.name for other in self.world.hosts.values() if other is not host]

    def _restart(self, host: Host, later_ms: int, *, power_cut: bool) -> None:
        host.kill(power_cut=power_cut)
        self._start_later(host, self.random.choice((0, later_ms)))

    def _start_later(self, host: Host, later_ms: int) -> None:
        self.world.after(later_ms, lambda: None if host.life else host.start())

    def _stop(self, host: Host) -> None:
        """SIGTERM: the controller is asked to have others lead, and the process ends, whatever became of that."""
        life, controller = host.life, self.world.controller
        assert life is not None
        office = None if controller is None else controller.office
        if office is not None and host.broker_id in office.core.cluster.brokers:
            office.tell(ShutdownRequested(broker_id=host.broker_id))

        host.ending_count += 1

        def end() -> None:
            host.ending_count -= 1
            if host.life is life:
                host.log.sync()
                host.log.checkpoint = host.log.high_watermark
                host.kill()
                self.world.end_session(life)
                if not self.world.is_faulty:
                    host.start()

        self.world.after(self.random.randint(10, 300), end)

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

    def _prefer(self) -> None:
        """Somebody wants the partition's first replica to lead."""
        controller = self.world.controller
        if controller is not None and controller.office is not None:
            controller.office.tell(PreferredLeadersRequested(partitions=frozenset({PLACE})))

    def _move(self, left: int) -> None:
        """Have any replica in sync lead: somebody puts it first among the replicas, and wants the first one to lead."""
        world, state = self.world, self.world.state
        office = None if world.controller is None else world.controller.office
        if (
            state is not None
            and office is not None
            and TOPIC in office.core.cluster.topics
            and self._is_power_cut_known()
        ):
            first = self.random.choice(state.isr)
            world.assign((first, *(number for number in world.hosts if number != first)))
            office.core.cluster.topics[TOPIC] = world.topic
            world.tell(f"{world.hosts[first].name} is to lead")
            self._prefer()
        if left and world.is_faulty:
            world.after(self.random.randint(5, MOVE_MS_MAX), lambda: self._move(left - 1))

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

    # -- power

    def _is_power_cut_known(self) -> bool:
        """Whether the controller has acted upon the last power cut: until then the others have what it took."""
        if self.had_blackout:
            return False
        self._notice()
        return self._lost_power is None or (self._is_noticed and self._lost_power.log.lost_end is None)

    def _notice(self) -> None:
        """Whether the controller knows that who lost power is another process now, and does not have it in sync."""
        controller, state, lost = self.world.controller, self.world.state, self._lost_power
        office = None if controller is None else controller.office
        if office is None or office.core.cluster.epoch == 0 or state is None or lost is None:
            return
        known = office.core.cluster.brokers.get(lost.broker_id)
        is_over = known is None or known.epoch > self._lost_epoch
        if is_over and lost.broker_id not in state.isr and not self.world.is_joining(lost.broker_id):
            self._is_noticed, self.world.lost_power = True, None

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
            # The last replica has what was committed on its disk (KIP-966), once it knows that it is the last.
            partition = None if host.life is None else host.life.partition
            return partition is None or partition.isr == state.isr
        others = [self.world.hosts[b] for b in state.isr if b != host.broker_id]
        if not any(other.is_well and self._is_steady(other, state) for other in others):
            return False
        assert host.life is not None
        self._lost_power, self._lost_epoch = host, host.life.broker_epoch
        self._is_noticed, self.world.lost_power = False, host
        return True

    def _black_out(self) -> None:
        """All lose power at once. What some replica in sync had no checkpoint of may be gone: nobody who leads then can know."""
        state = self.world.state
        if state is None or not self._is_power_cut_known():
            return
        self.world.tell("blackout")
        self.world.history.happened["blackout"] += 1
        self.had_blackout = True
        hosts = self.world.hosts
        sure = min(hosts[member].log.checkpoint for member in state.isr)
        for host in hosts.values():
            self.world.history.forsake(entry.value for entry in host.log.entries[sure:])
            host.kill(power_cut=True)
            self._start_later(host, self.random.randint(0, self.random.choice((50, 1000))))
        self._go_back(sure)

    def nobody_has_all(self) -> bool:
        """Whether all that are in sync lost, in a blackout, what was committed: then nobody leads before somebody decides so."""
        state, hosts = self.world.state, self.world.hosts
        assert state is not None
        return self.had_blackout and all(hosts[member].log.lost_end is not None for member in state.isr)
