"""The text of the metrics page, made on the event loop in slices, so that nobody waits for it.

Invariants: other work has the loop back after about `SLICE_S`; those who ask at the same time get the same page; a page
is handed out again for `REUSE_FACTOR` times as long as it took to make, so that no number of scrapers takes more than
that share of the process. Must not know: what is counted, who asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from itertools import chain
from typing import cast

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from headrace.broker.page_server import METRICS_TYPE

SLICE_S = 0.001
REUSE_FACTOR = 10
_TYPE_SUFFIXES = {"counter": "_total", "gauge": "", "histogram": ""}
_number = cast("Callable[[float], str]", floatToGoString)
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class MetricsPage:
    """The page of `collector`, after the families of `waiting`, which is asked in a thread as it waits for the system."""

    def __init__(
        self, collector: Collector, waiting: Collector, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._collector = collector
        self._waiting = waiting
        self._now = now
        self._making = asyncio.Lock()
        self._page = b""
        self._page_until = -1.0

    async def answer(self) -> tuple[HTTPStatus, str, bytes]:
        """The answer to GET /metrics."""
        return HTTPStatus.OK, METRICS_TYPE, await self.text()

    async def text(self) -> bytes:
        """The page of now, or one that is nearly as new."""
        async with self._making:
            began = self._now()
            if began >= self._page_until:
                self._page = await self._make()
                ended = self._now()
                self._page_until = ended + (ended - began) * REUSE_FACTOR
            return self._page

    async def _make(self) -> bytes:
        found = await asyncio.to_thread(lambda: list(self._waiting.collect()))
        slices: list[bytes] = []
        text: list[str] = []
        end = self._now() + SLICE_S
        for line in lines(chain(found, self._collector.collect())):
            text.append(line)
            if self._now() >= end:
                slices.append("".join(text).encode())
                text.clear()
                await asyncio.sleep(0)
                end = self._now() + SLICE_S
        slices.append("".join(text).encode())
        return b"".join(slices)


def lines(families: Iterable[Metric]) -> Iterator[str]:
    """Prometheus' text format 0.0.4 of counters, gauges and histograms, made as it is read."""
    for family in families:
        name = family.name + _TYPE_SUFFIXES[family.type]
        text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {name} {text}\n# TYPE {name} {family.type}\n"
        for sample in family.samples:
            yield _line(sample)


def _line(sample: Sample) -> str:
    if not sample.labels:
        return f"{sample.name} {_number(sample.value)}\n"
    labels = ",".join(
        [f'{label}="{value.translate(_ESCAPES)}"' for label, value in sorted(sample.labels.items())]
    )
    return f"{sample.name}{{{labels}}} {_number(sample.value)}\n"
