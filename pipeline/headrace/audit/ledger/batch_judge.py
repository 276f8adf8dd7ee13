"""The live cluster and its copy are compared by their batch headers: what is missing, too much, on its way or not comparable.

Owns the rules, for one partition. A copy has the same batches at the same offsets:
- blocks below both positions are compared, and the last one, too, where both positions are the same; what lies beyond is on
  its way;
- offsets that one cluster has a batch for, and the other has none, are a loss or a duplicate;
- where none is missing, equal sums in each window are a complete copy. Other sums (compaction, batches that were written anew)
  say nothing of what was lost: the block is not comparable, nor is one that a cluster did not count whole. Of a topic that
  compacts, nothing is called lost;
- sequences of idempotent producers that break off or come again in the live log, or in an aggregate, are told as they are there;
  what producers sent otherwise nobody claims.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from headrace.audit.batch_counts import BLOCK_SIZE, Sums
from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.batch_logs import BatchLog, SequenceFault, clipped
from headrace.audit.outcome import Finding, Incomplete, Kind
from headrace.audit.period import Period
from headrace.audit.windows import WINDOW_SIZE_MS, Stream

Span = tuple[int, int]
NOTHING: Final = Sums()
Windows = dict[int, Sums]
REWRITTEN = "their batches differ, though no offset is missing: they were compacted or written anew, so they are not comparable"
UNEVEN = "one of both clusters did not count all of them by their batch headers, so they are not comparable"
COMPACTED = "the topic is compacted, and both logs are not equal, so they are not comparable"


@dataclass(slots=True)
class WindowSums:
    """What each cluster has of a window, and how many messages are on their way."""

    live: Sums = NOTHING
    offline: Sums = NOTHING
    under_way: int = 0

    def add(self, other: WindowSums) -> None:
        self.live = self.live.plus(other.live)
        self.offline = self.offline.plus(other.offline)
        self.under_way += other.under_way


class Uncompared(NamedTuple):
    """Offsets [first, next) of a partition that cannot be compared, the time of their windows, and why."""

    partition: int
    first: int
    next: int
    since_ms: int
    until_ms: int
    why: str

    def reason(self, datacenter: str, topic: str) -> Incomplete:
        return Incomplete(
            datacenter=datacenter,
            topic=topic,
            producer="",
            reason=f"partition {self.partition}, offsets {self.first} to {self.next - 1}: {self.why}",
            period=Period(self.since_ms, self.until_ms),
        )


@dataclass(slots=True)
class BatchJudged:
    windows: dict[int, WindowSums] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    uncompared: list[Uncompared] = field(default_factory=list)
    waiting: list[Incomplete] = field(default_factory=list)


def judge_blocks(place: SourcePartition, live: BatchLog, offline: BatchLog, *, is_last: bool) -> BatchJudged:
    """Compare all blocks; where more is to come (not `is_last`) only those that both clusters are past."""
    judged = BatchJudged()
    end = min(live.position, offline.position)
    is_even = is_last and live.position == offline.position
    for block in sorted(live.blocks.keys() | offline.blocks.keys()):
        first, following = block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE
        is_closed = following <= end or (is_even and first < end)
        if not is_closed and not is_last:
            continue
        here, there = live.blocks.get(block, {}), offline.blocks.get(block, {})
        for window in here.keys() | there.keys():
            sums = WindowSums(here.get(window, NOTHING), there.get(window, NOTHING))
            judged.windows.setdefault(window, WindowSums()).add(sums)
        if is_closed:
            _compare(judged, place, live, offline, (first, min(following, end)))
        else:
            _wait(judged, place, here, there)
    judged.findings += sequence_findings(place, live.faults)
    return judged


def counted_alone(place: SourcePartition, log: BatchLog, *, is_live: bool) -> BatchJudged:
    """Say what one cluster has of a partition that is counted nowhere else."""
    judged = BatchJudged()
    for windows in log.blocks.values():
        for window, sums in windows.items():
            found = WindowSums(live=sums) if is_live else WindowSums(offline=sums)
            judged.windows.setdefault(window, WindowSums()).add(found)
    judged.findings += sequence_findings(place, log.faults) if is_live or not place.datacenter else []
    return judged


def sequence_findings(place: SourcePartition, faults: Iterable[SequenceFault]) -> list[Finding]:
    return [_sequence_finding(place, fault) for fault in faults]


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of their offsets, those that follow one another as one."""
    found: list[Finding] = []
    for item in sorted(findings, key=lambda item: (item.kind, item.hop, item.partition, item.first_offset)):
        last = found[-1] if found else None
        if last is not None and _goes_on(last, item):
            found[-1] = replace(
                last,
                last_offset=item.last_offset,
                count=last.count + item.count,
                window_start=min(last.window_start, item.window_start),
                window_end=max(last.window_end, item.window_end),
            )
        else:
            found.append(item)
    return found


def _goes_on(last: Finding, item: Finding) -> bool:
    same = (last.kind, last.hop, last.stream, last.partition, last.reason)
    return (
        same == (item.kind, item.hop, item.stream, item.partition, item.reason)
        and last.last_offset + 1 == item.first_offset
    )


