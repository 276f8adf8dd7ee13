"""Errors in answers are counted by API and code, wherever in the response they stand."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.error_counts import count_errors
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.server.status.metrics_page import lines
from headrace.broker.wire.api import k04_leader_and_isr, k09_offset_fetch, k10_find_coordinator, k12_heartbeat
from headrace.broker.wire.schema import Api


@pytest.mark.parametrize(
    ("api", "message", "errors"),
    [
        (k12_heartbeat.API, {"error_code": 25}, {(12, 25): 1}),
        (k12_heartbeat.API, {"error_code": ErrorCode.NONE}, {}),
        (k12_heartbeat.API, {}, {}),
        (k10_find_coordinator.API, {"error_code": 15, "node": None}, {(10, 15): 1}),
        (
            k09_offset_fetch.API,
            {
                "topics": None,
                "groups": [
                    {"error_code": 16, "topics": []},
                    {"error_code": 0, "topics": [{"partitions": [{"error_code": 3}, {"error_code": 3}, {}]}]},
                ],
            },
            {(9, 16): 1, (9, 3): 2},
        ),
        (
            k04_leader_and_isr.API,
            {"error_code": 0, "partition_errors": [{"error_code": 56}]},
            {(4, 56): 1},
        ),
    ],
)
def test_each_error_of_a_response_counts(
    api: Api, message: dict[str, Any], errors: dict[tuple[int, int], int]
) -> None:
    metrics = BrokerMetrics()
    count_errors(metrics, api, message)
    assert metrics.errors == errors


def test_the_page_names_errors_and_the_directories_that_refuse() -> None:
    metrics = BrokerMetrics()
    metrics.directories = lambda: ["/a", "/b"]
    metrics.failed(0, ErrorCode.KAFKA_STORAGE_ERROR)
    metrics.refused_writes.refused("/b/topic-0", OSError("full"), 5)  # type: ignore[arg-type]
    page = "".join(lines(metrics.collect()))
    assert 'headrace_request_errors_total{api="Produce",error="KAFKA_STORAGE_ERROR"} 1.0\n' in page
    assert 'headrace_log_directory_refuses_writes{directory="/a"} 0.0\n' in page
    assert 'headrace_log_directory_refuses_writes{directory="/b"} 1.0\n' in page
    assert 'headrace_refused_writes_total{directory="/a"} 0.0\n' in page
    metrics.refused_writes.worked("/b/topic-1", 6)
    page = "".join(lines(metrics.collect()))
    assert 'headrace_log_directory_refuses_writes{directory="/b"} 0.0\n' in page
    assert 'headrace_refused_writes_total{directory="/b"} 1.0\n' in page
