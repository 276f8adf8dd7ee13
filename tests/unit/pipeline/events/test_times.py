"""Times that Python's datetime lacks are plain numbers."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time
from typing import Any

import fastavro.read
import pytest
from fastavro import schemaless_reader, schemaless_writer

from headrace.events.times import AVRO_READERS, EPOCH_LOCAL, day, moment, time_of_day

YEAR_50000_MS = 1_515_731_616_000_000


def test_what_python_has_is_a_time_and_the_rest_a_number() -> None:
    assert moment(1_000) == datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)
    assert moment(253_402_300_799_999_999) == datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    assert moment(253_402_300_800_000_000) == 253_402_300_800_000
    assert moment(-62_135_596_800_000_000, EPOCH_LOCAL) == datetime(1, 1, 1)
    assert moment(-62_135_596_800_000_001) == -62_135_596_800_001
    assert moment(2**63 - 1) == (2**63 - 1) // 1000
    assert (day(-1), day(2_932_896), day(2_932_897)) == (date(1969, 12, 31), date(9999, 12, 31), 2_932_897)
    assert (time_of_day(1_000_000), time_of_day(86_400_000_000)) == (time(0, 0, 1), 86_400_000)
    assert time_of_day(-1) == -1


@pytest.mark.parametrize(
    ("kind", "logical", "value", "shown"),
    [
        ("long", "timestamp-millis", YEAR_50000_MS, YEAR_50000_MS),
        ("long", "timestamp-micros", YEAR_50000_MS * 1000, YEAR_50000_MS),
        ("long", "local-timestamp-millis", -YEAR_50000_MS, -YEAR_50000_MS),
        ("long", "local-timestamp-micros", 1000, datetime(1970, 1, 1, 0, 0, 0, 1000)),
        ("int", "date", 2_000_000_000, 2_000_000_000),
        ("int", "time-millis", 2_000_000_000, 2_000_000_000),
        ("long", "time-micros", 2_000_000_000_000, 2_000_000_000),
    ],
)
def test_fastavro_reads_with_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, logical: str, value: int, shown: Any
) -> None:
    for name, reader in AVRO_READERS.items():
        assert name in fastavro.read.LOGICAL_READERS
        monkeypatch.setitem(fastavro.read.LOGICAL_READERS, name, reader)
    buffer = io.BytesIO()
    schemaless_writer(buffer, {"type": kind}, value)
    buffer.seek(0)
    assert schemaless_reader(buffer, {"type": kind, "logicalType": logical}, None) == shown
