"""The latency plots of the report, as inline SVG: one for each hop and one from end to end."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from headrace.audit.histogram import Histogram, upper_of
from headrace.audit.latency import SPANS
from headrace.audit.wording import duration

BARS: Final = 40
COLOUR: Final = "#2f6f9f"
INK: Final = "#1d2733"
FAINT: Final = "#8a97a5"
MARKS: Final = (("p50", "#c26a00"), ("p99", "#b3261e"))


def latency_plots(histograms: Mapping[str, Histogram]) -> list[str]:
    """Return an SVG element for each span, without anything that a browser would have to fetch."""
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "headrace",
        "font.family": "sans-serif",
        "font.size": 9,
    }
    with mpl.rc_context(settings):
        return [_plot(span, histograms[span]) for span in SPANS]


def _plot(span: str, histogram: Histogram) -> str:
    figure = Figure(figsize=(5.5, 2.8))
    figure.subplots_adjust(left=0.12, right=0.98, top=0.89, bottom=0.11)
    _draw(figure.subplots(), span.replace("_", " "), histogram)
    sink = io.StringIO()
    figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None})
    text = sink.getvalue()
    return text[text.index("<svg") :]


def _draw(panel: Any, title: str, histogram: Histogram) -> None:
    panel.set_title(title, loc="left", color=INK, fontweight="bold")
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.spines["bottom"].set_color(FAINT)
    panel.tick_params(colors=FAINT, labelcolor=INK, length=3)
    summary = histogram.summary()
    if summary is None:
        panel.set_xticks([])
        panel.set_yticks([])
        panel.text(0.5, 0.5, "no data yet", transform=panel.transAxes, ha="center", color=FAINT)
        return
    edges, shares = bars(histogram)
    panel.set_xscale("log")
    panel.bar(edges[:-1], shares, width=np.diff(edges), align="edge", color=COLOUR, alpha=0.85, linewidth=0)
    panel.set_ylim(0, max(shares) * 1.25)
    panel.yaxis.set_major_locator(MaxNLocator(4))
    for name, colour in MARKS:
        panel.axvline(
            max(summary[name], edges[0]),
            color=colour,
            linewidth=1.4,
            label=f"{name} {duration(summary[name])}",
        )
    is_narrow = edges[-1] / edges[0] < 100
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_narrow else (1.0,), numticks=20))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    panel.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    panel.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value * 100:.3g}%" if value <= 1 else "")
    )
    panel.yaxis.grid(True, color="#e3e8ed", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.legend(frameon=False, fontsize=8, loc="best", labelcolor=INK)
    panel.set_ylabel("share of events", color=FAINT)


def bars(histogram: Histogram) -> tuple[Any, list[float]]:
    """Return the edges of logarithmic bars in seconds and the share of the events in each."""
    used = np.flatnonzero(histogram.buckets)
    upper = np.array([upper_of(int(at)) for at in used], dtype=np.float64) / 1000
    values = np.maximum(upper, 0.001)
    low, high = values.min() / 1.3, values.max() * 1.3
    edges = np.geomspace(low, high, BARS + 1)
    shares, _ = np.histogram(values, bins=edges, weights=histogram.buckets[used] / histogram.count)
    return edges, shares.tolist()
