"""A producer's account of what it published: per topic and event-time window, as a pure core.

`WindowLedger` is told of every event sent, acknowledged or failed, and yields `Account`s, the content of
monitoring events. What stays true:
- every sequence handed out is in exactly one account, acknowledged or undelivered, once its outcome is known; of several
  outcomes the first one counts;
- a sequence that was taken and of which nobody told is unknown in the last accounts;
- accounts of one window add up: a window whose events come in late or in great number has several;
- `complete_until` promises that of the sequences below `next_sequence` every event with an earlier time is in the accounts
  so far; an event that is sent later with an older time breaks no promise, it is late.
It knows no Kafka, clock or lock: its caller brings `now_ms` and calls from one thread at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from headrace.events.envelope import Header
from headrace.events.fingerprint import MASK, from_signed, mix_run, producer_key, to_signed

Outcome = Literal["failed", "unknown"]
Kind = Literal["window", "heartbeat", "closing"]

RANGES_MAX: Final = 1000
"""Bound of the runs and of the ranges in one account; what goes beyond makes a further one of the window."""

EVENTS_MAX: Final = 16_384
"""Acknowledged events of a window after which it is accounted in part, so that what is in no account yet stays bounded."""

_GRANULARITY_MS_MAX: Final = 64


class Acknowledgement(NamedTuple):
    """Sequences first to last (inclusive) were acknowledged no later than this time (milliseconds)."""

    first_sequence: int
    last_sequence: int
    acknowledged_at: int


class Undelivered(NamedTuple):
    """Sequences first to last (inclusive) failed, or may or may not be in the log, for this reason."""

    first_sequence: int
    last_sequence: int
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a monitoring event says, without its envelope; see `monitoring_event.avsc`; times in ms."""

    kind: Kind
    window_start: int
    window_size_ms: int
    first_sequence: int
    last_sequence: int
    count: int
    fingerprint: int
    undelivered: tuple[Undelivered, ...]
    acknowledgements: tuple[Acknowledgement, ...]
    complete_until: int
    next_sequence: int


class ProcessName(NamedTuple):
    """Where a producer lives: the machine's own name, the process's id, and when it was started in milliseconds."""

    host: str
    pid: int
    started_at: int


