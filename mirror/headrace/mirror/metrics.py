"""The mirror's page of Prometheus metrics, made from the copiers when it is asked for.

`headrace_mirror_lag_messages` is what the source had at the last answer beyond the copy; `headrace_mirror_lag_seconds` is
how old the copy's last message is, 0 while nothing is missing, so it needs no clock of the source's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.broker.clock import Clock
from headrace.mirror.copier import Phase

if TYPE_CHECKING:
    from headrace.mirror.source import Source

LABELS = ("source", "topic", "partition")


class MirrorMetrics:
    """A prometheus_client collector; called on that library's thread, which only reads."""

    def __init__(self, sources: Sequence[Source], findings: Mapping[str, int], clock: Clock) -> None:
        self._sources = sources
        self._findings = findings
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """The page's families."""
        now_ms = self._clock.now_ms()
        lag = GaugeMetricFamily("headrace_mirror_lag_messages", "Messages not copied yet.", labels=LABELS)
        age = GaugeMetricFamily("headrace_mirror_lag_seconds", "Age of the copy's end.", labels=LABELS)
        state = GaugeMetricFamily(
            "headrace_mirror_state", "1 for the state that a partition is in.", labels=(*LABELS, "state")
        )
        rotten = GaugeMetricFamily(
            "headrace_mirror_rotten", "1 while the source's data is refused.", labels=LABELS
        )
        size = CounterMetricFamily("headrace_mirror_copied_bytes", "Bytes appended.", labels=LABELS)
        batches = CounterMetricFamily("headrace_mirror_copied_batches", "Batches appended.", labels=LABELS)
        for source in self._sources:
            for (topic, partition), copier in list(source.copiers.items()):
                labels = (source.config.name, topic, str(partition))
                lag.add_metric(labels, copier.lag_messages)
                age.add_metric(labels, copier.lag_ms(now_ms) / 1000)
                rotten.add_metric(labels, copier.is_rotten)
                size.add_metric(labels, copier.bytes_copied)
                batches.add_metric(labels, copier.batches_copied)
                for phase in Phase:
                    state.add_metric((*labels, phase.value), copier.phase is phase)
        findings = CounterMetricFamily(
            "headrace_mirror_findings", "Findings since the start.", labels=("kind",)
        )
        for kind, count in list(self._findings.items()):
            findings.add_metric((kind,), count)
        yield from (lag, age, state, rotten, size, batches, findings)
