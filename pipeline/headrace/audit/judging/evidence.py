"""What the ledger knows of each stream, gathered: its copies in all tiers, what neighbours are past, and its accounts.

Owns the gathering from what is folded and what is not, and the choice of what belongs to a period. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations, product

from headrace.audit.judging.compaction import Fault
from headrace.audit.ledger.accounts import Accounts
from headrace.audit.ledger.ledger import WINDOWS_MAX, Ledger
from headrace.audit.ledger.passings import Passed
from headrace.audit.parcels import COUNTED_TIERS, TIERS, Tier, is_rejected
from headrace.audit.period import ALWAYS, BEGIN_MS, END_MS, Period, WindowTable, sequences_of
from headrace.audit.windows import EMPTY, WINDOW_SIZE_MS, Depth, Int64s, Stream, excess, once, total, within


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of one stream: all copies seen in each tier, and those of them that a neighbour is past."""

    stream: Stream
    accounts: Accounts
    windows: Mapping[int, Int64s] = field(default_factory=dict)
    """Runs of sequences by the start of their window."""
    overdue: Depth = EMPTY
    """What came after the watermark of its window, so that it does not hold that back."""
    first_seen: int = 0
    """When it was first counted in the live tier, where no account has arrived."""
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
    passed_over: tuple[tuple[Passed, Depth], ...] = ()
    """What the load was told to pass over, and what the offline tier had there, perhaps with events beside it."""
    mask: Depth | None = None
    """Which sequences it is about; None: all."""
    is_loaded: bool = True
    uncounted: frozenset[Tier] = frozenset()
    compacted: frozenset[Fault] = frozenset()
    """What would be faults, but for compaction."""

    @property
    def topic(self) -> tuple[str, str]:
        return self.stream.datacenter, self.stream.topic

    @property
    def window_size_ms(self) -> int:
        """The length of its windows; where counters and producers have different ones, of the longer."""
        return max(WINDOW_SIZE_MS, self.accounts.window_size_ms)

    @cached_property
    def table(self) -> WindowTable:
        return WindowTable(self.windows, self.window_size_ms)

    def span(self, found: Depth) -> Period:
        """Return the time of the windows of some sequences; that of all where it is not known."""
        return self.table.span(found) or ALWAYS

    def of_period(self, found: Depth) -> Depth:
        return found if self.mask is None else within(found, self.mask)

    @cached_property
    def expected(self) -> Depth:
        """What is acknowledged."""
        accounts = self.accounts
        return once(total((accounts.acknowledged, *(item.acknowledged for item in accounts.open))))

    @cached_property
    def beyond_accounts(self) -> Depth:
        """The events, once each, that are somewhere, but in none of their producer's accounts."""
        if self.stream.is_again:
            return EMPTY
        seen = once(total((self.live, self.offline, self.warehouse)))
        return excess(seen, total((self.expected, self.accounts.undelivered)))

    @property
    def nowhere(self) -> Depth:
        """The events that the producer calls failed or unknown, and that no tier has."""
        undelivered = once(self.accounts.undelivered)
        if not undelivered.count:
            return EMPTY
        return excess(undelivered, total((self.expected, self.live, self.offline, self.warehouse)))


