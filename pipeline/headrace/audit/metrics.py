"""Prometheus metrics of the auditor."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.audit.acceptances import Acceptances
from headrace.audit.clocks import Skews
from headrace.audit.latency import SPANS
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import OVERALL, BatchTopic, Counts, Outcome, Topic, open_windows
from headrace.audit.parcels import is_rejected
from headrace.audit.period import Period
from headrace.audit.windows import WINDOW_SIZE_MS

FAULTS: Final = ("loss", "duplicate")
RECENT_MS: Final = 600_000
OPEN_WINDOWS_MS: Final = 86_400_000
Faults = tuple[tuple[int, int], tuple[int, int]]
"""Events lost and doubled, and how many of both are accepted."""


class AuditMetrics:
    """What the ledger says, by datacenter and topic, what was read for it, and the disk of `state`, which keeps it."""

    def __init__(self, state: Path) -> None:
        self.registry = CollectorRegistry()
        self._state = state
        self._skews: Mapping[tuple[str, str], tuple[int, int]] = {}
        self._records = self._files = self._unread = 0
        self._lag: Mapping[str, int] = {}
        self._open_windows: Mapping[tuple[str, str], int] = {}
        self.registry.register(self)
        labels = ["datacenter", "topic"]
        self._counts = {
            name: Gauge(f"headrace_audit_{name}", text, labels, registry=self.registry)
            for name, text in (
                ("produced", "Events that producers were told are written"),
                ("live", "Events counted in the live cluster"),
                ("offline", "Events counted in the offline cluster"),
                ("warehouse", "Events counted in the warehouse"),
                ("lost", "Events lost between tiers"),
                ("duplicated", "Copies too many between tiers"),
                ("open_lost", "Events lost between tiers, but for those that somebody has accepted"),
                (
                    "open_duplicated",
                    "Copies too many between tiers, but for those that somebody has accepted",
                ),
                ("under_way", "Events that the next tier does not have yet"),
                ("compacted", "Events that compaction removed before they were counted"),
            )
        }
        places = ["warehouse", *labels]
        self._further = {
            name: Gauge(f"headrace_audit_further_{name}", text, places, registry=self.registry)
            for name, text in (
                ("warehouse", "Events counted in a further warehouse"),
                ("lost", "Events lost between the offline cluster and a further warehouse"),
                ("duplicated", "Copies too many in a further warehouse"),
                ("under_way", "Events that a further warehouse does not have yet"),
            )
        }
        self._further_complete_until = Gauge(
            "headrace_audit_further_complete_until_seconds",
            "Time up to which all tables of a further warehouse are whole, since the epoch",
            ["warehouse"],
            registry=self.registry,
        )
        self._complete_until = Gauge(
            "headrace_audit_complete_until_seconds",
            "Time up to which everything is whole, since the epoch",
            registry=self.registry,
        )
        self._topic_complete_until = Gauge(
            "headrace_audit_topic_complete_until_seconds",
            "Time up to which everything of a topic is whole, since the epoch",
            labels,
            registry=self.registry,
        )
        self._latency = Gauge(
            "headrace_audit_latency_seconds",
            "Latency by hop, of all events so far",
            ["datacenter", "hop", "figure"],
            registry=self.registry,
        )
        self._recent_latency = Gauge(
            "headrace_audit_recent_latency_seconds",
            "Latency by hop, of the last ten minutes' events",
            ["hop", "figure"],
            registry=self.registry,
        )

    def collect(self) -> list[Metric]:
        """The families whose labels come and go, and those of what was read."""
        windows = GaugeMetricFamily(
            "headrace_audit_open_windows",
            "Windows of the last 24 hours that are not complete, those with loss or duplicates left aside.",
            labels=["datacenter", "topic"],
        )
        for place, count in self._open_windows.items():
            windows.add_metric(place, count)
        lag = GaugeMetricFamily(
            "headrace_audit_lag_offsets",
            "Offsets of the audit's inputs that the last round could reach and did not read, by topic.",
            labels=["topic"],
        )
        for topic, count in self._lag.items():
            lag.add_metric([topic], count)
        return [
            windows,
            lag,
            CounterMetricFamily("headrace_audit_read_records", "Records of topics read.", self._records),
            CounterMetricFamily("headrace_audit_read_files", "Data files of tables read.", self._files),
            GaugeMetricFamily(
                "headrace_audit_unread_partitions",
                "Partitions of the audit's inputs whose leader did not answer in the last round.",
                self._unread,
            ),
            *self._skew(),
            *self._disk(),
        ]

    def _skew(self) -> Iterator[Metric]:
        labels = ["datacenter", "hop"]
        events = CounterMetricFamily(
            "headrace_audit_skewed_events", "Events that arrived before their own time.", labels=labels
        )
        seconds = GaugeMetricFamily(
            "headrace_audit_skew_seconds",
            "By how much the clock of a hop's begin was ahead of that of its end, at most.",
            labels=labels,
        )
        for hop, (count, largest_ms) in self._skews.items():
            events.add_metric(hop, count)
            seconds.add_metric(hop, largest_ms / 1000)
        yield from (events, seconds)

    def _disk(self) -> Iterator[Metric]:
        with suppress(OSError):
            size = sum(file.stat().st_size for file in self._state.rglob("*") if file.is_file())
            usage = shutil.disk_usage(self._state)
            yield GaugeMetricFamily("headrace_audit_state_bytes", "Bytes of the state's files.", size)
            yield GaugeMetricFamily(
                "headrace_audit_state_free_bytes", "What the state's disk has left.", usage.free
            )
            yield GaugeMetricFamily(
                "headrace_audit_state_capacity_bytes", "What the state's disk can hold.", usage.total
            )

    def observe_reading(self, records: int, files: int, lag: Mapping[str, int], unread: int) -> None:
        """Take what was read since the process began, and what is left after the last round."""
        self._records, self._files, self._lag, self._unread = records, files, lag, unread

    def observe(self, outcome: Outcome, ledger: Ledger, now_ms: int) -> None:
        accepted = ledger.acceptances.sums()
        besides: dict[Topic, list[Faults]] = {}
        for key, sums in chain(
            _aggregate_faults(outcome, ledger.acceptances), _further_faults(outcome, ledger.acceptances)
        ):
            besides.setdefault(key, []).append(sums)
        for key, found in outcome.topics.items():
            counts, known = replace(found), accepted.get(key, (0, 0))
            for further, of_these in besides.get(key, ()):
                counts.lost += further[0]
                counts.duplicated += further[1]
                known = (known[0] + of_these[0], known[1] + of_these[1])
            for name in Counts.__slots__:
                gauge = self._counts.get(name)
                if gauge is not None and (name != "warehouse" or not is_rejected(key[1])):
                    gauge.labels(*key).set(getattr(counts, name))
            self._observe_open(key, counts, known)
        self._observe_batches(outcome, ledger.acceptances)
        self._observe_further(outcome)
        self._complete_until.set((outcome.complete_until or 0) / 1000)
        for key in outcome.topics:
            self._topic_complete_until.labels(*key).set(outcome.watermarks.get(key, 0) / 1000)
        day = Period(now_ms - OPEN_WINDOWS_MS, now_ms)
        self._open_windows = open_windows(outcome, day, WINDOW_SIZE_MS)
        self._skews = skews_by_hop(ledger.latencies.skews)
        for key, histogram in ledger.latencies.histograms.items():
            for figure, value in (histogram.summary() or {}).items():
                self._latency.labels(*key, figure).set(value)
        last = Period(now_ms - RECENT_MS, now_ms)
        for span in SPANS:
            figures = ledger.latencies.recent.figures(span, last)
            if figures is not None:
                for figure in ("p50", "p99"):
                    self._recent_latency.labels(span, figure).set(getattr(figures, figure))

    def _observe_open(self, key: Topic, found: Counts | BatchTopic, accepted: tuple[int, int]) -> None:
        for name, known in zip(("lost", "duplicated"), accepted, strict=True):
            self._counts[f"open_{name}"].labels(*key).set(max(0, getattr(found, name) - known))

    def _observe_further(self, outcome: Outcome) -> None:
        for name, found in outcome.further.items():
            for key, counts in found.topics.items():
                for figure, gauge in self._further.items():
                    gauge.labels(name, *key).set(getattr(counts, figure))
            self._further_complete_until.labels(name).set(found.watermarks.get(OVERALL, 0) / 1000)

    def _observe_batches(self, outcome: Outcome, acceptances: Acceptances) -> None:
        accepted = {key: [0, 0] for key in outcome.batches}
        for item in outcome.findings:
            if item.stream[:2] in accepted and item.kind in FAULTS and acceptances.of(item) is not None:
                accepted[item.stream[:2]][FAULTS.index(item.kind)] += item.count
        for key, found in outcome.batches.items():
            for name, value in (("live", found.live.messages), ("offline", found.offline.messages)):
                self._counts[name].labels(*key).set(value)
            for name in ("lost", "duplicated", "under_way"):
                self._counts[name].labels(*key).set(getattr(found, name))
            lost, duplicated = accepted[key]
            self._observe_open(key, found, (lost, duplicated))


def _further_faults(outcome: Outcome, acceptances: Acceptances) -> Iterator[tuple[Topic, Faults]]:
    """Yield what of each topic is lost and doubled in further warehouses, and how much of that is accepted."""
    for name, found in outcome.further.items():
        accepted = acceptances.sums(name)
        for key, counts in found.topics.items():
            yield key, ((counts.lost, counts.duplicated), accepted.get(key, (0, 0)))


def _aggregate_faults(outcome: Outcome, acceptances: Acceptances) -> Iterator[tuple[Topic, Faults]]:
    """Yield what of each topic is lost and doubled in its aggregate, and how much of that is accepted."""
    accepted = {key: [0, 0] for key in outcome.aggregates}
    for item in outcome.findings:
        if (
            item.hop == "live_to_aggregate"
            and item.stream[:2] in accepted
            and acceptances.of(item) is not None
        ):
            accepted[item.stream[:2]][FAULTS.index(item.kind)] += item.count
    for key, found in outcome.aggregates.items():
        lost, doubled = found.counts.lost, found.counts.duplicated
        yield key, ((lost, doubled), (min(lost, accepted[key][0]), min(doubled, accepted[key][1])))


def skews_by_hop(skews: Skews) -> dict[tuple[str, str], tuple[int, int]]:
    """By datacenter and hop: how many events arrived before their own time, and by how many milliseconds at most."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for clocks, skew in skews.found.items():
        if skew.certain:
            count, largest_ms = found.get((clocks.datacenter, clocks.span), (0, 0))
            found[clocks.datacenter, clocks.span] = (count + skew.certain, max(largest_ms, skew.largest_ms))
    return found
