"""Prometheus metrics of the auditor."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from headrace.audit.latency import SPANS
from headrace.audit.ledger import Ledger
from headrace.audit.outcome import Outcome
from headrace.audit.parcels import is_rejected
from headrace.audit.period import Period

RECENT_MS = 600_000


class AuditMetrics:
    """What the ledger says, by datacenter and topic; `serve` opens the port."""

    def __init__(self) -> None:
        self._collected = CollectorRegistry()
        labels = ["datacenter", "topic"]
        self._counts = {
            name: Gauge(f"headrace_audit_{name}", text, labels, registry=self._collected)
            for name, text in (
                ("produced", "Events that producers were told are written"),
                ("live", "Events counted in the live cluster"),
                ("offline", "Events counted in the offline cluster"),
                ("warehouse", "Events counted in the warehouse"),
                ("lost", "Events lost between tiers"),
                ("duplicated", "Copies too many between tiers"),
                ("under_way", "Events that the next tier does not have yet"),
                ("compacted", "Events that compaction removed before they were counted"),
            )
        }
        self._complete_until = Gauge(
            "headrace_audit_complete_until_seconds",
            "Time up to which everything is whole, since the epoch",
            registry=self._collected,
        )
        self._topic_complete_until = Gauge(
            "headrace_audit_topic_complete_until_seconds",
            "Time up to which everything of a topic is whole, since the epoch",
            labels,
            registry=self._collected,
        )
        self._latency = Gauge(
            "headrace_audit_latency_seconds",
            "Latency by hop, of all events so far",
            ["datacenter", "hop", "figure"],
            registry=self._collected,
        )
        self._recent_latency = Gauge(
            "headrace_audit_recent_latency_seconds",
            "Latency by hop, of the last ten minutes' events",
            ["hop", "figure"],
            registry=self._collected,
        )

    def serve(self, host: str, port: int) -> None:
        """Serve the metrics over HTTP in a background thread that ends with the process."""
        start_http_server(port, addr=host, registry=self._collected)

    def observe(self, outcome: Outcome, ledger: Ledger, now_ms: int) -> None:
        for key, counts in outcome.topics.items():
            for name, gauge in self._counts.items():
                if name != "warehouse" or not is_rejected(key[1]):
                    gauge.labels(*key).set(getattr(counts, name))
        self._complete_until.set((outcome.complete_until or 0) / 1000)
        for key in outcome.topics:
            self._topic_complete_until.labels(*key).set(outcome.watermarks.get(key, 0) / 1000)
        for key, histogram in ledger.latencies.histograms.items():
            for figure, value in (histogram.summary() or {}).items():
                self._latency.labels(*key, figure).set(value)
        last = Period(now_ms - RECENT_MS, now_ms)
        for span in SPANS:
            figures = ledger.latencies.recent.figures(span, last)
            if figures is not None:
                for figure in ("p50", "p99"):
                    self._recent_latency.labels(span, figure).set(getattr(figures, figure))
