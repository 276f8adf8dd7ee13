"""What the audit's topics hold after somebody wrote into them: records with some fields as nobody would write them."""

from __future__ import annotations

import copy
import io
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from audit_pipeline import ACCOUNTS, DATACENTER, NOW, TOPIC, WINDOW_MS, Pipeline, tallies_of
from fastavro import schemaless_writer

from headrace.audit.batch_counts import BatchCounts, Entry, SequenceRun, Sums
from headrace.audit.records import (
    ARRIVALS_TOPIC,
    COUNTS_TOPIC,
    FINDINGS_TOPIC,
    Barrier,
    CountRecord,
    Standstill,
    as_fields,
)
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.avro_schemas import parsed_schema
from headrace.events.envelope import Header, frame_prefix
from headrace.events.monitoring import MonitoringEvent, WindowLedger

Message = tuple[TopicPartition, bytes | None, bytes]
"""Where it is written, key and value."""
NUMBERS = (-1, 0, 1, 1 << 31, 1 << 53, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30)
VALUES: tuple[Any, ...] = (
    *NUMBERS,
    None,
    True,
    1.5,
    float("nan"),
    "",
    "9" * 30,
    "<b>[/x]",
    [],
    [[]],
    {},
    "é\0",
)
FINDING = {
    "id": "1",
    "kind": "loss",
    "datacenter": DATACENTER,
    "topic": TOPIC,
    "partition": 0,
    "first_offset": 1,
    "last_offset": 2,
    "detected_ms": NOW,
    "reason": "r",
}


def forged(random: Random, pipeline: Pipeline) -> Message | None:
    """One message; None where the format itself would not have it."""
    kind = random.random()
    if kind < 0.6:
        tier, record = random.choice([*_counts(pipeline)])
        topic = COUNTS_TOPIC if tier == "offline" else f"{DATACENTER}.{COUNTS_TOPIC}"
        return TopicPartition(topic, 0), None, _json(changed(random, as_fields(record)))
    if kind < 0.85:
        value = _account(changed(random, _told(pipeline)))
        return None if value is None else (ACCOUNTS, None, value)
    if kind < 0.95:
        return TopicPartition(FINDINGS_TOPIC, 0), None, _json(changed(random, FINDING))
    numbers = [random.choice((-1, 0, 5, (1 << 63) - 1, -(1 << 63))) for _ in range(3)]
    key = f"{DATACENTER}.{TOPIC}-{random.choice((0, 1 << 40, 10**25))}"
    return TopicPartition(ARRIVALS_TOPIC, 0), key.encode(), struct.pack(">qqqb", *numbers, 0)


def changed(random: Random, fields: Any) -> Any:
    """The same with up to three places that hold something else, or nothing."""
    found = copy.deepcopy(fields)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        holder, key = random.choice([*_places(found)])
        if random.random() < 0.15 and isinstance(holder, dict):
            del holder[key]
        elif isinstance(holder[key], int) and random.random() < 0.6:
            near = holder[key] + random.choice((-1, 1, 1000, 10**9))
            holder[key] = random.choice((*NUMBERS, near))
        else:
            holder[key] = copy.deepcopy(random.choice(VALUES))
    return found


def _places(fields: Any) -> Iterator[tuple[Any, Any]]:
    """Each field of what JSON holds: what it is in, and by which key."""
    keys = [*fields] if isinstance(fields, dict) else range(len(fields))
    for key in keys:
        yield fields, key
        if isinstance(fields[key], dict | list):
            yield from _places(fields[key])


def _counts(pipeline: Pipeline) -> Iterator[tuple[str, CountRecord]]:
    """What counters would say next."""
    first, at_ms = pipeline.offsets.get(TOPIC, 0), pipeline.now_ms
    live, offline = (
        pipeline._counted(tier, TOPIC, first, tallies_of("another", at_ms, 5)) for tier in ("live", "offline")
    )
    batches = BatchCounts(
        entries=(Entry(first // 1000, at_ms - at_ms % WINDOW_MS, Sums(1, 70, 5)),),
        runs=(SequenceRun(7, 0, 0, 0, first, 0),),
    )
    yield "live", live
    yield "offline", offline
    yield "live", replace(live, tallies=(), batches=batches)
    yield (
        "live",
        Standstill(
            tier="live",
            datacenter=DATACENTER,
            partition=live.partition,
            first=first,
            next=first + 1,
            reason="x",
        ),
    )
    yield (
        "live",
        Barrier(
            tier="live",
            datacenter=DATACENTER,
            counted={live.partition: first},
            monitoring={0: pipeline.accounts},
            whole=frozenset({TOPIC}),
            at_ms=at_ms,
            modes={"clicks": "headers"},
        ),
    )


def _told(pipeline: Pipeline) -> dict[str, Any]:
    """What a producer with one event would account."""
    book = WindowLedger("another", window_size_ms=WINDOW_MS, now_ms=pipeline.now_ms)
    book.on_sent(0, pipeline.now_ms)
    book.on_acknowledged(0, pipeline.now_ms, pipeline.now_ms)
    (account,) = book.finished(pipeline.now_ms + 2 * WINDOW_MS)
    header = Header(pipeline.now_ms, "web-9", "shop", "another", 0)
    event = MonitoringEvent(header=header, topic=TOPIC, datacenter=DATACENTER, account=account)
    undelivered = {"first_sequence": 1, "last_sequence": 2, "outcome": "failed", "reason": "x"}
    return {**event.as_record(), "undelivered": [undelivered]}


def _account(record: Any) -> bytes | None:
    sink = io.BytesIO()
    try:
        schemaless_writer(sink, parsed_schema("monitoring_event"), record)
    except Exception:  # of its schema it is not: nobody can write it
        return None
    return frame_prefix(1) + sink.getvalue()


def _json(fields: Any) -> bytes:
    return json.dumps(fields).encode()
