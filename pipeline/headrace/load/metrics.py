"""Prometheus metrics of a load, beside those of its rounds."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from headrace.load.driver import RoundReport


class LoadMetrics:
    """Counts what rounds did, for the pages that serve `registry`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.registry = registry = CollectorRegistry()
        self._now = now
        self._caught_up_at = now()
        self._records = Counter("headrace_load_records", "Records committed as rows", registry=registry)
        self._dead = Counter(
            "headrace_load_dead_letters", "Records committed as dead letters", registry=registry
        )
        self._bytes = Counter("headrace_load_bytes", "Bytes of record batches read", registry=registry)
        self._commits = Counter("headrace_load_commits", "Snapshots committed", registry=registry)
        self._refused = Counter(
            "headrace_load_commits_refused", "Commits refused and planned anew", registry=registry
        )
        self._lag = Gauge(
            "headrace_load_lag_records", "Offsets readable but not in the table", registry=registry
        )
        Gauge(
            "headrace_load_seconds_since_caught_up",
            "How long ago a round, or the start, left nothing to load",
            registry=registry,
        ).set_function(lambda: self._now() - self._caught_up_at)
        self._stopped = Gauge("headrace_load_findings", "Partitions that stand still", registry=registry)
        self._commit_seconds = Histogram(
            "headrace_load_commit_seconds", "Time of a commit", registry=registry
        )

    def observe(self, report: RoundReport) -> None:
        self._records.inc(report.rows)
        self._dead.inc(report.dead_letters)
        self._bytes.inc(report.size_bytes)
        self._commits.inc(report.commits)
        self._refused.inc(report.refused)
        self._lag.set(report.lag)
        if report.lag <= 0 and not report.failures:
            self._caught_up_at = self._now()
        self._stopped.set(len(report.findings))
        if report.commits:
            self._commit_seconds.observe(report.commit_seconds)