def gather(ledger: Ledger, streams: Collection[Stream] | None = None) -> list[Evidence]:
    """Gather the copies by tier of some streams, or of all that are open, from what is folded and what is not."""
    is_all = streams is None
    wanted = ledger.streams() if streams is None else streams
    everything: dict[tuple[Tier, Stream], list[Depth]] = {}
    passed: dict[tuple[Tier, Tier, Stream], list[Depth]] = {}
    unseen: dict[tuple[Tier, Tier, Stream], list[Depth]] = {}
    for tier, stream in product(TIERS, wanted):
        folded = ledger.copies.folded.get((tier, stream))
        if folded is None:
            continue
        everything.setdefault((tier, stream), []).append(folded)
        for neighbour in TIERS:
            unjudged = ledger.copies.unjudged.get((tier, neighbour, stream), EMPTY)
            passed.setdefault((tier, neighbour, stream), []).append(excess(folded, unjudged))
            unseen.setdefault((tier, neighbour, stream), []).append(unjudged)
    passings = ledger.reach.passings
    over = {
        (index, stream): [found] for (index, stream), found in passings.copies.items() if stream in wanted
    }
    topics = {(stream.datacenter, stream.topic) for stream in wanted}
    places = None if is_all else {place for topic in topics for place in ledger.reach.places.get(topic, ())}
    for counter, parcel in ledger.copies.open_parcels(places):
        producers = [
            producer
            for producer in parcel.copies
            if Stream(counter.place.datacenter, counter.place.topic, producer) in wanted
        ]
        if not producers:
            continue
        past = [tier for tier in TIERS if ledger.reach.has_passed(tier, counter, parcel)]
        known = {tier: passed if ledger.reach.is_whole(tier, counter, parcel) else unseen for tier in past}
        for producer in producers:
            copies = parcel.copies[producer]
            stream = Stream(counter.place.datacenter, counter.place.topic, producer)
            everything.setdefault((counter.tier, stream), []).append(copies)
            if counter.tier == "offline":
                for index in passings.over(counter.place, parcel.first, parcel.next):
                    over.setdefault((index, stream), []).append(copies)
            for neighbour in past:
                known[neighbour].setdefault((counter.tier, neighbour, stream), []).append(copies)
    passed_over: dict[Stream, list[tuple[Passed, Depth]]] = {}
    for (index, stream), found in sorted(over.items(), key=lambda item: item[0]):
        passed_over.setdefault(stream, []).append((passings.known[index], total(found)))
    return [
        replace(
            _evidence_of(stream, ledger, everything, passed, unseen),
            passed_over=tuple(passed_over.get(stream, ())),
        )
        for stream in sorted(wanted)
        if stream in ledger.accounts or any((tier, stream) in everything for tier in TIERS)
    ]


def _evidence_of(
    stream: Stream,
    ledger: Ledger,
    everything: Mapping[tuple[Tier, Stream], list[Depth]],
    passed: Mapping[tuple[Tier, Tier, Stream], list[Depth]],
    unseen: Mapping[tuple[Tier, Tier, Stream], list[Depth]],
) -> Evidence:
    def seen(tier: Tier) -> Depth:
        return total(everything.get((tier, stream), ()))

    def past(tier: Tier, neighbour: Tier) -> Depth:
        return total(passed.get((tier, neighbour, stream), ()))

    accounts = ledger.accounts.get(stream, Accounts())
    topic = (stream.datacenter, stream.topic)
    return Evidence(
        stream=stream,
        accounts=accounts,
        windows=ledger.windows.get(stream, {}),
        overdue=total((accounts.overdue, ledger.overdue.get(stream, EMPTY))),
        first_seen=ledger.unaccounted.get(stream, 0),
        live=seen("live"),
        offline=seen("offline"),
        warehouse=seen("warehouse"),
        live_passed=past("live", "offline"),
        offline_mirrored=past("offline", "live"),
        offline_passed=past("offline", "warehouse"),
        warehouse_loaded=past("warehouse", "offline"),
        unseen={pair: total(unseen.get((*pair, stream), ())) for pair in permutations(TIERS, 2)},
        is_loaded=not is_rejected(stream.topic),
        uncounted=frozenset(tier for tier in COUNTED_TIERS if (tier, *topic) not in ledger.counted),
    )


def within_period(evidence: Evidence, period: Period) -> Evidence:
    """Return what of a stream belongs to the windows that reach into a period."""
    windows = evidence.windows
    if period.since_ms <= min(windows, default=END_MS) and max(windows, default=BEGIN_MS) < period.until_ms:
        return evidence
    known = len(windows) < WINDOWS_MAX
    return masked(evidence, sequences_of(windows, period, evidence.window_size_ms, are_all_known=known))


def masked(evidence: Evidence, mask: Depth) -> Evidence:
    """Return what of a stream is about some sequences."""
    accounts = evidence.accounts
    return replace(
        evidence,
        mask=mask,
        accounts=replace(
            accounts,
            acknowledged=within(accounts.acknowledged, mask),
            unjudged=within(accounts.unjudged, mask),
            undelivered=within(accounts.undelivered, mask),
            open=[item._replace(acknowledged=within(item.acknowledged, mask)) for item in accounts.open],
        ),
        overdue=within(evidence.overdue, mask),
        live=within(evidence.live, mask),
        offline=within(evidence.offline, mask),
        warehouse=within(evidence.warehouse, mask),
        live_passed=within(evidence.live_passed, mask),
        offline_mirrored=within(evidence.offline_mirrored, mask),
        offline_passed=within(evidence.offline_passed, mask),
        warehouse_loaded=within(evidence.warehouse_loaded, mask),
        unseen={pair: within(item, mask) for pair, item in evidence.unseen.items()},
    )
