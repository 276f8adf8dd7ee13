"""Rolling, retention, DeleteRecords, truncation and flushing."""

from pathlib import Path
from struct import pack

import pytest
from log_kit import NOW_MS, append, batch, fill, offsets, open_log, roll

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import OffsetOutOfRangeError, OutOfOrderSequenceError, StorageError
from headrace.broker.log.appender import Appender
from headrace.broker.log.files import OsFiles
from headrace.broker.log.index import TimeIndex
from headrace.broker.log.maintenance import maintained
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.retention import SegmentFacts, retired
from headrace.broker.log.truncation import start_at, truncate_to

HOUR_MS = 3_600_000


def bases(log: PartitionLog) -> list[int]:
    return sorted(int(path.name[:20]) for path in Path(log.directory).glob("*.log"))


def test_a_segment_rolls_when_the_next_batch_does_not_fit(tmp_path: Path) -> None:
    size = len(batch())
    log, _ = open_log(tmp_path, LogConfig(segment_bytes=3 * size))
    fill(log, 7)
    assert bases(log) == [0, 3, 6]


def test_a_segment_rolls_by_the_batches_time_less_its_jitter(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(segment_ms=HOUR_MS))
    append(log, batch(timestamp_ms=NOW_MS), batch(timestamp_ms=NOW_MS + HOUR_MS))
    assert bases(log) == [0]
    append(log, batch(timestamp_ms=NOW_MS + HOUR_MS + 1))
    assert bases(log) == [0, 2]
    jittered, _ = open_log(tmp_path / "other", LogConfig(segment_ms=HOUR_MS, segment_jitter_ms=HOUR_MS))
    append(jittered, batch(timestamp_ms=NOW_MS), batch(timestamp_ms=NOW_MS + HOUR_MS - 1))
    assert bases(jittered) == [0, 1]


def test_a_segment_rolls_when_its_index_is_full(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(index_interval_bytes=0, segment_index_bytes=36))
    fill(log, 8)
    assert bases(log) == [0, 3, 6]


def test_an_idle_log_keeps_its_active_segment(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(segment_ms=HOUR_MS))
    append(log, batch())
    assert not maintained(log, NOW_MS + 2 * HOUR_MS, HOUR_MS)
    assert bases(log) == [0]
    append(log, batch(timestamp_ms=NOW_MS + HOUR_MS + 1))
    assert bases(log) == [0, 1]


@pytest.mark.parametrize("is_closed", [True, False], ids=["clean", "crash"])
def test_a_preallocated_segment_has_its_whole_length_until_it_rolls(tmp_path: Path, is_closed: bool) -> None:
    config = LogConfig(preallocate=True, segment_bytes=3 * len(batch()))
    log, _ = open_log(tmp_path, config)
    fill(log, 4)

    def sizes() -> list[int]:
        return [path.stat().st_size for path in sorted(Path(log.directory).glob("*.log"))]

    assert sizes() == [3 * len(batch())] * 2
    if is_closed:
        log.close()
        assert sizes() == [3 * len(batch()), len(batch())]
    log, report = open_log(tmp_path, config, clean_shutdown=is_closed)
    assert log.log_end_offset == 4
    assert report.bytes_cut == (0 if is_closed else 2 * len(batch()))
    fill(log, 3)
    assert offsets(log) == list(range(7))


def test_the_active_segments_indexes_are_preallocated_and_trimmed_when_rolled(tmp_path: Path) -> None:
    log, _ = open_log(
        tmp_path, LogConfig(segment_bytes=1000, index_interval_bytes=100, segment_index_bytes=4096)
    )
    fill(log, 12)
    first, second = (Path(log.directory, f"{base:020d}.index") for base in bases(log)[:2])
    assert (first.stat().st_size % 8, first.stat().st_size > 0, second.stat().st_size) == (0, True, 4096)
    log.close()
    assert second.stat().st_size < 100


