"""The report as one HTML page that is readable offline: verdict, topology, time axis, latencies, findings, topics.

Owns how the report looks, also where it is served (see `live`); every number comes from `report.as_json` and the latencies by
minute, every text is escaped. Nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

from headrace.audit.histogram import Histogram
from headrace.audit.latency import HOPS, SPANS
from headrace.audit.page.markup import ROWS_MAX, Html, Links, moment, more, number, table, whole_parts
from headrace.audit.page.plots import latency_plots
from headrace.audit.page.timeline import Minutes, timeline
from headrace.audit.page.topic_tables import partitions, topics, warehouses
from headrace.audit.report import sentence
from headrace.audit.wording import duration, hop_name, hop_of, skew

SKEWS_MAX: Final = 10
"""Pairs of hosts on the page whose clocks differ."""
TITLES: Final = {
    "complete": "Complete",
    "loss": "Events are lost",
    "duplicates": "Events are there twice",
    "incomplete": "Incomplete",
}
ACCEPTED_TITLE: Final = "Complete, but for what is accepted"
STATIONS: Final = (
    ("produced", "Producers", "acknowledged"),
    ("live", "Live cluster", "in the log"),
    ("offline", "Offline cluster", "in the log"),
    ("warehouse", "Warehouse", "in tables"),
)

HEADINGS: Final = {
    "way": "The way of the events",
    "time": "The last hours",
    "latency": "Latency",
    "findings": "Findings",
    "incomplete": "Not whole yet",
    "topics": "Topics",
    "partitions": "The mirror's partitions",
    "producers": "Producers",
}

REASONS: Final = {
    "lost": ("findings", "loss"),
    "duplicated": ("findings", "duplicate"),
    "under_way": ("incomplete", ""),
    "unknown": ("topics", ""),
}
"""The part of the page, and the kind of finding, where a number of a hop is told in detail."""

_PRODUCER: Final = ("server", "service", "producer")

Row = Mapping[str, Any]


def render(report: Row, histograms: Mapping[str, Histogram], minutes: Minutes, now_ms: int) -> str:
    """Return the page's text."""
    found = {**sections(report, minutes, now_ms, whole_parts), **tables(report, whole_parts)}
    found["findings"] = findings_table(report["findings"])
    found["latency"] += figures(latency_plots(histograms))
    if report["incomplete"]:
        found["incomplete"] = reasons_table(report["incomplete"])
    style = files("headrace.audit.page").joinpath("page.css").read_text(encoding="utf-8")
    return document(
        f"headrace audit: {report['verdict']}",
        f"<style>\n{style}</style>",
        "\n".join(section(name, found[name]) for name in ("verdict", *HEADINGS, "footer") if name in found),
    )


def document(title: str, head: str, body: str) -> str:
    """Return a page around its content."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n{head}\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def tables(report: Row, links: Links) -> dict[str, str]:
    """Return the tables of topics and partitions."""
    return {"topics": topics(report, links), "partitions": partitions(report["partitions"])}


def sections(report: Row, minutes: Minutes, now_ms: int, links: Links) -> dict[str, str]:
    """Return the parts of the page that tell of all that is reported, by their names."""
    return {
        "verdict": _verdict(report),
        "way": _topology(report, links) + warehouses(report["warehouses"]),
        "time": timeline(minutes, report["findings"], now_ms),
        "latency": _latencies(report),
        "footer": _footer(report),
    }


def section(name: str, content: str) -> str:
    """Return a part with its heading, by which links find it."""
    heading = HEADINGS.get(name)
    if heading is None:
        return content
    return f'<section id="{name}"><h2>{heading}</h2>{content}</section>'


def figures(plots: Iterable[str]) -> str:
    """Return plots beside each other, or below each other where there is no room."""
    return f'<div class="plots">{"".join(f"<figure>{svg}</figure>" for svg in plots)}</div>'


def _verdict(report: Row) -> str:
    verdict, still_open = report["verdict"], report["open_verdict"]
    title, label = TITLES[verdict], verdict
    if still_open != verdict:
        title = ACCEPTED_TITLE if still_open == "complete" else TITLES[still_open]
        label = f"{verdict}; without what is accepted: {still_open}"
    until = moment(report["complete_until"])
    time = f"{moment(report['since'], 'the beginning')} to {moment(report['until'])}"
    return (
        f'<header class="verdict {escape(still_open)}"><p class="label">Verdict: {escape(label)}</p>'
        f"<h1>{title}</h1>"
        f"<p>{escape(sentence(report))}</p><p class=until>Whole until <b>{until}</b>. This page is about the time from {time}."
        "</p></header>"
    )


def _topology(report: Row, links: Links) -> str:
    """Return a row of stations for each datacenter, with each hop's number between them."""
    datacenters = sorted({row["datacenter"] for row in report["topics"]})
    if not datacenters:
        if report["header_topics"]:
            return '<p class="nothing">All topics are counted by their batch headers: see <a href="#topics">topics</a>.</p>'
        return '<p class="nothing">No producer is known yet.</p>'
    return "".join(_lane(report, datacenter, links) for datacenter in datacenters)


