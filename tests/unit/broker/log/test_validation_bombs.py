"""Batches that claim or unpack to more than they should: refused before they cost much, and honest ones are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from log_kit import NOW_MS, open_log

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import InvalidRecordError, MessageTooLargeError
from headrace.broker.log import timestamps, validation
from headrace.broker.log.appender import Appender
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.wire.batches import PUBLISHED_SIZE_MAX, Record, encode_batch, set_crc

COMPRESSED = (1, 2, 3, 4)
COUNT_AT, DELTA_AT = 57, 23


def append(log: PartitionLog, data: bytearray) -> None:
    Appender(log).append_as_leader(memoryview(data), leader_epoch=0, now_ms=NOW_MS)


def claiming(count: int, data: bytearray) -> bytearray:
    """The batch with another count of records, and all of its header in line with that."""
    data[COUNT_AT : COUNT_AT + 4] = count.to_bytes(4, "big")
    data[DELTA_AT : DELTA_AT + 4] = (count - 1).to_bytes(4, "big")
    set_crc(data, 0)
    return data


@pytest.mark.parametrize("codec", range(5))
def test_the_smallest_records_packed_best_are_accepted(tmp_path: Path, codec: int) -> None:
    log, _ = open_log(tmp_path)
    append(log, encode_batch([Record(0, NOW_MS, None, None, [])] * 100_000, codec=codec))
    assert log.log_end_offset == 100_000


@pytest.mark.parametrize("codec", range(5))
def test_more_records_than_can_be_in_a_batch_are_refused(tmp_path: Path, codec: int) -> None:
    log, _ = open_log(tmp_path)
    record = Record(0, NOW_MS, b"k", b"v", [])
    with pytest.raises(InvalidRecordError):
        append(log, claiming((1 << 31) - 1, encode_batch([record], codec=codec)))
    assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize(
    "config", [LogConfig(cleanup_policy=("compact",)), LogConfig(compression_type="uncompressed")]
)
def test_a_bomb_is_refused_where_a_batch_is_unpacked(tmp_path: Path, codec: int, config: LogConfig) -> None:
    log, _ = open_log(tmp_path, replace(config, max_message_bytes=4 << 20))
    with pytest.raises(MessageTooLargeError):
        append(log, encode_batch([Record(0, NOW_MS, b"k", bytes(PUBLISHED_SIZE_MAX), [])], codec=codec))
    assert (log.log_end_offset, log.size) == (0, 0)


def test_more_records_than_can_be_looked_at_are_refused_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "PUBLISHED_RECORDS_COUNT_MAX", 10)
    log, _ = open_log(tmp_path, LogConfig(cleanup_policy=("compact",)))
    record = Record(0, NOW_MS, b"k", b"v", [])
    append(log, encode_batch([record] * 10, codec=1))
    with pytest.raises(MessageTooLargeError):
        append(log, encode_batch([record] * 11, codec=1))
    assert log.log_end_offset == 10


@pytest.mark.parametrize("bound", ["PUBLISHED_SIZE_MAX", "PUBLISHED_RECORDS_COUNT_MAX"])
def test_a_batch_too_large_to_look_into_is_found_by_time_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    log, _ = open_log(tmp_path)
    append(log, encode_batch([Record(0, NOW_MS, None, b"v", [])]))
    records = [Record(0, NOW_MS + number, None, b"v", []) for number in range(1, 11)]
    append(log, encode_batch(records, codec=4))
    assert log.offset_for_timestamp(NOW_MS + 5) == (5, NOW_MS + 5, 0)
    monkeypatch.setattr(timestamps, bound, 9)
    assert log.offset_for_timestamp(NOW_MS + 5) == (1, NOW_MS + 10, 0)
    assert log.latest_timestamp_offset() == (1, NOW_MS + 10, 0)
    assert log.offset_for_timestamp(NOW_MS) == (0, NOW_MS, 0)
