"""What one process appends to the topic, and when: it asks for a turn, decides in it, and answers what it read back.

Pure: what was read, what became of appends and `now_ms` in, appends and outcomes out, one append at a time. What stays
true, with any number of processes on one topic:
- a change is decided on everything that stands in the topic before it, since nobody else writes in the same turn;
- it succeeds only once its records have been read back and counted; if its turn was over before them, it is decided
  anew in another turn;
- a process that dies or sleeps in its turn holds up the others for `TURN_MS_MAX`, and what it still writes afterwards
  counts for nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headrace.registry import errors
from headrace.registry.errors import RegistryError
from headrace.registry.machine import Decision, Machine
from headrace.registry.records import Record, Turn

TURN_MS_MAX: Final = 5_000
"""A turn in which nothing happens for so long is ended by the next process that wants one."""
CHANGES_PER_TURN_MAX: Final = 16
WAITING_MAX: Final = 1000
TURN_WAIT_MS_MAX: Final = 20_000
"""A change that has waited so long for a turn is refused."""
READ_BACK_MS_MAX: Final = 10_000
RETRY_MS: Final = 500


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """A change that a client asked for. `decide` may be called more than once, on newer states."""

    decide: Callable[[Machine], Decision]
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Records to append in this order; those of a turn bear its name."""

    records: tuple[Record, ...]
    turn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of a request: an answer, or an error to raise. The writer's own repairs come out as well."""

    request: Request
    answer: Any = None
    error: RegistryError | None = None


@dataclass(slots=True, kw_only=True)
class _Written:
    """A request whose records are being appended or read back."""

    request: Request
    answer: Any
    count: int
    since_ms: int


