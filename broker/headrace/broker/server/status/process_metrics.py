"""What the system tells of this process, as CPU, memory, open files and their limit, by Prometheus' own names for it, and of the
disks that it writes to; and what was found there by who looked for rotten bytes.

Asked in a thread: a broker of thousands of partitions has as many open files to count, and a disk may take its time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric

from headrace.broker.server.status.scrub_metrics import scrub_families


class ProcessMetrics:
    """A prometheus_client collector; `directories` tells which ones are written to."""

    def __init__(self, directories: Callable[[], Iterable[str]]) -> None:
        self._process = ProcessCollector(registry=None)
        self._directories = directories

    def collect(self) -> Iterator[Metric]:
        """The page's families."""
        for family in self._process.collect():
            yield family
            if family.name == "process_open_fds":
                yield GaugeMetricFamily(
                    "headrace_open_files", "Open file descriptors.", family.samples[0].value
                )
        yield from self._disks()
        yield from scrub_families(list(self._directories()))

    def _disks(self) -> Iterator[Metric]:
        free = GaugeMetricFamily(
            "headrace_log_directory_free_bytes",
            "What a data directory's disk has left for this process.",
            labels=["directory"],
        )
        capacity = GaugeMetricFamily(
            "headrace_log_directory_capacity_bytes", "What it can hold.", labels=["directory"]
        )
        for directory in list(self._directories()):
            with suppress(OSError):
                usage = shutil.disk_usage(directory)
                free.add_metric([directory], usage.free)
                capacity.add_metric([directory], usage.total)
        yield from (free, capacity)
