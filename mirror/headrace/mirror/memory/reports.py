"""What each broker last heard of its sources: the records of the topic `headrace.sources`, as values.

One record a broker every few seconds, and at every change. Key: the broker's id, value: JSON. It names the sources with
the time of their last answer, the topics that could not be brought here, and the partitions that are not in order though
nothing stopped them; `headrace mirror status` shows it. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

REPORT_INTERVAL_MS = 5_000
STALE_AFTER_MS = 30_000
"""A broker that has reported nothing for so long does not mirror."""
SILENT_AFTER_MS = 15_000
"""A source's metadata is asked for at least every 10 s, and every partition's leader more often than that."""
LISTED_MAX = 500
"""Topics, and partitions, that one report lists: with the longest names it stays below a message's size."""
AGGREGATES_MAX = 250
"""Partitions of aggregates that one report lists."""
REASON_LENGTH_MAX = 300
ANSWERS, SILENT, NEVER_REACHED = "answers", "silent", "never reached"
NOT_LISTED, WAITING = "not listed", "waiting"
GROUPS, CONFIGS, ACLS = "groups", "configs", "acls"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """`answered_ms` is None where the source never answered; `problem` is why it did not answer last, or empty.

    `checked_ms` is when the broker's copies were last all compared with the source, None before, `unchecked` how many could not
    be; `check_problem` is why it does not go on. What goes into an aggregate is compared with nothing.
    """

    name: str
    bootstrap: str
    answered_ms: int | None
    problem: str
    is_aggregate: bool = False
    checked_ms: int | None = None
    unchecked: int = 0
    check_problem: str = ""

    def state(self, now_ms: int) -> str:
        """In a word or two: whether the source answers."""
        if self.answered_ms is None:
            return NEVER_REACHED
        return SILENT if now_ms - self.answered_ms > SILENT_AFTER_MS else ANSWERS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """A topic of a source that has no copy, or one with too few partitions."""

    source: str
    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """A partition whose leader at the source has given no answer of use for a while, by the copy's name."""

    topic: str
    partition: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What else than messages a broker brings of a source, by its last round: `what` is `GROUPS`, `CONFIGS` or `ACLS`.

    `succeeded_ms` is None until a round succeeds; the counts are of the last one that did: how many groups or topics are as at
    the source, how many are left alone, and how many messages that groups read are not in the copies yet. `problem` is why the
    last round failed.
    """

    source: str
    what: str
    succeeded_ms: int | None = None
    in_step: int = 0
    left_alone: int = 0
    behind: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateReport:
    """A partition of a source that the broker owns and brings into its namesake here; `lag` is None where nobody knows."""

    source: str
    topic: str
    partition: int
    state: str
    lag: int | None
    reason: str
    rotten: str = ""
    """The source's offsets at which it stopped as rotten, as `--offsets` takes them, or nothing."""


def failed(source: str, what: str, before: SyncReport | None, problem: str) -> SyncReport:
    """After a round that failed."""
    return replace(before or SyncReport(source=source, what=what), problem=shortened(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that one broker reports; lists end after `LISTED_MAX`."""

    broker: int
    at_ms: int
    sources: tuple[SourceReport, ...]
    topics: tuple[TopicReport, ...] = ()
    partitions: tuple[PartitionReport, ...] = ()
    syncs: tuple[SyncReport, ...] = ()
    aggregates: tuple[AggregateReport, ...] = ()

    @property
    def essence(self) -> Report:
        """What makes a new report worth writing before its time."""
        sources = tuple(
            replace(s, answered_ms=s.answered_ms and 1, checked_ms=s.checked_ms and 1) for s in self.sources
        )
        syncs = tuple(replace(s, succeeded_ms=s.succeeded_ms and 1) for s in self.syncs)
        aggregates = tuple(replace(a, lag=None) for a in self.aggregates)
        return replace(self, at_ms=0, sources=sources, syncs=syncs, aggregates=aggregates)

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


def bounded(
    broker: int,
    at_ms: int,
    sources: tuple[SourceReport, ...],
    topics: list[TopicReport],
    partitions: list[PartitionReport],
    syncs: tuple[SyncReport, ...] = (),
    aggregates: Sequence[AggregateReport] = (),
) -> Report:
    """A report whose lists are no longer than they may be."""
    return Report(
        broker=broker,
        at_ms=at_ms,
        sources=sources,
        topics=tuple(topics[:LISTED_MAX]),
        partitions=tuple(partitions[:LISTED_MAX]),
        syncs=syncs,
        aggregates=tuple(aggregates[:AGGREGATES_MAX]),
    )


def shortened(reason: str) -> str:
    """A reason in as many characters as a report has room for."""
    return reason if len(reason) <= REASON_LENGTH_MAX else f"{reason[:REASON_LENGTH_MAX]}…"


def decode(value: bytes) -> Report:
    """Raises ValueError for what is no report."""
    fields = json.loads(value)
    try:
        return Report(
            broker=int(fields["broker"]),
            at_ms=int(fields["at_ms"]),
            sources=tuple(_source(item) for item in fields["sources"]),
            topics=tuple(
                TopicReport(**_texts(item, "source", "topic", "reason")) for item in fields["topics"]
            ),
            partitions=tuple(
                PartitionReport(partition=int(item["partition"]), **_texts(item, "topic", "state", "reason"))
                for item in fields["partitions"]
            ),
            # Earlier versions told of none.
            syncs=tuple(_sync(item) for item in fields.get("syncs", ())),
            aggregates=tuple(
                AggregateReport(
                    partition=int(item["partition"]),
                    lag=_number(item["lag"]),
                    rotten=str(item.get("rotten", "")),
                    **_texts(item, "source", "topic", "state", "reason"),
                )
                for item in fields.get("aggregates", ())
            ),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no report of a broker's mirror: {value[:200]!r}") from error


def _sync(fields: Any) -> SyncReport:
    return SyncReport(
        succeeded_ms=_number(fields["succeeded_ms"]),
        in_step=int(fields["in_step"]),
        left_alone=int(fields["left_alone"]),
        behind=int(fields["behind"]),
        **_texts(fields, "source", "what", "problem"),
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _source(fields: Any) -> SourceReport:
    return SourceReport(
        answered_ms=_number(fields["answered_ms"]),
        # Earlier versions told no mode.
        is_aggregate=bool(fields.get("is_aggregate", False)),
        # Earlier versions compared nothing.
        checked_ms=_number(fields.get("checked_ms")),
        unchecked=int(fields.get("unchecked", 0)),
        check_problem=str(fields.get("check_problem", "")),
        **_texts(fields, "name", "bootstrap", "problem"),
    )


def _texts(fields: Any, *names: str) -> dict[str, str]:
    return {name: str(fields[name]) for name in names}
