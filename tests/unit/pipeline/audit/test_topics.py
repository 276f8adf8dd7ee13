"""Accounts are read whichever release wrote them, and say in which process their producer lived."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import pytest
from fastavro import schemaless_writer
from fastavro.schema import parse_schema

from headrace.audit.judging.reconcile import reconcile
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.records import Barrier, Counted, encode
from headrace.audit.report import as_json, named
from headrace.audit.topics import take
from headrace.audit.windows import ProducerName
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.avro_schemas import schema_text
from headrace.events.envelope import Header, frame_prefix
from headrace.events.monitoring import MonitoringEvent, ProcessName, WindowLedger

NOW = 1_700_000_000_000
MONITORING = TopicPartition("dc-east.headrace.monitoring", 0)


def message(fields_left_out: int, later: tuple[dict[str, Any], ...] = ()) -> bytes:
    """Return an account as a release wrote it whose schema had fewer fields, or more."""
    event = MonitoringEvent(
        header=Header(NOW, "web-1", "shop", "u-1", 0),
        topic="pageviews",
        datacenter="dc-east",
        account=WindowLedger("u-1", window_size_ms=1000, now_ms=NOW).opened(NOW),
        process=ProcessName("host-1", 4711, NOW - 60_000),
    )
    schema = json.loads(schema_text("monitoring_event"))
    fields = schema["fields"]
    schema["fields"] = [*fields[: len(fields) - fields_left_out], *later]
    buffer = io.BytesIO()
    schemaless_writer(buffer, parse_schema(schema), {**event.as_record(), "later": "x"})
    return frame_prefix(1) + buffer.getvalue()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (message(0), ProducerName("web-1", "shop", "host-1", 4711, NOW - 60_000)),
        (message(1), ProducerName("web-1", "shop")),
        (
            message(0, ({"name": "later", "type": "string"},)),
            ProducerName("web-1", "shop", "host-1", 4711, NOW - 60_000),
        ),
    ],
)
def test_an_account_of_any_release_is_read(value: bytes, name: ProducerName) -> None:
    ledger = Ledger()
    take(ledger, MONITORING, 0, None, value)
    assert not ledger.problems
    assert ledger.producers == {"u-1": name}


def test_what_is_told_of_a_producer_names_its_process() -> None:
    ledger = Ledger()
    take(ledger, MONITORING, 0, None, message(0))
    outcome = reconcile(ledger, NOW)
    (item,) = as_json(outcome, ledger, NOW)["incomplete"]
    assert (item["server"], item["service"], item["host"], item["pid"]) == ("web-1", "shop", "host-1", 4711)
    assert item["process_started"] == "2023-11-14T22:12:20Z"
    (sentence,) = named(outcome, ledger)
    assert sentence.startswith(
        "server web-1, service shop, process 4711 on host-1 since 2023-11-14T22:12:20Z (producer u-1) of pageviews"
    )


EAST, CLICKS = "dc-east.pageviews", "dc-east.clicks"


@pytest.mark.parametrize("wanted", [{EAST}, {CLICKS}])
def test_only_what_is_wanted_is_taken(wanted: set[str]) -> None:
    """Counts of both clusters, barriers, accounts and arrivals of other topics are none of a ledger's business."""
    ledger = Ledger()
    for tier, topic, where in (
        ("live", "pageviews", "dc-east.headrace.counts"),
        ("offline", EAST, "headrace.counts"),
    ):
        counted = Counted(
            tier=tier,  # type: ignore[arg-type]
            datacenter="dc-east" if tier == "live" else "offline",
            partition=TopicPartition(topic, 0),
            first=0,
            next=1,
            tallies=(),
            at_ms=NOW,
        )
        take(ledger, TopicPartition(where, 0), 0, None, encode(counted), wanted=wanted)
    barrier = Barrier(
        tier="live",
        datacenter="dc-east",
        counted={TopicPartition("pageviews", 0): 1},
        monitoring={0: 1},
        whole=frozenset({"pageviews"}),
        at_ms=NOW,
    )
    take(ledger, TopicPartition("dc-east.headrace.counts", 0), 1, None, encode(barrier), wanted=wanted)
    take(ledger, MONITORING, 0, None, message(0), wanted=wanted)
    arrival = struct.pack(">qqqb", 0, 0, NOW, 0)
    take(ledger, TopicPartition("headrace.arrivals", 0), 0, f"{EAST}-0".encode(), arrival, wanted=wanted)
    ledger.settle(NOW)
    assert not ledger.problems
    is_taken = EAST in wanted
    assert len(ledger.counted) == 2 * is_taken
    assert bool(ledger.accounts) is is_taken
    assert bool(ledger.reach.whole_at) is is_taken
    assert bool(ledger.latencies.appended) is is_taken
    assert ledger.barriers.open == []