def test_retention_by_time_takes_whole_segments_and_moves_the_start(tmp_path: Path) -> None:
    log, _ = open_log(
        tmp_path, LogConfig(segment_bytes=3 * len(batch()), retention_ms=4000, file_delete_delay_ms=50)
    )
    fill(log, 8)
    deleted = log.delete_retired(NOW_MS + 7001)
    assert [(segment.base_offset, segment.next_offset) for segment in deleted] == [(0, 3)]
    assert (log.log_start_offset, offsets(log)) == (3, [3, 4, 5, 6, 7])
    assert len(list(Path(log.directory).glob("*.deleted"))) == 3
    log.delete_retired(NOW_MS + 7051)
    assert list(Path(log.directory).glob("*.deleted")) == []


def test_a_clock_that_is_set_back_keeps_no_deleted_file(tmp_path: Path) -> None:
    log, _ = open_log(
        tmp_path, LogConfig(segment_bytes=3 * len(batch()), retention_ms=4000, file_delete_delay_ms=50)
    )
    fill(log, 8)
    log.delete_retired(NOW_MS + 7001)
    log.delete_retired(NOW_MS - HOUR_MS)
    log.delete_retired(NOW_MS - HOUR_MS + 49)
    assert len(list(Path(log.directory).glob("*.deleted"))) == 3
    log.delete_retired(NOW_MS - HOUR_MS + 50)
    assert list(Path(log.directory).glob("*.deleted")) == []


def test_retention_rolls_an_active_segment_that_is_all_expired(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(retention_ms=1000))
    fill(log, 3)
    assert len(log.delete_retired(NOW_MS + HOUR_MS)) == 1
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (3, 3, [3])
    append(log, batch())
    assert offsets(log) == [3]


def test_retention_spares_compacted_topics_and_what_is_not_replicated(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(segment_bytes=200))
    fill(log, 5)
    log.update_config(
        LogConfig(cleanup_policy=("compact",), retention_ms=1, retention_bytes=0, segment_bytes=200)
    )
    assert log.delete_retired(NOW_MS + HOUR_MS) == []
    log.update_config(LogConfig(retention_ms=1, segment_bytes=200))
    Appender(log).append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.delete_retired(NOW_MS + HOUR_MS)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(-1, 0), (300, 0), (299, 0), (200, 1), (199, 1), (100, 2), (0, 3)]
)
def test_retention_by_size_keeps_at_least_what_is_asked_for(retention_bytes: int, count: int) -> None:
    facts = [SegmentFacts(base, base + 10, 100, NOW_MS) for base in (0, 10, 20)]
    reasons = retired(
        facts,
        retention_ms=-1,
        retention_bytes=retention_bytes,
        log_start_offset=0,
        high_watermark=30,
        now_ms=NOW_MS,
    )
    assert len(reasons) == count


def test_delete_records_moves_the_start_inside_a_segment(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(segment_bytes=3 * len(batch())))
    fill(log, 8)
    log.delete_before(4)
    assert [segment.base_offset for segment in log.delete_retired(NOW_MS)] == [0]
    assert log.log_start_offset == 4
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, size_max=1, upper_offset=8)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_before(9)


def test_truncation_drops_batches_epochs_and_producers_above(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(segment_bytes=3 * len(batch())))
    for number in range(8):
        Appender(log).append_as_leader(batch(producer=(5, 0, number)), leader_epoch=number, now_ms=NOW_MS)
    truncate_to(log, 4)
    assert (log.log_end_offset, log.latest_epoch, bases(log), offsets(log)) == (
        4,
        3,
        [0, 3],
        [0, 1, 2, 3],
    )
    with pytest.raises(OutOfOrderSequenceError):
        append(log, batch(producer=(5, 0, 8)))
    append(log, batch(producer=(5, 0, 4)))
    assert open_log(tmp_path)[0].log_end_offset == 5


def test_a_log_begins_anew_where_it_is_told(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 3)
    start_at(log, 500)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    append(log, batch())
    again, _ = open_log(tmp_path)
    assert (again.log_start_offset, offsets(again)) == (500, [500])


