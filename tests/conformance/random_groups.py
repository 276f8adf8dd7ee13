"""Random sessions of consumer groups: a seed makes a script, a list of steps that names no id a broker gives out.

A script is data: `script(seed)` always gives the same one, and `group_run` performs it on a broker. A slot is a
client; what it believes (its member id, its generation) it learns from the answers, so that "own", "stale" or "other"
in a step mean the same on every broker. Most steps are what a sound client does; the others are wrong in one way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

SESSION_MS_SHORT, SESSION_MS_LONG = 900, 30_000
STEPS_COUNT_MAX = 45
TOPICS = {"random-a": 3, "random-b": 1}
VERSIONS_MAX = {"join": 9, "sync": 5, "heartbeat": 4, "leave": 5, "commit": 9, "fetch": 9, "describe": 5}
GARBAGE_ID = "garbage-11111111-2222-3333-4444-555555555555"
STATES = ("Stable", "stable", "EMPTY", "Empty", "PreparingRebalance", "preparing-rebalance", "Dead", "x", "")
TYPES = ("classic", "Classic", "CONSUMER", "consumer", "share", "unknown", "")


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription, version 1, without user data and owned partitions."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff" + bytes(4)


PROTOCOLS: dict[str, list[tuple[str, bytes]]] = {
    "usual": [("range", subscription("random-a")), ("roundrobin", subscription("random-a"))],
    "changed": [("range", subscription("random-a", "random-b")), ("roundrobin", b"\0\1")],
    "turned": [("roundrobin", subscription("random-b")), ("range", subscription("random-a"))],
    "one": [("range", subscription("random-b"))],
    "torn": [("range", b"\0\1\0\0\0\1\0")],
    "blank": [("range", b"")],
    "foreign": [("sticky", subscription("random-a"))],
    "nameless": [("", b"\0")],
    "none": [],
}
USUAL_PROTOCOLS = ("usual", "usual", "usual", "changed", "turned", "one")


class Step(NamedTuple):
    """One request of slot `slot`, or a pause; `settled` waits for what follows from it and from those before."""

    action: str
    slot: int = 0
    version: int = 0
    settled: bool = True
    choices: Mapping[str, Any] = MappingProxyType({})

    def __str__(self) -> str:
        words = " ".join(f"{name}={_short(value)}" for name, value in self.choices.items())
        held = "" if self.settled else " (at once with the next)"
        return f"{self.action} v{self.version} slot {self.slot} {words}{held}"


class Mood(NamedTuple):
    """What one session is like."""

    slots: int
    static: frozenset[int]
    versions: dict[str, int] | None
    expires: bool
    steadiness: float


def script(seed: int) -> list[Step]:
    """The steps of a session, always the same for a seed."""
    rng = random.Random(seed)
    writer = _Writer(rng, _mood(rng))
    while len(writer.steps) < STEPS_COUNT_MAX:
        writer.add_some()
    return writer.steps


def _mood(rng: random.Random) -> Mood:
    slots = rng.choice((1, 2, 2, 3, 3, 4))
    is_static = rng.random() < 0.4
    fixed = {action: rng.randint(action in ("commit", "fetch"), top) for action, top in VERSIONS_MAX.items()}
    return Mood(
        slots=slots,
        static=frozenset(slot for slot in range(slots) if is_static and rng.random() < 0.7),
        versions=fixed if rng.random() < 0.3 else None,
        expires=rng.random() < 0.3,
        steadiness=rng.choice((0.6, 0.85, 0.95)),
    )


class _Writer:
    """Writes the steps of one session."""

    def __init__(self, rng: random.Random, mood: Mood) -> None:
        self.steps: list[Step] = []
        self._rng = rng
        self._mood = mood
        self._is_ticking = False

    def add_some(self) -> None:
        weights = {
            self._round: 22,
            self._enter: 10,
            self._odd_join: 10,
            self._odd_sync: 10,
            self._heartbeat: 7,
            self._leave: 8,
            self._commit: 12,
            self._fetch: 5,
            self._administer: 9,
            self._look: 7,
            self._pause: 6 if self._mood.expires else 0,
        }
        (add,) = self._rng.choices(list(weights), list(weights.values()))
        add()

    # What sound clients do.

    def _round(self) -> None:
        """Everybody (or nearly) joins at once and asks for its assignment."""
        slots = [slot for slot in range(self._mood.slots) if self._often()]
        self._rng.shuffle(slots)
        for slot in slots:
            self._join(slot, settled=False)
        self._settle()
        self._rng.shuffle(slots)
        for slot in slots:
            if self._often():
                self._sync(slot)
        if self._rng.random() < 0.4:
            self._commit()

    def _enter(self) -> None:
        self._join(self._slot(), settled=True)

    def _join(self, slot: int, *, settled: bool) -> None:
        version = self._version("join")
        choices = {
            "member": "own",
            "instance": slot in self._mood.static and version >= 5,
            "protocols": self._rng.choice(USUAL_PROTOCOLS) if not self._often() else "usual",
            "protocol_type": "consumer",
            "session_ms": self._session_ms(),
            "rebalance_ms": self._session_ms(),
            # A client of version 4 on joins again with the id that it is given.
            "again": self._often(),
        }
        self._add("join", slot, version, settled=settled, **choices)

    def _sync(self, slot: int, **changes: Any) -> None:
        version = self._version("sync")
        choices = {
            "member": "own",
            "instance": slot in self._mood.static and version >= 3,
            "generation": "+0",
            "assign": "members",
            "protocol_type": "consumer",
            "protocol_name": "known",
        }
        settled = self._rng.random() < 0.6
        self._add("sync", slot, version, settled=settled, **{**choices, **changes})

    # What is wrong in one way.

    def _odd_join(self) -> None:
        self._join(self._slot(), settled=True)
        step = self.steps[-1]
        odd = self._rng.choice(
            (
                {"member": self._member()},
                {"member": self._member(), "again": False},
                {"instance": step.version >= 5 and self._rng.choice(("other", "odd", True))},
                {"protocols": self._rng.choice(list(PROTOCOLS))},
                {"protocol_type": self._rng.choice(("connect", "", "Consumer"))},
                {"protocol_type": "connect", "protocols": "none"},
                {"session_ms": self._rng.choice((0, -1, 299, 300, 1_800_000, 1_800_001))},
                {"rebalance_ms": self._rng.choice((0, -1, 2**31 - 1))},
                {"client": self._rng.choice((None, "", "ü client", "x" * 300))},
                {"group": "second"},
            )
        )
        self.steps[-1] = step._replace(choices={**step.choices, **odd})
        if odd.get("rebalance_ms") in (0, -1):
            self._pause()

    def _odd_sync(self) -> None:
        odd = self._rng.choice(
            (
                {"member": self._member()},
                {"generation": self._generation()},
                {"assign": self._rng.choice(("nobody", "strangers", "itself", "twice"))},
                {"protocol_type": self._rng.choice(("connect", "", None))},
                {"protocol_name": self._rng.choice(("sticky", "", None))},
                {"instance": self._rng.choice(("other", "odd"))},
                {"group": "second"},
                {},
            )
        )
        self._sync(self._slot(), **odd)

    def _heartbeat(self) -> None:
        choices = self._identity("heartbeat", 3)
        self._add("heartbeat", self._slot(), choices.pop("version"), **choices)

    def _identity(self, action: str, static_version: int) -> dict[str, Any]:
        """Who says so: mostly a slot as itself."""
        version = self._version(action)
        sound = self._often()
        return {
            "version": version,
            "member": "own" if sound else self._member(),
            "generation": "+0" if sound else self._generation(),
            "instance": version >= static_version
            and (self._rng.random() < 0.3 if sound else self._rng.choice((False, True, "other", "odd"))),
        }

    def _leave(self) -> None:
        version = self._version("leave")
        count = self._rng.choice((1, 1, 2, 3, 0)) if version >= 3 else 1
        members = [
            {
                "slot": self._slot(),
                "member": "own" if self._often() else self._member(),
                "instance": version >= 3 and self._rng.choice((False, False, True, "odd")),
            }
            for _ in range(count)
        ]
        self._add("leave", self._slot(), version, members=members)

    def _commit(self) -> None:
        choices: dict[str, Any] = self._identity("commit", 7)
        if self._rng.random() < 0.2:
            choices |= {"member": "none", "generation": "-1", "instance": False}
        version = choices.pop("version")
        part: dict[str, Any] = {
            "leader_epoch": self._rng.choice((-1, 0, 7)),
            "metadata": self._rng.choice(("m", "", None, "é" * 5, "x" * 5000)),
            "timestamp": self._rng.choice((-1, 5, 2**60)),
        }
        places = self._places() if self._rng.random() < 0.95 else []
        group = self._group()
        retention_ms = self._rng.choice((-1, -1, 0, 3_600_000))
        offsets = [self._rng.choice((0, 1, 5, 2**40, -1, -5)) for _ in places]
        choices |= {"places": places, "offsets": offsets, "retention_ms": retention_ms, "group": group}
        self._add("commit", self._slot(), version, **choices, **part)

    def _fetch(self) -> None:
        version = self._version("fetch")
        groups = [self._group() for _ in range(self._rng.choice((1, 1, 2, 3)) if version >= 8 else 1)]
        wanted = [self._rng.choice((None, [], self._places(), self._places())) for _ in groups]
        places = [[] if version < 2 and each is None else each for each in wanted]
        member = (self._rng.choice((None, "own", "garbage")), self._rng.choice((-1, 0, 3)))
        is_stable = self._rng.random() < 0.5
        self._add(
            "fetch",
            self._slot(),
            version,
            groups=groups,
            places=places,
            member=member,
            require_stable=is_stable,
        )

    def _administer(self) -> None:
        if self._rng.random() < 0.6:
            self._add("delete offsets", group=self._group(), places=self._places())
        else:
            groups = [self._group() for _ in range(self._rng.choice((1, 2, 3)))]
            self._add("delete groups", version=self._rng.randint(0, 2), groups=groups)

    def _look(self) -> None:
        match self._rng.randint(0, 3):
            case 0:
                groups = [self._group() for _ in range(3)]
                version = self._version("describe")
                self._add("describe", version=version, groups=groups, operations=self._rng.random() < 0.5)
            case 1:
                version = self._rng.randint(0, 5)
                states = self._rng.sample(STATES, self._rng.randint(0, 2)) if version >= 4 else []
                types = self._rng.sample(TYPES, self._rng.randint(0, 2)) if version >= 5 else []
                self._add("list", version=version, states=states, types=types)
            case 2:
                version = self._rng.randint(0, 6)
                count = self._rng.randint(0, 3) if version >= 4 else 1
                key_type = self._rng.choice((0, 0, 2, 3, -1)) if version else 0
                groups = [self._group() for _ in range(count)]
                self._add("find", version=version, groups=groups, key_type=key_type)
            case _:
                self._add(self._rng.choice(("heartbeat of KIP-848", "describe of KIP-848")))

    def _pause(self) -> None:
        """Everything that is short expires."""
        self._settle()
        self._add("pause")
        self._is_ticking = False

    # Choices.

    def _add(
        self, action: str, slot: int = 0, version: int = 0, *, settled: bool = True, **choices: Any
    ) -> None:
        self.steps.append(Step(action, slot, version, settled, choices))
        if self._is_ticking and self._since_pause() > 12:
            self._is_ticking = False
            self._pause()

    def _since_pause(self) -> int:
        backwards = reversed(self.steps)
        return next((n for n, step in enumerate(backwards) if step.action == "pause"), len(self.steps))

    def _settle(self) -> None:
        if self.steps:
            self.steps[-1] = self.steps[-1]._replace(settled=True)

    def _slot(self) -> int:
        return self._rng.randrange(self._mood.slots)

    def _often(self) -> bool:
        return self._rng.random() < self._mood.steadiness

    def _version(self, action: str) -> int:
        if self._mood.versions is not None:
            return self._mood.versions[action]
        return self._rng.randint(0, VERSIONS_MAX[action])

    def _session_ms(self) -> int:
        if self._mood.expires and self._rng.random() < 0.5:
            self._is_ticking = True
            return SESSION_MS_SHORT
        return SESSION_MS_LONG

    def _member(self) -> str:
        return self._rng.choice(("own", "none", "stale", "garbage", "other"))

    def _generation(self) -> str:
        return self._rng.choice(("+1", "-1", "=-1", "=0", "=-5", "=2147483647"))

    def _group(self) -> str:
        return self._rng.choices(("main", "second", "odd", "long", "nobody"), (12, 3, 2, 1, 1))[0]

    def _places(self) -> list[tuple[str, int]]:
        known = [("random-a", 0), ("random-a", 1), ("random-a", 2), ("random-b", 0)]
        unknown = [("random-a", 9), ("random-nowhere", 0), ("", 0), ("random-b", -1)]
        count = self._rng.randint(1, 4)
        return [self._rng.choice(known if self._rng.random() < 0.85 else unknown) for _ in range(count)]


def described(steps: list[Step], upto: int) -> Iterator[str]:
    """The steps as lines, up to and with one of them."""
    for number, step in enumerate(steps[: upto + 1]):
        yield f"{number:3} {step}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:20]}… ({len(text)} characters)"