NO_PROCESS: Final = ProcessName("", 0, 0)
"""Of an account that does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringEvent:
    """One record of the topic `headrace.monitoring`."""

    header: Header
    topic: str
    datacenter: str
    account: Account
    process: ProcessName = NO_PROCESS

    def as_record(self) -> dict[str, Any]:
        """Return the record as fastavro writes it."""
        account = self.account
        return {
            "header": self.header._asdict(),
            "kind": account.kind,
            "topic": self.topic,
            "datacenter": self.datacenter,
            "window_start": account.window_start,
            "window_size_ms": account.window_size_ms,
            "first_sequence": account.first_sequence,
            "last_sequence": account.last_sequence,
            "count": account.count,
            "fingerprint": to_signed(account.fingerprint),
            "undelivered": [entry._asdict() for entry in account.undelivered],
            "acknowledgements": [entry._asdict() for entry in account.acknowledgements],
            "complete_until": account.complete_until,
            "next_sequence": account.next_sequence,
            "process": self.process._asdict(),
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> MonitoringEvent:
        """Build the event from what fastavro read; timestamps may be datetimes or milliseconds."""
        header = {**record["header"], "time": _milliseconds(record["header"]["time"])}
        account = Account(
            kind=record["kind"],
            window_start=_milliseconds(record["window_start"]),
            window_size_ms=record["window_size_ms"],
            first_sequence=record["first_sequence"],
            last_sequence=record["last_sequence"],
            count=record["count"],
            fingerprint=from_signed(record["fingerprint"]),
            undelivered=tuple(Undelivered(**entry) for entry in record["undelivered"]),
            acknowledgements=tuple(
                Acknowledgement(
                    entry["first_sequence"], entry["last_sequence"], _milliseconds(entry["acknowledged_at"])
                )
                for entry in record["acknowledgements"]
            ),
            complete_until=_milliseconds(record["complete_until"]),
            next_sequence=record["next_sequence"],
        )
        process = record["process"]
        return cls(
            header=Header(**header),
            topic=record["topic"],
            datacenter=record["datacenter"],
            account=account,
            process=ProcessName(process["host"], process["pid"], _milliseconds(process["started_at"])),
        )


def _milliseconds(value: Any) -> int:
    if isinstance(value, int):
        return value
    milliseconds: int = round(value.timestamp() * 1000)
    return milliseconds


@dataclass(slots=True)
class _Window:
    start: int
    pending: set[int] = field(default_factory=set)
    acknowledgements: list[tuple[int, int, int]] = field(default_factory=list)
    """Runs as in `Acknowledgement`, but for the last one, which goes on."""
    first: int = 0
    last: int = -2
    """Of the run that goes on; -2: there is none."""
    at_ms: int = 0
    count: int = 0
    """Acknowledged events."""
    undelivered: list[Undelivered] = field(default_factory=list)

    def acknowledge(self, sequence: int, now_ms: int) -> None:
        self.count += 1
        if sequence == self.last + 1 and now_ms == self.at_ms:
            self.last = sequence
            return
        if self.last >= 0:
            self.acknowledgements.append((self.first, self.last, self.at_ms))
        self.first = self.last = sequence
        self.at_ms = now_ms

    def runs(self) -> list[Acknowledgement]:
        """Return all runs, the one that goes on included."""
        found = [*self.acknowledgements, (self.first, self.last, self.at_ms)]
        return [Acknowledgement(*run) for run in found if run[1] >= 0]


class WindowLedger:
    """Accounts for one producer and topic. Times are ms since the epoch, to which windows are aligned."""

    def __init__(self, producer: str, *, window_size_ms: int, now_ms: int, first_sequence: int = 0) -> None:
        """Begin with a sequence: those before it are in accounts already."""
        if window_size_ms <= 0:
            raise ValueError(f"window_size_ms is {window_size_ms}; it must be positive")
        self._key = producer_key(producer)
        self._window_size_ms = window_size_ms
        self._windows: dict[int, _Window] = {}
        self._next_sequence = first_sequence
        self._untold: set[int] = set()
        self._reported_ms = now_ms
        self._complete_ms = 0

    def on_sent(self, sequence: int, time_ms: int) -> None:
        """Note that a sequence is handed to the client for delivery; it may overtake those that were taken before."""
        if sequence == self._next_sequence:
            self._next_sequence = sequence + 1
        elif sequence < self._next_sequence:
            self._untold.discard(sequence)
        else:
            self._untold.update(range(self._next_sequence, sequence))
            self._next_sequence = sequence + 1
        self._window(time_ms).pending.add(sequence)

    def on_acknowledged(self, sequence: int, time_ms: int, now_ms: int) -> bool:
        """Note that the brokers acknowledged an event whose time was `time_ms`; False: it had an outcome already."""
        window = self._taken(sequence, time_ms)
        if window is None:
            return False
        window.acknowledge(sequence, now_ms)
        return True

    def on_failed(self, sequence: int, time_ms: int, *, outcome: Outcome, reason: str) -> bool:
        """Note that an event was not delivered, or that nobody knows whether it was; False: it had an outcome already."""
        window = self._taken(sequence, time_ms)
        if window is None:
            return False
        ranges = window.undelivered
        last = ranges[-1] if ranges else None
        if last and last.last_sequence + 1 == sequence and (last.outcome, last.reason) == (outcome, reason):
            ranges[-1] = last._replace(last_sequence=sequence)
        else:
            ranges.append(Undelivered(sequence, sequence, outcome, reason))
        return True

    @property
    def pending(self) -> int:
        """How many events were sent and have no outcome yet."""
        return sum(len(window.pending) for window in self._windows.values())

    def unsettled(self, next_sequence: int, now_ms: int) -> list[tuple[int, int]]:
        """Return (sequence, time) of those below `next_sequence` that have no outcome; now, when nobody told of it."""
        self._untold.update(range(self._next_sequence, next_sequence))
        self._next_sequence = max(self._next_sequence, next_sequence)
        pending = [(at, window.start) for window in self._windows.values() for at in window.pending]
        return sorted([*pending, *((at, now_ms) for at in self._untold)])

    def finished(self, now_ms: int) -> list[Account]:
        """Return the accounts that are due: windows that are over and settled, and over-long ones in part.

        A heartbeat follows when nothing else was due for the length of a window.
        """
        due = []
        for window in sorted(self._windows.values(), key=lambda window: window.start):
            over = window.start + self._window_size_ms <= now_ms
            if over and not window.pending:
                del self._windows[window.start]
                due.append(window)
            elif (
                len(window.acknowledgements) > RANGES_MAX
                or len(window.undelivered) > RANGES_MAX
                or window.count > EVENTS_MAX
            ):
                due.append(self._detach(window))
        accounts = [account for window in due for account in self._accounts(window)]
        if accounts:
            # Only the last of several promises more, since a crash may come between them.
            self._promise(now_ms)
            accounts[-1] = replace(accounts[-1], complete_until=self._complete_ms)
        elif now_ms - self._reported_ms >= self._window_size_ms:
            accounts = [self._bare("heartbeat", now_ms)]
        return accounts

    def opened(self, now_ms: int) -> Account:
        """Return the heartbeat that announces a producer before its first event."""
        return self._bare("heartbeat", now_ms)

    def closed(self, now_ms: int) -> list[Account]:
        """Return the last accounts: all windows, then the closing one. Nothing may be pending any more."""
        assert self.pending == 0, "every event has an outcome before the ledger closes"
        windows = sorted(self._windows.values(), key=lambda window: window.start)
        accounts = [account for window in windows for account in self._accounts(window)]
        self._windows.clear()
        return [*accounts, self._bare("closing", now_ms)]

    def _taken(self, sequence: int, time_ms: int) -> _Window | None:
        """Return the window of a sequence without an outcome, which then has one; None when it had one already."""
        window = self._windows.get(time_ms - time_ms % self._window_size_ms)
        if window is not None and sequence in window.pending:
            window.pending.remove(sequence)
            return window
        if sequence not in self._untold:
            return None
        self._untold.remove(sequence)
        return self._window(time_ms)

    def _window(self, time_ms: int) -> _Window:
        start = time_ms - time_ms % self._window_size_ms
        window = self._windows.get(start)
        if window is None:
            window = self._windows[start] = _Window(start)
        return window

    def _detach(self, window: _Window) -> _Window:
        """Take what is settled out of a window that goes on."""
        pending, window.pending = window.pending, set()
        self._windows[window.start] = _Window(window.start, pending)
        return window

    def _promise(self, now_ms: int) -> None:
        self._reported_ms = now_ms
        self._complete_ms = min([now_ms, *self._windows])

    def _bare(self, kind: Kind, now_ms: int) -> Account:
        self._promise(now_ms)
        return Account(
            kind=kind,
            window_start=now_ms - now_ms % self._window_size_ms,
            window_size_ms=self._window_size_ms,
            first_sequence=0,
            last_sequence=-1,
            count=0,
            fingerprint=0,
            undelivered=(),
            acknowledgements=(),
            complete_until=self._complete_ms,
            next_sequence=self._next_sequence,
        )

    def _accounts(self, window: _Window) -> list[Account]:
        """Cut what is settled of a window into accounts within the bounds; none when nothing is."""
        runs = coalesce(window.runs())
        ranges = join_ranges(window.undelivered)
        pieces = range(0, max(len(runs), len(ranges)), RANGES_MAX)
        return [
            self._account(window.start, runs[at : at + RANGES_MAX], ranges[at : at + RANGES_MAX])
            for at in pieces
        ]

    def _account(self, start: int, runs: list[Acknowledgement], ranges: list[Undelivered]) -> Account:
        firsts = [run.first_sequence for run in runs] + [entry.first_sequence for entry in ranges]
        lasts = [run.last_sequence for run in runs] + [entry.last_sequence for entry in ranges]
        return Account(
            kind="window",
            window_start=start,
            window_size_ms=self._window_size_ms,
            first_sequence=min(firsts),
            last_sequence=max(lasts),
            count=sum(run.last_sequence - run.first_sequence + 1 for run in runs),
            fingerprint=sum(mix_run(self._key, run.first_sequence, run.last_sequence) for run in runs) & MASK,
            undelivered=tuple(ranges),
            acknowledgements=tuple(runs),
            complete_until=self._complete_ms,
            next_sequence=self._next_sequence,
        )


def coalesce(runs: list[Acknowledgement]) -> list[Acknowledgement]:
    """Sort runs by sequence and join neighbours; acknowledgement times may differ only as far as is needed.

    The later time is kept, so that no latency looks shorter than it was. Runs whose sequences do not touch
    stay apart; the result is longer than RANGES_MAX only when times up to 64 ms apart were already joined.
    """
    joined = _join(sorted(runs), 0)
    granularity_ms = 1
    while len(joined) > RANGES_MAX and granularity_ms <= _GRANULARITY_MS_MAX:
        joined = _join(joined, granularity_ms)
        granularity_ms *= 2
    return joined


def _join(runs: list[Acknowledgement], granularity_ms: int) -> list[Acknowledgement]:
    joined: list[Acknowledgement] = []
    earliest = 0
    for run in runs:
        last = joined[-1] if joined else None
        times = (
            (min(earliest, run.acknowledged_at), max(last.acknowledged_at, run.acknowledged_at))
            if last
            else (0, 0)
        )
        if last and last.last_sequence + 1 == run.first_sequence and times[1] - times[0] <= granularity_ms:
            earliest = times[0]
            joined[-1] = Acknowledgement(last.first_sequence, run.last_sequence, times[1])
        else:
            earliest = run.acknowledged_at
            joined.append(run)
    return joined


def join_ranges(ranges: list[Undelivered]) -> list[Undelivered]:
    """Sort ranges by sequence and join those that touch and share outcome and reason."""
    joined: list[Undelivered] = []
    for entry in sorted(ranges):
        last = joined[-1] if joined else None
        same = last and (last.outcome, last.reason) == (entry.outcome, entry.reason)
        if last and same and last.last_sequence + 1 == entry.first_sequence:
            joined[-1] = last._replace(last_sequence=entry.last_sequence)
        else:
            joined.append(entry)
    return joined
