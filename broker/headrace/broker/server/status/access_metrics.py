"""What was decided about who may do what, and how many lists it was decided by, as families of Prometheus'."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.broker.auth.acls import title
from headrace.broker.auth.decisions import Decisions


def families(decisions: Decisions, list_count: int, unreadable_count: int) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "headrace_authorizations_granted", "What requests asked to do and may do.", decisions.granted_count
    )
    denied = CounterMetricFamily(
        "headrace_authorizations_denied",
        "What requests asked to do and may not do, by kind of resource and operation.",
        labels=["resource", "operation"],
    )
    for (kind, operation), count in sorted(decisions.denied_counts.items()):
        denied.add_metric([title(kind), title(operation)], count)
    yield denied
    yield GaugeMetricFamily(
        "headrace_access_control_lists", "Access control lists that this broker knows.", list_count
    )
    yield GaugeMetricFamily(
        "headrace_unreadable_access_control_lists", "Those of them that it cannot read.", unreadable_count
    )
