"""What the system tells of this process, as CPU, memory, open files and their limit, by Prometheus' own names for it.

Asked in a thread: a broker of thousands of partitions has as many open files to count.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric


class ProcessMetrics:
    """A prometheus_client collector."""

    def __init__(self) -> None:
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        """The page's families."""
        for family in self._process.collect():
            yield family
            if family.name == "process_open_fds":
                yield GaugeMetricFamily(
                    "headrace_open_files", "Open file descriptors.", family.samples[0].value
                )
