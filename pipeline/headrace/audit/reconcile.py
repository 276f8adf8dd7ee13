"""The ledger's tiers are compared: what was lost, doubled or late at which hop, what is under way, and the verdict.

Owns what counts as a fault. Neighbouring tiers are compared as multisets of sequences, so a lost event and a doubled
one never cancel out. Rules:
- an absence is a loss only where the later tier is known to be past the event: the live counts are past an account when
  a barrier taken after that account is in force; the offline counts and the warehouse are past offsets below their
  position. Otherwise the event is under way, and the report incomplete;
- sequences that a producer calls failed or unknown may be there or not; more copies than the tier before has are
  duplicates;
- what may lie in offsets that a tier could never count is neither lost nor doubled there, but the report incomplete;
- a producer that has not closed leaves the report incomplete, and is named;
- a hop is judged only between two tiers that are both counted, and only for events that a producer accounts for: of
  others it is unknown whether any was lost.
Pure: the ledger in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Final, Literal, NamedTuple

import numpy as np

from headrace.audit.latency import HOPS, Hop
from headrace.audit.ledger import COUNTED_TIERS, TIERS, Accounts, Ledger, Tier, is_rejected
from headrace.audit.windows import EMPTY, Depth, Int64s, Stream, excess, once, total, within

Verdict = Literal["complete", "loss", "duplicates", "incomplete"]
Kind = Literal["loss", "duplicate", "late", "truncation", "recreation"]
SILENT_AFTER_MS: Final = 60_000
FINDINGS_MAX: Final = 10_000
"""Findings of one kind, hop and stream that are listed; totals count all."""
STOPPED_BY_FINDING: Final = ("truncation", "recreation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`window_start` is in milliseconds, of the first sequence; -1: unknown. Offsets only where sequences are not known."""

    kind: Kind
    hop: Hop
    stream: Stream
    first_sequence: int
    last_sequence: int
    count: int
    window_start: int
    partition: int = -1
    first_offset: int = -1
    last_offset: int = -1
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomplete:
    """Why the report is not complete; the producer is empty where it is a whole topic's matter."""

    datacenter: str
    topic: str
    producer: str
    reason: str


