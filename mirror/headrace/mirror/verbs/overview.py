"""What `headrace mirror status` says, from the brokers' states and reports and both clusters' log ends. Pure.

What nobody knows is None or "unknown", never 0 or "copying". A partition's state is the first that holds: stopped, rotten,
different, no leader, unknown (its broker does not report), not mirrored (its broker's configuration does not name the source),
left out (others were chosen), source silent or never reached, paused, not listed (at the source), waiting (its leader there
gives no answer of use), copying. A partition that is brought into an aggregate is as its owner says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.config import AGGREGATE, COPY
from headrace.mirror.copy.copier import PAUSED
from headrace.mirror.memory.findings import CopyFinding
from headrace.mirror.memory.orders import Promoted
from headrace.mirror.memory.reports import (
    ANSWERS,
    LISTED_MAX,
    STALE_AFTER_MS,
    WAITING,
    AggregateReport,
    Report,
    SourceReport,
    SyncReport,
)
from headrace.mirror.memory.state import State, place_of, topic_of
from headrace.mirror.names import CopyNames
from headrace.mirror.questions import UNKNOWN

NO_LEADER = -1
NOT_MIRRORED, LEFT_OUT = "not mirrored", "left out"
BROUGHT, FAILS = "brought", "fails"
COPYING = "copying"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What was read of the offline cluster: `leaders` by partition, the newest state of each copy, each broker's report."""

    leaders: Mapping[PartitionKey, int]
    log_ends: Mapping[str, int]
    states: Mapping[str, State]
    reports: Mapping[int, Report]
    paused: frozenset[str] = frozenset()
    """Topics whose copies were told to pause."""
    left_out: frozenset[str] = frozenset()
    """Topics whose copies are not among those that were chosen."""
    promoted: Mapping[str, Promoted] = field(default_factory=dict)
    """Topics that were copies, with what they were copies of."""
    names: CopyNames = field(default_factory=CopyNames)


def bootstraps(heard: Heard) -> dict[str, str]:
    """Source → its brokers: as configured, else as a state has it."""
    found = {
        heard.names.source_of(topic_of(key)): state.source_bootstrap for key, state in heard.states.items()
    }
    return found | {s.name: s.bootstrap for report in heard.reports.values() for s in report.sources}


def overview(heard: Heard, source_ends: Mapping[str, Mapping[str, int]], now_ms: int) -> dict[str, list[Row]]:
    """The rows of the tables `sources`, `topics`, `partitions`, `promoted`, `aggregates` and `syncs`; `source_ends` by source
    and `<topic>-<partition>`.
    """
    reports = [report for _, report in sorted(heard.reports.items())]
    not_brought = {(t.source, t.topic): t.reason for report in reports for t in report.topics}
    return {
        "sources": [_source_row(report, s, now_ms) for report in reports for s in report.sources],
        "topics": [
            {"source": source, "topic": topic, "reason": reason}
            for (source, topic), reason in sorted(not_brought.items())
        ],
        "partitions": [
            _partition_row(place, heard, source_ends.get(heard.names.source_of(place[0]), {}), now_ms)
            for place in _places(heard)
        ],
        "promoted": [
            {"topic": topic, "source": heard.names.source_of(topic), "cluster": was.cluster or None}
            for topic, was in sorted(heard.promoted.items())
        ],
        "aggregates": [_aggregate_row(report, told, now_ms) for report, told in _aggregates(reports)],
        "syncs": [_sync_row(report, sync, now_ms) for report, sync in _syncs(reports)],
    }


def offsets_of(finding: CopyFinding) -> str:
    """The offsets that a finding is about, as `--offsets` takes them."""
    last = "LAST" if finding.last_offset == UNKNOWN else finding.last_offset
    return f"{finding.first_offset}-{last}"


def _places(heard: Heard) -> list[PartitionKey]:
    """Copies that there are; one without a leader, whose state cannot be read then, is known by its name."""
    sources = {s.name for report in heard.reports.values() for s in report.sources}
    return sorted(
        (topic, partition)
        for (topic, partition), leader in heard.leaders.items()
        if place_of(topic, partition).decode() in heard.states
        or (leader == NO_LEADER and "." in topic and heard.names.source_of(topic) in sources)
    )


def _source_row(report: Report, source: SourceReport, now_ms: int) -> Row:
    silence = _silence(report, now_ms)
    state = "unknown" if silence else source.state(now_ms)
    return {
        "source": source.name,
        "broker": report.broker,
        "bootstrap": source.bootstrap,
        "mode": AGGREGATE if source.is_aggregate else COPY,
        "state": state,
        "answered_seconds_ago": _seconds_ago(source.answered_ms, now_ms),
        "checked_seconds_ago": _seconds_ago(source.checked_ms, now_ms),
        "unchecked": source.unchecked,
        "reason": silence or source.problem or (source.check_problem if state == ANSWERS else None) or None,
    }


def _seconds_ago(at_ms: int | None, now_ms: int) -> float | None:
    return None if at_ms is None else max(0, now_ms - at_ms) / 1000


def _syncs(reports: Collection[Report]) -> list[tuple[Report, SyncReport]]:
    """What is brought of each source, by the newest report of it: another broker may have done it before."""
    found: dict[tuple[str, str], tuple[Report, SyncReport]] = {}
    for report in sorted(reports, key=lambda report: report.at_ms):
        found |= {(sync.source, sync.what): (report, sync) for sync in report.syncs}
    return [found[key] for key in sorted(found)]


