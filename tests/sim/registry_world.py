"""Registry processes on one topic, under a seeded schedule: they read late, sleep, die, and their appends come late.

The topic is a broker's log, which the broker's cleaner compacts once what is in it is old enough, as after a night. A process
that died or slept may still have an append on its way.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

from registry_topic import SchemasTopic

from headrace.registry import schemas
from headrace.registry.errors import RegistryError, store_timed_out
from headrace.registry.machine import Decision, Machine, Submitted
from headrace.registry.records import decode
from headrace.registry.writer import TURN_WAIT_MS_MAX, Append, Request, Settled, Writer

PAUSE_MS_MAX = 30_000
COMPACTION_LAG_MS = 4 * PAUSE_MS_MAX
KEPT = ("orders", "pages")
GROWING = "strict"
DELETED = "gone"


@dataclass(slots=True)
class Landing:
    """An append on its way; `process` hears of it unless it is dead or was told otherwise."""

    at_ms: int
    append: Append
    process: Process | None


@dataclass(slots=True, eq=False)
class Process:
    name: str
    machine: Machine = field(default_factory=Machine)
    asleep_until_ms: int = 0
    position: int = 0
    asked: dict[Request, Callable[[Any], None]] = field(default_factory=dict)
    writer: Writer = field(init=False)

    def __post_init__(self) -> None:
        self.writer = Writer(self.machine, self.name)


class World:
    """Some processes, their topic and their clients."""

    def __init__(self, seed: int, processes: int = 3) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.topic = SchemasTopic(COMPACTION_LAG_MS)
        self.landings: list[Landing] = []
        self.stories: list[str] = []
        self.known: list[tuple[str, str, int]] = []
        """What was answered: subject, schema, id."""
        self.refused = 0
        self.versions: dict[tuple[str, int], int] = {}
        self.born = 0
        self.processes = [self._process() for _ in range(processes)]

    def run(self, steps: int = 1500) -> None:
        for _ in range(steps):
            self.now_ms += self.random.choice((0, 1, 5, 20, 200))
            self._happen()
        self.settle()

    def settle(self) -> None:
        """No more faults: whatever is under way comes to its end, and all processes say the same."""
        self._come_to_rest()
        self._check_the_end()

    def _come_to_rest(self) -> None:
        for process in self.processes:
            process.asleep_until_ms = 0
        deadline = self.now_ms + 20 * TURN_WAIT_MS_MAX
        while self._is_busy():
            self.now_ms += 50
            assert self.now_ms < deadline, "requests are never settled"
            self._land()
            for process in self.processes:
                self._read(process, 1000)
                self._step(process)

    # What happens

    def _happen(self) -> None:
        self._land()
        process = self.random.choice(self.processes)
        if process.asleep_until_ms > self.now_ms:
            return
        happenings = [self._ask, self._go_on, self._go_on, self._go_on, self._fault]
        self.random.choice(happenings)(process)

    def _go_on(self, process: Process) -> None:
        self._read(process, self.random.randrange(1, 20))
        self._step(process)

    def _fault(self, process: Process) -> None:
        dice = self.random.random()
        if dice < 0.04:
            self.stories.append(f"{self.now_ms} {process.name} dies")
            for landing in self.landings:
                if landing.process is process:
                    landing.process = None
            self.processes[self.processes.index(process)] = self._process()
        elif dice < 0.10:
            process.asleep_until_ms = self.now_ms + self.random.randrange(
                self.random.choice((2_000, PAUSE_MS_MAX))
            )
            self.stories.append(f"{self.now_ms} {process.name} sleeps until {process.asleep_until_ms}")
        elif dice < 0.102:
            self._come_to_rest()
            self.now_ms += COMPACTION_LAG_MS
            self.stories.append(f"{self.now_ms} a night is over")
        elif dice < 0.20 and self.topic.clean(self.now_ms):
            self.stories.append(f"{self.now_ms} the cleaner comes by")

    def _process(self) -> Process:
        self.born += 1
        process = Process(f"p{self.born}")
        self._read(process, 1_000_000)
        return process

    def _ask(self, process: Process) -> None:
        decide, note = self._wish()
        asked = process.writer.submit(decide, self.now_ms)
        if isinstance(asked, Settled):
            self._note(asked, note)
        else:
            process.asked[asked] = note

    def _wish(self) -> tuple[Callable[[Machine], Decision], Callable[[Any], None]]:
        dice = self.random.random()
        subject = self.random.choice((*KEPT, GROWING, DELETED))
        if dice < 0.7 or subject == GROWING:
            text = self._schema(subject)
            return (
                lambda machine: machine.decide_register(subject, Submitted(text=text)),
                lambda answer: self.known.append((subject, text, answer["id"])),
            )
        if dice < 0.8 and subject == DELETED:
            permanent = self.random.random() < 0.5
            return lambda machine: machine.decide_delete_subject(subject, permanent=permanent), _nothing
        if dice < 0.9:
            return lambda machine: machine.decide_delete_version(subject, "latest", permanent=False), _nothing
        level = self.random.choice(("NONE", "BACKWARD", "FULL"))
        return lambda machine: machine.decide_set_level(subject, level), _nothing

    def _schema(self, subject: str) -> str:
        """Return one of some schemas, of which those for GROWING cannot all follow each other."""
        number = self.random.randrange(12)
        kind = "int" if number % 2 else "string"
        default = 0 if number % 2 else ""
        name = f"f{number // 2 if subject == GROWING else number}"
        fields = [{"name": "a", "type": "int"}, {"name": name, "type": kind, "default": default}]
        return json.dumps({"type": "record", "name": "R", "fields": fields})

    # The topic

    def _step(self, process: Process) -> None:
        settled, append = process.writer.step(self.now_ms)
        for outcome in settled:
            self._note(outcome, process.asked.pop(outcome.request, _nothing))
        if append is not None:
            self._send(process, append)

    def _note(self, outcome: Settled, note: Callable[[Any], None]) -> None:
        if outcome.error is None:
            note(outcome.answer)
        else:
            self.refused += 1

    def _send(self, process: Process, append: Append) -> None:
        dice = self.random.random()
        delay = self.random.randrange(1, PAUSE_MS_MAX) if dice < 0.03 else self.random.randrange(1, 80)
        if dice < 0.06:
            self.stories.append(f"{self.now_ms} {process.name} does not hear of an append")
            self._heard(process, store_timed_out("no answer"))
            if dice < 0.05:
                self.landings.append(Landing(self.now_ms + delay, append, None))
        else:
            self.landings.append(Landing(self.now_ms + delay, append, process))

    def _land(self) -> None:
        due = [landing for landing in self.landings if landing.at_ms <= self.now_ms]
        self.landings = [landing for landing in self.landings if landing.at_ms > self.now_ms]
        for landing in sorted(due, key=lambda each: each.at_ms):
            self.topic.append(landing.append, self.now_ms)
            if landing.process is not None:
                self._heard(landing.process, None)

    def _heard(self, process: Process, error: RegistryError | None) -> None:
        for outcome in process.writer.appended(error, self.now_ms):
            self._note(outcome, process.asked.pop(outcome.request, _nothing))

    def _read(self, process: Process, count: int) -> None:
        before, unread = process.position, self.topic.read(process.position)
        for entry in islice(unread, count):
            record = decode(entry.key, entry.value)
            assert record is not None
            if process.writer.read(record, entry.turn):
                self.stories.append(f"{self.now_ms} {process.name} reads a late record")
            process.position = entry.offset + 1
        if process.position > before:
            self._check_versions(process.machine)

    # What must hold

    def _is_busy(self) -> bool:
        return bool(self.landings) or any(
            process.asked
            or any(self.topic.read(process.position))
            or process.machine.needs_repair
            or process.machine.turns.head is not None
            for process in self.processes
        )

    def _check_versions(self, machine: Machine) -> None:
        for subject in (*KEPT, GROWING):
            for version, schema_id in _ids(machine, subject).items():
                known = self.versions.setdefault((subject, version), schema_id)
                assert known == schema_id, f"{subject} version {version} was {known}, is {schema_id}"

    def _check_the_end(self) -> None:
        states = [describe(process.machine) for process in self.processes]
        replayed = self._replayed()
        self.topic.clean_all(self.now_ms)
        states += [describe(replayed), describe(self._replayed())]
        for state in states:
            assert state == states[0], "the processes, or what is replayed, differ"
        for subject, text, schema_id in self.known:
            if subject != DELETED:
                for machine in (*(each.machine for each in self.processes), replayed, self._replayed()):
                    assert machine.schema(schema_id) == {"schema": text}, f"id {schema_id} was answered"
                    assert {"subject": subject, "version": _version_of(machine, subject, schema_id)} in (
                        machine.usages(schema_id, deleted=True)
                    )
        self._check_growth(replayed)

    def _check_growth(self, machine: Machine) -> None:
        texts = [machine.version(GROWING, str(version))["schema"] for version in _ids(machine, GROWING)]
        for old, new in pairwise(texts):
            reasons = schemas.incompatibilities(schemas.parse(new), schemas.parse(old), "BACKWARD")
            assert reasons == [], "two schemas that cannot follow each other were both registered"

    def _replayed(self) -> Machine:
        machine = Machine()
        for entry in self.topic.read(0):
            record = decode(entry.key, entry.value)
            assert record is not None
            machine.apply(record, turn=entry.turn)
        return machine


def describe(machine: Machine) -> dict[str, Any]:
    """Return all that a registry answers of its subjects."""
    subjects = machine.subjects(deleted=True)
    return {
        subject: (
            machine.versions(subject, deleted=True),
            [
                machine.version(subject, str(version), deleted=True)
                for version in machine.versions(subject, deleted=True)
            ],
            machine.versions(subject) if subject in machine.subjects() else [],
            machine.level_of(subject),
        )
        for subject in subjects
    }


def _ids(machine: Machine, subject: str) -> dict[int, int]:
    if subject not in machine.subjects(deleted=True):
        return {}
    return {
        version: machine.version(subject, str(version), deleted=True)["id"]
        for version in machine.versions(subject, deleted=True)
    }


def _version_of(machine: Machine, subject: str, schema_id: int) -> int:
    found = [version for version, known in _ids(machine, subject).items() if known == schema_id]
    assert found, f"id {schema_id} is that of no version of {subject}"
    return found[0]


def _nothing(_: Any) -> None:
    pass
