"""The mirror's page of Prometheus metrics, made from the copiers when it is asked for.

`headrace_mirror_lag_messages` is what the source had at the last answer beyond the copy; `headrace_mirror_lag_seconds` is
how old the copy's last message is, 0 while nothing is missing, so it needs no clock of the source's. Both are NaN while
nobody knows: a series that is always there, and that no threshold takes for 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.broker.clock import Clock
from headrace.mirror.copy.copier import PAUSED, ROTTEN, Phase
from headrace.mirror.memory.reports import SILENT_AFTER_MS

if TYPE_CHECKING:
    from headrace.broker.wire.partitions import PartitionKey
    from headrace.mirror.aggregate.group import Group
    from headrace.mirror.aggregate.held import Held
    from headrace.mirror.copy.copier import Copier
    from headrace.mirror.source import Source

LABELS = ("source", "topic", "partition")
CONDITIONS = (*(phase.value for phase in Phase), ROTTEN, PAUSED)
UNKNOWN = float("nan")


class MirrorMetrics:
    """A prometheus_client collector, which only reads."""

    def __init__(
        self,
        sources: Sequence[Source],
        findings: Mapping[str, int],
        clock: Clock,
        groups: Sequence[Group] = (),
    ) -> None:
        self._sources = sources
        self._groups = groups
        self._findings = findings
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """The page's families."""
        now_ms = self._clock.now_ms()
        yield from self._of_sources(now_ms)
        yield from self._of_syncs()
        yield from self._of_partitions(now_ms)
        findings = CounterMetricFamily(
            "headrace_mirror_findings", "Findings since the start.", labels=("kind",)
        )
        for kind, count in list(self._findings.items()):
            findings.add_metric((kind,), count)
        yield findings

    def _of_sources(self, now_ms: int) -> Iterator[Metric]:
        labels = ("source",)
        up = GaugeMetricFamily("headrace_mirror_source_up", "1 while the source answers.", labels=labels)
        silent = GaugeMetricFamily(
            "headrace_mirror_source_silent_seconds",
            "Since the source last answered; since the start where it never did.",
            labels=labels,
        )
        topics = GaugeMetricFamily(
            "headrace_mirror_topics_not_brought", "Topics without a whole copy.", labels=labels
        )
        checked = GaugeMetricFamily(
            "headrace_mirror_verified_timestamp_seconds", "When all copies were last compared.", labels=labels
        )
        verified = CounterMetricFamily(
            "headrace_mirror_verified_bytes", "Bytes of the source compared.", labels=labels
        )
        for source in [*self._sources, *(group.source for group in self._groups)]:
            silent_ms = source.silent_ms(now_ms)
            up.add_metric(
                (source.config.name,), source.answered_ms is not None and silent_ms <= SILENT_AFTER_MS
            )
            silent.add_metric((source.config.name,), silent_ms / 1000)
            topics.add_metric((source.config.name,), len(source.not_brought))
            at_ms = source.checks.completed_ms
            checked.add_metric((source.config.name,), UNKNOWN if at_ms is None else at_ms / 1000)
            verified.add_metric((source.config.name,), source.checks.bytes_compared)
        yield from (up, silent, topics, checked, verified)

    def _of_syncs(self) -> Iterator[Metric]:
        labels = ("source", "what")
        success = GaugeMetricFamily(
            "headrace_mirror_sync_last_success_timestamp_seconds", "When it last went well.", labels=labels
        )
        in_step = GaugeMetricFamily("headrace_mirror_sync_in_step", "As at the source.", labels=labels)
        left = GaugeMetricFamily("headrace_mirror_sync_left_alone", "Not brought.", labels=labels)
        behind = GaugeMetricFamily(
            "headrace_mirror_sync_behind_messages",
            "Committed at the source, and not in the copies yet.",
            labels=labels,
        )
        for sync in [sync for source in list(self._sources) for sync in source.syncs.values()]:
            names = (sync.source, sync.what)
            at_ms = sync.succeeded_ms
            success.add_metric(names, UNKNOWN if at_ms is None else at_ms / 1000)
            in_step.add_metric(names, sync.in_step)
            left.add_metric(names, sync.left_alone)
            behind.add_metric(names, sync.behind)
        yield from (success, in_step, left, behind)

    def _of_partitions(self, now_ms: int) -> Iterator[Metric]:
        lag = GaugeMetricFamily("headrace_mirror_lag_messages", "Messages not copied yet.", labels=LABELS)
        age = GaugeMetricFamily("headrace_mirror_lag_seconds", "Age of the copy's end.", labels=LABELS)
        state = GaugeMetricFamily(
            "headrace_mirror_state", "1 for the state that a partition is in.", labels=(*LABELS, "state")
        )
        rotten = GaugeMetricFamily(
            "headrace_mirror_rotten", "1 while the source's data is refused.", labels=LABELS
        )
        different = GaugeMetricFamily(
            "headrace_mirror_different", "1 while the copy is known not to be its source's.", labels=LABELS
        )
        verified = GaugeMetricFamily(
            "headrace_mirror_verified_offset", "Up to where the copy was last found equal.", labels=LABELS
        )
        size = CounterMetricFamily("headrace_mirror_copied_bytes", "Bytes appended.", labels=LABELS)
        batches = CounterMetricFamily("headrace_mirror_copied_batches", "Batches appended.", labels=LABELS)
        brought: list[tuple[str, PartitionKey, Copier | Held]] = [
            *((of.config.name, key, copier) for of in self._sources for key, copier in of.copiers.items()),
            *((of.source.config.name, key, held) for of in self._groups for key, held in of.held.items()),
        ]
        for name, (topic, partition), copier in brought:
            labels = (name, topic, str(partition))
            messages, behind_ms = copier.lag_messages(now_ms), copier.lag_ms(now_ms)
            lag.add_metric(labels, UNKNOWN if messages is None else messages)
            age.add_metric(labels, UNKNOWN if behind_ms is None else behind_ms / 1000)
            rotten.add_metric(labels, copier.condition == ROTTEN)
            size.add_metric(labels, copier.progress.bytes_copied)
            batches.add_metric(labels, copier.progress.batches_copied)
            condition = copier.condition
            for one in CONDITIONS:
                state.add_metric((*labels, one), condition == one)
        for source in self._sources:
            for key, copied in source.copiers.items():
                labels = (source.config.name, key[0], str(key[1]))
                different.add_metric(labels, copied.state.different is not None)
                verified.add_metric(labels, source.checks.verified.get(key, UNKNOWN))
        yield from (lag, age, state, rotten, different, verified, size, batches)
