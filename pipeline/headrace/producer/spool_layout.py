"""What a spool file holds: of one producer's life, the sequences that no delivered account tells of yet. Pure.

    head     one line of JSON, padded to pages: whose life it is
    state    64-bit numbers: the next monitoring event; the cluster; by topic the next sequence, and the first in no delivered
             account
    rings    by topic two arrays of slots, one a sequence: its event's time, then what became of it

A sequence has the slot `sequence % slots` of both arrays. A slot is one number, written in one go: the value above 16 bits
that say which lap of the ring it belongs to. So whoever dies between two writes leaves a sequence without outcome, never one
with another's; a sequence that another one took the slot of has no outcome either. Neither is called acknowledged, then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from headrace.events.monitoring import Account, Outcome, ProcessName, Undelivered, WindowLedger
from headrace.producer.checks import TIME_MS_MAX, TIME_MS_MIN

FORMAT: Final = "headrace-spool-2"
PAGE_SIZE: Final = 4096
SLOTS_MAX: Final = 1 << 16
"""Sequences of a topic that a spool can tell of: the last ones."""
RINGS_SIZE_MAX: Final = 16 << 20
"""Of all topics of a life together: with more than 16 topics each has fewer slots."""
HEAD_SIZE_MAX: Final = 1 << 20
FILE_SIZE_MAX: Final = HEAD_SIZE_MAX + 2 * RINGS_SIZE_MAX

NO_CLUSTER: Final = 0
"""Of a life whose client has not reached its cluster: nothing of it has left the process."""

_FIRST_TOPIC: Final = 2
"""Numbers of the state before those of topics."""
_SLOT_SIZE: Final = 16
_LAP_BITS: Final = 16
_LAPS: Final = 1 << _LAP_BITS
_CODES: Final[dict[Outcome, int]] = {"failed": 1, "unknown": 2}
_OUTCOMES: Final[dict[int, Outcome]] = {code: outcome for outcome, code in _CODES.items()}

NO_OUTCOME: Final = "the process ended before the outcome was known"
NO_REASON: Final = "the process ended, and the reason with it"


class DamagedError(ValueError):
    """A file that is no spool, or not a whole one, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Whose life a spool is of; `boot` is the host's start, before which nothing that is written can be relied on."""

    producer: str
    server: str
    service: str
    datacenter: str
    bootstrap: str
    process: ProcessName
    boot: str
    window_size_ms: int
    topics: tuple[str, ...]
    slots: int

    def encode(self) -> bytes:
        line = json.dumps({"format": FORMAT, **asdict(self)}).encode() + b"\n"
        return line.ljust(_pages(len(line)), b"\0")


class Layout(NamedTuple):
    """Where things are, in 64-bit numbers from the beginning of the file."""

    state: int
    rings: int
    slots: int
    topics: int

    @property
    def size(self) -> int:
        """Of the whole file, in bytes."""
        return self.rings * 8 + self.topics * self.slots * _SLOT_SIZE


class Ring:
    """The slots of one topic in a life's spool. Its methods cost a tenth of a microsecond, and never wait."""

    def __init__(self, numbers: memoryview, layout: Layout, index: int) -> None:
        begin = layout.rings + index * 2 * layout.slots
        self._times = numbers[begin : begin + layout.slots]
        self._outcomes = numbers[begin + layout.slots : begin + 2 * layout.slots]
        state = layout.state + _FIRST_TOPIC + 2 * index
        self._state = numbers[state : state + 2]
        self._mask = layout.slots - 1
        self._shift = layout.slots.bit_length() - 1

    def on_sent(self, sequence: int, time_ms: int) -> None:
        """Note a sequence before anything else is told of it."""
        self._times[sequence & self._mask] = time_ms << 16 | (sequence >> self._shift & 0xFFFF)

    def on_acknowledged(self, sequence: int, now_ms: int) -> None:
        self._outcomes[sequence & self._mask] = now_ms << 16 | (sequence >> self._shift & 0xFFFF)

    def on_failed(self, sequence: int, outcome: Outcome) -> None:
        self.on_acknowledged(sequence, _CODES[outcome])

    def note(self, next_sequence: int, accounted: int) -> None:
        """Note how many sequences were handed out, and how many of these are in delivered accounts, without a gap."""
        self._state[0] = next_sequence
        self._state[1] = accounted


class NoRing:
    """Stands for the slots of a topic where there is no spool."""

    def on_sent(self, sequence: int, time_ms: int) -> None: ...

    def on_acknowledged(self, sequence: int, now_ms: int) -> None: ...

    def on_failed(self, sequence: int, outcome: Outcome) -> None: ...

    def note(self, next_sequence: int, accounted: int) -> None: ...


def cluster_number(cluster_id: str) -> int:
    """Return what tells a cluster from others in a spool: 63 bits of its id's SHA-256, never `NO_CLUSTER`."""
    return int.from_bytes(hashlib.sha256(cluster_id.encode()).digest()[:8], "big") >> 1 or 1


def slots_for(topics: int) -> int:
    """Return how many slots each of so many topics has: a power of two."""
    slots = SLOTS_MAX
    while slots > 1 and slots * _SLOT_SIZE * topics > RINGS_SIZE_MAX:
        slots //= 2
    return slots


