"""What an outcome says of the topics that are counted by their batch headers. Pure."""

from __future__ import annotations

from dataclasses import replace

from headrace.audit.ledger.batch_judge import WindowSums, merged
from headrace.audit.ledger.batch_ledger import BatchFacts, reasons
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import (
    AggregateTopic,
    BatchTopic,
    Incomplete,
    Outcome,
    Topic,
    verdict_of,
    verdicts,
)
from headrace.audit.windows import WINDOW_SIZE_MS


def add_batches(outcome: Outcome, ledger: Ledger) -> None:
    """Add what is known of the windows that reach into the outcome's period."""
    judged = ledger.batches.judged(ledger.reach.coverage)
    for topic in sorted(ledger.batches.topics()):
        places = [item for place, item in judged.items() if place[:2] == topic]
        facts = ledger.batches.facts.get(topic, BatchFacts())
        windows: dict[int, WindowSums] = {}
        for known in (facts.windows, *(item.windows for item in places)):
            for start, sums in known.items():
                if outcome.period.overlaps(start, start + WINDOW_SIZE_MS):
                    windows.setdefault(start, WindowSums()).add(sums)
        total = WindowSums()
        for sums in windows.values():
            total.add(sums)
        own = Outcome(period=outcome.period)
        own.findings = [
            item
            for item in merged([*facts.findings, *(found for item in places for found in item.findings)])
            if outcome.period.overlaps(item.window_start, item.window_end)
        ]
        uncompared = [*facts.uncompared, *(found for item in places for found in item.uncompared)]
        own.incomplete = [*reasons(topic, uncompared), *(found for item in places for found in item.waiting)]
        own.incomplete += _uncounted(ledger, topic)
        own.incomplete = [item for item in own.incomplete if outcome.period.overlaps(*item.period)]
        outcome.findings += own.findings
        outcome.incomplete += own.incomplete
        outcome.batches[topic] = BatchTopic(
            live=total.live,
            offline=total.offline,
            under_way=total.under_way,
            lost=sum(item.count for item in own.findings if item.kind == "loss"),
            duplicated=sum(item.count for item in own.findings if item.kind == "duplicate"),
            verdict=verdict_of(item.verdict for item in verdicts(own)),
            is_brought=ledger.batches.is_brought(topic),
        )
    for name in sorted(ledger.batches.aggregates()):
        _add_aggregate(outcome, ledger, name)


def _add_aggregate(outcome: Outcome, ledger: Ledger, name: str) -> None:
    """Add how an aggregate and its sources add up; what its sequences say is told already."""
    sums = ledger.batches.aggregate(name, ledger.reach.coverage)
    told = outcome.batches["", name]
    counts = replace(sums.counts, lost=told.lost, duplicated=told.duplicated)
    own = Outcome(period=outcome.period)
    own.incomplete = [item for item in sums.incomplete if outcome.period.overlaps(*item.period)]
    outcome.incomplete += own.incomplete
    verdict = verdict_of([told.verdict, *(item.verdict for item in verdicts(own))])
    outcome.aggregates["", name] = AggregateTopic(counts=counts, verdict=verdict)


def _uncounted(ledger: Ledger, topic: Topic) -> list[Incomplete]:
    datacenter, name = topic
    return [
        Incomplete(
            datacenter=datacenter,
            topic=name,
            producer="",
            reason=f"no counter counts it by its batch headers in the {tier} cluster: give the counters of both clusters "
            "the same --modes",
        )
        for tier in ledger.batches.uncounted(topic)
    ]
