"""Transactions in a log: which were aborted is known after every roll, truncation and crash, and to compaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from log_kit import NOW_MS, open_log, roll

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import InvalidProducerEpochError, TransactionCoordinatorFencedError
from headrace.broker.log.appender import Appender
from headrace.broker.log.compaction import CleanerLimits
from headrace.broker.log.files import OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.producers import MARKER_SIZE, Marker
from headrace.broker.log.transactions import AbortedTransaction, TransactionIndex
from headrace.broker.log.truncation import start_at, truncate_to
from headrace.broker.wire.batches import (
    BatchHeader,
    Record,
    check_crc,
    decode_records,
    encode_batch,
    iter_batches,
    read_header,
    set_base_offset_and_epoch,
    set_crc,
)

ABORT, COMMIT = 0, 1
RETENTION_MS = 1000
COMPACTED = LogConfig(cleanup_policy=("compact",), segment_bytes=500, delete_retention_ms=RETENTION_MS)
SMALL = LogConfig(segment_bytes=300)


class Writer:
    """A transactional producer together with its coordinator."""

    def __init__(self, log: PartitionLog, producer_id: int) -> None:
        self.log = log
        self.producer_id = producer_id
        self.sequence = 0
        self.epoch = 0

    def put(self, key: bytes, value: bytes | None = b"v") -> int:
        offset = self._append(
            encode_batch(
                [Record(0, NOW_MS, key, value, [])],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                transactional=True,
            )
        )
        self.sequence += 1
        return offset

    def end(self, kind: int) -> int:
        marker = Record(0, NOW_MS, b"\0\0\0" + bytes([kind]), b"\0\0\0\0\0\7", [])
        return self._append(
            encode_batch(
                [marker],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                transactional=True,
                control=True,
            )
        )

    def _append(self, batch: bytearray) -> int:
        set_base_offset_and_epoch(batch, 0, self.log.log_end_offset, 0)
        found = Appender(self.log).append_as_follower(memoryview(batch), now_ms=NOW_MS)
        self.log.advance_high_watermark(self.log.log_end_offset)
        return found.base_offset


def plain(log: PartitionLog, key: bytes, value: bytes | None = b"v") -> None:
    """A record outside of any transaction."""
    Appender(log).append_as_leader(
        memoryview(encode_batch([Record(0, NOW_MS, key, value, [])])), leader_epoch=0, now_ms=NOW_MS
    )
    log.advance_high_watermark(log.log_end_offset)


def aborted_in(log: PartitionLog) -> list[AbortedTransaction]:
    """What a consumer is told who reads the log from its start, a batch at a time."""
    found: dict[AbortedTransaction, None] = {}
    for offset, data in batches(log):
        upper = log.read(offset, size_max=len(data), upper_offset=log.log_end_offset)
        found.update(dict.fromkeys(log.aborted_transactions(offset, upper)))
    return list(found)


def batches(log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    offset = log.log_start_offset
    while data := log.read(offset, size_max=1, upper_offset=log.log_end_offset).read():
        yield offset, data
        offset = next(iter_batches(data))[1].next_offset


def headers(log: PartitionLog) -> list[BatchHeader]:
    return [next(iter_batches(data))[1] for _, data in batches(log)]


def held(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """(offset, key) of every data record."""
    return [
        (record.offset, record.key)
        for _, data in batches(log)
        for record in decode_records(data, 0, next(iter_batches(data))[1])
        if not next(iter_batches(data))[1].is_control
    ]


def clean(log: PartitionLog, now_ms: int = NOW_MS) -> None:
    """One more record, so that there is dirt, a roll, and a cleaning."""
    plain(log, b"z")
    roll(log, NOW_MS + log.config.segment_ms * 2)
    task = log.flush_task()
    if task is not None:
        log.flushed(task())
    log.update_config(
        LogConfig(
            cleanup_policy=("compact",),
            segment_bytes=500,
            delete_retention_ms=RETENTION_MS,
            min_cleanable_dirty_ratio=0,
        )
    )
    dirt = log.cleaner.dirt(log, now_ms)
    assert dirt is not None
    for job in log.cleaner.clean(log, dirt, CleanerLimits(), now_ms):
        job()


def fill(log: PartitionLog) -> list[AbortedTransaction]:
    """Interleaved transactions over several segments; those that were aborted."""
    first, second = Writer(log, 1), Writer(log, 2)
    first.put(b"a")
    second.put(b"b")
    first.put(b"c")
    aborted = [AbortedTransaction(1, 0, first.end(ABORT), 1)]
    first.put(b"d")
    second.put(b"e")
    first.end(COMMIT)
    marker = second.end(ABORT)
    aborted.append(AbortedTransaction(2, 1, marker, marker + 1))
    plain(log, b"f")
    third = Writer(log, 3)
    begin = third.put(b"g")
    marker = third.end(ABORT)
    return [*aborted, AbortedTransaction(3, begin, marker, marker + 1)]


# -- open ones


def test_an_open_transaction_whose_begin_was_deleted_holds_readers_up_at_the_logs_start(
    tmp_path: Path,
) -> None:
    log, _ = open_log(tmp_path)
    Writer(log, 1).put(b"a")
    plain(log, b"b")
    plain(log, b"c")
    log.delete_before(2)
    assert log.last_stable_offset == log.log_start_offset == 2


def test_a_marker_of_the_leaders_own_is_as_kafka_writes_it(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime", compression_type="gzip"))
    writer = Writer(log, 9)
    writer.put(b"a")
    appended = Appender(log).append_marker(9, 0, Marker(ABORT, 3), leader_epoch=7, now_ms=NOW_MS + 5)
    log.advance_high_watermark(2)
    assert (appended.base_offset, log.last_stable_offset) == (1, 2)
    assert aborted_in(log) == [AbortedTransaction(9, 0, 1, 2)]
    data = log.read(1, size_max=1, upper_offset=2).read()
    header = read_header(data)
    (record,) = decode_records(data, 0, header)
    assert (record.key, record.value) == (b"\0\0\0\0", b"\0\0\0\0\0\3")
    assert (header.attributes, header.base_sequence, header.leader_epoch) == (0b111000, -1, 7)
    assert (header.size, header.max_timestamp) == (MARKER_SIZE, NOW_MS + 5)
    assert check_crc(data, 0, header)


def test_markers_of_who_was_replaced_are_refused(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    writer = Writer(log, 9)
    writer.epoch = 4
    writer.put(b"a")
    appender = Appender(log)
    with pytest.raises(InvalidProducerEpochError):
        appender.append_marker(9, 3, Marker(ABORT, 5), leader_epoch=0, now_ms=NOW_MS)
    appender.append_marker(9, 4, Marker(COMMIT, 5), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(TransactionCoordinatorFencedError):
        appender.append_marker(9, 4, Marker(ABORT, 4), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 2


def test_what_a_coordinator_keeps_in_a_transaction_is_not_numbered_by_its_producer(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    appender = Appender(log)

    def append(epoch: int) -> int:
        batch = encode_batch(
            [Record(0, NOW_MS, b"k", b"v", []), Record(0, NOW_MS, b"l", b"v", [])],
            producer_id=9,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        return appender.append_own(memoryview(batch), leader_epoch=0, now_ms=NOW_MS).base_offset

    assert [append(4), append(4)] == [0, 2], "the second is no repetition of the first"
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 0
    with pytest.raises(InvalidProducerEpochError):
        append(3)
    appender.append_marker(9, 4, Marker(COMMIT, 5), leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(5)
    assert (log.log_end_offset, log.last_stable_offset) == (5, 5)


# -- the index


def test_readers_are_told_of_the_transactions_aborted_in_what_they_read(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    expected = fill(log)
    assert log.segment_count == 3
    assert sorted(aborted_in(log)) == sorted(expected)
    committed = log.read(8, size_max=1, upper_offset=log.log_end_offset)
    assert {aborted.producer_id for aborted in log.aborted_transactions(8, committed)} <= {3}


def test_a_log_without_aborted_transactions_has_no_index_of_them(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    writer = Writer(log, 1)
    for _ in range(5):
        writer.put(b"k")
        writer.end(COMMIT)
    log.close()
    assert not list((tmp_path / "events-0").glob("*.txnindex"))
    assert aborted_in(log) == []


@pytest.mark.parametrize("recovery_point", [0, 5, 12])
@pytest.mark.parametrize("damage", [None, b"", b"garbage", b"\0" * 34])
def test_recovery_makes_the_indexes_anew(tmp_path: Path, damage: bytes | None, recovery_point: int) -> None:
    log, _ = open_log(tmp_path, SMALL)
    expected = fill(log)
    task = log.flush_task()
    assert task is not None
    task()
    indexes = {path: path.read_bytes() for path in (tmp_path / "events-0").glob("*.txnindex")}
    assert len(indexes) > 1
    for path in indexes:
        is_checked = int(path.name[:20]) >= recovery_point
        if damage is None and is_checked:
            path.unlink()
        elif damage is not None and (damage or is_checked):
            path.write_bytes(damage)
    again, _ = open_log(tmp_path, SMALL, recovery_point=recovery_point)
    assert sorted(aborted_in(again)) == sorted(expected)
    # At once: the next start, after a kill, may not check these segments again.
    assert {path: path.read_bytes() for path in indexes} == indexes


def test_recovery_knows_transactions_that_begin_below_what_it_checks(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    writer = Writer(log, 1)
    writer.put(b"a")
    for _ in range(6):
        plain(log, b"x")
    marker = writer.end(ABORT)
    roll(log, NOW_MS + SMALL.segment_ms * 2)
    for path in (tmp_path / "events-0").glob("*.txnindex"):
        path.unlink()
    again, _ = open_log(tmp_path, SMALL, recovery_point=6)
    assert aborted_in(again) == [AbortedTransaction(1, 0, marker, marker + 1)]


def test_a_truncated_marker_is_forgotten_and_its_transaction_open_again(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    writer = Writer(log, 1)
    writer.put(b"a")
    first = writer.end(ABORT)
    begin = writer.put(b"b")
    marker = writer.end(ABORT)
    truncate_to(log, marker)
    assert aborted_in(log) == [AbortedTransaction(1, 0, first, first + 1)]
    assert log.last_stable_offset == begin
    assert writer.end(ABORT) == marker
    log.close()
    again, _ = open_log(tmp_path, clean_shutdown=True, recovery_point=log.log_end_offset)
    assert [aborted.last_offset for aborted in aborted_in(again)] == [first, marker]


def test_ended_transactions_are_forgotten_though_nobody_reads(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    writer = Writer(log, 1)
    for _ in range(50):
        writer.put(b"a")
        writer.end(COMMIT)
    assert log.producers.undecided == 50
    assert log.expire_producers(NOW_MS, 86_400_000) == 0
    assert log.producers.undecided == 0
    begin = writer.put(b"a")
    assert (log.producers.undecided, log.last_stable_offset) == (1, begin)


def test_an_index_goes_with_its_segment(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, SMALL)
    fill(log)
    log.delete_before(log.log_end_offset)
    log.delete_retired(NOW_MS)
    log.delete_retired(NOW_MS + SMALL.file_delete_delay_ms + 1)
    folder = tmp_path / "events-0"
    assert {path.stem for path in folder.glob("*.txnindex")} <= {path.stem for path in folder.glob("*.log")}
    fill(log)
    start_at(log, 100)
    assert not list(folder.glob("*.txnindex"))


def test_many_entries_are_found_by_their_offsets(tmp_path: Path) -> None:
    index = TransactionIndex(OsFiles(), f"{tmp_path}/x.txnindex")
    everything = [AbortedTransaction(n % 3, n * 10, n * 10 + 15, n * 10 + 5) for n in range(200)]
    for aborted in everything:
        index.append(aborted)
    assert index.all() == everything
    for first in (0, 15, 16, 777, 1500, 3000):
        for end in (first + 1, first + 100, 5000):
            found, is_whole = index.overlapping(first, end)
            expected = [a for a in everything if a.last_offset >= first and a.first_offset < end]
            assert found == expected
            assert is_whole is any(a.last_stable_offset >= end for a in everything)


# -- compaction


def test_aborted_records_go_and_do_not_take_the_committed_ones_along(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, COMPACTED)
    plain(log, b"kept")
    writer = Writer(log, 1)
    for number in range(6):
        writer.put(b"kept", b"aborted")
        writer.put(b"aborted %d" % number)
        writer.end(ABORT)
    writer.put(b"kept too")
    writer.end(COMMIT)
    clean(log)
    assert held(log)[0] == (0, b"kept")
    assert [key for _, key in held(log)] == [b"kept", b"kept too", b"z"]


def test_an_open_transaction_keeps_what_lies_above_it(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, COMPACTED)
    plain(log, b"a")
    plain(log, b"a")
    roll(log, NOW_MS + log.config.segment_ms * 2)
    writer = Writer(log, 1)
    writer.put(b"a")
    for _ in range(10):
        plain(log, b"b")
    clean(log)
    assert [offset for offset, _ in held(log)] == [1, *range(2, 14)]
    assert log.cleaner.clean_offset == 2


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
def test_a_marker_stays_until_its_records_are_gone_and_the_retention_is_over(
    tmp_path: Path, kind: int
) -> None:
    log, _ = open_log(tmp_path, COMPACTED)
    writer, later = Writer(log, 1), Writer(log, 1)
    writer.put(b"k")
    marker = writer.end(kind)
    later.epoch = 1
    later.put(b"k")
    later.end(COMMIT)

    def marker_state() -> str:
        found = [header for header in headers(log) if header.base_offset == marker]
        if not found:
            return "gone"
        return "kept" if found[0].delete_horizon_ms is None else f"until {found[0].delete_horizon_ms}"

    states = []
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + RETENTION_MS, NOW_MS + RETENTION_MS + 1):
        clean(log, now_ms)
        states.append(marker_state())
    horizon_ms = NOW_MS + 1 + RETENTION_MS
    assert states == ["kept", f"until {horizon_ms}", f"until {horizon_ms}", "gone"]
    assert (2, b"k") in held(log)
    again, report = open_log(tmp_path, COMPACTED, recovery_point=0)
    assert (report.bytes_cut, held(again)) == (0, held(log))


def test_the_cleaned_index_knows_only_transactions_that_have_batches_yet(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, COMPACTED)
    first, second = Writer(log, 1), Writer(log, 2)
    first.put(b"a")
    first.end(ABORT)
    begin = second.put(b"b")
    marker = second.end(ABORT)
    first.put(b"c")
    first.end(COMMIT)
    clean(log)
    assert [aborted.producer_id for aborted in aborted_in(log)] == [1, 2], "it has read batches of both"
    clean(log, NOW_MS + 1)
    assert aborted_in(log) == [AbortedTransaction(2, begin, marker, marker + 1)], (
        "kept empty for its sequence"
    )
    sequences = {header.producer_id: header.base_sequence for header in headers(log) if not header.is_control}
    assert (sequences[1], sequences[2]) == (1, 0)
    again, _ = open_log(tmp_path, COMPACTED, recovery_point=log.log_end_offset)
    assert aborted_in(again) == aborted_in(log)


def test_an_epoch_without_data_lives_on_in_its_marker(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, COMPACTED)
    writer = Writer(log, 1)
    writer.put(b"k")
    writer.epoch = 5
    marker = writer.end(ABORT)
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 5 * RETENTION_MS, NOW_MS + 9 * RETENTION_MS):
        clean(log, now_ms)
    kept = [header for header in headers(log) if header.base_offset == marker]
    assert [(header.producer_epoch, header.record_count) for header in kept] == [(5, 0)]
    for path in (tmp_path / "events-0").glob("*.snapshot"):
        path.unlink()
    again, _ = open_log(tmp_path, COMPACTED)
    assert again.last_stable_offset == again.high_watermark


@pytest.mark.parametrize("codec", range(1, 8))
def test_a_marker_that_cannot_be_unpacked_ends_nothing(tmp_path: Path, codec: int) -> None:
    log, _ = open_log(tmp_path)
    first = Writer(log, 1).put(b"k")
    marker = encode_batch(
        [Record(0, NOW_MS, b"\0\0\0\0", b"\0" * 6, [])],
        base_offset=1,
        producer_id=1,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    marker[22] |= codec
    set_crc(marker, 0)
    Appender(log).append_as_follower(memoryview(marker), now_ms=NOW_MS)
    log.advance_high_watermark(2)
    assert (log.log_end_offset, log.last_stable_offset) == (2, first)
