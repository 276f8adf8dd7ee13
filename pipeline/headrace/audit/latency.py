"""How long events took from tier to tier: exact times of each event, joined by sequence and offset, kept as histograms.

The times of an event: `time` of its envelope, the producer's acknowledgement (its accounts), the copier's append
(`headrace.arrivals`) and the commit of the snapshot that made its row visible. Events are known by the rows of the
warehouse; a row waits for its account and its arrival, then it is observed once. A latency that comes out negative, of
clocks that differ, is in no distribution; it is counted by the two hosts (see `clocks`). Mean and maximum are exact,
percentiles to 1 %. Bounded: rows wait at most `WAIT_MS_MAX`, look-ups are pruned. Pure; times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.audit.clocks import NOBODY, Clocks, Hosts, Skews
from headrace.audit.histogram import OBSERVED_MS_MAX, Histogram
from headrace.audit.recent import RecentLatencies
from headrace.audit.windows import EMPTY, Depth, Int64s, Stream, depth, runs_of, total

Hop = Literal["producer_to_live", "live_to_offline", "offline_to_warehouse", "live_to_aggregate"]
HOPS: Final[tuple[Hop, ...]] = ("producer_to_live", "live_to_offline", "offline_to_warehouse")
"""Those of the way to the warehouse."""
SPANS: Final = (*HOPS, "end_to_end")
Station = Literal["producer", "mirror", "load"]
STATIONS: Final[Mapping[str, tuple[Station, Station]]] = {
    "producer_to_live": ("producer", "producer"),
    "live_to_offline": ("producer", "mirror"),
    "offline_to_warehouse": ("mirror", "load"),
    "end_to_end": ("producer", "load"),
}
"""Whose clocks a latency is measured with: an acknowledgement's is the producer's own."""
HOST_BITS: Final = 32
"""Two hosts' numbers are one of 64 bits."""
WAIT_MS_MAX: Final = 120_000
ROWS_WAITING_MAX: Final = 4_000_000
SPANS_KEPT_MAX: Final = 200_000
"""Entries of one look-up, beyond which the oldest half is dropped."""


class SourcePartition(NamedTuple):
    """One partition of a topic, by the names of the live datacenter that it comes from."""

    datacenter: str
    topic: str
    partition: int


