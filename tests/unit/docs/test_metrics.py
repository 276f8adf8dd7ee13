"""docs/metrics.md names what a broker's page has, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from headrace.broker.server.metrics import BrokerMetrics
from headrace.broker.server.metrics_page import lines
from headrace.broker.server.process_metrics import ProcessMetrics
from headrace.broker.server.zookeeper_watch import ZooKeeperWatch

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def test_the_table_lists_what_is_served() -> None:
    metrics = BrokerMetrics()
    metrics.zookeeper = ZooKeeperWatch(cast("Any", None), "zk:2181")
    figures = SimpleNamespace(
        max_dirty_ratio=0, cleaned_bytes=0, uncleanable_partitions=0, ended_ms=1, last_run_s=0
    )
    metrics.cleaner = lambda: (cast("Any", figures), 1)
    page = "".join([*lines(metrics.collect()), *lines(ProcessMetrics().collect())])
    served = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == served
