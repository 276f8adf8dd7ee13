"""What a leader, a follower and a mirror accept, and what a refused append leaves behind: nothing."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import pack_into

import pytest
from log_kit import NOW_MS, append, batch, offsets, open_log

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import (
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    NotOneBatchError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    StorageError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from headrace.broker.log.appender import Appender
from headrace.broker.log.body import LogBody
from headrace.broker.log.files import OsFile
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.truncation import start_at
from headrace.broker.wire.batches import (
    Record,
    check_crc,
    decode_records,
    encode_batch,
    iter_batches,
    read_header,
    set_base_offset_and_epoch,
    set_crc,
)

Bad = Callable[[], memoryview]


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    opened, _ = open_log(tmp_path)
    append(opened, batch(3))
    return opened


def _changed(position: int, layout: str, value: int, *, with_crc: bool = False) -> memoryview:
    changed = batch(2)
    pack_into(layout, changed, position, value)
    if with_crc:
        set_crc(changed, 0)
    return changed


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: _changed(70, ">B", 99), CorruptMessageError),
        (lambda: batch(2)[:-1], NotOneBatchError),
        (lambda: _changed(8, ">i", 5), CorruptMessageError),
        (lambda: _changed(8, ">i", -1), CorruptMessageError),
        (lambda: _changed(16, ">b", 9), CorruptMessageError),
        (lambda: _changed(16, ">b", 1), UnsupportedForMessageFormatError),
        (lambda: _changed(0, ">q", 5), InvalidRecordError),
        (lambda: _changed(57, ">i", 3, with_crc=True), InvalidRecordError),
        (lambda: _changed(23, ">i", 5, with_crc=True), InvalidRecordError),
        (lambda: _changed(57, ">i", 0, with_crc=True), InvalidRecordError),
        (lambda: _changed(21, ">h", 5, with_crc=True), UnsupportedCompressionTypeError),
        (lambda: batch(control=True), InvalidRecordError),
        (lambda: batch(producer=(5, 0, -1)), InvalidRecordError),
        (lambda: _changed(21, ">h", 8, with_crc=True), InvalidTimestampError),
        (lambda: batch(size=2_000_000), MessageTooLargeError),
        (lambda: memoryview(bytearray(batch()) + bytearray(batch())), NotOneBatchError),
        (lambda: memoryview(bytearray(b"")), NotOneBatchError),
    ],
)
def test_a_bad_batch_is_refused_and_changes_nothing(
    log: PartitionLog, make: Bad, error: type[KafkaError]
) -> None:
    size = log.size
    with pytest.raises(error):
        Appender(log).append_as_leader(make(), leader_epoch=0, now_ms=NOW_MS)
    assert (log.log_end_offset, log.size, offsets(log)) == (3, size, [0])


def test_an_append_above_segment_bytes_is_refused(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(segment_bytes=200))
    with pytest.raises(RecordListTooLargeError):
        append(log, batch(size=300))


def test_timestamps_are_bounded(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    log, _ = open_log(tmp_path, config)
    for timestamp_ms in (NOW_MS - 1001, NOW_MS + 1001):
        with pytest.raises(InvalidTimestampError) as raised:
            append(log, batch(timestamp_ms=timestamp_ms))
        assert raised.value.records_at_fault == (0,)
    append(log, batch(timestamp_ms=NOW_MS - 1000), batch(timestamp_ms=NOW_MS + 1000))
    assert log.log_end_offset == 2


def test_offsets_and_epoch_are_stamped_outside_the_checksum(log: PartitionLog) -> None:
    result = Appender(log).append_as_leader(batch(2), leader_epoch=4, now_ms=NOW_MS)
    assert result == (3, 4, -1, 0, 1)
    stored = log.read(3, size_max=1000, upper_offset=5).read()
    header = read_header(stored)
    assert (header.base_offset, header.leader_epoch) == (3, 4)
    assert check_crc(stored, 0, header)
    assert log.latest_epoch == 4


def test_a_log_with_times_of_its_own_takes_any_of_producers(tmp_path: Path) -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=1000)
    log, _ = open_log(tmp_path, config)
    append(log, batch(timestamp_ms=NOW_MS + 100_000))
    assert log.log_end_offset == 1


def test_a_producer_without_an_epoch_begins_anywhere(log: PartitionLog) -> None:
    append(log, batch(producer=(5, -1, 0)))
    append(log, batch(producer=(5, 0, 7)))
    with pytest.raises(InvalidProducerEpochError):
        append(log, batch(producer=(6, -2, 0)))


@pytest.mark.parametrize(
    ("behind", "error"),
    [
        (bytes(20), CorruptMessageError),
        (bytes(8) + (14).to_bytes(4, "big") + bytes(14), NotOneBatchError),
    ],
)
def test_what_is_behind_a_batch_and_no_batch_is_refused(
    log: PartitionLog, behind: bytes, error: type[Exception]
) -> None:
    end_offset = log.log_end_offset
    with pytest.raises(error):
        Appender(log).append_as_leader(memoryview(bytearray(batch()) + behind), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == end_offset


def test_log_append_time_replaces_the_producers_times(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    result = Appender(log).append_as_leader(batch(timestamp_ms=5), leader_epoch=0, now_ms=NOW_MS)
    stored = log.read(0, size_max=1000, upper_offset=1).read()
    header = read_header(stored)
    assert result.log_append_time_ms == header.max_timestamp == NOW_MS
    assert header.timestamp_type == 1
    assert check_crc(stored, 0, header)
    assert log.offset_for_timestamp(NOW_MS) == (0, NOW_MS, 0)


def test_a_repeated_batch_gets_its_first_offset_up_to_five_batches_back(log: PartitionLog) -> None:
    for sequence in range(6):
        Appender(log).append_as_leader(batch(producer=(9, 0, sequence)), leader_epoch=0, now_ms=NOW_MS)
    for sequence in range(1, 6):
        again = Appender(log).append_as_leader(
            batch(producer=(9, 0, sequence)), leader_epoch=0, now_ms=NOW_MS
        )
        assert (again.base_offset, again.last_offset, again.batch_count) == (3 + sequence, 3 + sequence, 0)
    with pytest.raises(OutOfOrderSequenceError):
        Appender(log).append_as_leader(batch(producer=(9, 0, 0)), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 9


def test_sequences_and_epochs_of_a_producer_only_grow(log: PartitionLog) -> None:
    append(log, batch(3, producer=(9, 1, 0)))
    for wrong in ((9, 1, 4), (9, 1, 2), (9, 2, 3)):
        with pytest.raises(OutOfOrderSequenceError):
            append(log, batch(producer=wrong))
    with pytest.raises(InvalidProducerEpochError):
        append(log, batch(producer=(9, 0, 3)))
    append(log, batch(producer=(9, 1, 3)), batch(producer=(9, 2, 0)))
    assert log.log_end_offset == 8


def test_a_sequence_wraps_to_zero(log: PartitionLog) -> None:
    append(log, batch(2, producer=(9, 0, 2**31 - 1)), batch(producer=(9, 0, 1)))
    assert log.log_end_offset == 6


def test_a_full_disk_leaves_no_trace_and_is_over_when_there_is_room(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(file: OsFile, buffers: Sequence[memoryview], position: int) -> None:
        data = b"".join(buffers)
        file.write_at(data[: len(data) // 2], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    size = log.size
    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "write_all_at", write_half)
        with pytest.raises(StorageError, match="No space left"):
            append(log, batch())
    assert (log.log_end_offset, log.size) == (3, size)
    assert Path(log.directory, "00000000000000000000.log").stat().st_size == size
    append(log, batch())
    assert offsets(log) == [0, 3]


def test_a_mirror_keeps_offsets_and_gaps_and_stamps_its_own_epoch(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    start_at(log, 100)
    fetched = bytearray(batch(2, at=100)) + bytearray(batch(1, at=150)) + bytearray(batch(at=151))[:40]
    result = Appender(log).append_mirrored(memoryview(fetched), leader_epoch=3, now_ms=NOW_MS)
    assert (result.base_offset, result.last_offset, result.batch_count) == (100, 150, 2)
    assert (log.log_start_offset, log.log_end_offset) == (100, 151)
    header = read_header(log.read(120, size_max=1000, upper_offset=151).read())
    assert (header.base_offset, header.leader_epoch) == (150, 3)


def test_a_mirror_refuses_what_it_has_and_what_is_corrupt(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    Appender(log).append_mirrored(batch(2, at=10), leader_epoch=3, now_ms=NOW_MS)
    with pytest.raises(InvalidRecordError, match="goes on at 12"):
        Appender(log).append_mirrored(batch(2, at=11), leader_epoch=3, now_ms=NOW_MS)
    rotten = batch(2, at=12)
    rotten[-1] ^= 1
    with pytest.raises(CorruptMessageError):
        Appender(log).append_mirrored(rotten, leader_epoch=3, now_ms=NOW_MS)
    assert log.log_end_offset == 12


def test_a_follower_keeps_offsets_and_epochs(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    Appender(log).append_as_follower(batch(2, at=0), now_ms=NOW_MS)
    assert log.latest_epoch == 7
    assert log.epoch_end_offset(7) == (7, 2)
    assert log.epoch_end_offset(8) == (-1, -1)
    assert log.epoch_end_offset(3) == (3, 0)


def test_a_follower_knows_the_epochs_of_what_a_full_disk_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(tmp_path, LogConfig(segment_bytes=200))
    fetched = bytearray()
    for base_offset, epoch in ((0, 3), (1, 4), (2, 4)):
        one = batch(1, at=base_offset)
        set_base_offset_and_epoch(one, 0, base_offset, epoch)
        fetched += one

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(LogBody, "roll", full)
        with pytest.raises(StorageError):
            Appender(log).append_as_follower(memoryview(fetched), now_ms=NOW_MS)
    held = log.log_end_offset
    assert 0 < held < 3
    Appender(log).append_as_follower(memoryview(fetched)[held * (len(fetched) // 3) :], now_ms=NOW_MS)
    assert log.body.epochs.entries == [(3, 0), (4, 1)]


def test_bytes_behind_the_batch_that_are_no_batch_are_passed_over(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    Appender(log).append_as_leader(memoryview(bytearray(batch(2)) + b"cut"), leader_epoch=0, now_ms=NOW_MS)
    assert (log.log_end_offset, log.size) == (2, len(batch(2)))


def test_a_compacted_topic_takes_no_record_without_a_key(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(cleanup_policy=("compact", "delete")))
    for codec in (0, 1):
        mixed = [Record(0, NOW_MS, b"k", b"v", []), Record(0, NOW_MS, None, b"v", [])]
        with pytest.raises(InvalidRecordError):
            Appender(log).append_as_leader(
                memoryview(encode_batch(mixed, codec=codec)), leader_epoch=0, now_ms=NOW_MS
            )
        Appender(log).append_as_leader(
            memoryview(encode_batch(mixed[:1], codec=codec)), leader_epoch=0, now_ms=NOW_MS
        )
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize(
    ("name", "expected"), [("gzip", 1), ("uncompressed", 0), ("zstd", 4), ("producer", None)]
)
def test_a_topics_codec_replaces_the_producers(
    tmp_path: Path, codec: int, name: str, expected: int | None
) -> None:
    log, _ = open_log(tmp_path, LogConfig(compression_type=name))
    sent = [Record(number, NOW_MS + number, b"k", b"value" * 9, []) for number in range(3)]
    data = encode_batch(sent, codec=codec, producer_id=4, producer_epoch=0, base_sequence=0)
    for count in (1, 0):
        again = memoryview(bytearray(data))
        assert Appender(log).append_as_leader(again, leader_epoch=0, now_ms=NOW_MS).batch_count == count
    kept = log.read(0, size_max=10_000, upper_offset=3).read()
    ((_, header),) = iter_batches(kept)
    assert check_crc(kept, 0, header)
    assert header.codec == (codec if expected is None else expected)
    assert decode_records(kept, 0, header) == sent
    assert (header.producer_id, header.base_sequence, log.size) == (4, 0, header.size)


def test_a_batch_that_grows_too_large_in_the_topics_codec_changes_nothing(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(compression_type="uncompressed", max_message_bytes=1000))
    data = encode_batch([Record(0, NOW_MS, None, b"x" * 5000, [])], codec=4)
    with pytest.raises(MessageTooLargeError):
        Appender(log).append_as_leader(memoryview(data), leader_epoch=0, now_ms=NOW_MS)
    assert (log.size, log.log_end_offset) == (0, 0)
