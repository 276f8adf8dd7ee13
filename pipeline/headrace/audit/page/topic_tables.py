"""The page's tables of topics and of the mirror's partitions, each number with a link to what it is made of. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any, Final

from headrace.audit.page.markup import ROWS_MAX, Html, Links, Row, moment, more, number, table
from headrace.audit.wording import duration, unknown_topics

_MADE_OF: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "live": ("partitions", {}),
    "offline": ("partitions", {}),
    "warehouse": ("partitions", {}),
    "lost": ("findings", {"kind": "loss"}),
    "duplicated": ("findings", {"kind": "duplicate"}),
    "under_way": ("incomplete", {}),
}
"""Where a number of a topic is told in detail."""
_NUMBERS: Final = (
    "produced",
    "live",
    "offline",
    "warehouse",
    "lost",
    "duplicated",
    "under_way",
    "compacted",
    "dead_letters",
    "no_event",
)
_HEADER_NUMBERS: Final = (
    "live",
    "offline",
    "live_bytes",
    "lost",
    "duplicated",
    "under_way",
    "aborted",
    "control_batches",
)
_WAREHOUSE_NUMBERS: Final = (
    "offline",
    "warehouse",
    "lost",
    "duplicated",
    "under_way",
    "unknown",
    "compacted",
)
_WRONG: Final = ("lost", "duplicated", "under_way")


def topics(report: Row, links: Links) -> str:
    """Return the topics, those first of which something is lost, doubled or on its way."""
    unknown = unknown_topics(report)
    rows = _worst_first([*report["topics"], *report["rejected_topics"]])
    cells = [
        [row["datacenter"], row["topic"], *(_count(row, name, unknown, links) for name in _NUMBERS)]
        for row in rows[:ROWS_MAX]
    ]
    titles = ["datacenter", "topic", *(name.replace("_", " ") for name in _NUMBERS)]
    found = ""
    if rows or not report["header_topics"]:
        found = table(titles, cells, numbers=range(2, len(titles))) + more(rows)
    return (
        found
        + _header_topics(report["header_topics"], links)
        + _aggregates(report["aggregate_topics"], links)
        + _warehouse_topics(report["warehouse_topics"], links)
        + _off_topics(report["off_topics"])
    )


def _worst_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: [-row[name] for name in _WRONG])


def _count(row: Row, name: str, unknown: Collection[tuple[str, str]], links: Links) -> str:
    """Write a number of a topic; no loss that was not looked for, and no row of a topic that is not loaded, is no 0."""
    if row[name] is None:
        return "in an aggregate" if name == "offline" else "not loaded"
    if name == "lost" and not row[name] and (row["datacenter"], row["topic"]) in unknown:
        return "unknown"
    if name not in _MADE_OF:
        return f"{row[name]:,}"
    part, narrowed = _MADE_OF[name]
    return number(row[name], links(part, datacenter=row["datacenter"], topic=row["topic"], **narrowed))


def _header_topics(rows: Sequence[Row], links: Links) -> str:
    """Return a table of the topics that are counted by their batch headers."""
    if not rows:
        return ""
    cells = [
        [
            row["datacenter"],
            row["topic"],
            row["producer_to_live"],
            *(_count(row, name, (), links) for name in _HEADER_NUMBERS),
            row["verdict"],
        ]
        for row in _worst_first(rows)[:ROWS_MAX]
    ]
    titles = [
        "datacenter",
        "topic",
        "producer to live",
        *(name.replace("_", " ") for name in _HEADER_NUMBERS),
        "verdict",
    ]
    text = (
        "Messages of any client's topics, counted by their batch headers alone: live and offline are compared by partition and "
        "window. What their producers sent nobody claims."
    )
    found = table(titles, cells, numbers=range(3, len(titles) - 1)) + more(rows)
    return f"<h3>By batch headers</h3><p>{text}</p>{found}"


def _aggregates(rows: Sequence[Row], links: Links) -> str:
    """Return a table of the datacenters' topics that arrive in a topic that they share."""
    if not rows:
        return ""
    names = ("live", "aggregate", "lost", "duplicated", "under_way", "unknown")
    cells = [
        [
            row["datacenter"] or "all together",
            row["topic"],
            *(_count(row, name, (), links) for name in names),
            row["verdict"],
        ]
        for row in _worst_first(rows)[:ROWS_MAX]
    ]
    titles = ["datacenter", "topic", *(name.replace("_", " ") for name in names), "verdict"]
    text = "Topics of the offline cluster that several datacenters share: what each of them has, and what of it arrived there."
    found = table(titles, cells, numbers=range(2, len(titles) - 1)) + more(rows)
    return f"<h3>Aggregates</h3><p>{text}</p>{found}"


def warehouses(rows: Sequence[Row]) -> str:
    """Return a table of the further warehouses, each a tier of its own behind the offline cluster."""
    if not rows:
        return ""
    titles = ["warehouse", *(name.replace("_", " ") for name in _WAREHOUSE_NUMBERS), "mean", "p99"]
    cells = [
        [
            row["name"],
            *(f"{row['totals'][name]:,}" for name in _WAREHOUSE_NUMBERS),
            *(_latency(row["latency_seconds"].get("offline_to_warehouse"), name) for name in ("mean", "p99")),
            moment(row["complete_until"]),
            row["verdict"],
        ]
        for row in rows
    ]
    found = table([*titles, "whole until", "verdict"], cells, numbers=range(1, len(titles)))
    return f"<h3>Further warehouses</h3><p>Each with the hop from the offline cluster to it, and its latency.</p>{found}"


def _latency(values: Row | None, name: str) -> str:
    return duration(values[name]) if values else "-"


def _warehouse_topics(rows: Sequence[Row], links: Links) -> str:
    """Return a table of the topics of the further warehouses."""
    if not rows:
        return ""
    cells = [
        [
            row["name"],
            row["datacenter"],
            row["topic"],
            *(_count(row, name, (), links) for name in _WAREHOUSE_NUMBERS),
            moment(row["complete_until"]),
        ]
        for row in _worst_first(rows)[:ROWS_MAX]
    ]
    titles = [
        "warehouse",
        "datacenter",
        "topic",
        *(name.replace("_", " ") for name in _WAREHOUSE_NUMBERS),
        "whole until",
    ]
    found = table(titles, cells, numbers=range(3, len(titles) - 1)) + more(rows)
    return f"<h3>Further warehouses</h3>{found}"


def _off_topics(rows: Sequence[Row]) -> str:
    names = ", ".join(f"{row['topic']} of {row['datacenter']}" for row in rows[:ROWS_MAX])
    return f'<p class="nothing">Not audited: {escape(names)}.</p>{more(rows)}' if rows else ""


def partitions(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the partitions, in their order; offsets are up to where each is counted."""
    if not rows:
        return '<p class="nothing">No partition is counted yet.</p>'
    titles = ["state", "datacenter", "topic", "partition", "live", "offline", "warehouse", "lag", "to load"]
    cells = [
        [
            row["state"],
            row["datacenter"],
            row["topic"],
            str(row["partition"]),
            *(_known(row[name]) for name in ("live", "offline", "warehouse", "lag", "load_lag")),
            moment(row["copied_until"]),
            row["reason"],
        ]
        for row in rows[:ROWS_MAX]
    ]
    found = table([*titles, "copied until", "why"], cells, numbers=range(3, len(titles)), kinds=True)
    return found + more(rows)


def _known(value: int | None) -> str | Html:
    return "-" if value is None else f"{value:,}"
