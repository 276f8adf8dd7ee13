"""What runs in a process, as a metric: headrace's version and Python's."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily, Metric


class BuildInfo:
    """A prometheus_client collector."""

    def collect(self) -> Iterator[Metric]:
        """The page's family."""
        family = GaugeMetricFamily("headrace_build_info", "What runs here.", labels=["version", "python"])
        family.add_metric([version("headrace"), platform.python_version()], 1)
        yield family