def _aggregates(reports: Collection[Report]) -> list[tuple[Report, AggregateReport]]:
    """Each partition by the newest report of it, which is its owner's."""
    found: dict[tuple[str, str, int], tuple[Report, AggregateReport]] = {}
    for report in sorted(reports, key=lambda report: report.at_ms):
        found |= {(told.source, told.topic, told.partition): (report, told) for told in report.aggregates}
    return [found[key] for key in sorted(found)]


def _aggregate_row(report: Report, told: AggregateReport, now_ms: int) -> Row:
    silence = _silence(report, now_ms)
    return {
        "source": told.source,
        "topic": told.topic,
        "partition": told.partition,
        "owner": report.broker,
        "state": "unknown" if silence else told.state,
        "lag": None if silence else told.lag,
        "reason": silence or _reason_of(told) or None,
    }


def _reason_of(told: AggregateReport) -> str:
    if not told.rotten:
        return told.reason
    command = f"headrace mirror skip {told.source}.{told.topic} {told.partition} --offsets {told.rotten}"
    return f"{told.reason}; `{command}` gives it up"


def _sync_row(report: Report, sync: SyncReport, now_ms: int) -> Row:
    silence = _silence(report, now_ms)
    return {
        "source": sync.source,
        "what": sync.what,
        "broker": report.broker,
        "state": "unknown" if silence else FAILS if sync.problem else BROUGHT,
        "succeeded_seconds_ago": _seconds_ago(sync.succeeded_ms, now_ms),
        "in_step": sync.in_step,
        "left_alone": sync.left_alone,
        "behind": sync.behind,
        "reason": silence or sync.problem or None,
    }


def _silence(report: Report | None, now_ms: int) -> str:
    """Why a broker's report says nothing of now, or nothing."""
    if report is None:
        return "its broker reports nothing of its sources: see that broker's log"
    age_ms = now_ms - report.at_ms
    if age_ms <= STALE_AFTER_MS:
        return ""
    return f"broker {report.broker} last reported {age_ms // 1000} s ago by this host's clock: see its log, or set the clocks"


def _partition_row(place: PartitionKey, heard: Heard, source_ends: Mapping[str, int], now_ms: int) -> Row:
    topic, partition = place
    key = place_of(topic, partition).decode()
    found = heard.states.get(key)
    own_end = heard.log_ends.get(key)
    source_end = source_ends.get(f"{heard.names.original_of(topic)}-{partition}")
    state, reason = _condition(place, heard, found, now_ms)
    lag = None
    if own_end is not None and source_end is not None:
        next_offset = own_end if found is None else found.next_offset(own_end)
        lag = max(0, source_end - next_offset)
        if (
            found is not None
            and found.resumed_at == own_end
            and source_end < next_offset
            and state == COPYING
        ):
            state, reason, lag = WAITING, _passed_over(place, next_offset), None
    return {
        "topic": topic,
        "partition": partition,
        "state": state,
        "log_end_offset": own_end,
        "source_end_offset": source_end,
        "lag": lag,
        "begins_at": None if found is None else found.begins_at,
        "reason": reason or None,
    }


def _passed_over(place: PartitionKey, next_offset: int) -> str:
    """Why a resumed copy takes nothing of a source whose log is shorter."""
    return (
        f"it was resumed, and takes nothing before its source is past offset {next_offset}: "
        f"to have what the source has, delete {place[0]} here, and the mirror copies it anew"
    )


def _condition(place: PartitionKey, heard: Heard, found: State | None, now_ms: int) -> tuple[str, str]:
    """A partition's state in a word or two, and why it is not "copying"."""
    if found is not None and found.stopped is not None:
        return "stopped", f"{found.stopped.kind}: {found.stopped.reason}"
    if heard.leaders[place] == NO_LEADER:
        return "no leader", "no broker of the offline cluster leads it"
    return _damage(place, found) or _progress(place, heard, now_ms)


def _damage(place: PartitionKey, found: State | None) -> tuple[str, str] | None:
    """What is wrong with its data, if anything."""
    if found is not None and found.rotten is not None:
        offsets = offsets_of(found.rotten)
        command = f"headrace mirror skip {place[0]} {place[1]} --offsets {offsets}"
        return "rotten", f"offsets {offsets}: {found.rotten.reason}; `{command}` gives them up"
    if found is not None and found.different is not None:
        return "different", f"from offset {found.different.first_offset} on: {found.different.reason}"
    return None


def _progress(place: PartitionKey, heard: Heard, now_ms: int) -> tuple[str, str]:
    """As its broker reports."""
    report = heard.reports.get(heard.leaders[place])
    silence = _silence(report, now_ms)
    if report is None or silence:
        return "unknown", silence
    remote = heard.names.remote_of(place[0])
    if heard.names.topic_of(remote) != place[0]:
        return NOT_MIRRORED, f"{heard.names.topic_of(remote)} is the copy of that name"
    name = heard.names.source_of(place[0])
    source = next((s for s in report.sources if s.name == name), None)
    if source is None:
        return NOT_MIRRORED, f"broker {report.broker} has no source {name}"
    if place[0] in heard.left_out:
        return LEFT_OUT, f"`headrace mirror topics {source.name}` chose others"
    state = source.state(now_ms)
    if state != ANSWERS:
        return f"source {state}", f"{source.name} at {source.bootstrap}: {source.problem or 'no answer'}"
    if place[0] in heard.paused:
        return PAUSED, f"`headrace mirror resume {place[0]}` lets it go on"
    told = next((p for p in report.partitions if (p.topic, p.partition) == place), None)
    if told is not None:
        return told.state, told.reason
    if len(report.partitions) >= LISTED_MAX:
        return "unknown", f"its broker lists only the first {LISTED_MAX} partitions that wait"
    return COPYING, ""
