"""Reading: the right batches, no byte above the bound, and files that outlive their deletion; finding by time."""

from pathlib import Path

import pytest
from log_kit import NOW_MS, append, batch, fill, offsets, open_log

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import OffsetOutOfRangeError
from headrace.broker.log.appender import Appender
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.truncation import start_at
from headrace.broker.wire.batches import read_header

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Forty batches of one record in several segments."""
    opened, _ = open_log(tmp_path, SMALL)
    fill(opened, 40)
    return opened


def test_every_offset_is_found_with_cold_and_warm_lookups(log: PartitionLog, tmp_path: Path) -> None:
    log.close()
    cold, _ = open_log(tmp_path, SMALL, clean_shutdown=True)
    for reader in (log, cold):
        for offset in range(40):
            data = reader.read(offset, size_max=1, upper_offset=40).read()
            assert read_header(data).base_offset == offset


def test_an_offset_inside_a_batch_gives_the_whole_batch(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    append(log, batch(5), batch(5))
    assert read_header(log.read(7, size_max=10_000, upper_offset=10).read()).base_offset == 5


def test_a_slice_ends_exactly_at_the_upper_offset(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    append(log, batch(5), batch(5), batch(5))
    whole = log.read(0, size_max=10_000, upper_offset=15)
    bounded = log.read(0, size_max=10_000, upper_offset=10)
    assert bounded.read() == whole.read()[: whole.size * 2 // 3]
    assert log.read(10, size_max=10_000, upper_offset=10).size == 0
    assert log.read(5, size_max=10_000, upper_offset=8).size == 0


def test_only_the_first_batch_exceeds_the_size_and_only_when_asked(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    append(log, batch(size=500), batch(size=500))
    first = log.read(0, size_max=10, upper_offset=2)
    assert first.size == read_header(first.read()).size
    assert log.read(0, size_max=10, upper_offset=2, at_least_one=False).size == 0
    assert log.read(0, size_max=first.size + 10, upper_offset=2).size == first.size + 10


def test_offsets_outside_the_log_are_refused_and_its_end_is_empty(log: PartitionLog) -> None:
    assert log.read(40, size_max=100, upper_offset=40).read() == b""
    for offset in (-1, 41):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, size_max=100, upper_offset=40)


def test_a_gap_is_skipped_inside_and_between_segments(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(segment_bytes=300, index_interval_bytes=0))
    for base_offset in (10, 50, 51, 90, 91, 1000):
        Appender(log).append_mirrored(batch(at=base_offset), leader_epoch=0, now_ms=NOW_MS)
    assert log.segment_count > 1
    assert offsets(log) == [10, 50, 51, 90, 91, 1000]
    for offset in range(92, 1001):
        assert read_header(log.read(offset, size_max=1, upper_offset=1001).read()).base_offset == 1000


def test_offsets_wider_than_32_bits_begin_a_segment(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    for base_offset in (0, 2**31 - 1, 2**31, 2**40):
        Appender(log).append_mirrored(batch(at=base_offset), leader_epoch=0, now_ms=NOW_MS)
    assert offsets(log) == [0, 2**31 - 1, 2**31, 2**40]
    again, report = open_log(tmp_path)
    assert offsets(again) == [0, 2**31 - 1, 2**31, 2**40]
    assert report.findings == []


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    fill(log, 40)
    slice_ = log.read(0, size_max=10_000, upper_offset=40)
    before = slice_.read()
    start_at(log, 100)
    assert not list(Path(log.directory).glob("00000000000000000000.*"))
    assert slice_.read() == before
    assert slice_.file is not None
    assert slice_.file.fileno() > 0


def test_the_first_record_at_or_after_a_time_is_found(log: PartitionLog) -> None:
    for number in range(40):
        for timestamp_ms in (NOW_MS + number * 1000 - 999, NOW_MS + number * 1000):
            assert log.offset_for_timestamp(timestamp_ms) == (number, NOW_MS + number * 1000, 0)
    assert log.offset_for_timestamp(NOW_MS + 39_001) is None
    assert log.latest_timestamp_offset() == (39, NOW_MS + 39_000, 0)


def test_a_time_out_of_order_is_found_inside_its_batch(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    append(
        log,
        batch(3, timestamp_ms=NOW_MS + 100),
        batch(3, timestamp_ms=NOW_MS),
        batch(timestamp_ms=NOW_MS + 5),
    )
    assert log.offset_for_timestamp(NOW_MS + 101) == (1, NOW_MS + 101, 0)
    assert log.latest_timestamp_offset() == (2, NOW_MS + 102, 0)
    log.delete_before(4)
    assert log.offset_for_timestamp(NOW_MS + 2) == (5, NOW_MS + 2, 0)


def test_damaged_indexes_lead_nobody_astray(log: PartitionLog, tmp_path: Path) -> None:
    log.close()
    damages = (b"", b"\0" * 80, b"\xff" * 80, b"\x00\x00\x00\x01\x00\x00\x03\x00" * 9, b"garbage")
    for damage in damages:
        for suffix in ("index", "timeindex"):
            for path in Path(log.directory).glob(f"*.{suffix}"):
                path.write_bytes(damage)
        damaged, _ = open_log(tmp_path, SMALL, clean_shutdown=True)
        assert offsets(damaged) == list(range(40))
        for number in range(40):
            assert read_header(damaged.read(number, size_max=1, upper_offset=40).read()).base_offset == number
            found = damaged.offset_for_timestamp(NOW_MS + number * 1000)
            assert found == (number, NOW_MS + number * 1000, 0)
        damaged.close()


def test_a_time_index_of_nonsense_hides_no_time_that_lies_early_in_its_segment(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    for number in range(20):
        append(log, batch(1, timestamp_ms=NOW_MS + (900 if number % 10 == 1 else 0)))
    log.close()
    for path in Path(log.directory).glob("*.timeindex"):
        path.write_bytes(b"\xc5" * 8 + b"\x27" * 4)
    damaged, _ = open_log(tmp_path, SMALL, clean_shutdown=True)
    assert damaged.offset_for_timestamp(NOW_MS + 900) == (1, NOW_MS + 900, 0)
    assert damaged.offset_for_timestamp(NOW_MS + 901) is None


def test_an_index_keeps_the_entries_that_it_has_when_fewer_are_allowed(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(index_interval_bytes=100))
    fill(log, 40)
    log.close()
    small = LogConfig(index_interval_bytes=100, segment_index_bytes=60)
    again, _ = open_log(tmp_path, small, clean_shutdown=True)
    append(again, batch(timestamp_ms=NOW_MS + 41_000))
    assert offsets(again) == list(range(41))
    assert again.offset_for_timestamp(NOW_MS + 20_000) == (20, NOW_MS + 20_000, 0)
    again.close()
