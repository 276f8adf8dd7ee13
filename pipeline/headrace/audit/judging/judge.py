"""The tiers of one stream are compared: what was lost or doubled at which hop, and what is on its way.

Owns what counts as a fault. Neighbouring tiers are compared as multisets of sequences, so a lost event and a doubled
one never cancel out. Rules:
- an absence is a loss only where the later tier is known to be past the event: the live counts are past an account when
  a barrier taken after that account is in force; the offline counts and the warehouse are past offsets below their
  position. Otherwise the event is under way, and the report incomplete;
- sequences that a producer calls failed or unknown may be there or not; more copies than the tier before has are
  duplicates; so is each copy of an event that was settled before;
- what may lie in offsets that a tier could never count is neither lost nor doubled there, but the report incomplete;
- what compaction removed is neither lost nor doubled (see `compaction`).
Pure: evidence in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from headrace.audit.judging import compaction
from headrace.audit.judging.evidence import Evidence
from headrace.audit.latency import HOPS, Hop
from headrace.audit.outcome import Counts, Finding, Incomplete, Kind
from headrace.audit.parcels import Tier
from headrace.audit.period import Period
from headrace.audit.windows import EMPTY, Depth, Stream, excess, is_same, once, total, within

FINDINGS_MAX: Final = 10_000
"""Findings of one kind, hop and stream that are listed; totals count all."""
AGAIN_REASON: Final = "it came again after its window was settled, and is told of where it came"


@dataclass(slots=True)
class Judged:
    counts: Counts = field(default_factory=Counts)
    findings: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    hops: dict[Hop, Counts] = field(default_factory=lambda: {hop: Counts() for hop in HOPS})
    lost: dict[Hop, Depth] = field(default_factory=dict)
    under_way: list[Depth] = field(default_factory=list)

    @property
    def is_plain(self) -> bool:
        """Whether each event that a producer accounts for is in each tier once, and nothing else is anywhere."""
        counts = self.counts
        return (
            not (self.findings or self.incomplete)
            and all(found == Counts() for found in self.hops.values())
            and counts.produced == counts.live == counts.offline
        )


def judge(evidence: Evidence) -> Judged:
    """Compare the tiers of one stream."""
    judged = Judged()
    accounts = evidence.accounts
    expected = evidence.expected
    if _is_whole(evidence):
        n = expected.count
        judged.counts = Counts(n, n, n, n if evidence.is_loaded else evidence.warehouse.count)
        return judged
    judged_accounts = once(excess(accounts.acknowledged, accounts.unjudged))
    judged.counts = Counts(
        expected.count, evidence.live.count, evidence.offline.count, evidence.warehouse.count
    )
    live, offline, warehouse = evidence.live, evidence.offline, evidence.warehouse
    further = live if evidence.stream.is_again else excess(live, once(live))
    hops = [
        _Hop(
            "producer_to_live",
            missing=excess(expected, live),
            lost=excess(judged_accounts, live),
            ahead=further,
            doubled=further,
            unseen=accounts.unjudged,
        )
    ]
    # Between tiers that are the same nothing is to be judged.
    if not is_same(live, offline):
        hops.append(
            _Hop(
                "live_to_offline",
                missing=excess(live, offline),
                lost=excess(evidence.live_passed, offline),
                ahead=excess(offline, live),
                doubled=excess(evidence.offline_mirrored, live),
                unseen=_unseen(evidence, "live", "offline"),
            )
        )
    if evidence.is_loaded and not is_same(offline, warehouse):
        hops.append(
            _Hop(
                "offline_to_warehouse",
                missing=excess(offline, warehouse),
                lost=excess(evidence.offline_passed, warehouse),
                ahead=excess(warehouse, offline),
                doubled=excess(evidence.warehouse_loaded, offline),
                unseen=_unseen(evidence, "offline", "warehouse"),
            )
        )
    for hop in hops:
        _judge_hop(judged, evidence, _excused(hop, evidence.compacted))
    judged.hops["producer_to_live"].unknown += evidence.beyond_accounts.count
    return judged


def _is_whole(evidence: Evidence) -> bool:
    """Whether each event that the producer accounts for is in each tier once, and nothing else is anywhere."""
    tiers = (evidence.live, evidence.offline, *((evidence.warehouse,) if evidence.is_loaded else ()))
    return not evidence.stream.is_again and all(is_same(evidence.expected, tier) for tier in tiers)


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


def _judge_hop(judged: Judged, evidence: Evidence, hop: _Hop) -> None:
    source, target = ENDS[hop.name]
    missing, ahead = excess(hop.missing, hop.lost), excess(hop.ahead, hop.doubled)
    unseen = [within(found, hop.unseen) for found in (missing, ahead)]
    waiting, early, unknown = excess(missing, unseen[0]), excess(ahead, unseen[1]), total(unseen)
    faults: tuple[tuple[Kind, Depth], ...] = (("loss", hop.lost), ("duplicate", hop.doubled))
    for kind, found in faults:
        explained, rest = (
            _passed_over(evidence, found) if kind == "loss" and target == "warehouse" else ([], found)
        )
        judged.findings += [*explained, *findings_of(kind, hop.name, evidence, rest)]
    for counts in (judged.counts, judged.hops[hop.name]):
        counts.lost += hop.lost.count
        counts.duplicated += hop.doubled.count
        counts.under_way += missing.count
        counts.compacted += hop.compacted.count
    is_counted = target not in evidence.uncounted
    judged.hops[hop.name].under_way = waiting.count if is_counted else 0
    judged.hops[hop.name].unknown = unknown.count + early.count + (0 if is_counted else waiting.count)
    judged.lost[hop.name] = hop.lost
    judged.under_way += [waiting, early]
    advice = "" if is_counted else _uncounted(evidence.stream, target)
    reasons = (
        (waiting, f"are on their way from {source} to {target}{advice}"),
        (early, f"are counted in {target}, but not in {source} yet"),
        (unknown, f"from {source} to {target} may lie in offsets that were never counted"),
    )
    judged.incomplete += [
        incomplete_of(evidence.stream, f"{found.count} events {reason}", evidence.span(found), hop.name)
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
            for finding in findings_of("loss", "offline_to_warehouse", evidence, there)
        ]
    return found, lost


def findings_of(kind: Kind, hop: Hop, evidence: Evidence, found: Depth, reason: str = "") -> list[Finding]:
    if not found.count:
        return []
    runs = found.runs()[:FINDINGS_MAX]
    table = evidence.table
    reason = reason or (AGAIN_REASON if evidence.stream.is_again else "")
    # What came late for its window is the odd one among the sequences around it.
    window_of = table.earliest if reason else table.latest
    return [
        Finding(
            kind=kind,
            hop=hop,
            stream=evidence.stream._replace(producer=evidence.stream.producer_name),
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


def incomplete_of(stream: Stream, reason: str, period: Period, hop: Hop | Literal[""] = "") -> Incomplete:
    return Incomplete(
        datacenter=stream.datacenter,
        topic=stream.topic,
        producer=stream.producer_name,
        reason=reason,
        period=period,
        hop=hop,
    )