class Writer:
    """One process's writer. `name` is different in every life of every process."""

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine = machine
        self._name = name
        self._turns_asked = 0
        self._turn: str | None = None
        self._given_up: list[str] = []
        self._ending: tuple[str, ...] = ()
        self._waiting: deque[Request] = deque()
        self._repair: Request | None = None
        self._written: _Written | None = None
        self._counted = 0
        self._changes_in_turn = 0
        self._is_appending = False
        self._not_before_ms = 0
        self._head: tuple[str | None, int] = (None, 0)
        self._head_since_ms = 0

    # What happens

    def submit(self, decide: Callable[[Machine], Decision], now_ms: int) -> Request | Settled:
        """Take a request; one that changes nothing, or that can never succeed, is settled at once."""
        request = Request(decide=decide, since_ms=now_ms)
        try:
            decision = decide(self._machine)
        except RegistryError as error:
            if error.is_about_input:
                return Settled(request=request, error=error)
        else:
            if not decision.records:
                return Settled(request=request, answer=decision.answer)
        if len(self._waiting) >= WAITING_MAX:
            return Settled(request=request, error=errors.not_ready(f"{WAITING_MAX} changes are waiting"))
        self._waiting.append(request)
        return request

    def read(self, record: Record, turn: str | None) -> str | None:
        """Apply a record read from the topic. Returns a finding."""
        if turn is not None and turn == self._turn and not self._machine.turns.is_over(turn):
            self._counted += 1
        return self._machine.apply(record, turn=turn)

    def appended(self, error: RegistryError | None, now_ms: int) -> list[Settled]:
        """Note what became of the last append."""
        self._is_appending = False
        if error is None:
            return []
        self._not_before_ms = now_ms + RETRY_MS
        self._given_up += self._ending
        self._give_up()
        if self._written is not None:
            return self._settle_written(error)
        return self._refuse(lambda _: True, f"the topic could not be written ({error.message})")

    def step(self, now_ms: int) -> tuple[list[Settled], Append | None]:
        """Return what is settled now, and the next append unless one is under way."""
        settled = self._read_back(now_ms) + self._overdue(now_ms)
        self._watch_head(now_ms)
        if self._is_appending or now_ms < self._not_before_ms:
            return settled, None
        append = self._next(now_ms, settled)
        self._is_appending = append is not None
        return settled, append

    # What follows from it

    def _read_back(self, now_ms: int) -> list[Settled]:
        written = self._written
        if self._turn is None or (written is None and not self._is_over()):
            return []
        if written is not None and self._counted >= written.count:
            return self._settle_written(None)
        if self._is_over() and not self._is_appending:
            self._turn = None
            if written is not None and self._counted:
                return self._settle_written(errors.store_timed_out("a part of it was written"))
            if written is not None:
                self._waiting.appendleft(written.request)
                self._written = None
        elif written is not None and now_ms - written.since_ms >= READ_BACK_MS_MAX:
            self._give_up()
            return self._settle_written(errors.store_timed_out("it was appended but not read back yet"))
        return []

    def _is_over(self) -> bool:
        return self._turn is not None and self._machine.turns.is_over(self._turn)

    def _settle_written(self, error: RegistryError | None) -> list[Settled]:
        written, self._written = self._written, None
        assert written is not None
        if written.request is self._repair:
            self._repair = None
        answer = None if error is not None else written.answer
        return [Settled(request=written.request, answer=answer, error=error)]

    def _overdue(self, now_ms: int) -> list[Settled]:
        def is_overdue(request: Request) -> bool:
            return now_ms - request.since_ms >= TURN_WAIT_MS_MAX

        if not any(map(is_overdue, self._waiting)):
            return []
        return self._refuse(is_overdue, "other registries of this topic kept it from being written")

    def _refuse(self, which: Callable[[Request], bool], reason: str) -> list[Settled]:
        refused = [request for request in self._waiting if which(request)]
        self._waiting = deque(request for request in self._waiting if not which(request))
        if self._repair in refused:
            self._repair = None
        error = errors.not_ready(reason)
        return [Settled(request=request, error=error) for request in refused]

    def _give_up(self) -> None:
        """Leave the turn without knowing what stands in the topic; the next append ends it there."""
        if self._turn is not None:
            self._given_up.append(self._turn)
            self._turn = None

    def _watch_head(self, now_ms: int) -> None:
        turns = self._machine.turns
        if self._head != (turns.head, turns.progress):
            self._head = (turns.head, turns.progress)
            self._head_since_ms = now_ms

    def _next(self, now_ms: int, settled: list[Settled]) -> Append | None:
        if self._turn is None:
            return self._ask(now_ms)
        head = self._machine.turns.head
        if head == self._turn:
            return None if self._written is not None else self._decide(now_ms, settled)
        return self._end_stuck(now_ms)

    def _end_stuck(self, now_ms: int) -> Append | None:
        """End the turn of a process that is dead or asleep."""
        head = self._machine.turns.head
        if head is None or now_ms - self._head_since_ms < TURN_MS_MAX:
            return None
        self._head_since_ms = now_ms
        self._ending = ()
        return Append(records=(Turn(turn=head, is_over=True),))

    def _ask(self, now_ms: int) -> Append | None:
        if self._machine.needs_repair and self._repair is None:
            self._repair = Request(decide=Machine.decide_repair, since_ms=now_ms)
            self._waiting.appendleft(self._repair)
        self._ending = tuple(self._given_up)
        self._given_up.clear()
        ended = tuple(Turn(turn=turn, is_over=True) for turn in self._ending)
        if not self._waiting:
            return Append(records=ended) if ended else self._end_stuck(now_ms)
        self._turns_asked += 1
        self._turn = f"{self._name}-{self._turns_asked}"
        self._counted = self._changes_in_turn = 0
        return Append(records=(*ended, Turn(turn=self._turn)))

    def _decide(self, now_ms: int, settled: list[Settled]) -> Append:
        """Append the next change of the turn, or end the turn when there is none or others had to wait long enough."""
        while self._waiting and self._changes_in_turn < CHANGES_PER_TURN_MAX:
            request = self._waiting.popleft()
            try:
                decision = request.decide(self._machine)
            except RegistryError as error:
                settled.append(Settled(request=request, error=error))
                continue
            if decision.records:
                self._changes_in_turn += 1
                self._counted = 0
                self._written = _Written(
                    request=request, answer=decision.answer, count=len(decision.records), since_ms=now_ms
                )
                self._ending = ()
                return Append(records=decision.records, turn=self._turn)
            if request is self._repair:
                self._repair = None
            settled.append(Settled(request=request, answer=decision.answer))
        ended, self._turn = self._turn, None
        assert ended is not None
        self._ending = (ended,)
        return Append(records=(Turn(turn=ended, is_over=True),))
