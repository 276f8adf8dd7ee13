"""What an outcome says of aggregate topics, by the datacenters that arrive in them. Pure."""

from __future__ import annotations

from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.aggregate_judge import AggregateJudged, Copies
from headrace.audit.ledger.aggregates import AggregateFacts
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import AggregateTopic, Counts, Incomplete, Outcome, Topic, verdict_of, verdicts
from headrace.audit.windows import Stream

_WHY = {
    "under_way": "events are on their way to the aggregate topic",
    "unknown": "events of the aggregate topic cannot be compared: the live counts do not tell of them, or it begins among them",
}


def add_aggregates(outcome: Outcome, ledger: Ledger) -> None:
    """Add what is known of the windows that reach into the outcome's period."""
    found: dict[Topic, list[tuple[SourcePartition, AggregateJudged]]] = {}
    for topic in sorted(ledger.aggregates.topics):
        judgements = ledger.aggregates.judged(topic, ledger.reach.coverage, ledger.reach.whole_at)
        for place, judged in judgements:
            part = ledger.aggregates.within(place, judged, outcome.period)
            found.setdefault(place[:2], []).append((place, part))
    for key in sorted(found.keys() | ledger.aggregates.facts.keys()):
        facts = ledger.aggregates.facts.get(key, AggregateFacts())
        own = Outcome(period=outcome.period)
        counts = facts.of_period(outcome.period)
        own.findings = [
            item for item in facts.findings if outcome.period.overlaps(item.window_start, item.window_end)
        ]
        for place, judged in found.get(key, ()):
            counts.add(_counts(judged))
            own.findings += ledger.aggregates.findings_of(place, judged)
            own.incomplete += _reasons(ledger, place, judged)
        outcome.findings += own.findings
        outcome.incomplete += own.incomplete
        verdict = verdict_of(item.verdict for item in verdicts(own))
        outcome.aggregates[key] = AggregateTopic(counts=counts, verdict=verdict)


def _counts(judged: AggregateJudged) -> Counts:
    return Counts(
        live=_sum(judged.live),
        offline=_sum(judged.arrived),
        lost=_sum(judged.lost),
        duplicated=_sum(judged.doubled),
        under_way=_sum(judged.under_way),
        unknown=_sum(judged.unknown),
    )


def _sum(copies: Copies) -> int:
    return sum(found.count for found in copies.values())


def _reasons(ledger: Ledger, place: SourcePartition, judged: AggregateJudged) -> list[Incomplete]:
    return [
        Incomplete(
            datacenter=place.datacenter,
            topic=place.topic,
            producer=producer,
            reason=f"{found.count} {why} in partition {place.partition}",
            period=ledger.aggregates.span(Stream(place.datacenter, place.topic, producer), found),
        )
        for name, why in _WHY.items()
        for producer, found in sorted(getattr(judged, name).items())
    ]
