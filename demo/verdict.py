"""The demo's last screen: what the audit's report says, within 80 columns.

Owns how a report reads on a terminal. It must not know how the report came about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from headrace.audit import wording

TIERS: Final = ("produced", "live", "offline", "warehouse")
_COUNTS: Final = (*TIERS, "lost", "duplicated")
_FIGURES: Final = ("mean", "p50", "p99", "max")
_LISTED_MAX: Final = 10
UNKNOWN: Final = "?"
"""Stands for a number that nobody can know, where a word does not fit; `unknowns` says what it is about."""


def print_verdict(console: Console, report: Mapping[str, Any]) -> None:
    """Print the numbers of each tier and hop, what is wrong, and the verdict."""
    for table in (tier_table(report), latency_table(report)):
        console.print(table)
        console.print()
    sentences = [*findings(report), *unknowns(report), *reasons(report), *lateness(report), *skews(report)]
    for sentence in sentences[:_LISTED_MAX]:
        console.print(f"  {sentence}", soft_wrap=True, markup=False)
    if len(sentences) > _LISTED_MAX:
        console.print(f"  {len(sentences) - _LISTED_MAX} more are in the report.")
    if rejected := report["totals"]["rejected"]:
        console.print(
            f"Lines that do not parse, kept in the dead-letter topics (not loaded): {rejected:,}",
            soft_wrap=True,
        )
    verdict = report["verdict"]
    colour = "green" if verdict == "complete" else "red"
    console.print(
        f"\nVerdict: [bold {colour}]{verdict}[/]  (complete until {report['complete_until'] or '-'})"
    )


def tier_table(report: Mapping[str, Any]) -> Table:
    table = _table("Events by tier")
    table.add_column("topic", no_wrap=True)
    for count in _COUNTS:
        table.add_column(count, justify="right", no_wrap=True)
    unknown = wording.unknown_topics(report)
    for row in report["topics"]:
        is_unknown = (row["datacenter"], row["topic"]) in unknown
        table.add_row(f"{row['datacenter']}.{row['topic']}", *_counts(row, is_unknown))
    is_unknown = any((row["datacenter"], row["topic"]) in unknown for row in report["topics"])
    table.add_section()
    table.add_row("all", *_counts(report["totals"], is_unknown))
    return table


def _counts(row: Mapping[str, Any], is_unknown: bool) -> list[str]:
    """Write the counts of a row; no loss that was not looked for is no 0."""
    return [
        UNKNOWN if is_unknown and count == "lost" and not row[count] else f"{row[count]:,}"
        for count in _COUNTS
    ]


def latency_table(report: Mapping[str, Any]) -> Table:
    table = _table("Latency in seconds")
    table.add_column("hop")
    for figure in _FIGURES:
        table.add_column(figure, justify="right")
    for hop, latency in report["latency_seconds"].items():
        values = (latency[figure] if latency else None for figure in _FIGURES)
        table.add_row(wording.hop_name(hop), *("-" if value is None else f"{value:.2f}" for value in values))
    return table


def _table(title: str) -> Table:
    # With two spaces between columns the numbers of millions of events still fit into 80 columns.
    return Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def findings(report: Mapping[str, Any]) -> Iterator[str]:
    """What was lost, doubled or changed at the source, one sentence each."""
    for finding in report["findings"]:
        if finding["kind"] == "late":
            continue
        if finding["producer"]:
            yield f"{finding['kind']}: {wording.fault(finding)}."
        else:
            place = f"{finding['topic']} in {finding['datacenter']}, {wording.hop_name(finding['hop'])}"
            yield f"{finding['kind']}: {place}: {finding.get('reason') or 'no reason is given'}."


def unknowns(report: Mapping[str, Any]) -> Iterator[str]:
    """At which hops nobody can say what was lost, one sentence each."""
    for row in report.get("hops", []):
        if row["state"] == "unknown":
            yield f"unknown: {wording.unknown(row)}."


def reasons(report: Mapping[str, Any]) -> Iterator[str]:
    """Why the report is not complete, one sentence each."""
    for item in report.get("incomplete", []):
        yield f"incomplete: {wording.reason(item)}."


def lateness(report: Mapping[str, Any]) -> Iterator[str]:
    """How many events came late, by topic and hop: a delay is a finding, but nothing that is wrong with the result."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for finding in report["findings"]:
        if finding["kind"] == "late":
            counts[finding["topic"], finding["datacenter"], finding["hop"]] += finding["count"]
    for (topic, datacenter, hop), count in sorted(counts.items()):
        yield f"late: {count:,} events of {topic} in {datacenter}, from {wording.hop_name(hop)}."


def skews(report: Mapping[str, Any]) -> Iterator[str]:
    """Which hosts' clocks differ for certain, one sentence each."""
    for item in report.get("negative_latencies", []):
        if item["is_certain"]:
            yield f"clocks: {wording.skew(item)}."