def merged_uncompared(items: Iterable[Uncompared]) -> list[Uncompared]:
    """Return what is not comparable in the order of offsets, what follows one another as one."""
    found: list[Uncompared] = []
    for item in sorted(items):
        last = found[-1] if found else None
        if last is not None and (last.partition, last.next, last.why) == (
            item.partition,
            item.first,
            item.why,
        ):
            since_ms, until_ms = min(last.since_ms, item.since_ms), max(last.until_ms, item.until_ms)
            found[-1] = last._replace(next=item.next, since_ms=since_ms, until_ms=until_ms)
        else:
            found.append(item)
    return found


def _compare(
    judged: BatchJudged, place: SourcePartition, live: BatchLog, offline: BatchLog, span: Span
) -> None:
    block = span[0] // BLOCK_SIZE
    here, there = live.blocks.get(block, {}), offline.blocks.get(block, {})
    period = _period(here, there)
    if clipped(live.holes, *span) != clipped(offline.holes, *span):
        judged.uncompared.append(Uncompared(place.partition, *span, *period, UNEVEN))
        return
    absent = clipped([(first, last + 1) for first, last in offline.gaps], *span)
    never = clipped([(first, last + 1) for first, last in live.gaps], *span)
    lost, further = list(_without(absent, never)), list(_without(never, absent))
    thinned = any(sums.thinned for sums in (*here.values(), *there.values()))
    if (lost or further) and (live.is_compacted or offline.is_compacted or thinned):
        judged.uncompared.append(Uncompared(place.partition, *span, *period, COMPACTED))
        return
    judged.findings += [_finding("loss", place, item, _period_of(here, there, period)) for item in lost]
    judged.findings += [
        _finding("duplicate", place, item, _period_of(there, here, period)) for item in further
    ]
    if here != there and not lost and not further:
        why = COMPACTED if live.is_compacted or offline.is_compacted else REWRITTEN
        judged.uncompared.append(Uncompared(place.partition, *span, *period, why))


def _wait(judged: BatchJudged, place: SourcePartition, here: Windows, there: Windows) -> None:
    """Say what is on its way: the last block, in the windows that are not equal yet."""
    for window in here.keys() | there.keys():
        sums, copied = here.get(window, NOTHING), there.get(window, NOTHING)
        if sums == copied:
            continue
        waiting = max(0, sums.messages + sums.aborted - copied.messages - copied.aborted)
        judged.windows[window].under_way += waiting
        words = f"{waiting} messages of partition {place.partition} are on their way from live to offline"
        if not waiting:
            words = f"messages of partition {place.partition} are counted in offline, but not in live yet"
        period = Period(window, window + WINDOW_SIZE_MS)
        judged.waiting.append(
            Incomplete(
                datacenter=place.datacenter, topic=place.topic, producer="", reason=words, period=period
            )
        )


def _without(spans: list[Span], others: list[Span]) -> Iterator[Span]:
    """Yield what of spans [first, next) is in none of the others; both are in order."""
    for first, following in spans:
        for begin, end in clipped(others, first, following):
            if first < begin:
                yield first, begin
            first = end
        if first < following:
            yield first, following


def _period(here: Windows, there: Windows) -> Period:
    windows = here.keys() | there.keys()
    return Period(min(windows, default=0), max(windows, default=0) + WINDOW_SIZE_MS)


def _period_of(more: Windows, fewer: Windows, otherwise: Period) -> Period:
    """Return the time of the windows of which one cluster has more than the other."""
    found = [window for window, sums in more.items() if sums.messages > fewer.get(window, NOTHING).messages]
    return Period(min(found), max(found) + WINDOW_SIZE_MS) if found else otherwise


def _finding(kind: Kind, place: SourcePartition, span: Span, period: Period) -> Finding:
    reason = (
        "the offline cluster has no batch there"
        if kind == "loss"
        else "the offline cluster has batches there, and the live one none"
    )
    return Finding(
        kind=kind,
        hop="live_to_offline",
        stream=Stream(place.datacenter, place.topic, ""),
        first_sequence=-1,
        last_sequence=-1,
        count=span[1] - span[0],
        window_start=period.since_ms,
        window_end=period.until_ms,
        partition=place.partition,
        first_offset=span[0],
        last_offset=span[1] - 1,
        reason=reason,
    )


def _sequence_finding(place: SourcePartition, fault: SequenceFault) -> Finding:
    last = fault.first + fault.missing - 1
    sequences = f"sequences {fault.first} to {last}" if fault.missing > 1 else f"sequence {fault.first}"
    where = "there once more" if fault.is_repeat else "missing before this batch"
    return Finding(
        kind="duplicate" if fault.is_repeat else "loss",
        # Those of an aggregate count the messages of one partition of a source, whose producer id that is.
        hop="producer_to_live" if place.datacenter else "live_to_aggregate",
        stream=Stream(place.datacenter, place.topic, ""),
        first_sequence=-1,
        last_sequence=-1,
        count=fault.missing,
        window_start=fault.window_start,
        window_end=fault.window_start + WINDOW_SIZE_MS,
        partition=place.partition,
        first_offset=fault.offset,
        last_offset=fault.offset,
        reason=f"{sequences} of the idempotent producer {fault.producer_id}, epoch {fault.epoch}, are {where}",
    )
