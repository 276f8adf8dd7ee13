"""The ledger's tiers are compared: what was lost, doubled or late at which hop, what is under way, and the verdict.

Owns what counts as a fault. Neighbouring tiers are compared as multisets of sequences, so a lost event and a doubled
one never cancel out. Rules:
- an absence is a loss only where the later tier is known to be past the event: the live counts are past an account when
  a barrier taken after that account is in force; the offline counts and the warehouse are past offsets below their
  position. Otherwise the event is under way, and the report incomplete;
- sequences that a producer calls failed or unknown may be there or not; more copies than the tier before has are
  duplicates;
- what may lie in offsets that a tier could never count is neither lost nor doubled there, but the report incomplete;
- what compaction removed is neither lost nor doubled (see `compaction`);
- a producer that has not closed leaves the windows incomplete that it has not promised, and is named;
- a hop is judged only between two tiers that are both counted, and only for events that a producer accounts for: of
  others it is unknown whether any was lost.
Pure: the ledger in, values out.
"""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from headrace.audit import compaction
from headrace.audit.evidence import Evidence, gather, within_period
from headrace.audit.latency import HOPS, Hop
from headrace.audit.ledger import Ledger
from headrace.audit.outcome import Counts, Finding, Incomplete, Kind, Outcome, verdict_of, verdicts
from headrace.audit.parcels import Counter, Tier
from headrace.audit.period import ALWAYS, BEGIN_MS, END_MS, Period
from headrace.audit.records import Counted
from headrace.audit.watermark import SILENT_AFTER_MS, Watermarks, standing_of
from headrace.audit.windows import EMPTY, Depth, Stream, excess, once, total, within

FINDINGS_MAX: Final = 10_000
"""Findings of one kind, hop and stream that are listed; totals count all."""
OVERDUE: Final = "it came after its window had been told to be whole"


@dataclass(slots=True)
class _Judged:
    counts: Counts = field(default_factory=Counts)
    findings: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    hops: dict[Hop, Counts] = field(default_factory=lambda: {hop: Counts() for hop in HOPS})
    unresolved: list[Depth] = field(default_factory=list)
    """What is lost or under way."""


def reconcile(
    ledger: Ledger, now_ms: int, *, period: Period = ALWAYS, silent_after_ms: int = SILENT_AFTER_MS
) -> Outcome:
    """Judge what the ledger knows of the windows that reach into a period; watermarks are those of everything."""
    outcome = Outcome(period=period)
    watermarks = Watermarks()
    for evidence in _with_compaction(ledger, gather(ledger)):
        whole = judge(evidence)
        heard_until_ms = ledger.heard_until.get(evidence.stream.datacenter, 0)
        standing = standing_of(evidence, heard_until_ms, now_ms, silent_after_ms)
        watermarks.add(evidence, standing, whole.unresolved)
        part = within_period(evidence, period)
        found = whole if part is evidence else judge(part)
        if standing.unknown:
            found.incomplete.append(_incomplete(evidence.stream, standing.reason, standing.unknown))
        _collect(outcome, evidence, found)
        outcome.beyond.add(_left_out(whole.counts, found.counts))
        outcome.findings += _late(ledger, part)
    outcome.findings.sort(key=lambda found: (_ORDER.index(found.kind), HOPS.index(found.hop)))
    _add_mirror_findings(outcome, ledger)
    _add_passings(outcome, ledger)
    outcome.incomplete += _not_counted(ledger)
    if not outcome.topics:
        outcome.incomplete.append(
            Incomplete(datacenter="", topic="", producer="", reason="no producer is known yet")
        )
    for (tier, datacenter, topic), count in ledger.foreign.items():
        if tier == "live" and count:
            # A topic of records without an envelope is told of, too, though there is nothing to judge.
            outcome.topics.setdefault((datacenter, topic), Counts())
    outcome.findings = [item for item in outcome.findings if _is_of(item, period)]
    outcome.incomplete = [item for item in outcome.incomplete if period.overlaps(*item.period)]
    outcome.watermarks = _told(ledger, watermarks.found())
    outcome.verdict = verdict_of(item.verdict for item in verdicts(outcome))
    return outcome


_ORDER: Final[tuple[Kind, ...]] = ("loss", "duplicate", "late", "truncation", "recreation")
_MIRROR_KINDS: Final[Mapping[str, Kind]] = {
    "truncation": "truncation",
    "recreation": "recreation",
    "loss": "loss",
}
"""Findings of the mirror that are findings of the audit; others are reasons why it is not complete."""


