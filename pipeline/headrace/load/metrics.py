"""Prometheus metrics of a load."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from headrace.load.driver import RoundReport


class LoadMetrics:
    """Counts what rounds did; `serve` opens the port."""

    def __init__(self) -> None:
        self._collected = CollectorRegistry()
        registry = self._collected
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
        self._stopped = Gauge("headrace_load_findings", "Partitions that stand still", registry=registry)
        self._commit_seconds = Histogram(
            "headrace_load_commit_seconds", "Time of a commit", registry=registry
        )

    def serve(self, host: str, port: int) -> None:
        """Serve the metrics over HTTP in a background thread that ends with the process."""
        start_http_server(port, addr=host, registry=self._collected)

    def observe(self, report: RoundReport) -> None:
        self._records.inc(report.rows)
        self._dead.inc(report.dead_letters)
        self._bytes.inc(report.size_bytes)
        self._commits.inc(report.commits)
        self._refused.inc(report.refused)
        self._lag.set(report.lag)
        self._stopped.set(len(report.findings))
        if report.commits:
            self._commit_seconds.observe(report.commit_seconds)