def _lane(report: Row, datacenter: str, links: Links) -> str:
    topics = [row for row in report["topics"] if row["datacenter"] == datacenter]
    names = {row["topic"] for row in topics}
    hops = [row for row in report["hops"] if row["datacenter"] == datacenter and row["topic"] in names]
    rates = report.get("events_per_second", {}).get(datacenter, {})
    cells: list[str] = []
    for at, (tier, title, unit) in enumerate(STATIONS):
        if at:
            latency = report["latency_seconds_by_datacenter"].get(datacenter, {}).get(HOPS[at - 1])
            cells.append(
                _hop(HOPS[at - 1], hops, sum(row[tier] for row in topics), latency, datacenter, links)
            )
        count = sum(row[tier] for row in topics)
        made_of = links("topics", datacenter=datacenter)
        rate = f'<span class="unit">{rates[tier]:,.0f} a second</span>' if tier in rates else ""
        cells.append(
            f'<div class="station"><span class="title">{title}</span><b>{number(count, made_of)}</b>'
            f'<span class="unit">{unit}</span>{rate}</div>'
        )
    return f'<div class="lane"><h3>{escape(datacenter)}</h3><div class="way">{"".join(cells)}</div></div>'


def _hop(
    hop: str, rows: Iterable[Row], passed: int, latency: Row | None, datacenter: str, links: Links
) -> str:
    mine = [row for row in rows if row["hop"] == hop]
    words = {"lost": "lost", "duplicated": "doubled", "under_way": "on their way", "unknown": "unknown"}
    compacted = sum(row["compacted"] for row in mine)
    counts = {name: sum(row[name] for row in mine) for name in words}
    faults = [
        f'<span class="{name}">{number(counts[name], _made_of(name, hop, datacenter, links), word)}</span>'
        for name, word in words.items()
        if counts[name]
    ]
    if not faults and any(row["state"] == "unknown" for row in mine):
        faults = ['<span class="unknown">unknown</span>']
    faults = faults or ['<span class="fine">none lost</span>']
    removed = number(compacted, links("topics", datacenter=datacenter), "compacted")
    faults += [f"<span>{removed}</span>"] if compacted else []
    median = f'<a class="median" href="#latency">{duration(latency["p50"])}</a>' if latency else ""
    return (
        f'<div class="hop{" bad" if counts["lost"] or counts["duplicated"] else ""}">{median}'
        f'<span class="arrow"><b>{number(passed, links("partitions", datacenter=datacenter))}</b></span>{"".join(faults)}</div>'
    )


def _made_of(name: str, hop: str, datacenter: str, links: Links) -> str:
    """Return where a number of a hop is told in detail."""
    part, kind = REASONS[name]
    narrowed = {"kind": kind, "text": hop} if kind else {}
    return links(part, datacenter=datacenter, **narrowed)