def layout_of(head: Head) -> Layout:
    head_size = len(head.encode())
    state_size = _pages(8 * _FIRST_TOPIC + 16 * len(head.topics))
    return Layout(head_size // 8, (head_size + state_size) // 8, head.slots, len(head.topics))


def read_head(content: bytes) -> Head:
    """Return the head of a file that begins with this content; raises DamagedError."""
    line, end, _ = content[:HEAD_SIZE_MAX].partition(b"\n")
    try:
        fields = json.loads(line) if end else {}
        if fields.pop("format", None) != FORMAT:
            raise DamagedError("it is no spool file of this release")
        fields["process"] = ProcessName(*fields["process"])
        fields["topics"] = tuple(map(str, fields["topics"]))
        head = Head(**fields)
        slots = head.slots
        if not 0 < slots <= SLOTS_MAX or slots & (slots - 1) or head.window_size_ms <= 0:
            raise DamagedError(f"it has {slots} slots and windows of {head.window_size_ms} ms")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"its head is damaged: {error}") from error
    return head


class Rest(NamedTuple):
    """What is left of a life that is over: its next monitoring event, its cluster, and its last accounts with their topics."""

    sequence: int
    cluster: int
    accounts: list[tuple[str, Account]]


def rest_of(head: Head, content: bytes, now_ms: int) -> Rest:
    """Return what the file with this head and content says.

    Raises DamagedError.
    """
    layout = layout_of(head)
    if len(content) < layout.size:
        raise DamagedError(f"it has {len(content)} bytes of {layout.size}")
    numbers = memoryview(content)[: layout.size].cast("q")
    found = [
        (topic, account)
        for index, topic in enumerate(head.topics)
        for account in _accounts(head, numbers, layout, index, now_ms)
    ]
    return Rest(numbers[layout.state], numbers[layout.state + 1], found)


class _Slot(NamedTuple):
    sequence: int
    time_ms: int
    outcome: int
    """When it was acknowledged in milliseconds, a code of those that were not, or 0: there is none."""


def _accounts(head: Head, numbers: memoryview, layout: Layout, index: int, now_ms: int) -> Iterator[Account]:
    state = layout.state + _FIRST_TOPIC + 2 * index
    noted, accounted = numbers[state], numbers[state + 1]
    if not 0 <= accounted <= noted:
        raise DamagedError(f"it says that {accounted} of {noted} sequences are accounted for")
    slots = sorted(_slots(numbers, layout, index, noted))
    next_sequence = max([noted, *(slot.sequence + 1 for slot in slots[-1:])])
    first = max(accounted, next_sequence - layout.slots)
    if first > accounted:
        yield _forgotten(head, accounted, first - 1, next_sequence, now_ms)
    ledger = WindowLedger(
        head.producer, window_size_ms=head.window_size_ms, now_ms=now_ms, first_sequence=first
    )
    for slot in slots:
        if slot.sequence >= first:
            _take(ledger, slot)
    for sequence, time_ms in ledger.unsettled(next_sequence, now_ms):
        ledger.on_failed(sequence, time_ms, outcome="unknown", reason=NO_OUTCOME)
    yield from ledger.closed(now_ms)


def _take(ledger: WindowLedger, slot: _Slot) -> None:
    ledger.on_sent(slot.sequence, slot.time_ms)
    if slot.outcome in _OUTCOMES:
        outcome = _OUTCOMES[slot.outcome]
        ledger.on_failed(slot.sequence, slot.time_ms, outcome=outcome, reason=NO_REASON)
    elif slot.outcome:
        ledger.on_acknowledged(slot.sequence, slot.time_ms, slot.outcome)


def _slots(numbers: memoryview, layout: Layout, index: int, noted: int) -> Iterator[_Slot]:
    """Yield what the ring of a topic has; `noted` is near the next sequence, which tells the laps apart."""
    begin = layout.rings + index * 2 * layout.slots
    times: Sequence[int] = numbers[begin : begin + layout.slots].tolist()
    outcomes: Sequence[int] = numbers[begin + layout.slots : begin + 2 * layout.slots].tolist()
    span = layout.slots * _LAPS
    for at, (time, outcome) in enumerate(zip(times, outcomes, strict=True)):
        if not time:
            continue
        time_ms, lap = time >> _LAP_BITS, time & (_LAPS - 1)
        known_ms = outcome >> _LAP_BITS if outcome & (_LAPS - 1) == lap else 0
        if not (_is_time(time_ms) and (known_ms == 0 or known_ms in _OUTCOMES or _is_time(known_ms))):
            raise DamagedError(f"a slot has the time {time_ms} and the outcome {known_ms}")
        sequence = noted + (lap * layout.slots + at - noted + span // 2) % span - span // 2
        if sequence >= 0:
            yield _Slot(sequence, time_ms, known_ms)


def _is_time(time_ms: int) -> bool:
    return TIME_MS_MIN <= time_ms < TIME_MS_MAX


def _forgotten(head: Head, first: int, last: int, next_sequence: int, now_ms: int) -> Account:
    """Return the account of sequences whose slots others took: some are in delivered accounts, of the rest nobody knows."""
    return Account(
        kind="window",
        window_start=now_ms - now_ms % head.window_size_ms,
        window_size_ms=head.window_size_ms,
        first_sequence=first,
        last_sequence=last,
        count=0,
        fingerprint=0,
        undelivered=(Undelivered(first, last, "unknown", NO_OUTCOME),),
        acknowledgements=(),
        complete_until=0,
        next_sequence=next_sequence,
    )


def _pages(size: int) -> int:
    return -(-size // PAGE_SIZE) * PAGE_SIZE
