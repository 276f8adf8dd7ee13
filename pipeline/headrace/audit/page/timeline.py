"""The last hours by minute, as HTML: how many events, how long they took by hop, and where something is wrong.

Owns how the time axis looks. The shapes stretch to the width that there is; every text is HTML beside them, so that it keeps its
size on a telephone. Pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

from headrace.audit.latency import HOPS
from headrace.audit.recent import KEPT_MINUTES_MAX, Figures
from headrace.audit.wording import duration, hop_name

Row = Mapping[str, Any]
Minutes = Mapping[str, Mapping[int, Figures]]
"""By span and minute since the epoch."""

MINUTE_S: Final = 60
HEIGHT: Final = 100
"""Units of a strip, from its top down."""
EVENTS: Final = "end_to_end"
"""The span that every event of the tables is observed in."""
FASTEST_S: Final = 0.001
"""The foot of the latencies' axis, which is logarithmic."""
FAULTS: Final = ("loss", "duplicate", "late")


def timeline(minutes: Minutes, findings: Iterable[Row], now_ms: int) -> str:
    """Return the strips, their legend and the same as numbers; what bears a time to come is left out."""
    span = _span(minutes, now_ms // 1000 // MINUTE_S)
    if not span:
        return '<p class="nothing">No event of the last three hours is in the tables yet.</p>'
    minutes = {
        name: {minute: figures for minute, figures in found.items() if minute in span}
        for name, found in minutes.items()
    }
    events = minutes.get(EVENTS, {})
    faults = _faults(findings)
    most = max((figures.events for figures in events.values()), default=0)
    slowest = max((figures.p99 for hop in HOPS for figures in minutes.get(hop, {}).values()), default=0.0)
    legend = "".join(f'<span class="key {hop}">{escape(hop_name(hop))}</span>' for hop in HOPS)
    marks = "".join(f'<span class="key {kind}">{kind}</span>' for kind in FAULTS)
    return (
        f'<figure class="strip"><figcaption><b>Events a minute</b>, by their own time; at most {most:,}{marks}</figcaption>'
        f"{_svg(span, _bars(span, events, most) + _marks(span, faults) + _hints(span, minutes, faults))}</figure>"
        '<figure class="strip"><figcaption><b>How long 99 of 100 took</b>, by hop, each line ten times the one below; at most '
        f"{duration(slowest)}{legend}</figcaption>"
        f"{_svg(span, _lines(span, minutes, slowest) + _hints(span, minutes, faults))}</figure>"
        f'<p class="axis">{time_of(span[0] * MINUTE_S)}{time_of(span[-1] * MINUTE_S)}</p>'
        f"{_numbers(span, minutes, faults)}"
    )


def _span(minutes: Minutes, now: int) -> range:
    """Return the minutes to show: the last ones that are kept."""
    known = [
        minute for found in minutes.values() for minute in found if now - KEPT_MINUTES_MAX < minute <= now + 1
    ]
    return range(min(known), max(known) + 1) if known else range(0)


def time_of(seconds: float) -> str:
    """Return a time that the page's script can write as how long ago."""
    at = datetime.fromtimestamp(seconds, UTC)
    return f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}">{at:%Y-%m-%d %H:%M} UTC</time>'


def _faults(findings: Iterable[Row]) -> dict[int, Counter[str]]:
    """Return how many events are lost, doubled or late by the minute of their first window."""
    found: dict[int, Counter[str]] = {}
    for item in findings:
        if item["kind"] in FAULTS and item["window_start"]:
            minute = int(datetime.fromisoformat(item["window_start"]).timestamp()) // MINUTE_S
            found.setdefault(minute, Counter())[item["kind"]] += item["count"]
    return found


def _svg(span: range, content: str) -> str:
    return f'<svg viewBox="0 0 {len(span)} {HEIGHT}" preserveAspectRatio="none" role="img" aria-hidden="true">{content}</svg>'