def test_a_flush_moves_the_recovery_point_after_it_is_done(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    assert log.flush_task() is None
    fill(log, 3)
    job = log.flush_task()
    assert job is not None
    assert log.flush_task() is None
    fill(log, 2)
    assert log.recovery_point == 0
    log.flushed(job())
    assert log.recovery_point == 3


def test_after_a_failed_sync_nothing_is_vouched_for_any_more(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 3)
    assert log.flush_task() is not None
    log.flushed(None)
    roll(log)
    assert (log.flush_due(NOW_MS, NOW_MS), log.flush_task(), log.recovery_point) == (False, None, 0)
    with pytest.raises(StorageError, match="earlier sync failed"):
        log.close()
    assert offsets(open_log(tmp_path)[0]) == [0, 1, 2]


def test_a_flush_under_way_does_not_vouch_for_what_replaced_truncated_batches(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    fill(log, 5)
    job = log.flush_task()
    assert job is not None
    truncate_to(log, 2)
    fill(log, 5)
    log.flushed(job())
    assert log.recovery_point <= 2


def test_a_sync_is_due_each_flush_messages(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(flush_messages=2))
    due = []
    for _ in range(2):
        append(log, batch())
        due.append(log.is_sync_due)
    assert due == [False, True]
    job = log.flush_task()
    assert job is not None
    append(log, batch())
    log.flushed(job())
    assert (log.recovery_point, log.is_sync_due) == (2, False)


def test_a_log_whose_sync_failed_takes_no_more_where_syncs_are_awaited(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(flush_messages=1))
    append(log, batch())
    assert log.flush_task() is not None
    log.flushed(None)
    assert log.has_failed
    with pytest.raises(StorageError, match="earlier sync failed"):
        append(log, batch())
    assert log.log_end_offset == 1


def test_flush_is_due_after_a_roll_and_after_flush_ms(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(flush_ms=1000, segment_ms=HOUR_MS))
    found = [log.is_flushed]
    append(log, batch())
    found.append(log.is_flushed)
    assert not log.flush_due(NOW_MS + 999, NOW_MS)
    assert log.flush_due(NOW_MS + 1000, NOW_MS + 999)
    job = log.flush_task()
    assert job is not None
    log.flushed(job())
    assert [*found, log.is_flushed] == [True, False, True]
    append(log, batch())
    assert not log.flush_due(NOW_MS + 2999, NOW_MS + 2000), "it waits since the look before"
    assert log.flush_due(NOW_MS + 3000, NOW_MS + 2999)
    lazy, _ = open_log(tmp_path / "other", LogConfig(segment_ms=HOUR_MS))
    append(lazy, batch())
    assert not lazy.flush_due(NOW_MS + 100 * HOUR_MS, NOW_MS)
    roll(lazy)
    assert lazy.flush_due(NOW_MS, NOW_MS)
    assert not lazy.is_flushed


def test_a_time_index_is_checked_once_and_again_from_there(tmp_path: Path) -> None:
    index = TimeIndex(OsFiles(), str(tmp_path / "x.timeindex"), 100, 12_000)
    for number in range(100):
        index.add_if_newer(1000 + number, 100 + number)
    assert index.looks_valid(200)
    assert not index.looks_valid(199), "the last entry lies beyond the log"
    index.append(pack(">qi", 1050, 120))
    assert not index.looks_valid(1000), "a later entry is older"
    index.keep(100)
    assert index.looks_valid(200)
    index.trim()
    again = TimeIndex(OsFiles(), str(tmp_path / "x.timeindex"), 100, 12_000)
    assert again.looks_valid(200)
    again.keep(1)
    assert again.looks_valid(101)
    assert not again.looks_valid(100)


def test_batches_without_a_timestamp_leave_the_time_index_empty_and_sound(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(index_interval_bytes=0))
    append(log, batch(timestamp_ms=-1), batch(timestamp_ms=-1))
    roll(log)
    append(log, batch(timestamp_ms=-1))
    log.close()
    assert [path.stat().st_size for path in Path(log.directory).glob("*.timeindex")] == [0, 0]
    again, report = open_log(tmp_path, clean_shutdown=True)
    assert (report.segments_walked, report.findings) == (0, [])
    append(again, batch(timestamp_ms=NOW_MS))
    found = again.offset_for_timestamp(NOW_MS)
    assert found is not None
    assert found.timestamp_ms == NOW_MS
