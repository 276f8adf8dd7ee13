"""Compaction: what it keeps of keys and tombstones, when it starts, how its files take the old ones' place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from log_kit import NOW_MS, open_log, open_store, roll

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import CorruptMessageError, RecordListTooLargeError
from headrace.broker.log.appender import Appender
from headrace.broker.log.compaction import CleanerLimits, OffsetMap
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.truncation import start_at, truncate_to
from headrace.broker.wire.batches import Record, decode_records, encode_batch, iter_batches

Pair = tuple[bytes | None, bytes | None]
CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=900, delete_retention_ms=1000)


def put(log: PartitionLog, *pairs: Pair, codec: int = 0, now_ms: int = NOW_MS, producer: int = -1) -> None:
    """Append one batch of keys and values, visible and synced."""
    sequence = -1
    if producer >= 0:
        state = log.producers.get(producer)
        sequence = state.batches[-1].last_sequence + 1 if state else 0
    batch = encode_batch(
        [Record(0, now_ms, key, value, [("h", b"x")]) for key, value in pairs],
        codec=codec,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
    )
    Appender(log).append_as_leader(memoryview(batch), leader_epoch=3, now_ms=now_ms)
    log.advance_high_watermark(log.log_end_offset)


def roll_and_sync(log: PartitionLog) -> None:
    """Begin a new segment and sync the old ones."""
    roll(log)
    task = log.flush_task()
    if task is not None:
        log.flushed(task())


def clean(log: PartitionLog, now_ms: int = NOW_MS, limits: CleanerLimits | None = None) -> bool:
    """Clean a log if it is worth it, as the shell does."""
    dirt = log.cleaner.dirt(log, now_ms)
    if dirt is None:
        return False
    for job in log.cleaner.clean(log, dirt, limits or CleanerLimits(), now_ms):
        job()
    return True


def batches(log: PartitionLog) -> Iterator[bytes]:
    offset = log.log_start_offset
    while data := log.read(offset, size_max=1, upper_offset=log.log_end_offset).read():
        yield data
        offset = next(iter_batches(data))[1].next_offset


def records(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for data in batches(log)
        for _, header in iter_batches(data)
        for record in decode_records(data, 0, header)
    ]


@pytest.mark.parametrize("codec", range(5))
def test_the_last_record_of_each_key_stays_at_its_offset_in_its_codec(tmp_path: Path, codec: int) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    for number in range(6):
        put(log, (b"a", b"%d" % number), (b"only %d" % number, b"x"), codec=codec)
    roll_and_sync(log)
    put(log, (b"a", b"active"))
    before = {header.base_offset: header for data in batches(log) for _, header in iter_batches(data)}
    assert clean(log)
    assert records(log) == [
        *((2 * number + 1, b"only %d" % number, b"x") for number in range(5)),
        (10, b"a", b"5"),
        (11, b"only 5", b"x"),
        (12, b"a", b"active"),
    ]
    for data in batches(log):
        header = next(iter_batches(data))[1]
        old = before[header.base_offset]
        assert (header.codec, header.last_offset, header.leader_epoch) == (
            old.codec,
            old.last_offset,
            old.leader_epoch,
        )
    assert log.cleaner.clean_offset == 12
    assert not clean(log), "it is clean"


def test_segments_of_which_nothing_stays_are_empty_and_read_over(tmp_path: Path) -> None:
    """Clients that find a batch without records in the middle of a log begin anew, or wait for good."""
    log, _ = open_log(tmp_path, LogConfig(cleanup_policy=("compact",), segment_bytes=150))
    for number in range(6):
        put(log, (b"only 0" if number == 0 else b"a", b"%d" % number))
    roll_and_sync(log)
    put(log, (b"z", b"1"))
    assert clean(log)
    expected = [(0, b"only 0", b"0"), (5, b"a", b"5"), (6, b"z", b"1")]
    for _ in range(2):
        assert records(log) == expected
        assert [h.record_count for data in batches(log) for _, h in iter_batches(data)] == [1, 1, 1]
        log.close()
        log, _ = open_log(tmp_path, log.config, recovery_point=7)
        log.advance_high_watermark(log.log_end_offset)


def test_a_tombstone_stays_until_its_horizon_and_its_key_never_comes_back(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    put(log, (b"gone", b"value"), (b"kept", b"1"))
    put(log, (b"gone", None))
    roll_and_sync(log)
    put(log, (b"z", b"1"))
    assert clean(log, NOW_MS)
    assert records(log) == [(1, b"kept", b"1"), (2, b"gone", None), (3, b"z", b"1")]
    horizons = [header.delete_horizon_ms for data in batches(log) for _, header in iter_batches(data)]
    assert horizons == [None, NOW_MS + 1000, None]
    for now_ms, is_there in ((NOW_MS + 999, True), (NOW_MS + 1000, False)):
        put(log, *((b"z", b"%d" % number) for number in range(30)))
        roll_and_sync(log)
        assert clean(log, now_ms)
        assert ((2, b"gone", None) in records(log)) is is_there
        assert (0, b"gone", b"value") not in records(log)
    assert (1, b"kept", b"1") in records(log)


def test_segments_are_merged_and_the_log_is_the_same_after_any_stop(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    for number in range(40):
        put(log, (b"%d" % (number % 3), b"v" * 50))
    roll_and_sync(log)
    put(log, (b"active", b"x"))
    before = log.segment_count
    assert clean(log)
    put(log, (b"more", b"x" * 780))
    roll_and_sync(log)
    expected = records(log)
    assert [offset for offset, _, _ in expected] == [37, 38, 39, 40, 41]
    end_offset = log.log_end_offset
    assert clean(log, limits=CleanerLimits(io_buffer_size=70))
    assert log.segment_count < before
    for is_clean in (False, True):
        again, report = open_log(tmp_path, CONFIG, clean_shutdown=is_clean, recovery_point=end_offset)
        assert (records(again), again.log_end_offset, report.bytes_cut) == (expected, end_offset, 0)
    assert not [
        path.name for path in (tmp_path / "events-0").iterdir() if path.suffix in (".cleaned", ".swap")
    ]


def test_the_active_segment_what_is_young_and_what_is_not_committed_or_synced_stay_dirty(
    tmp_path: Path,
) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    put(log, (b"a", b"1"), (b"a", b"2"))
    assert log.cleaner.dirt(log, NOW_MS) is None
    roll(log)
    assert log.cleaner.dirt(log, NOW_MS) is None, "not synced"
    roll_and_sync(log)
    assert log.cleaner.dirt(log, NOW_MS) is not None
    log.update_config(LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=500))
    assert log.cleaner.dirt(log, NOW_MS + 500 - 1) is None, "too young"
    assert log.cleaner.dirt(log, NOW_MS + 500) is not None
    log.high_watermark = 1
    assert log.cleaner.dirt(log, NOW_MS + 500) is None, "not committed"
    log.high_watermark = 2
    log.update_config(LogConfig(cleanup_policy=("delete",)))
    assert log.cleaner.dirt(log, NOW_MS + 500) is None


def test_a_little_dirt_waits_for_more_or_for_its_time(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=60_000, segment_bytes=10_000)
    log, _ = open_log(tmp_path, config)
    put(log, *((b"%d" % number, b"v" * 100) for number in range(20)))
    roll_and_sync(log)
    assert clean(log)
    put(log, (b"1", b"new"))
    roll_and_sync(log)
    assert not clean(log)
    assert not clean(log, NOW_MS + 60_000)
    assert clean(log, NOW_MS + 60_001)


def test_a_producer_goes_on_after_its_records_were_compacted(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    put(log, (b"a", b"1"), producer=7)
    put(log, (b"a", b"2"), producer=7)
    put(log, (b"a", b"3"), (b"b", b"1"))
    put(log, (b"c", b"1"))
    roll_and_sync(log)
    assert clean(log)
    kept = [header for data in batches(log) for _, header in iter_batches(data)]
    assert [(header.base_offset, header.record_count) for header in kept] == [(1, 0), (2, 2), (4, 1)]
    assert (kept[0].producer_id, kept[0].base_sequence, kept[0].max_timestamp) == (7, 1, NOW_MS)
    for path in (tmp_path / "events-0").glob("*.snapshot"):
        path.unlink()
    again, _ = open_log(tmp_path, CONFIG, recovery_point=5)
    put(again, (b"a", b"4"), producer=7)
    assert records(again)[-1] == (5, b"a", b"4")


def test_a_full_map_ends_the_cleaning_earlier_and_the_next_goes_on(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    for number in range(10):
        put(log, (b"%d" % number, b"1"))
        put(log, (b"%d" % number, b"2"))
    roll_and_sync(log)
    limits = CleanerLimits(dedupe_buffer_size=4 * 201 + 1)
    ends: list[int] = []
    while clean(log, limits=limits):
        assert log.cleaner.clean_offset is not None
        ends.append(log.cleaner.clean_offset)
    assert ends == sorted(ends)
    assert len(ends) > 1
    assert all(value == b"2" for offset, _, value in records(log) if offset < ends[-1])
    log.cleaner.clean_offset = 0
    with pytest.raises(RecordListTooLargeError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        clean(log, limits=CleanerLimits(dedupe_buffer_size=0))


def test_the_map_tells_long_keys_apart() -> None:
    latest = OffsetMap(10_000)
    assert latest.put(b"k" * 100 + b"1", 1)
    assert latest.put(b"k" * 100 + b"2", 2)
    assert latest.put(b"k" * 100 + b"1", 3)
    assert (latest.get(b"k" * 100 + b"1"), latest.get(b"k" * 100 + b"2"), latest.get(b"k")) == (3, 2, -1)
    assert len(latest) == 2


@pytest.mark.parametrize("change", ["truncate", "restart", "retire"])
def test_a_log_that_loses_segments_meanwhile_is_left_alone(tmp_path: Path, change: str) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    for number in range(20):
        put(log, (b"a", b"v" * 50), (b"%d" % number, b""))
    roll_and_sync(log)
    dirt = log.cleaner.dirt(log, NOW_MS)
    assert dirt is not None
    for count, job in enumerate(log.cleaner.clean(log, dirt, CleanerLimits(), NOW_MS)):
        job()
        if count == 1:
            if change == "truncate":
                truncate_to(log, 30)
            elif change == "restart":
                start_at(log, 0)
            else:
                log.delete_before(15)
                log.delete_retired(NOW_MS)
            expected = records(log)
    assert records(log) == expected
    assert log.cleaner.clean_offset is None
    assert not list((tmp_path / "events-0").glob("*.cleaned"))


def test_rot_is_no_reason_to_write_it_anew_with_a_right_checksum(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    put(log, (b"a", b"1"), (b"b", b"1"))
    roll_and_sync(log)
    path = tmp_path / "events-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptMessageError):
        clean(log)
    assert path.read_bytes() == bytes(data)
    assert not list(path.parent.glob("*.cleaned"))


def test_max_compaction_lag_rolls_the_active_segment_in_time(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=1000))
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"), now_ms=NOW_MS + 1000)
    assert log.segment_count == 1
    put(log, (b"a", b"3"), now_ms=NOW_MS + 1001)
    assert log.segment_count == 2


def test_the_store_remembers_what_is_clean(tmp_path: Path) -> None:
    store = open_store(tmp_path, config=CONFIG)[0]
    for partition, dirty_count in ((0, 2), (1, 20)):
        log = store.create("events", partition, None, now_ms=NOW_MS)
        put(log, *((b"%d" % number, b"v" * 20) for number in range(5)))
        roll_and_sync(log)
        assert clean(log)
        put(log, *((b"%d" % number, b"v" * 20) for number in range(dirty_count)))
        roll_and_sync(log)
    assert {log.partition: clean(log) for log in store.all()} == {0: False, 1: True}
    store.checkpoint()
    text = (tmp_path / "cleaner-offset-checkpoint").read_text()
    assert text == "0\n2\nevents 0 5\nevents 1 25\n"
    store.close()
    again = open_store(tmp_path, config=CONFIG)[0]
    assert {log.partition: log.cleaner.clean_offset for log in again.all()} == {0: 5, 1: 25}
    truncated = again.get("events", 1)
    assert truncated is not None
    again.truncate_at_once(truncated, 10)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n2\nevents 0 5\nevents 1 10\n"
    again.delete("events", 0, now_ms=NOW_MS)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nevents 1 10\n"


def swap_state(folder: Path, *names: str) -> set[str]:
    """Put empty-handed files of these names beside a log's, open it, and tell which names are left."""
    for name in names:
        source = name.removesuffix(".cleaned").removesuffix(".swap")
        (folder / name).write_bytes((folder / source).read_bytes() if (folder / source).exists() else b"")
    log, _ = open_log(folder.parent, CONFIG)
    assert records(log)
    return {path.name for path in folder.iterdir()}


def test_leftovers_of_each_step_are_finished_or_forgotten(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path, CONFIG)
    for number in range(12):
        put(log, (b"%d" % number, b"v" * 50))
    roll_and_sync(log)
    folder = tmp_path / "events-0"
    first, second = sorted(path.name[:20] for path in folder.glob("*.log"))[:2]
    whole = records(log)
    left = swap_state(folder, f"{first}.log.cleaned", f"{first}.index.cleaned")
    assert f"{first}.log" in left
    assert not any(name.endswith(".cleaned") for name in left)
    left = swap_state(folder, f"{first}.log.swap", f"{first}.index.cleaned")
    assert not any(name.endswith((".cleaned", ".swap")) for name in left)
    both = (folder / f"{first}.log").read_bytes() + (folder / f"{second}.log").read_bytes()
    (folder / f"{first}.log.swap").write_bytes(both)
    again, _ = open_log(tmp_path, CONFIG)
    assert not (folder / f"{second}.log").exists()
    assert records(again) == whole
    (folder / f"{first}.log.deleted").write_bytes(b"x")
    assert f"{first}.log.deleted" not in swap_state(folder)
