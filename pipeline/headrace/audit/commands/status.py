"""`headrace audit status`: what a stretch of time brought, in a line, for people and for the gates of a roll-out."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import click
from rich.console import Console

from headrace.audit.acceptances import Acceptances, AcceptedSums, accepted_sums
from headrace.audit.commands.watch import (
    OpenAuditor,
    read_all,
    reader_options,
)
from headrace.audit.further import faults
from headrace.audit.latency import SPANS
from headrace.audit.outcome import BatchTopic, Counts, Outcome
from headrace.audit.period import END_MS, Period
from headrace.audit.recent import Figures, RecentLatencies
from headrace.audit.report import named
from headrace.broker.moment import Moment, now_ms

BEFORE_MS: Final = 3_600_000
"""The stretch before `--since` whose latencies are what is usual."""
EVENTS_MIN: Final = 100
"""Of fewer events a percentile says nothing about what is usual."""
SLOWER_S_MIN: Final = 1.0
"""What is slower by less is slow enough for nobody, whatever the factor."""


@click.command()
@reader_options
@click.option(
    "--since",
    "since_ms",
    type=Moment(),
    required=True,
    help="Judge the windows from this time on: as 2026-01-31T00:00:00Z, or how long ago, such as 15m.",
)
@click.option(
    "--latency-factor",
    type=click.FloatRange(min=1.0),
    help="Exit 1 also when a hop's p99 is more than so many times what it was in the hour before --since.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(
    opened: OpenAuditor,
    silent_after_seconds: float,
    since_ms: int,
    latency_factor: float | None,
    as_json: bool,
) -> None:
    """Print what was lost or doubled since a time, and how long each hop took; exit 1 when anything was that
    nobody has accepted.

    Example: headrace audit status --since 15m --bootstrap 127.0.3.1:9092 --warehouse var/warehouse --state var/audit
    """
    period = Period(since_ms, END_MS)
    auditor = opened()
    read_all(auditor)
    auditor.read_settled(period)
    outcome = auditor.judged(now_ms(), silent_after_seconds, period)
    totals = Counts()
    for counts in outcome.topics.values():
        totals.add(counts)
    for found_by_headers in outcome.batches.values():
        totals.add(_faults(found_by_headers))
    for at_further in faults(outcome).values():
        totals.add(at_further)
    accepted = _accepted(outcome, auditor.ledger.acceptances)
    hops = latencies(auditor.ledger.latencies.recent, period)
    found = {
        "verdict": outcome.verdict,
        "lost": totals.lost,
        "duplicated": totals.duplicated,
        "under_way": totals.under_way,
        "accepted": accepted._asdict(),
        "latency_seconds": hops,
        "named": named(outcome, auditor.ledger),
        "slower": [] if latency_factor is None else slower(hops, latency_factor),
    }
    if as_json:
        click.echo(json.dumps(found))
    else:
        _print(found)
    is_new = totals.lost > accepted.lost or totals.duplicated > accepted.duplicated
    sys.exit(1 if is_new or found["slower"] else 0)


def _accepted(outcome: Outcome, acceptances: Acceptances) -> AcceptedSums:
    """Return what is accepted of all warehouses."""
    sums = [accepted_sums(outcome, acceptances, name) for name in ("", *outcome.further)]
    return AcceptedSums(
        sums[0].findings, sum(item.lost for item in sums), sum(item.duplicated for item in sums)
    )


def _faults(found: BatchTopic) -> Counts:
    return Counts(lost=found.lost, duplicated=found.duplicated, under_way=found.under_way)


def latencies(recent: RecentLatencies, period: Period) -> dict[str, dict[str, Any]]:
    """By hop and end to end: the figures of the period, and those of the hour before it."""
    before = Period(period.since_ms - BEFORE_MS, period.since_ms)
    return {
        span: {
            "since": _fields(recent.figures(span, period)),
            "before": _fields(recent.figures(span, before)),
        }
        for span in SPANS
    }


def slower(hops: dict[str, dict[str, Any]], factor: float) -> list[str]:
    """The hops whose p99 grew beyond a factor, where both stretches have enough events to tell."""
    return [
        span
        for span, told in hops.items()
        if all(stretch and stretch["events"] >= EVENTS_MIN for stretch in told.values())
        and told["since"]["p99"] > told["before"]["p99"] * factor
        and told["since"]["p99"] > told["before"]["p99"] + SLOWER_S_MIN
    ]


def _fields(figures: Figures | None) -> dict[str, float] | None:
    return None if figures is None else figures._asdict()


def _print(found: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    accepted = found["accepted"]
    known = (
        f" (accepted: {accepted['lost']} lost, {accepted['duplicated']} doubled)"
        if accepted["findings"]
        else ""
    )
    console.print(
        f"{found['verdict']}: {found['lost']} lost, {found['duplicated']} doubled, {found['under_way']} on their way{known}"
    )
    for sentence in found["named"]:
        console.print(sentence, markup=False)
    for span, told in found["latency_seconds"].items():
        if told["since"]:
            before = f", in the hour before {told['before']['p99']:.3f} s" if told["before"] else ""
            slow = ": too slow" if span in found["slower"] else ""
            console.print(
                f"{span.replace('_', ' ')}: p99 {told['since']['p99']:.3f} s of {told['since']['events']} events{before}{slow}"
            )
