"""The page while somebody looks at it: what a round found, narrowed to what a viewer asks for, part by part.

A viewer has the whole page once and then the parts that changed. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final, NamedTuple

from headrace.audit.page.markup import ROWS_MAX, narrowed_parts, table
from headrace.audit.page.offline import (
    HEADINGS,
    document,
    findings_table,
    reasons_table,
    section,
    sections,
    tables,
)
from headrace.audit.page.timeline import Minutes
from headrace.audit.windows import ProducerName

Row = Mapping[str, Any]
TIERS: Final = ("produced", "live", "offline", "warehouse")
PLACES: Final = (
    "topics",
    "rejected_topics",
    "header_topics",
    "warehouse_topics",
    "off_topics",
    "partitions",
)
STATES: Final = ("open", "accepted")
KINDS: Final = ("loss", "duplicate", "late", "truncation", "recreation")
TEXT_LENGTH_MAX: Final = 200
"""Characters of what a viewer searches for."""
EMPTY: Final = dict.fromkeys((*HEADINGS, "footer"), "")
DIALOG: Final = (
    '<dialog id="accepting"><form method="dialog"><h2></h2><label>Your name<input name="by" maxlength="100" required></label>'
    '<label>Why<input name="reason" maxlength="1000" required></label><p class="trouble" role="alert"></p>'
    '<button value="send">Send</button><button type="button" data-close>Cancel</button></form></dialog>'
)
RATES_OVER_S: Final = 1.0
"""Rounds nearer than that say no rate."""


class Query(NamedTuple):
    """What a viewer wants to see of the findings; an empty field takes all."""

    kind: str = ""
    datacenter: str = ""
    topic: str = ""
    text: str = ""
    state: str = ""
    """`open` or `accepted`."""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Query:
        return cls(*(parameters.get(name, "")[:TEXT_LENGTH_MAX] for name in cls._fields))

    def takes_place(self, item: Row) -> bool:
        """Whether what is of a topic is asked for."""
        return self.datacenter in ("", item["datacenter"]) and self.topic in ("", item["topic"])

    def takes(self, item: Row) -> bool:
        """Whether a finding or a reason is asked for; a reason is of no kind."""
        return (
            self.kind in ("", item.get("kind", ""))
            and self.state in ("", "accepted" if item.get("accepted") else "open")
            and self.takes_place(item)
            and (
                not self.text
                or self.text.casefold() in " ".join(str(value) for value in item.values()).casefold()
            )
        )


@dataclass(frozen=True, kw_only=True)
class View:
    """What the last round found: `report.as_json`, the latencies by minute, how many producers run where; 0 is no round yet."""

    number: int = 0
    at_ms: int = 0
    report: Row | None = None
    minutes: Minutes = field(default_factory=dict)
    producers: Mapping[ProducerName, int] = field(default_factory=dict)
    trouble: str = ""
    """Why the last round could not be ended, and the view is one before it."""


def name_of(view: View) -> str:
    """Return what tells a view from every other, also from those of a server before."""
    return f"{view.number}-{view.at_ms}"


class Rates:
    """Events a second of each tier, from one round to the next."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._counts: dict[str, Counter[str]] = {}

    def observe(self, report: Row, at_s: float) -> dict[str, dict[str, float]]:
        """Take a round's counts; returns rates by datacenter and tier, none at first and none below 0."""
        counts: dict[str, Counter[str]] = {}
        for row in report["topics"]:
            counts.setdefault(row["datacenter"], Counter()).update({tier: row[tier] for tier in TIERS})
        passed_s, before = at_s - self._at_s, self._counts
        self._at_s, self._counts = at_s, counts
        if not before or passed_s < RATES_OVER_S:
            return {}
        return {
            datacenter: {
                tier: max(0.0, (found[tier] - before[datacenter][tier]) / passed_s) for tier in TIERS
            }
            for datacenter, found in counts.items()
            if datacenter in before
        }


def producers_by_place(names: Iterable[ProducerName]) -> dict[ProducerName, int]:
    """Return how many producers each service of each server had."""
    return dict(Counter(ProducerName(*name[:2]) for name in names))


