"""docs/metrics.md names what the pages have, no more and no less."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from headrace.audit.counter import RoundFigures
from headrace.audit.counter_metrics import CounterMetrics
from headrace.audit.metrics import AuditMetrics
from headrace.audit.topic_names import parse
from headrace.broker.server.metrics import BrokerMetrics
from headrace.broker.server.metrics_page import lines
from headrace.broker.server.process_metrics import ProcessMetrics
from headrace.broker.server.zookeeper_watch import ZooKeeperWatch
from headrace.load.rounds import Rounds

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"


def listed(heading: str) -> set[str]:
    """The names in the table below a heading."""
    text = PAGE.read_text(encoding="utf-8").split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def served(page: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))


def text_of(*collectors: Iterable[Metric]) -> str:
    return "".join(line for families in collectors for line in lines(families))


def test_the_table_lists_what_a_broker_serves() -> None:
    metrics = BrokerMetrics()
    metrics.zookeeper = ZooKeeperWatch(cast("Any", None), "zk:2181")
    figures = SimpleNamespace(
        max_dirty_ratio=0, cleaned_bytes=0, uncleanable_partitions=0, ended_ms=1, last_run_s=0
    )
    metrics.cleaner = lambda: (cast("Any", figures), 1)
    assert listed("A broker") == served(text_of(metrics.collect(), ProcessMetrics().collect()))


def test_the_tables_list_what_a_counter_and_the_auditor_serve() -> None:
    rounds = Rounds("", 1.0)
    rounds.ended(1.0)
    common = {name.removeprefix("_") for name in served(text_of(rounds.collect()))}
    assert listed("A counter and the auditor") == common | {"lag_offsets"}
    counting = CounterMetrics(parse("pageviews"))
    counting.counter = cast(
        "Any",
        SimpleNamespace(
            counted_events=0, counted_offsets={}, figures=RoundFigures(), known_topics=frozenset()
        ),
    )
    auditing = AuditMetrics()
    for heading, prefix, registry in (
        ("A counter's own", "headrace_counter", counting.registry),
        ("The auditor's own", "headrace_audit", auditing.registry),
    ):
        assert listed(heading) | {f"{prefix}_lag_offsets"} == served(generate_latest(registry).decode())
