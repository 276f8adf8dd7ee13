"""Tells what this broker hears of its sources: a report at every change, and every few seconds.

Goes on from the last report of the broker's earlier life, so that a source's last answer is known although it has been
silent since the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from headrace.mirror.aggregate.group import Group
from headrace.mirror.copy.copier import Copier, Phase
from headrace.mirror.memory.reports import (
    NOT_LISTED,
    REPORT_INTERVAL_MS,
    SILENT_AFTER_MS,
    WAITING,
    AggregateReport,
    PartitionReport,
    Report,
    TopicReport,
    bounded,
    shortened,
)
from headrace.mirror.source import Source

NOT_READ = "what is known of the copy cannot be read from headrace.mirror, or not be written there"


class Reports(Protocol):
    """Where they go."""

    def tell(self, report: Report) -> None:
        """Write a report; the newest counts."""
        ...


class Reporter:
    """Writes to the journal; `sources` and `groups` are the lists of the mirror, which grow while it starts."""

    def __init__(
        self, broker_id: int, journal: Reports, sources: Sequence[Source], groups: Sequence[Group] = ()
    ) -> None:
        self._broker_id = broker_id
        self._journal = journal
        self._sources = sources
        self._groups = groups
        self._told: Report | None = None

    def remember(self, source: Source, earlier: Report | None) -> None:
        """When the source last answered, by the last report of this broker's earlier life."""
        for told in earlier.sources if earlier is not None else ():
            if (told.name, told.bootstrap) == (source.config.name, source.config.bootstrap):
                source.answered_ms = told.answered_ms

    def tell(self, now_ms: int) -> None:
        """Write a report if there is anything new, or if it is time."""
        found = self._report(now_ms)
        told = self._told
        is_due = told is None or not 0 <= now_ms - told.at_ms < REPORT_INTERVAL_MS
        if is_due or told is None or found.essence != told.essence:
            self._journal.tell(found)
            self._told = found

    def _report(self, now_ms: int) -> Report:
        sources = [*self._sources, *(group.source for group in self._groups)]
        topics = [
            TopicReport(source=source.config.name, topic=topic, reason=shortened(reason))
            for source in sources
            for topic, reason in sorted(source.not_brought.items())
        ]
        partitions = [found for source in self._sources for found in _waiting(source, now_ms)]
        reports = tuple(source.report() for source in sources)
        syncs = tuple(sync for source in self._sources for sync in source.syncs.values())
        owned = (found for group in self._groups for found in _owned(group, now_ms))
        # A report has no room for all: those that need a person come first.
        aggregates = sorted(owned, key=lambda found: (found.state == Phase.COPYING, -(found.lag or 0)))
        return bounded(self._broker_id, now_ms, reports, topics, partitions, syncs, aggregates)


def _owned(group: Group, now_ms: int) -> Iterable[AggregateReport]:
    """What this member owns; what does not go on for a while waits, and says for what."""
    for (topic, partition), held in sorted(group.held.items()):
        is_waiting = bool(held.reason) and held.condition == Phase.LOCATING
        yield AggregateReport(
            source=group.source.config.name,
            topic=topic,
            partition=partition,
            state=WAITING if is_waiting else held.condition,
            lag=held.lag_messages(now_ms),
            reason=shortened(held.reason),
            rotten=held.rotten,
        )


def _waiting(source: Source, now_ms: int) -> Iterable[PartitionReport]:
    """Partitions that have no answer though their source does; stops and rot are in their states."""
    if source.silent_ms(now_ms) > SILENT_AFTER_MS:
        return
    for (topic, partition), since_ms in sorted(source.awaited.items()):
        restoring = source.restoring.get((topic, partition))
        if restoring is not None or now_ms - since_ms > SILENT_AFTER_MS:
            yield PartitionReport(
                topic=source.copy_of(topic),
                partition=partition,
                state=WAITING,
                reason=NOT_READ if restoring is None else restoring.problem,
            )
    waiting = {
        key: copier
        for key, copier in source.copiers.items()
        if copier.progress.silent_ms(now_ms) > SILENT_AFTER_MS
        and copier.phase is not Phase.STOPPED
        and not copier.is_paused
    }
    for (topic, partition), copier in sorted(waiting.items()):
        state, reason = _why(source, copier)
        yield PartitionReport(
            topic=source.copy_of(topic),
            partition=partition,
            state=state,
            reason=shortened(reason),
        )


def _why(source: Source, copier: Copier) -> tuple[str, str]:
    found = copier.located_at
    if copier.obstacle:
        return WAITING, copier.obstacle
    if found is None:
        return NOT_LISTED, f"{source.config.name} does not list the partition"
    if found.leader < 0:
        return WAITING, copier.problem or f"the partition has no leader in {source.config.name}"
    return WAITING, copier.problem or f"its leader in {source.config.name} has not answered yet"