@dataclass(slots=True)
class Spans:
    """Times by ranges of offsets or sequences (inclusive), and the hosts whose clocks they are of, by number."""

    first: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    last: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    time_ms: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    host: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    new: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, first: int, last: int, time_ms: int, host: int = 0) -> None:
        self.new.append((first, last, time_ms, host))

    def at(self, numbers: Int64s) -> Int64s:
        """Return the time of each number, -1 where none is known."""
        return self._look_up(self._sorted().time_ms, numbers, -1)

    def host_at(self, numbers: Int64s) -> Int64s:
        """Return the host of each number, 0 where none is known."""
        return self._look_up(self._sorted().host, numbers, 0)

    def forget_below(self, number: int) -> None:
        """Drop what only speaks of lower numbers."""
        self._keep(self._sorted().last >= number)

    def as_json(self) -> list[list[int]]:
        return [column.tolist() for column in self._sorted()._columns()]

    @classmethod
    def from_json(cls, fields: Any) -> Spans:
        first, last, time_ms, *host = (np.array(column, dtype=np.int64) for column in fields)
        return cls(first, last, time_ms, host[0] if host else np.zeros_like(first))

    def _columns(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        return self.first, self.last, self.time_ms, self.host

    def _keep(self, which: Any) -> None:
        self.first, self.last, self.time_ms, self.host = (column[which] for column in self._columns())

    def _look_up(self, values: Int64s, numbers: Int64s, unknown: int) -> Int64s:
        if not len(self.first):
            return np.full(len(numbers), unknown, dtype=np.int64)
        found = np.searchsorted(self.first, numbers, side="right") - 1
        is_known = (found >= 0) & (numbers <= self.last[found])
        return np.where(is_known, values[found], unknown)

    def _sorted(self) -> Spans:
        if self.new:
            added = np.array(self.new, dtype=np.int64).T
            self.new.clear()
            pairs = zip(self._columns(), added, strict=True)
            self.first, self.last, self.time_ms, self.host = (np.concatenate(pair) for pair in pairs)
            order = np.argsort(self.first, kind="stable")
            self._keep(order if len(order) <= SPANS_KEPT_MAX else order[len(order) // 2 :])
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one data file and partition, in the order of their offsets."""

    file: str
    place: SourcePartition
    streams: tuple[Stream, ...]
    stream: npt.NDArray[np.intp]
    """Each row's index in `streams`."""
    time_ms: Int64s
    sequence: Int64s
    offset: Int64s


@dataclass(slots=True)
class Latencies:
    """Histograms of each hop and end to end, what came late, and the rows that wait for their times."""

    late_after_ms: int
    histograms: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    """By (datacenter, span)."""
    late: dict[tuple[Hop, Stream], Depth] = field(default_factory=dict)
    newly_late: set[Stream] = field(default_factory=set)
    """Those of which `late` grew since the ledger last asked."""
    acknowledged: dict[Stream, Spans] = field(default_factory=dict)
    appended: dict[SourcePartition, Spans] = field(default_factory=dict)
    committed: dict[SourcePartition, Spans] = field(default_factory=dict)
    hosts: Hosts = field(default_factory=Hosts)
    servers: dict[str, int] = field(default_factory=dict)
    """The host of each producer."""
    recent: RecentLatencies = field(default_factory=RecentLatencies)
    skews: Skews = field(default_factory=Skews)
    """The latencies that are negative."""
    next_offset: dict[SourcePartition, int] = field(default_factory=dict)
    """Rows below were observed; a file that is read again must not count twice."""
    waiting: list[Rows] = field(default_factory=list)

    def on_acknowledged(self, stream: Stream, first: int, last: int, time_ms: int) -> None:
        self.acknowledged.setdefault(stream, Spans()).add(first, last, time_ms)

    def on_producer(self, producer: str, server: str) -> None:
        """Take the host whose clock stamps a producer's events and notes its acknowledgements."""
        self.servers[producer] = self.hosts.number(server)

    def on_appended(
        self, place: SourcePartition, first: int, last: int, time_ms: int, host: str = NOBODY
    ) -> None:
        self.appended.setdefault(place, Spans()).add(first, last, time_ms, self.hosts.number(host))

    def on_committed(
        self, place: SourcePartition, first: int, last: int, time_ms: int, host: str = NOBODY
    ) -> None:
        self.committed.setdefault(place, Spans()).add(first, last, time_ms, self.hosts.number(host))

    def on_rows(self, rows: Rows) -> None:
        """Take rows that are visible in the warehouse; those observed before are passed over."""
        if int(rows.offset.max()) >= self.next_offset.get(rows.place, 0):
            self.waiting.append(rows)

    def join(self, now_ms: int, *, is_last: bool = False) -> None:
        """Observe the rows whose times are all known, and those that waited too long or, at last, all.

        In the order of offsets by partition, so that one number says what was observed.
        """
        self.waiting.sort(key=lambda rows: int(rows.offset[0]))
        too_many = sum(len(rows.offset) for rows in self.waiting) > ROWS_WAITING_MAX
        kept: list[Rows] = []
        blocked: set[SourcePartition] = set()
        touched: set[SourcePartition] = set()
        for rows in self.waiting:
            if rows.place in blocked:
                kept.append(rows)
                continue
            times = self._times(rows)
            is_ready = all(bool((column >= 0).all()) for column in times)
            is_old = bool(rows.time_ms.max() < now_ms - WAIT_MS_MAX)
            if is_ready or is_old or is_last or too_many:
                self._observe(rows, *times)
                self.next_offset[rows.place] = int(rows.offset[-1]) + 1
                touched.add(rows.place)
            else:
                blocked.add(rows.place)
                kept.append(rows)
        self.waiting = kept
        for place in touched:
            for spans in (self.appended, self.committed):
                if place in spans:
                    spans[place].forget_below(self.next_offset[place])

    def histogram(self, span: str) -> Histogram:
        """Return the distribution over all datacenters."""
        together = Histogram()
        for (_, known), histogram in self.histograms.items():
            if known == span:
                together.add(histogram)
        return together

    def files_waiting(self) -> set[str]:
        return {rows.file for rows in self.waiting}

    def _times(self, rows: Rows) -> tuple[Int64s, Int64s, Int64s]:
        acknowledged = np.full(len(rows.sequence), -1, dtype=np.int64)
        for index, stream in enumerate(rows.streams):
            members = np.flatnonzero(rows.stream == index) if len(rows.streams) > 1 else slice(None)
            acknowledged[members] = self.acknowledged.get(stream, NO_SPANS).at(rows.sequence[members])
        return (
            acknowledged,
            self.appended.get(rows.place, NO_SPANS).at(rows.offset),
            self.committed.get(rows.place, NO_SPANS).at(rows.offset),
        )

    def _observe(self, rows: Rows, acknowledged: Int64s, appended: Int64s, committed: Int64s) -> None:
        new = rows.offset >= self.next_offset.get(rows.place, 0)
        happened = rows.time_ms
        begins = (happened, acknowledged, appended, happened)
        ends = (acknowledged, appended, committed, committed)
        for span, begin, end in zip(SPANS, begins, ends, strict=True):
            known = new & (begin >= 0) & (end >= 0)
            is_negative = known & (end < begin)
            key = (rows.place.datacenter, span)
            observed = known & ~is_negative
            self.histograms.setdefault(key, Histogram()).observe((end - begin)[observed])
            self.recent.observe(key, happened[observed], (end - begin)[observed])
            if is_negative.any():
                self._observe_skew(rows, span, np.flatnonzero(is_negative), begin, end)
        self._observe_late(rows, new, (acknowledged, appended, committed))

    def _observe_skew(
        self, rows: Rows, span: str, members: npt.NDArray[np.intp], begin: Int64s, end: Int64s
    ) -> None:
        """Note latencies below zero by the hosts that they lie between."""
        behind_ms = np.minimum(begin[members] - end[members], OBSERVED_MS_MAX)
        is_certain = end[members] < rows.time_ms[members]
        first, second = (self._hosts_of(rows, members, station) for station in STATIONS[span])
        pairs = first << HOST_BITS | second
        # Most often all are of one pair, which is seen without sorting.
        found = pairs[:1] if (pairs == pairs[0]).all() else np.unique(pairs)
        for pair in found.tolist():
            same = pairs == pair
            names = (self.hosts.names[number] for number in (pair >> HOST_BITS, pair & (1 << HOST_BITS) - 1))
            self.skews.observe(Clocks(rows.place.datacenter, span, *names), behind_ms[same], is_certain[same])

    def _hosts_of(self, rows: Rows, members: npt.NDArray[np.intp], station: Station) -> Int64s:
        """Return whose clock told a time of each row, by number."""
        if station == "producer":
            servers = np.array(
                [self.servers.get(stream.producer, 0) for stream in rows.streams], dtype=np.int64
            )
            return servers[rows.stream[members]]
        spans = self.appended if station == "mirror" else self.committed
        return spans.get(rows.place, NO_SPANS).host_at(rows.offset[members])

    def _observe_late(self, rows: Rows, new: npt.NDArray[np.bool_], arrivals: Iterable[Int64s]) -> None:
        """Name the first hop after which an event was behind its bound."""
        undecided = new.copy()
        for hop, arrived in zip(HOPS, arrivals, strict=True):
            is_late = undecided & (arrived >= 0) & (arrived - rows.time_ms > self.late_after_ms)
            for index in np.unique(rows.stream[is_late]).tolist() if is_late.any() else ():
                sequences = np.sort(rows.sequence[is_late & (rows.stream == index)])
                key = (hop, rows.streams[index])
                self.late[key] = total((self.late.get(key, EMPTY), depth(runs_of(sequences))))
                self.newly_late.add(key[1])
            undecided &= ~is_late


NO_SPANS: Final = Spans()
