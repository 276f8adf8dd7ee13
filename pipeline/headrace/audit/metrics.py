"""Prometheus metrics of the auditor."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from headrace.audit.ledger import Ledger
from headrace.audit.outcome import Outcome
from headrace.audit.parcels import is_rejected


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

    def serve(self, host: str, port: int) -> None:
        """Serve the metrics over HTTP in a background thread that ends with the process."""
        start_http_server(port, addr=host, registry=self._collected)

    def observe(self, outcome: Outcome, ledger: Ledger) -> None:
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
