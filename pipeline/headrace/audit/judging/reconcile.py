"""What the ledger says: what was lost, doubled or late at which hop, what is under way, and the verdict.

Owns how the judgements of streams (`judge`) and what is settled (`ledger/facts`) become one outcome. Rules:
- a producer that has not closed leaves the windows incomplete that it has not promised, and is named;
- a hop is judged only between two tiers that are both counted, and only for events that a producer accounts for: of
  others it is unknown whether any was lost.
Pure: the ledger in, values out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeVar

from headrace.audit.judging.aggregate_outcome import add_aggregates
from headrace.audit.judging.batch_outcome import add_batches
from headrace.audit.judging.book import Book, late_of
from headrace.audit.judging.evidence import within_period
from headrace.audit.judging.judge import Judged, incomplete_of, judge
from headrace.audit.judging.watermark import SILENT_AFTER_MS, Watermarks, standing_of
from headrace.audit.latency import HOPS, Hop
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Counts, Finding, Incomplete, Kind, Outcome, Topic, verdict_of, verdicts
from headrace.audit.parcels import Counter
from headrace.audit.period import ALWAYS, BEGIN_MS, END_MS, Period
from headrace.audit.windows import Stream

Key = TypeVar("Key")


def reconcile(
    ledger: Ledger,
    now_ms: int,
    *,
    period: Period = ALWAYS,
    silent_after_ms: int = SILENT_AFTER_MS,
    book: Book | None = None,
) -> Outcome:
    """Say what the ledger knows of the windows that reach into a period; watermarks are those of everything.

    With a book only what changed since its last use is judged.
    """
    outcome = Outcome(period=period, off=ledger.modes.off())
    watermarks = Watermarks(ledger.acceptances)
    if book is None:
        book = Book()
        book.read(ledger)
    else:
        book.follow(ledger)
    _add_open(outcome, ledger, book, watermarks, now_ms, silent_after_ms)
    _add_facts(outcome, ledger, watermarks)
    outcome.topics = dict(sorted(outcome.topics.items()))
    add_batches(outcome, ledger)
    add_aggregates(outcome, ledger)
    outcome.findings.sort(key=lambda found: (_ORDER.index(found.kind), _HOPS.index(found.hop)))
    _add_mirror_findings(outcome, ledger)
    _add_passings(outcome, ledger)
    outcome.incomplete += _not_counted(ledger)
    if not outcome.topics and not outcome.batches:
        outcome.incomplete.append(
            Incomplete(datacenter="", topic="", producer="", reason="no producer is known yet")
        )
    for (tier, datacenter, topic), count in ledger.foreign.items():
        if tier == "live" and count:
            # A topic of records without an envelope is told of, too, though there is nothing to judge.
            outcome.topics.setdefault((datacenter, topic), Counts())
    outcome.findings = [item for item in outcome.findings if _is_of(item, period)]
    outcome.incomplete = [item for item in outcome.incomplete if period.overlaps(*item.period)]
    _leave_out(outcome, outcome.off)
    outcome.watermarks = _told(ledger, watermarks.found(ledger.barriers.heard_until, now_ms))
    outcome.verdict = verdict_of(item.verdict for item in verdicts(outcome))
    return outcome


_ORDER: Final[tuple[Kind, ...]] = ("loss", "duplicate", "late", "truncation", "recreation")
_HOPS: Final[tuple[Hop, ...]] = (*HOPS, "live_to_aggregate")
_MIRROR_KINDS: Final[Mapping[str, Kind]] = {
    "truncation": "truncation",
    "recreation": "recreation",
    "loss": "loss",
}
"""Findings of the mirror that are findings of the audit; others are reasons why it is not complete."""


def _leave_out(outcome: Outcome, topics: Collection[Topic]) -> None:
    """Take out what is known of topics that are not audited now."""
    if topics:
        outcome.topics = {key: found for key, found in outcome.topics.items() if key not in topics}
        outcome.batches = {key: found for key, found in outcome.batches.items() if key not in topics}
        outcome.findings = [item for item in outcome.findings if item.stream[:2] not in topics]
        outcome.incomplete = [
            item for item in outcome.incomplete if (item.datacenter, item.topic) not in topics
        ]


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


def _collect(outcome: Outcome, topic: tuple[str, str], judged: Judged) -> None:
    _of(outcome.topics, topic).add(judged.counts)
    for hop, counts in judged.hops.items():
        _of(outcome.hops, (*topic, hop)).add(counts)


def _of(known: dict[Key, Counts], key: Key) -> Counts:
    found = known.get(key)
    if found is None:
        found = known[key] = Counts()
    return found


def _add_open(
    outcome: Outcome, ledger: Ledger, book: Book, watermarks: Watermarks, now_ms: int, silent_after_ms: int
) -> None:
    """Add what is open of the period, as it was judged."""
    said: list[tuple[Stream, list[Finding], list[Incomplete]]] = []
    for entry in book.entries.values():
        evidence = entry.evidence
        if evidence.topic in outcome.off:
            continue
        heard_until_ms = ledger.barriers.heard_until.get(evidence.stream.datacenter, 0)
        standing = entry.standing or standing_of(evidence, heard_until_ms, now_ms, silent_after_ms)
        watermarks.add(evidence, standing, entry.held)
        part = within_period(evidence, outcome.period)
        found = entry.judged if part is evidence else judge(part)
        incomplete = found.incomplete
        if standing.unknown and ledger.modes.now(*evidence.topic) == "events":
            incomplete = [incomplete_of(evidence.stream, standing.reason, standing.unknown), *incomplete]
        late = entry.late if part is evidence else list(late_of(ledger, part))
        if incomplete or found.findings or late:
            said.append((evidence.stream, [*found.findings, *late], incomplete))
        _collect(outcome, evidence.topic, found)
        nowhere = evidence.nowhere.count
        if nowhere:
            outcome.unacknowledged[evidence.topic] = outcome.unacknowledged.get(evidence.topic, 0) + nowhere
        if found is not entry.judged:
            outcome.beyond.add(_left_out(entry.judged.counts, found.counts))
        if evidence.uncounted and found.counts != Counts():
            outcome.uncounted |= {(tier, *evidence.topic) for tier in evidence.uncounted}
    for _, findings, incomplete in sorted(said, key=lambda item: item[0]):
        outcome.findings += findings
        outcome.incomplete += incomplete


def _add_facts(outcome: Outcome, ledger: Ledger, watermarks: Watermarks) -> None:
    """Add what is settled of the period, as it was found."""
    period = outcome.period
    for topic, facts in ledger.facts.topics.items():
        if topic in outcome.off:
            continue
        watermarks.add_facts(topic, facts)
        counts, hops = facts.of_period(period)
        _of(outcome.topics, topic).add(counts)
        if counts is not facts.counts:
            outcome.beyond.add(_left_out(facts.counts, counts))
        for hop, found in hops.items():
            _of(outcome.hops, (*topic, hop)).add(found)
        if facts.findings:
            outcome.findings += [
                item for item in facts.findings if period.overlaps(item.window_start, item.window_end)
            ]
        outcome.incomplete += facts.incomplete


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
    for item in ledger.reach.passings.known:
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
        if not ledger.reach.is_counted("offline", item.place, item.first, item.next):
            outcome.incomplete.append(
                Incomplete(
                    datacenter=item.place.datacenter,
                    topic=item.place.topic,
                    producer="",
                    reason=f"the load was told to pass over offsets {item.first} to {item.next - 1} of partition "
                    f"{item.place.partition}, which are not all counted in the offline cluster, so that it is unknown what was "
                    f"lost there ({item.kind}: {item.reason})",
                    period=Period(item.at_ms, item.at_ms + 1),
                    hop="offline_to_warehouse",
                )
            )


def _not_counted(ledger: Ledger) -> Iterable[Incomplete]:
    """Name what the counters could not count, and what the audit could not read."""
    for counter, skips in sorted(ledger.skipped.items()):
        yield from (_of_partition(counter, reason, period) for reason, period in skips)
    for counter, reason in sorted(ledger.standstills.items()):
        yield _of_partition(counter, reason, Period(_counted_ms(ledger, counter), END_MS))
    for counter, coverage in sorted(ledger.reach.coverage.items(), key=lambda item: item[0]):
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
    coverage = ledger.reach.coverage.get(counter)
    return BEGIN_MS if coverage is None else coverage.counted_ms()