def parts(view: View, query: Query, *, may_accept: bool = False) -> dict[str, str]:
    """Return the page's parts by their names, as HTML; only what is listed is narrowed."""
    trouble = f'<p class="trouble">{escape(view.trouble)}</p>' if view.trouble else ""
    if view.report is None:
        waiting = "The first round reads what there is, which can take a while."
        return {
            **EMPTY,
            "trouble": trouble,
            "verdict": f'<header class="verdict"><h1>Not known yet</h1><p>{waiting}</p></header>',
        }
    findings = [item for item in view.report["findings"] if query.takes(item)]
    reasons = [item for item in view.report["incomplete"] if query.takes(item)]
    return {
        **sections(view.report, view.minutes, view.at_ms, narrowed_parts),
        **_tables(view.report, query),
        "trouble": trouble,
        "findings": _told(findings, view.report["findings"])
        + findings_table(findings, may_accept=may_accept),
        "incomplete": _told(reasons, view.report["incomplete"]) + reasons_table(reasons),
        "producers": _producers(view.producers),
    }


def _tables(report: Row, query: Query) -> dict[str, str]:
    found = _narrowed(report, query)
    made = tables(found, narrowed_parts)
    return {name: _told(found[name], report[name]) + made[name] for name in made}


def _narrowed(report: Row, query: Query) -> Row:
    """Return a report with the topics and partitions alone that are asked for."""
    return {
        **report,
        **{name: [row for row in report[name] if query.takes_place(row)] for name in PLACES},
    }


def page(view: View, query: Query, *, may_accept: bool = False) -> str:
    """Return the whole page; its script takes the parts that change from then on."""
    found = parts(view, query, may_accept=may_accept)
    body = [
        '<div class="bar-of-state"><span id="state" class="state" data-view="'
        + name_of(view)
        + '">Without its script this page is made anew every 10 s.</span>'
        '<button type="button" id="times" hidden>Times as how long ago</button><a href="report.json">report.json</a></div>',
        *(_part(name, found[name]) for name in ("trouble", "verdict")),
    ]
    for name in HEADINGS:
        form = (
            _form(query) if name == "findings" else _place_form(query, name) if name == "partitions" else ""
        )
        body.append(section(name, form + _part(name, found[name])))
    body.append(_part("footer", found["footer"]))
    body += [DIALOG] if may_accept else []
    head = (
        '<link rel="stylesheet" href="page.css">\n<script src="live.js" defer></script>\n'
        '<noscript><meta http-equiv="refresh" content="10"></noscript>'
    )
    return document("headrace audit", head, "\n".join(body))


def _part(name: str, content: str) -> str:
    return f'<div data-part="{name}">{content}</div>'


def _told(taken: Sequence[Row], known: Sequence[Row]) -> str:
    """Say how many of the rows were asked for, where not all are."""
    return f'<p class="nothing">{len(taken):,} of {len(known):,}.</p>' if len(taken) < len(known) else ""


def _form(query: Query) -> str:
    kinds = _options(("", *KINDS), query.kind, "every kind")
    states = _options(("", *STATES), query.state, "all")
    fields = _inputs(
        (
            ("datacenter", "datacenter", query.datacenter),
            ("topic", "topic", query.topic),
            ("text", "with the text", query.text),
        )
    )
    return (
        f'<form method="get" action="#findings"><label>kind<select name="kind">{kinds}</select></label>'
        f'<label>accepted or not<select name="state">{states}</select></label>{fields}'
        '<button>Filter</button><a href="./#findings">All</a></form>'
    )


def _place_form(query: Query, part: str) -> str:
    """Return a form that narrows all that is of a topic."""
    fields = _inputs(
        (("datacenter", "datacenter", query.datacenter), ("topic", "topic", query.topic)),
    )
    return f'<form method="get" action="#{part}">{fields}<button>Filter</button><a href="./#{part}">All</a></form>'


def _inputs(fields: Iterable[tuple[str, str, str]]) -> str:
    """Return fields for texts, each by its name, title and value."""
    return "".join(
        f'<label>{title}<input name="{name}" value="{escape(value)}" maxlength="{TEXT_LENGTH_MAX}"></label>'
        for name, title, value in fields
    )


def _options(values: Sequence[str], chosen: str, otherwise: str) -> str:
    return "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{value or otherwise}</option>'
        for value in values
    )


def _producers(producers: Mapping[ProducerName, int]) -> str:
    if not producers:
        return '<p class="nothing">No producer is known yet.</p>'
    rows = [[name.server, name.service, f"{count:,}"] for name, count in sorted(producers.items())]
    left = len(rows) - ROWS_MAX
    more = f'<p class="nothing">{left:,} further services.</p>' if left > 0 else ""
    return table(["server", "service", "producers so far"], rows[:ROWS_MAX], numbers=(2,)) + more
