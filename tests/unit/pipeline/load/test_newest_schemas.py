"""Schemas are found behind tombstones, markers and junk at a partition's end, and no search goes on for ever."""

from __future__ import annotations

import struct

import pytest
from scripted_log import ScriptedLog, control

from headrace.broker.wire.batches import Record, encode_batch
from headrace.load import newest_schemas
from headrace.load.newest_schemas import newest_schema_ids
from headrace.load.ranges import OffsetRange

KNOWN = {7, 8}


def framed(schema_id: int) -> bytes:
    return b"\x00" + struct.pack(">I", schema_id) + b"event"


def log_of(*values: bytes | None, batch_size: int = 1) -> ScriptedLog:
    batches = []
    for first in range(0, len(values), batch_size):
        part = values[first : first + batch_size]
        records = [Record(0, 1000, b"key", value, []) for value in part]
        batches.append((first, first + len(part) - 1, bytes(encode_batch(records, base_offset=first))))
    return ScriptedLog(batches, end=len(values))


def newest(log: ScriptedLog, known: set[int] = KNOWN) -> list[int]:
    whole = OffsetRange(topic="dc.t", partition=0, first_offset=log.start, next_offset=log.end)
    return newest_schema_ids(log, whole, known.__contains__)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("junk", [None, b"", b"no event at all", framed(99)])
def test_records_without_a_known_schema_at_the_end_are_passed_over(
    junk: bytes | None, batch_size: int
) -> None:
    assert newest(log_of(framed(7), *[junk] * 50, batch_size=batch_size)) == [7]


def test_a_marker_at_the_end_is_passed_over() -> None:
    log = log_of(framed(7), framed(8))
    log.batches.append(control(2, producer_id=1, kind=1))
    log.end = 3
    assert newest(log) == [8, 7]


def test_the_newest_schema_is_found_before_older_ones() -> None:
    assert newest(log_of(*[framed(7)] * 30, framed(8))) == [8]


def test_a_partition_without_any_known_schema_has_none() -> None:
    assert newest(log_of(*[None, framed(99)] * 20)) == []
    assert newest(log_of()) == []


def test_the_search_has_bounds_in_bytes_and_in_unknown_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def is_known(schema_id: int) -> bool:
        asked.append(schema_id)
        return schema_id in KNOWN

    log = log_of(framed(7), *[framed(number) for number in range(1000, 3000)])
    whole = OffsetRange(topic="dc.t", partition=0, first_offset=0, next_offset=log.end)
    assert newest_schema_ids(log, whole, is_known) == []
    assert len(asked) == newest_schemas.UNKNOWN_MAX
    monkeypatch.setattr(newest_schemas, "LOOK_BACK_SIZE_MAX", 500)
    assert newest(log_of(framed(7), *[None] * 1000)) == []


def test_rot_does_not_end_the_search() -> None:
    log = log_of(framed(7), framed(8), framed(7))
    first, last, content = log.batches[1]
    log.batches[1] = (first, last, content[:-1] + bytes([content[-1] ^ 1]))
    log.batches[2] = log_of(None, None, None).batches[2]
    assert newest(log) == [7]
