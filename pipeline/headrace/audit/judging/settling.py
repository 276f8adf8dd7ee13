"""When a window or a producer is settled, and what of it stays: facts (see `ledger/facts`), while the ledger forgets the rest.

Owns the rule. A window of a topic is settled once all of this is so, and it never takes long where nothing is stuck:
- the accounts that were in its datacenter's log `SETTLED_AFTER_MS` after its end are read;
- every producer of the topic has promised it, has closed or went silent;
- no account of it waits for the live counts, and nothing counted of it in any tier waits for a neighbour;
- nothing of it is on its way.
A producer is settled, and forgotten, when all of its windows are and it has closed or went silent. Topics that compact are
never settled, for what compaction explains is judged of all that a topic had. Pure: it changes the ledger that it is given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from headrace.audit.judging.book import Book, Entry, late_of
from headrace.audit.judging.evidence import Evidence, masked
from headrace.audit.judging.judge import Judged, incomplete_of, judge
from headrace.audit.judging.watermark import SILENT_AFTER_MS, Standing, held_by, standing_of
from headrace.audit.latency import HOPS
from headrace.audit.ledger.facts import HopCounts, TopicFacts
from headrace.audit.ledger.ledger import HELD_MS, Ledger
from headrace.audit.outcome import Counts
from headrace.audit.period import BEGIN_MS, END_MS
from headrace.audit.windows import (
    EMPTY,
    WINDOW_SIZE_MS,
    Depth,
    Stream,
    depth,
    once,
    remove_from,
    total,
    within,
    without,
)

SETTLED_AFTER_MS: Final = HELD_MS
STEP_MS: Final = 60_000
"""Windows of a topic are settled so many at a time, which is cheaper than one by one."""


def settle(ledger: Ledger, book: Book, now_ms: int, silent_after_ms: int = SILENT_AFTER_MS) -> int:
    """Settle what can be; returns how many streams were touched for it."""
    book.follow(ledger)
    touched = 0
    dropped: set[str] = set()
    for topic in [topic for topic, streams in ledger.known.items() if streams]:
        limit_ms = min(now_ms, ledger.barriers.heard_until.get(topic[0], 0)) - SETTLED_AFTER_MS
        if limit_ms - ledger.facts.until_ms(*topic) < STEP_MS or ledger.is_compacted(*topic):
            continue
        found = [book.entries[stream] for stream in ledger.known[topic] if stream in book.entries]
        standings = [
            item.standing
            or standing_of(
                item.evidence, ledger.barriers.heard_until.get(topic[0], 0), now_ms, silent_after_ms
            )
            for item in found
        ]
        unfolded = ledger.copies.moving(ledger.reach.places.get(topic, ()))
        moving = [unfolded.get(item.evidence.stream.producer, EMPTY) for item in found]
        until_ms = min([limit_ms, *map(_floor, found, standings, moving)])
        until_ms -= until_ms % WINDOW_SIZE_MS
        if until_ms - ledger.facts.until_ms(*topic) < STEP_MS:
            continue
        facts = ledger.facts.topics.setdefault(topic, TopicFacts())
        facts.until_ms = until_ms
        for entry, standing, rest in zip(found, standings, moving, strict=True):
            touched += 1
            _settle_windows(ledger, facts, entry, until_ms)
            if not rest.count and _is_over(ledger, entry, standing, limit_ms):
                _settle_stream(ledger, facts, entry.evidence.stream, standing)
                book.entries.pop(entry.evidence.stream, None)
                dropped.add(entry.evidence.stream.producer_name)
    forget_producers(ledger, dropped)
    return touched


def _floor(entry: Entry, standing: Standing, unfolded: Depth) -> int:
    """Return the first window of a stream that is not settled; `unfolded` is not known to be passed by all neighbours."""
    evidence = entry.evidence
    found = [item.window_start for item in evidence.accounts.open]
    if standing.bound_ms is not None:
        found.append(standing.bound_ms)
    moving = total((unfolded, *entry.judged.under_way))
    if moving.count:
        found.append(evidence.span(moving).since_ms)
    return min(found, default=END_MS)


def _settle_windows(ledger: Ledger, facts: TopicFacts, entry: Entry, until_ms: int) -> None:
    """Make facts of the windows of a stream that end no later, and take them out of the ledger."""
    evidence = entry.evidence
    size_ms = evidence.window_size_ms
    if min(evidence.windows, default=BEGIN_MS) + size_ms > until_ms:
        return
    later = [runs for start, runs in evidence.windows.items() if start + size_ms > until_ms]
    # A sequence that may be in several windows is settled with the last of them.
    kept = depth(np.concatenate([np.empty((0, 2), dtype=np.int64), *later]))
    seen = (evidence.expected, evidence.live, evidence.offline, evidence.warehouse)
    found = without(once(total(seen)), kept)
    if not found.count:
        return
    part = masked(evidence, found)
    judged = judge(part)
    facts.add_found((*judged.findings, *late_of(ledger, part)), judged.incomplete)
    for start, counts, hops in _by_window(part, judged, found, until_ms):
        facts.add_window(start, counts, hops)
    facts.hold(*held_by(part, judged), lambda loss: ledger.acceptances.covers(part.topic, loss))
    _remove(ledger, evidence.stream, found, until_ms, size_ms)


def _by_window(
    part: Evidence, judged: Judged, found: Depth, until_ms: int
) -> Iterator[tuple[int, Counts, HopCounts]]:
    """Yield what each window had, latest first; the sequences of none that is known are those of the first."""
    size_ms = part.window_size_ms
    starts = sorted((start for start in part.windows if start + size_ms <= until_ms), reverse=True)
    rest = found
    for start in starts:
        of_window = rest if start == starts[-1] else within(rest, depth(part.windows[start]))
        rest = without(rest, of_window)
        if of_window.count:
            yield start, *_counts(part, judged, of_window)
    if rest.count:
        yield until_ms - size_ms, *_counts(part, judged, rest)


def _counts(part: Evidence, judged: Judged, of_window: Depth) -> tuple[Counts, HopCounts]:
    n = of_window.count
    if judged.is_plain and (not part.is_loaded or judged.counts.warehouse == judged.counts.offline):
        return Counts(n, n, n, n if part.is_loaded else 0), {}
    found = judge(masked(part, of_window))
    return found.counts, found.hops


def _is_over(ledger: Ledger, entry: Entry, standing: Standing, limit_ms: int) -> bool:
    """Whether nothing of a stream is open any more, and nothing will come."""
    stream = entry.evidence.stream
    accounts = ledger.accounts.get(stream)
    heard_ms = entry.evidence.first_seen if accounts is None else accounts.heard_at
    return (
        standing.bound_ms is None
        and heard_ms <= limit_ms
        and not (accounts is not None and accounts.open)
        and not ledger.windows.get(stream)
    )


def _settle_stream(ledger: Ledger, facts: TopicFacts, stream: Stream, standing: Standing) -> None:
    if standing.unknown:
        reason = standing.lasting or standing.reason
        facts.add_found((), [incomplete_of(stream, reason, standing.unknown)])
    accounts = ledger.accounts.get(stream)
    if accounts is not None:
        facts.complete_until = max(facts.complete_until, accounts.complete_until)
    _drop(ledger, stream)


def _remove(ledger: Ledger, stream: Stream, found: Depth, until_ms: int, window_size_ms: int) -> None:
    """Take sequences out whose windows are settled, with the windows that end no later than a time."""
    ledger.copies.remove(stream, found)
    remove_from(ledger.latencies.late, [(hop, stream) for hop in HOPS], found)
    passings = ledger.reach.passings
    remove_from(passings.copies, [(index, stream) for index in range(len(passings.known))], found)
    remove_from(ledger.overdue, [stream], found)
    if stream in ledger.accounts:
        ledger.accounts[stream].remove(found)
    else:
        ledger.facts.note_gone(stream, once(total((ledger.settled_of(stream), found))))
    windows = ledger.windows.get(stream, {})
    for start in [start for start in windows if start + window_size_ms <= until_ms]:
        del windows[start]
    if stream in ledger.latencies.acknowledged:
        open_from = min((int(runs[:, 0].min()) for runs in windows.values()), default=END_MS)
        ledger.latencies.acknowledged[stream].forget_below(open_from)
    ledger.changes.streams.add(stream)


def _drop(ledger: Ledger, stream: Stream) -> None:
    """Forget a stream of which nothing is open, but for the sequences that it had."""
    entry = ledger.accounts.pop(stream, None)
    if entry is not None:
        ledger.facts.note_gone(stream, once(total((entry.settled, entry.undelivered))))
    for known in (ledger.windows, ledger.overdue, ledger.unaccounted, ledger.latencies.acknowledged):
        known.pop(stream, None)
    ledger.waiting.discard(stream)
    ledger.changes.streams.discard(stream)
    ledger.known[stream.datacenter, stream.topic].discard(stream)
    ledger.topics_of[stream.producer_name] -= 1


def forget_producers(ledger: Ledger, producers: Collection[str]) -> None:
    """Forget the names of those producers of which nothing is open and nothing that is kept was found."""
    named = ledger.facts.named_producers() if producers else set()
    for producer in producers:
        if ledger.topics_of[producer] <= 0:
            del ledger.topics_of[producer]
            if producer not in named:
                ledger.producers.pop(producer, None)
                ledger.latencies.servers.pop(producer, None)