def _is_of(item: Finding, period: Period) -> bool:
    """Whether a finding is of a period; those of sequences were chosen with these."""
    return item.first_sequence >= 0 or period.overlaps(item.window_start, item.window_end)


def _left_out(whole: Counts, part: Counts) -> Counts:
    return Counts(
        lost=whole.lost - part.lost,
        duplicated=whole.duplicated - part.duplicated,
        under_way=whole.under_way - part.under_way,
    )


def _told(ledger: Ledger, found: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """A watermark that was told never goes back."""
    told = {key: promise.until_ms for key, promise in ledger.promised.items()}
    return {key: max(found.get(key, 0), told.get(key, 0)) for key in found.keys() | told.keys()}


def _with_compaction(ledger: Ledger, gathered: list[Evidence]) -> list[Evidence]:
    """Add to each stream which faults of its topic compaction explains, all streams of the topic together."""
    faults: dict[tuple[str, str], Multiset[compaction.Fault]] = {}
    for evidence in gathered:
        if compaction.is_compacted(ledger, *evidence.topic):
            found = faults.setdefault(evidence.topic, Multiset())
            for hop, counts in judge(evidence).hops.items():
                found.update({(hop, "loss"): counts.lost, (hop, "duplicate"): counts.duplicated})
    explained = {topic: compaction.explained(ledger, *topic, found) for topic, found in faults.items()}
    return [
        replace(evidence, compacted=explained[evidence.topic]) if evidence.topic in explained else evidence
        for evidence in gathered
    ]


def judge(evidence: Evidence) -> _Judged:
    """Compare the tiers of one stream."""
    judged = _Judged()
    accounts = evidence.accounts
    expected = evidence.expected
    judged_accounts = once(excess(accounts.acknowledged, accounts.unjudged))
    judged.counts = Counts(
        expected.count, evidence.live.count, evidence.offline.count, evidence.warehouse.count
    )
    live, offline, warehouse = evidence.live, evidence.offline, evidence.warehouse
    hops = [
        _Hop(
            "producer_to_live",
            missing=excess(expected, live),
            lost=excess(judged_accounts, live),
            ahead=excess(live, once(live)),
            doubled=excess(live, once(live)),
            unseen=accounts.unjudged,
        ),
        _Hop(
            "live_to_offline",
            missing=excess(live, offline),
            lost=excess(evidence.live_passed, offline),
            ahead=excess(offline, live),
            doubled=excess(evidence.offline_mirrored, live),
            unseen=_unseen(evidence, "live", "offline"),
        ),
        _Hop(
            "offline_to_warehouse",
            missing=excess(offline, warehouse),
            lost=excess(evidence.offline_passed, warehouse),
            ahead=excess(warehouse, offline),
            doubled=excess(evidence.warehouse_loaded, offline),
            unseen=_unseen(evidence, "offline", "warehouse"),
        ),
    ]
    for hop in hops if evidence.is_loaded else hops[:2]:
        _judge_hop(judged, evidence, _excused(hop, evidence.compacted))
    judged.hops["producer_to_live"].unknown += evidence.beyond_accounts.count
    return judged


class _Hop(NamedTuple):
    """`missing`: what the later tier has less, of it `lost` what it should have; `ahead`, `doubled`: what it has more."""

    name: Hop
    missing: Depth
    lost: Depth
    ahead: Depth
    doubled: Depth
    unseen: Depth
    """What may lie in offsets that one of both tiers never counted, so that nobody can say."""
    compacted: Depth = EMPTY
    """What the later tier has less because compaction removed it."""


def _excused(hop: _Hop, compacted: frozenset[compaction.Fault]) -> _Hop:
    """Take what compaction removed out of a hop's faults."""
    if (hop.name, "loss") in compacted:
        removed = hop.lost
        hop = hop._replace(missing=excess(hop.missing, removed), lost=EMPTY, compacted=removed)
    if (hop.name, "duplicate") in compacted:
        hop = hop._replace(ahead=excess(hop.ahead, hop.doubled), doubled=EMPTY)
    return hop


def _unseen(evidence: Evidence, source: Tier, target: Tier) -> Depth:
    return total(evidence.unseen.get(pair, EMPTY) for pair in ((source, target), (target, source)))


def _judge_hop(judged: _Judged, evidence: Evidence, hop: _Hop) -> None:
    source, target = ENDS[hop.name]
    missing, ahead = excess(hop.missing, hop.lost), excess(hop.ahead, hop.doubled)
    unseen = [within(found, hop.unseen) for found in (missing, ahead)]
    waiting, early, unknown = excess(missing, unseen[0]), excess(ahead, unseen[1]), total(unseen)
    faults: tuple[tuple[Kind, Depth], ...] = (("loss", hop.lost), ("duplicate", hop.doubled))
    for kind, found in faults:
        explained, rest = (
            _passed_over(evidence, found) if kind == "loss" and target == "warehouse" else ([], found)
        )
        judged.findings += [*explained, *_findings(kind, hop.name, evidence, rest)]
    for counts in (judged.counts, judged.hops[hop.name]):
        counts.lost += hop.lost.count
        counts.duplicated += hop.doubled.count
        counts.under_way += missing.count
        counts.compacted += hop.compacted.count
    is_counted = target not in evidence.uncounted
    judged.hops[hop.name].under_way = waiting.count if is_counted else 0
    judged.hops[hop.name].unknown = unknown.count + early.count + (0 if is_counted else waiting.count)
    judged.unresolved += [hop.lost, waiting, early]
    advice = "" if is_counted else _uncounted(evidence.stream, target)
    reasons = (
        (waiting, f"are on their way from {source} to {target}{advice}"),
        (early, f"are counted in {target}, but not in {source} yet"),
        (unknown, f"from {source} to {target} may lie in offsets that were never counted"),
    )
    judged.incomplete += [
        _incomplete(evidence.stream, f"{found.count} events {reason}", evidence.span(found))
        for found, reason in reasons
        if found.count
    ]


ENDS: Final[Mapping[Hop, tuple[str, str]]] = {
    "producer_to_live": ("producer", "live"),
    "live_to_offline": ("live", "offline"),
    "offline_to_warehouse": ("offline", "warehouse"),
}


def _passed_over(evidence: Evidence, lost: Depth) -> tuple[list[Finding], Depth]:
    """Return the losses where the load was told to pass something over, and the other ones."""
    found: list[Finding] = []
    for item, copies in evidence.passed_over:
        there = within(lost, copies)
        lost = excess(lost, there)
        found += [
            replace(
                finding,
                partition=item.place.partition,
                first_offset=item.first,
                last_offset=item.next - 1,
                reason=f"the load was told to pass over these offsets ({item.kind}: {item.reason})",
            )
            for finding in _findings("loss", "offline_to_warehouse", evidence, there)
        ]
    return found, lost


def _findings(kind: Kind, hop: Hop, evidence: Evidence, found: Depth, reason: str = "") -> list[Finding]:
    runs = found.runs()[:FINDINGS_MAX]
    if not runs:
        return []
    table = evidence.table()
    # What came late for its window is the odd one among the sequences around it.
    window_of = table.earliest if reason else table.latest
    return [
        Finding(
            kind=kind,
            hop=hop,
            stream=evidence.stream,
            first_sequence=run.first,
            last_sequence=run.last,
            count=run.total,
            window_start=window_of(run.first),
            window_end=window_of(run.last) + evidence.window_size_ms,
            reason=reason,
        )
        for run in runs
    ]


def _uncounted(stream: Stream, tier: str) -> str:
    """Say what is to be done where the tier that should have events is not counted at all."""
    name = f"{stream.datacenter}.{stream.topic}" if tier == "offline" else stream.topic
    return f", but no counter counts the topic {name} in the {tier} cluster: name it in --topics of headrace audit count"


def _incomplete(stream: Stream, reason: str, period: Period) -> Incomplete:
    return Incomplete(
        datacenter=stream.datacenter,
        topic=stream.topic,
        producer=stream.producer,
        reason=reason,
        period=period,
    )


def _collect(outcome: Outcome, evidence: Evidence, judged: _Judged) -> None:
    key = (evidence.stream.datacenter, evidence.stream.topic)
    if judged.counts != Counts():
        outcome.uncounted |= {(tier, *key) for tier in evidence.uncounted}
    outcome.topics.setdefault(key, Counts()).add(judged.counts)
    for hop, counts in judged.hops.items():
        outcome.hops.setdefault((*key, hop), Counts()).add(counts)
    outcome.findings += judged.findings
    outcome.incomplete += judged.incomplete


def _late(ledger: Ledger, evidence: Evidence) -> Iterable[Finding]:
    """Name what came after its window, and what came late by its latencies, once each."""
    overdue = evidence.overdue
    yield from _findings("late", HOPS[0], evidence, overdue, OVERDUE)
    for hop in HOPS:
        late = evidence.of_period(ledger.latencies.late.get((hop, evidence.stream), EMPTY))
        yield from _findings("late", hop, evidence, excess(late, within(late, overdue)))


def _add_mirror_findings(outcome: Outcome, ledger: Ledger) -> None:
    for found in sorted(ledger.mirror_findings.values(), key=lambda item: item.detected_ms):
        where = f"partition {found.partition}, offsets {found.first_offset} to {found.last_offset}"
        kind = _MIRROR_KINDS.get(found.kind)
        if kind is not None:
            outcome.findings.append(
                Finding(
                    kind=kind,
                    hop="live_to_offline",
                    stream=Stream(found.datacenter, found.topic, ""),
                    first_sequence=-1,
                    last_sequence=-1,
                    count=max(0, found.last_offset - found.first_offset + 1),
                    window_start=found.detected_ms,
                    window_end=found.detected_ms + 1,
                    partition=found.partition,
                    first_offset=found.first_offset,
                    last_offset=found.last_offset,
                    reason=found.reason,
                )
            )
        else:
            outcome.incomplete.append(
                Incomplete(
                    datacenter=found.datacenter,
                    topic=found.topic,
                    producer="",
                    reason=f"the mirror reports {found.kind} in {where}: {found.reason}",
                    period=Period(found.detected_ms, found.detected_ms + 1),
                )
            )


def _add_passings(outcome: Outcome, ledger: Ledger) -> None:
    """Name where the load went on in another log, and what it passed over that nobody had counted."""
    for item in ledger.passings.known:
        if item.kind == "truncation" or item.kind == "recreation":
            outcome.findings.append(
                Finding(
                    kind="truncation" if item.kind == "truncation" else "recreation",
                    hop="offline_to_warehouse",
                    stream=Stream(item.place.datacenter, item.place.topic, ""),
                    first_sequence=-1,
                    last_sequence=-1,
                    count=max(0, item.next - item.first),
                    window_start=item.at_ms,
                    window_end=item.at_ms + 1,
                    partition=item.place.partition,
                    first_offset=item.first,
                    last_offset=max(item.first, item.next - 1),
                    reason=f"the load was told to go on at offset {item.next} of another log: {item.reason}",
                )
            )
        if not ledger.is_counted("offline", item.place, item.first, item.next):
            outcome.incomplete.append(
                Incomplete(
                    datacenter=item.place.datacenter,
                    topic=item.place.topic,
                    producer="",
                    reason=f"the load was told to pass over offsets {item.first} to {item.next - 1} of partition "
                    f"{item.place.partition}, which are not all counted in the offline cluster, so that it is unknown what was "
                    f"lost there ({item.kind}: {item.reason})",
                    period=Period(item.at_ms, item.at_ms + 1),
                )
            )


def _not_counted(ledger: Ledger) -> Iterable[Incomplete]:
    """Name what the counters could not count, and what the audit could not read."""
    for counter, skips in sorted(ledger.skipped.items()):
        yield from (_of_partition(counter, reason, period) for reason, period in skips)
    for counter, reason in sorted(ledger.standstills.items()):
        yield _of_partition(counter, reason, Period(_counted_ms(ledger, counter), END_MS))
    for counter, coverage in sorted(ledger.coverage.items(), key=lambda item: item[0]):
        if coverage.gap:
            reason = f"offsets {coverage.gap[0]} to {coverage.gap[1] - 1} are not counted yet"
            yield _of_partition(counter, reason, Period(_counted_ms(ledger, counter), END_MS))
    for partition in sorted(ledger.unread):
        yield Incomplete(
            datacenter="",
            topic="",
            producer="",
            reason=f"{partition.topic}-{partition.partition} of the offline cluster cannot be read now: no leader answers",
        )
    for sentence, period in ledger.problems.items():
        yield Incomplete(datacenter="", topic="", producer="", reason=sentence, period=period)


def _of_partition(counter: Counter, reason: str, period: Period) -> Incomplete:
    return Incomplete(
        datacenter=counter.place.datacenter,
        topic=counter.place.topic,
        producer="",
        reason=f"partition {counter.place.partition} in the {counter.tier} cluster: {reason}",
        period=period,
    )


def _counted_ms(ledger: Ledger, counter: Counter) -> int:
    """Return when a partition was last counted without a gap, by the counter's clock."""
    coverage = ledger.coverage.get(counter)
    chain = coverage.chain if coverage is not None else ()
    return max((link.at_ms for link in chain if isinstance(link, Counted)), default=BEGIN_MS)