def _bars(span: range, events: Mapping[int, Figures], most: int) -> str:
    return "".join(
        f'<rect class="bar" x="{minute - span[0]}" width="0.85" y="{HEIGHT - height:.1f}" height="{height:.1f}"/>'
        for minute, figures in events.items()
        for height in [(HEIGHT - 12) * figures.events / most]
    )


def _marks(span: range, faults: Mapping[int, Counter[str]]) -> str:
    return "".join(
        f'<rect class="mark {next(kind for kind in FAULTS if counts[kind])}" x="{minute - span[0]}" width="1" y="0" height="8"/>'
        for minute, counts in faults.items()
        if minute in span
    )


def _lines(span: range, minutes: Minutes, slowest: float) -> str:
    decades = max(1, math.ceil(math.log10(max(slowest, FASTEST_S) / FASTEST_S)))
    rules = "".join(
        f'<line class="rule" x1="0" x2="{len(span)}" y1="{y:.1f}" y2="{y:.1f}"/>'
        for decade in range(decades + 1)
        for y in [HEIGHT - decade * HEIGHT / decades]
    )
    return rules + "".join(
        f'<polyline class="{hop}" points="{_points(span, minutes.get(hop, {}), decades)}"/>' for hop in HOPS
    )


def _points(span: range, figures: Mapping[int, Figures], decades: int) -> str:
    """Return the steps of one hop: each minute a flat piece, so that one minute alone is seen as well."""
    points: list[str] = []
    for minute, found in figures.items():
        y = HEIGHT * (1 - math.log10(max(found.p99, FASTEST_S) / FASTEST_S) / decades)
        points += [f"{minute - span[0]},{y:.1f}", f"{minute - span[0] + 1},{y:.1f}"]
    return " ".join(points)


def _hints(span: range, minutes: Minutes, faults: Mapping[int, Counter[str]]) -> str:
    """Return what is told of a minute where the pointer is over it."""
    return "".join(
        f'<rect class="hint" x="{minute - span[0]}" width="1" y="0" height="{HEIGHT}"><title>'
        f"{escape(_sentence(minute, minutes, faults))}</title></rect>"
        for minute in span
        if minute in faults or any(minute in minutes.get(hop, {}) for hop in (*HOPS, EVENTS))
    )


def _sentence(minute: int, minutes: Minutes, faults: Mapping[int, Counter[str]]) -> str:
    at = datetime.fromtimestamp(minute * MINUTE_S, UTC)
    told = [f"{at:%H:%M} UTC: {_events(minutes, minute):,} events"]
    told += [
        f"{hop_name(hop)} p99 {duration(minutes[hop][minute].p99)}"
        for hop in HOPS
        if minute in minutes.get(hop, {})
    ]
    told += [f"{kind}: {count:,}" for kind, count in faults.get(minute, Counter()).items()]
    return ", ".join(told)


def _events(minutes: Minutes, minute: int) -> int:
    found = minutes.get(EVENTS, {}).get(minute)
    return found.events if found else 0


def _numbers(span: range, minutes: Minutes, faults: Mapping[int, Counter[str]]) -> str:
    """Return the strips as a table, the latest minute first."""
    titles = ["minute", "events", *(f"{hop_name(hop)} p99" for hop in HOPS), *FAULTS]
    rows = "".join(
        f"<tr><td>{time_of(minute * MINUTE_S)}</td>{_cells(_row(minute, minutes, faults))}</tr>"
        for minute in reversed(span)
    )
    head = "".join(f"<th scope=col>{escape(title)}</th>" for title in titles)
    return (
        f"<details><summary>As numbers</summary><div class=scroll><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def _row(minute: int, minutes: Minutes, faults: Mapping[int, Counter[str]]) -> Sequence[str]:
    slow = [minutes.get(hop, {}).get(minute) for hop in HOPS]
    wrong = faults.get(minute, Counter())
    return [
        f"{_events(minutes, minute):,}",
        *(duration(figures.p99) if figures else "-" for figures in slow),
        *(f"{wrong[kind]:,}" for kind in FAULTS),
    ]


def _cells(texts: Sequence[str]) -> str:
    return "".join(f'<td class="number">{escape(text)}</td>' for text in texts)
