"""How findings and reasons read."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.audit import wording
from headrace.audit.latency import HOPS

ITEM: dict[str, Any] = {
    "hop": "live_to_offline",
    "datacenter": "dc-east",
    "topic": "pageviews",
    "server": "web-1",
    "service": "shop",
    "producer": "u-1",
    "first_sequence": 4,
    "last_sequence": 5,
    "count": 2,
    "reason": "it has not closed",
}
NAMELESS = {**ITEM, "server": "", "service": ""}


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (
            ITEM,
            "server web-1, service shop (producer u-1): 2 events of pageviews in dc-east from live to offline, "
            "sequences 4 to 5",
        ),
        (
            NAMELESS,
            "2 events of pageviews in dc-east from live to offline, producer u-1, sequences 4 to 5",
        ),
    ],
)
def test_a_fault_opens_with_where_its_producer_runs_and_never_with_a_uuid(
    item: dict[str, Any], sentence: str
) -> None:
    assert wording.fault(item) == sentence


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (ITEM, "server web-1, service shop (producer u-1) of pageviews in dc-east: it has not closed"),
        (NAMELESS, "producer u-1 of pageviews in dc-east: it has not closed"),
        ({**NAMELESS, "producer": ""}, "pageviews in dc-east: it has not closed"),
        ({**NAMELESS, "producer": "", "topic": "", "datacenter": ""}, "it has not closed"),
    ],
)
def test_a_reason_names_all_that_it_is_about(item: dict[str, Any], sentence: str) -> None:
    assert wording.reason(item) == sentence


NEGATIVE: dict[str, Any] = {
    "datacenter": "dc-east",
    "hop": "live_to_offline",
    "from_host": "web-1",
    "to_host": "broker-1",
    "count": 1204,
    "skew_seconds": 0.05,
    "is_certain": True,
}


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, "the clock of web-1 is ahead of the clock of broker-1, by up to 50 ms"),
        (
            {"is_certain": False},
            "broker-1 had the copies up to 50 ms before web-1 heard of the acknowledgement",
        ),
        (
            {"to_host": "web-1"},
            "the clock of web-1 went back, or events bear times up to 50 ms ahead of it",
        ),
        (
            {"from_host": "", "to_host": ""},
            "the clock of a producer's host is ahead of the clock of the host of the later time, by up to 50 ms",
        ),
    ],
)
def test_a_skew_names_both_hosts(changes: dict[str, Any], end: str) -> None:
    sentence = wording.skew({**NEGATIVE, **changes})
    assert sentence == (
        f"1,204 latencies of dc-east from live to offline are negative and in no figure: {end}"
    )


@pytest.mark.parametrize("kind", ["loss", "duplicate", "late", "truncation", "recreation"])
@pytest.mark.parametrize("hop", HOPS)
def test_a_finding_says_what_to_do(kind: str, hop: str) -> None:
    assert wording.to_do({**ITEM, "kind": kind, "hop": hop})