@dataclass(slots=True)
class Counts:
    """Events by tier (all copies), and the faults between them."""

    produced: int = 0
    live: int = 0
    offline: int = 0
    warehouse: int = 0
    lost: int = 0
    duplicated: int = 0
    under_way: int = 0
    unknown: int = 0
    """Of a hop: events that it cannot judge, because the tier before or behind it does not know of them."""

    def add(self, other: Counts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the audit says; `complete_until` is in milliseconds, None without data."""

    verdict: Verdict
    complete_until: int | None
    topics: dict[tuple[str, str], Counts]
    hops: dict[tuple[str, str, Hop], Counts]
    """Faults by datacenter, topic and hop."""
    uncounted: set[tuple[Tier, str, str]]
    """Tiers of (datacenter, topic) that no counter counts although there are events."""
    findings: list[Finding]
    incomplete: list[Incomplete]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one stream: all copies seen in each tier, and those of them that a neighbour is past."""

    stream: Stream
    accounts: Accounts
    live: Depth = EMPTY
    offline: Depth = EMPTY
    warehouse: Depth = EMPTY
    live_passed: Depth = EMPTY
    """Offline is past these."""
    offline_mirrored: Depth = EMPTY
    """Live is past these."""
    offline_passed: Depth = EMPTY
    """The warehouse is past these."""
    warehouse_loaded: Depth = EMPTY
    """Offline is past these."""
    unseen: Mapping[tuple[Tier, Tier], Depth] = field(default_factory=dict)
    """What of a tier may lie in offsets that a neighbour, which is past them, never counted."""
    is_loaded: bool = True
    uncounted: frozenset[Tier] = frozenset()


@dataclass(slots=True)
class _Judged:
    counts: Counts = field(default_factory=Counts)
    findings: list[Finding] = field(default_factory=list)
    incomplete: list[Incomplete] = field(default_factory=list)
    hops: dict[Hop, Counts] = field(default_factory=lambda: {hop: Counts() for hop in HOPS})
    unresolved: list[int] = field(default_factory=list)
    """Lowest sequence of each thing that is missing or under way."""


def reconcile(ledger: Ledger, now_ms: int) -> Outcome:
    """Judge everything that the ledger knows."""
    outcome = Outcome(
        verdict="complete",
        complete_until=None,
        topics={},
        hops={},
        uncounted=set(),
        findings=[],
        incomplete=[],
    )
    bounds: list[int] = []
    closings: list[int] = []
    for evidence in _evidence(ledger):
        judged = judge(evidence, ledger.windows.get(evidence.stream, {}), now_ms)
        _collect(outcome, evidence, judged)
        if judged.unresolved or not evidence.accounts.is_closed:
            bounds.append(_bound(evidence, judged, ledger.windows.get(evidence.stream, {})))
        closings.append(evidence.accounts.complete_until)
    outcome.findings.sort(key=lambda found: (found.kind != "loss", HOPS.index(found.hop)))
    outcome.findings += _late(ledger)
    _add_mirror_findings(outcome, ledger)
    outcome.incomplete += _not_counted(ledger)
    if not outcome.topics:
        outcome.incomplete.append(
            Incomplete(datacenter="", topic="", producer="", reason="no producer is known yet")
        )
    outcome.complete_until = min(bounds) if bounds else max(closings, default=None)
    outcome.verdict = _verdict(outcome)
    return outcome


def judge(evidence: Evidence, windows: Mapping[int, list[int]], now_ms: int) -> _Judged:
    """Compare the tiers of one stream."""
    judged = _Judged()
    accounts = evidence.accounts
    expected = once(total((accounts.acknowledged, *(item.acknowledged for item in accounts.open))))
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
        _judge_hop(judged, evidence, windows, hop)
    unaccounted = _beyond_accounts(evidence, expected).count
    judged.hops["producer_to_live"].unknown += unaccounted
    reason = _unaccounted(evidence, expected, unaccounted, now_ms)
    if reason:
        judged.incomplete.append(_incomplete(evidence.stream, reason))
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


def _unseen(evidence: Evidence, source: Tier, target: Tier) -> Depth:
    return total(evidence.unseen.get(pair, EMPTY) for pair in ((source, target), (target, source)))


def _judge_hop(judged: _Judged, evidence: Evidence, windows: Mapping[int, list[int]], hop: _Hop) -> None:
    source, target = ENDS[hop.name]
    missing, ahead = excess(hop.missing, hop.lost), excess(hop.ahead, hop.doubled)
    unseen = [within(found, hop.unseen) for found in (missing, ahead)]
    waiting, early, unknown = excess(missing, unseen[0]), excess(ahead, unseen[1]), total(unseen)
    faults: tuple[tuple[Kind, Depth], ...] = (("loss", hop.lost), ("duplicate", hop.doubled))
    for kind, found in faults:
        judged.findings += _findings(kind, hop.name, evidence.stream, found, windows)
    for counts in (judged.counts, judged.hops[hop.name]):
        counts.lost += hop.lost.count
        counts.duplicated += hop.doubled.count
        counts.under_way += missing.count
    is_counted = target not in evidence.uncounted
    judged.hops[hop.name].under_way = waiting.count if is_counted else 0
    judged.hops[hop.name].unknown = unknown.count + early.count + (0 if is_counted else waiting.count)
    judged.unresolved += [found.first for found in (hop.lost, waiting, early) if found.count]
    advice = "" if is_counted else _uncounted(evidence.stream, target)
    reasons = (
        (waiting, f"are on their way from {source} to {target}{advice}"),
        (early, f"are counted in {target}, but not in {source} yet"),
        (unknown, f"from {source} to {target} may lie in offsets that were never counted"),
    )
    judged.incomplete += [
        _incomplete(evidence.stream, f"{found.count} events {reason}")
        for found, reason in reasons
        if found.count
    ]


ENDS: Final[Mapping[Hop, tuple[str, str]]] = {
    "producer_to_live": ("producer", "live"),
    "live_to_offline": ("live", "offline"),
    "offline_to_warehouse": ("offline", "warehouse"),
}


def _findings(
    kind: Kind, hop: Hop, stream: Stream, found: Depth, windows: Mapping[int, list[int]]
) -> list[Finding]:
    runs = found.runs()[:FINDINGS_MAX]
    if not runs:
        return []
    known = _table(windows)
    return [
        Finding(
            kind=kind,
            hop=hop,
            stream=stream,
            first_sequence=run.first,
            last_sequence=run.last,
            count=run.total,
            window_start=_window_of(known, run.first),
        )
        for run in runs
    ]


def window_of(windows: Mapping[int, list[int]], sequence: int) -> int:
    """Return the start of the latest window that a sequence may be in; -1 where none is known."""
    return _window_of(_table(windows), sequence)


def _table(windows: Mapping[int, list[int]]) -> Int64s:
    """Return a row for each window: its start, its first and its last sequence."""
    return np.array([(start, *ends) for start, ends in windows.items()], dtype=np.int64).reshape(-1, 3)


def _window_of(known: Int64s, sequence: int) -> int:
    holds = (known[:, 1] <= sequence) & (sequence <= known[:, 2])
    return int(known[holds, 0].max(initial=-1))


def _uncounted(stream: Stream, tier: str) -> str:
    """Say what is to be done where the tier that should have events is not counted at all."""
    name = f"{stream.datacenter}.{stream.topic}" if tier == "offline" else stream.topic
    return f", but no counter counts the topic {name} in the {tier} cluster: name it in --topics of headrace audit count"


def _beyond_accounts(evidence: Evidence, expected: Depth) -> Depth:
    """Return the events, once each, that are somewhere, but in none of their producer's accounts."""
    seen = once(total((evidence.live, evidence.offline, evidence.warehouse)))
    return excess(seen, total((expected, evidence.accounts.undelivered)))


def _unaccounted(evidence: Evidence, expected: Depth, ahead: int, now_ms: int) -> str | None:
    """Say why a producer's accounts are not whole, if so."""
    accounts = evidence.accounts
    if not accounts.heard_at:
        return "no account of this producer has arrived, only its events"
    if accounts.is_closed:
        accounted = total((expected, once(accounts.undelivered)))
        missing = accounts.next_sequence - once(accounted).count
        if missing > 0:
            return f"{missing} sequences are in none of the producer's accounts"
        return f"{ahead} of its events are in no account" if ahead else None
    silent_ms = max(0, now_ms - accounts.heard_at)
    beyond = f", {ahead} of its events are in no account" if ahead else ""
    if silent_ms >= SILENT_AFTER_MS:
        return f"the producer went silent {silent_ms // 1000} s ago without closing{beyond}"
    return f"the producer has not closed, its last account is {silent_ms // 1000} s old{beyond}"


def _incomplete(stream: Stream, reason: str) -> Incomplete:
    return Incomplete(
        datacenter=stream.datacenter, topic=stream.topic, producer=stream.producer, reason=reason
    )


def _bound(evidence: Evidence, judged: _Judged, windows: Mapping[int, list[int]]) -> int:
    """Return the time up to which one stream is whole."""
    times = [window_of(windows, first) for first in judged.unresolved]
    if not evidence.accounts.is_closed:
        times.append(evidence.accounts.complete_until)
    return max(0, min(times))


def _collect(outcome: Outcome, evidence: Evidence, judged: _Judged) -> None:
    key = (evidence.stream.datacenter, evidence.stream.topic)
    if judged.counts != Counts():
        outcome.uncounted |= {(tier, *key) for tier in evidence.uncounted}
    outcome.topics.setdefault(key, Counts()).add(judged.counts)
    for hop, counts in judged.hops.items():
        outcome.hops.setdefault((*key, hop), Counts()).add(counts)
    outcome.findings += judged.findings
    outcome.incomplete += judged.incomplete


def _late(ledger: Ledger) -> Iterable[Finding]:
    for (hop, stream), found in sorted(ledger.latencies.late.items(), key=lambda item: item[0]):
        yield from _findings("late", hop, stream, found, ledger.windows.get(stream, {}))


def _add_mirror_findings(outcome: Outcome, ledger: Ledger) -> None:
    for found in sorted(ledger.mirror_findings.values(), key=lambda item: item.detected_ms):
        where = f"partition {found.partition}, offsets {found.first_offset} to {found.last_offset}"
        if found.kind == "truncation" or found.kind == "recreation":
            outcome.findings.append(
                Finding(
                    kind="truncation" if found.kind == "truncation" else "recreation",
                    hop="live_to_offline",
                    stream=Stream(found.datacenter, found.topic, ""),
                    first_sequence=-1,
                    last_sequence=-1,
                    count=max(0, found.last_offset - found.first_offset + 1),
                    window_start=found.detected_ms,
                    partition=found.partition,
                    first_offset=found.first_offset,
                    last_offset=found.last_offset,
                    reason=found.reason,
                )
            )
        elif found.kind != "loss":
            outcome.incomplete.append(
                Incomplete(
                    datacenter=found.datacenter,
                    topic=found.topic,
                    producer="",
                    reason=f"the mirror reports {found.kind} in {where}: {found.reason}",
                )
            )


def _not_counted(ledger: Ledger) -> Iterable[Incomplete]:
    """Name what the counters could not count."""
    for counter, reason in sorted({**ledger.skipped, **ledger.standstills}.items()):
        yield Incomplete(
            datacenter=counter.place.datacenter,
            topic=counter.place.topic,
            producer="",
            reason=f"partition {counter.place.partition} in the {counter.tier} cluster: {reason}",
        )
    for counter, coverage in sorted(ledger.coverage.items(), key=lambda item: item[0]):
        if coverage.gap:
            first, following = coverage.gap
            yield Incomplete(
                datacenter=counter.place.datacenter,
                topic=counter.place.topic,
                producer="",
                reason=f"offsets {first} to {following - 1} of partition {counter.place.partition} are not counted yet in "
                f"the {counter.tier} cluster",
            )
    for partition in sorted(ledger.unread):
        yield Incomplete(
            datacenter="",
            topic="",
            producer="",
            reason=f"{partition.topic}-{partition.partition} of the offline cluster cannot be read now: no leader answers",
        )
    for sentence in ledger.problems:
        yield Incomplete(datacenter="", topic="", producer="", reason=sentence)


def _verdict(outcome: Outcome) -> Verdict:
    kinds = {finding.kind for finding in outcome.findings}
    if "loss" in kinds:
        return "loss"
    if "duplicate" in kinds:
        return "duplicates"
    if outcome.incomplete or kinds & set(STOPPED_BY_FINDING):
        return "incomplete"
    return "complete"


def _evidence(ledger: Ledger) -> list[Evidence]:
    """Gather each stream's copies by tier, from what is settled and what is open."""
    everything: dict[tuple[Tier, Stream], list[Depth]] = {}
    passed: dict[tuple[Tier, Tier, Stream], list[Depth]] = {}
    unseen: dict[tuple[Tier, Tier, Stream], list[Depth]] = {}
    for (tier, stream), settled in ledger.settled.items():
        everything.setdefault((tier, stream), []).append(settled)
        for neighbour in TIERS:
            unjudged = ledger.unjudged.get((tier, neighbour, stream), EMPTY)
            passed.setdefault((tier, neighbour, stream), []).append(excess(settled, unjudged))
            unseen.setdefault((tier, neighbour, stream), []).append(unjudged)
    for counter, parcel in ledger.open_parcels():
        past = [tier for tier in TIERS if ledger.has_passed(tier, counter, parcel)]
        known = {tier: passed if ledger.is_judged(tier, counter, parcel) else unseen for tier in past}
        for producer, copies in parcel.copies.items():
            stream = Stream(counter.place.datacenter, counter.place.topic, producer)
            everything.setdefault((counter.tier, stream), []).append(copies)
            for neighbour in past:
                known[neighbour].setdefault((counter.tier, neighbour, stream), []).append(copies)
    streams = sorted({stream for _, stream in everything} | set(ledger.accounts))
    return [
        _evidence_of(
            stream,
            ledger.accounts.get(stream, Accounts()),
            frozenset(
                tier
                for tier in COUNTED_TIERS
                if (tier, stream.datacenter, stream.topic) not in ledger.counted
            ),
            everything,
            passed,
            unseen,
        )
        for stream in streams
    ]


def _evidence_of(
    stream: Stream,
    accounts: Accounts,
    uncounted: frozenset[Tier],
    everything: Mapping[tuple[Tier, Stream], list[Depth]],
    passed: Mapping[tuple[Tier, Tier, Stream], list[Depth]],
    unseen: Mapping[tuple[Tier, Tier, Stream], list[Depth]],
) -> Evidence:
    def seen(tier: Tier) -> Depth:
        return total(everything.get((tier, stream), ()))

    def past(tier: Tier, neighbour: Tier) -> Depth:
        return total(passed.get((tier, neighbour, stream), ()))

    return Evidence(
        stream=stream,
        accounts=accounts,
        live=seen("live"),
        offline=seen("offline"),
        warehouse=seen("warehouse"),
        live_passed=past("live", "offline"),
        offline_mirrored=past("offline", "live"),
        offline_passed=past("offline", "warehouse"),
        warehouse_loaded=past("warehouse", "offline"),
        unseen={pair: total(unseen.get((*pair, stream), ())) for pair in permutations(TIERS, 2)},
        is_loaded=not is_rejected(stream.topic),
        uncounted=uncounted,
    )
