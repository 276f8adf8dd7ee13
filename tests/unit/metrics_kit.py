"""The names of the metrics that each service serves, from the very collectors that it registers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric

from headrace.audit.counting.counter import RoundFigures
from headrace.audit.counting.counter_metrics import CounterMetrics
from headrace.audit.metrics import AuditMetrics
from headrace.audit.modes import TopicModes
from headrace.audit.topic_names import parse
from headrace.broker.clock import SystemClock
from headrace.broker.server.membership.zookeeper_watch import ZooKeeperWatch
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.server.status.metrics_page import lines
from headrace.broker.server.status.process_metrics import ProcessMetrics
from headrace.load.metrics import LoadMetrics
from headrace.load.rounds import Rounds
from headrace.mirror.metrics import MirrorMetrics
from headrace.registry.pages import Pages


def names_of(*collectors: Iterable[Metric]) -> set[str]:
    """The names as a page has them, a counter's with its `_total`."""
    text = "".join(line for families in collectors for line in lines(families))
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def of_the_process() -> set[str]:
    return names_of(ProcessCollector(registry=None).collect())


def of_a_broker() -> set[str]:
    metrics = BrokerMetrics()
    metrics.zookeeper = ZooKeeperWatch(cast("Any", None), "zk:2181")
    figures = SimpleNamespace(
        max_dirty_ratio=0, cleaned_bytes=0, uncleanable_partitions=0, ended_ms=1, last_run_s=0
    )
    metrics.cleaner = lambda: (cast("Any", figures), 1)
    return names_of(metrics.collect(), ProcessMetrics(lambda: ()).collect())


def of_the_mirror() -> set[str]:
    return names_of(MirrorMetrics([], {}, SystemClock()).collect())


def of_rounds(prefix: str) -> set[str]:
    rounds = Rounds(prefix, 1.0)
    rounds.ended(1.0)
    return names_of(rounds.collect())


def of_a_load() -> set[str]:
    return names_of(LoadMetrics().registry.collect())


def of_a_counter() -> set[str]:
    metrics = CounterMetrics(TopicModes(parse("pageviews")))
    metrics.counter = cast(
        "Any",
        SimpleNamespace(
            counted_events=0, counted_offsets={}, figures=RoundFigures(), known_topics=frozenset()
        ),
    )
    return names_of(metrics.registry.collect())


def of_the_auditor(state: Path) -> set[str]:
    return names_of(AuditMetrics(state).registry.collect())


def of_a_registry() -> set[str]:
    registry = SimpleNamespace(
        ready=SimpleNamespace(is_set=lambda: True),
        read=lambda: SimpleNamespace(subjects=list),
        passed_over=0,
    )
    return names_of(Pages(cast("Any", registry)).collect())


def of_all(state: Path) -> set[str]:
    """Every name of headrace's own, and of its processes."""
    rounds = (of_rounds(f"headrace_{kind}") for kind in ("load", "counter", "audit"))
    return (
        set().union(*rounds)
        | (of_a_broker() | of_the_mirror() | of_a_load() | of_a_counter())
        | (of_the_auditor(state) | of_a_registry())
    )