def _latencies(report: Row) -> str:
    rows = []
    for span in SPANS:
        values = report["latency_seconds"][span]
        cells = [duration(values[name]) if values else "-" for name in ("mean", "p50", "p99", "max")]
        negative = sum(item["count"] for item in report["negative_latencies"] if item["hop"] == span)
        rows.append([hop_name(span), *cells, f"{negative:,}"])
    titles = ["hop", "mean", "p50", "p99", "max", "negative"]
    return table(titles, rows, numbers=range(1, len(titles))) + _skews(report["negative_latencies"])


def _skews(rows: Sequence[Row]) -> str:
    """Name the hosts whose clocks differ."""
    sentences = [f"<li>{escape(skew(item))}.</li>" for item in rows[:SKEWS_MAX]]
    left = len(rows) - SKEWS_MAX
    sentences += [f"<li>{left:,} further pairs of hosts are in report.json.</li>"] if left > 0 else []
    return f'<ul class="skews">{"".join(sentences)}</ul>' if sentences else ""


def findings_table(findings: Sequence[Row], *, may_accept: bool = False) -> str:
    """Return the findings; with `may_accept` each has the button by which a viewer accepts it, or opens it again."""
    if not findings:
        return '<p class="nothing">None: no loss, no duplicate, nothing late.</p>'
    rows = [
        [
            item["kind"],
            hop_of(item),
            item["datacenter"],
            item["topic"],
            item["server"],
            item["service"],
            item["producer"] or f"partition {item.get('partition', '-')}",
            _span(item),
            f"{item['count']:,}",
            moment(item["window_start"]),
            item["to_do"],
            _acceptance(item, may_accept),
        ]
        for item in findings[:ROWS_MAX]
    ]
    titles = [
        "kind",
        "hop",
        "datacenter",
        "topic",
        *_PRODUCER,
        "sequences",
        "count",
        "window",
        "what to do",
        "accepted",
    ]
    return table(titles, rows, numbers=(7, 8), kinds=True) + more(findings)


def _acceptance(item: Row, may_accept: bool) -> Html:
    """Say by whom, when and why a finding was accepted, or by which id it can be."""
    found = item["accepted"]
    verb, name = ("reopen", found["id"]) if found else ("accept", item["id"])
    told = "open"
    if found:
        told = f"{escape(found['by'])}, {moment(found['at'])}: {escape(found['reason'])}"
    button = (
        f'<button type="button" data-{verb}="{escape(name)}">{verb.capitalize()}</button>'
        if may_accept
        else ""
    )
    return Html(f"{told} <code>{escape(name)}</code> {button}".rstrip())


def _span(item: Row) -> str:
    if "first_offset" in item:
        return f"offsets {item['first_offset']} to {item['last_offset']}"
    first, last = item["first_sequence"], item["last_sequence"]
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def reasons_table(reasons: Sequence[Row]) -> str:
    if not reasons:
        return '<p class="nothing">None: everything is judged.</p>'
    titles = ["datacenter", "topic", *_PRODUCER, "reason"]
    rows = [[*(item[title] for title in titles[:-1]), _reason(item)] for item in reasons[:ROWS_MAX]]
    return table(titles, rows) + more(reasons)


def _reason(item: Row) -> str:
    warehouse = item.get("warehouse")
    return f"warehouse {warehouse}: {item['reason']}" if warehouse else str(item["reason"])


def _footer(report: Row) -> str:
    rejected = report["totals"]["rejected"]
    return (
        f"<footer><p>Lines that did not parse, kept in the dead-letter topics, which are not loaded: {rejected:,}. "
        f"An event is late when it arrives more than {duration(report['late_after_seconds'])} behind its own time. "
        "Each tier is counted from its own log or table, by producer, window and sequence; a number on a hop is what "
        "arrived behind it. Unknown are events that cannot be judged at a hop: no account or no count of the tier before or "
        "behind it speaks of them. Compacted are events that compaction removed before they were counted.</p>"
        f"<p>Written {moment(report['generated_at'])} by headrace; the same in full: report.json.</p>"
        "</footer>"
    )
