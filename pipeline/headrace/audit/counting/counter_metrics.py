"""Prometheus metrics of a counter."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.audit.counting.counter import LogCounter
from headrace.audit.modes import TopicModes


class CounterMetrics:
    """A prometheus_client collector of what the counter says of itself, from when there is one."""

    def __init__(self, wanted: TopicModes) -> None:
        self.counter: LogCounter | None = None
        self._wanted = wanted
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The page's families."""
        counter = self.counter
        if counter is None:
            return
        figures = counter.figures
        yield CounterMetricFamily("headrace_counter_events", "Events counted.", counter.counted_events)
        offsets = CounterMetricFamily(
            "headrace_counter_offsets", "Offsets that were read, by topic.", labels=["topic"]
        )
        for topic, count in list(counter.counted_offsets.items()):
            offsets.add_metric([topic], count)
        yield offsets
        lag = GaugeMetricFamily(
            "headrace_counter_lag_offsets",
            "Offsets that the last round could read and did not count, by topic.",
            labels=["topic"],
        )
        for topic, count in figures.lag.items():
            lag.add_metric([topic], count)
        yield lag
        yield GaugeMetricFamily(
            "headrace_counter_unreachable_partitions",
            "Partitions whose leader did not answer in the last round.",
            figures.unreachable,
        )
        yield GaugeMetricFamily(
            "headrace_counter_standstills",
            "Partitions that cannot be counted on, and say why in the log.",
            figures.standstills,
        )
        yield GaugeMetricFamily(
            "headrace_counter_missing_topics",
            "Names and patterns of --topics that take no topic of the cluster.",
            len(self._wanted.missing(counter.known_topics)),
        )
