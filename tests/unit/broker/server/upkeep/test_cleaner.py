"""The cleaner's shell: one bad log holds up no other, its pace is kept, and it ends with the broker."""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Barrier, get_ident
from types import SimpleNamespace

import pytest
from log_kit import NOW_MS, append, open_store
from prometheus_client import generate_latest

from headrace.broker.clock import SystemClock
from headrace.broker.config.sections import Logs
from headrace.broker.config.topics import LogConfig
from headrace.broker.log.cleaning import LogCleaner
from headrace.broker.log.compaction import CleanerLimits, Dirt
from headrace.broker.log.files import Buffer, OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import Job
from headrace.broker.log.segment import Segment
from headrace.broker.log.store import LogStore
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.server.upkeep.cleaner import Cleaner, CleanerFigures, Pace, _Stopped
from headrace.broker.wire.batches import Record, encode_batch


def dirty_store(folder: Path, partitions: int) -> LogStore:
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=20_000)
    store = open_store(folder, config=config)[0]
    for partition in range(partitions):
        log = store.create("events", partition, None, now_ms=NOW_MS)
        for number in range(200):
            record = Record(0, NOW_MS, b"%d" % (number % 5), b"v" * 100, [])
            append(log, memoryview(encode_batch([record])))
        task = log.flush_task()
        assert task is not None
        log.flushed(task())
    return store


def test_every_dirty_log_is_cleaned_but_the_one_that_rots(tmp_path: Path) -> None:
    store = dirty_store(tmp_path, 3)
    rotten = tmp_path / "events-1" / f"{0:020d}.log"
    data = bytearray(rotten.read_bytes())
    data[100] ^= 1
    rotten.write_bytes(data)
    interval_s = sys.getswitchinterval()
    cleaner = Cleaner(Logs(), store, SystemClock())
    asyncio.run(cleaner.clean_all())
    assert sys.getswitchinterval() == interval_s
    cleaned = {log.partition: log.cleaner.clean_offset for log in store.all()}
    assert cleaned[1] is None
    assert min(cleaned[0] or 0, cleaned[2] or 0) > 100
    assert [log.cleaner.uncleanable is None for log in store.all()] == [True, False, True]
    assert rotten.read_bytes() == data
    assert "events 0" in (tmp_path / "cleaner-offset-checkpoint").read_text()
    figures = cleaner.figures
    assert (figures.max_dirty_ratio, figures.uncleanable_partitions) == (0, 1)
    assert figures.cleaned_bytes > 20_000
    assert figures.ended_ms is not None


def test_the_loop_waits_for_no_checkpoint_of_a_cleaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = dirty_store(tmp_path, 1)
    replace_file, writers = OsFiles.replace_file, set()

    def replaced(files: OsFiles, path: str, data: bytes) -> None:
        writers.add(get_ident())
        replace_file(files, path, data)

    monkeypatch.setattr(OsFiles, "replace_file", replaced)
    asyncio.run(Cleaner(Logs(), store, SystemClock()).clean_all())
    assert "events 0" in (tmp_path / "cleaner-offset-checkpoint").read_text()
    assert writers
    assert get_ident() not in writers


def test_a_broker_that_stops_waits_for_no_cleaning(tmp_path: Path) -> None:
    store = dirty_store(tmp_path, 1)
    cleaner = Cleaner(Logs(log_cleaner_io_max_bytes_per_second=10.0), store, SystemClock())

    async def stop_soon() -> None:
        running = asyncio.get_running_loop().create_task(cleaner.clean_all())
        await asyncio.sleep(0.3)
        assert not running.done(), "ten bytes a second take longer"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(stop_soon())
    log = store.get("events", 0)
    assert log is not None
    assert log.cleaner.clean_offset is None
    assert not list((tmp_path / "events-0").glob("*.cleaned"))
    store.close()


def test_the_pace_ends_when_the_broker_stops() -> None:
    pace = Pace(1e9)
    pace(1000)
    pace.stop()
    with pytest.raises(_Stopped):
        pace(1)


def test_as_many_logs_are_cleaned_at_a_time_as_there_are_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = dirty_store(tmp_path, 4)
    together = Barrier(3, timeout=20)
    limits: list[CleanerLimits] = []
    clean = LogCleaner.clean

    def meet() -> None:
        together.wait()

    def cleaning(
        cleaner: LogCleaner, log: PartitionLog, dirt: Dirt, limit: CleanerLimits, now_ms: int
    ) -> Iterator[Job]:
        limits.append(limit)
        if len(limits) <= 3:
            yield meet
        yield from clean(cleaner, log, dirt, limit, now_ms)

    monkeypatch.setattr(LogCleaner, "clean", cleaning)
    config = Logs(log_cleaner_threads=3, log_cleaner_dedupe_buffer_size=9_000_000)
    asyncio.run(Cleaner(config, store, SystemClock()).clean_all())
    assert all((log.cleaner.clean_offset or 0) > 100 for log in store.all())
    assert {limit.dedupe_buffer_size for limit in limits} == {2_700_000}


def test_a_log_that_makes_no_progress_waits_for_the_next_round(tmp_path: Path) -> None:
    store = dirty_store(tmp_path, 2)
    stuck = store.get("events", 0)
    assert stuck is not None
    append(stuck, memoryview(encode_batch([Record(0, NOW_MS, b"k", b"v", [])])))
    flush = stuck.flush_task()
    assert flush is not None, "a flush is under way, which a cleaning would wait for"
    cleaner = Cleaner(Logs(), store, SystemClock())
    asyncio.run(cleaner.clean_all())
    assert [log.cleaner.clean_offset is None for log in store.all()] == [True, False]
    assert cleaner.figures.max_dirty_ratio == 0, "it is out of this round"
    stuck.flushed(flush())
    asyncio.run(cleaner.clean_all())
    assert (stuck.cleaner.clean_offset or 0) > 100
    assert stuck.cleaner.uncleanable is None


def test_a_full_disk_only_puts_a_cleaning_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = dirty_store(tmp_path, 2)
    cleaner = Cleaner(Logs(), store, SystemClock())
    write = Segment.write

    def full(segment: Segment, data: Sequence[Buffer]) -> int:
        if segment.suffix == ".cleaned" and "events-0" in segment.directory:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(segment, data)

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "write", full)
        asyncio.run(cleaner.clean_all())
    assert [log.cleaner.clean_offset is None for log in store.all()] == [True, False]
    assert cleaner.figures.uncleanable_partitions == 0
    assert not list(tmp_path.glob("**/*.cleaned"))
    asyncio.run(cleaner.clean_all())
    assert all((log.cleaner.clean_offset or 0) > 100 for log in store.all())


def test_a_disk_that_stays_full_is_told_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimpleNamespace(now_ms=SystemClock().now_ms)
    cleaner = Cleaner(Logs(), dirty_store(tmp_path, 1), clock)

    def full(segment: Segment, data: Sequence[Buffer]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Segment, "write", full)
    for now_ms in range(0, 121_000, 15_000):
        clock.monotonic_ms = lambda now_ms=now_ms: now_ms
        asyncio.run(cleaner.clean_all())
    told = [record for record in caplog.records if "to be tried again" in record.getMessage()]
    assert len(told) == 3


def test_a_checkpoint_that_fails_is_left_to_housekeeping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = dirty_store(tmp_path, 1)

    def full(files: OsFiles, path: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(OsFiles, "replace_file", full)
    asyncio.run(Cleaner(Logs(), store, SystemClock()).clean_all())
    assert [record.levelname for record in caplog.records if record.levelname == "ERROR"] == []
    assert (next(iter(store.all())).cleaner.clean_offset or 0) > 100


def test_a_changed_configuration_is_in_use_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = dirty_store(tmp_path, 1)
    log = store.get("events", 0)
    assert log is not None

    async def change() -> None:
        cleaner = Cleaner(Logs(log_cleaner_backoff_ms=10**9), store, SystemClock())
        clean_all, cleaned = cleaner.clean_all, asyncio.Event()

        async def clean_and_tell() -> None:
            await clean_all()
            cleaned.set()

        monkeypatch.setattr(cleaner, "clean_all", clean_and_tell)
        running = asyncio.get_running_loop().create_task(cleaner.run())
        await asyncio.sleep(0)
        cleaner.use_config(Logs(log_cleaner_backoff_ms=10**9))
        await asyncio.sleep(0)
        assert cleaner.figures.ended_ms is None, "nothing has changed"
        cleaner.use_config(Logs(log_cleaner_backoff_ms=10**9, log_cleaner_threads=2))
        await cleaned.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(change(), 20))
    assert (log.cleaner.clean_offset or 0) > 100


def test_the_cleaners_figures_are_on_the_page() -> None:
    metrics = BrokerMetrics()
    assert "headrace_cleaner" not in generate_latest(metrics.registry).decode()
    metrics.cleaner = lambda: (CleanerFigures(0.25, 1000, 3, 1.5, 2000), 12_500)
    page = generate_latest(metrics.registry).decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in page if line.startswith("headrace_cleaner"))
    assert found == {
        "headrace_cleaner_max_dirty_percent": "25.0",
        "headrace_cleaner_cleaned_bytes_total": "1000.0",
        "headrace_cleaner_uncleanable_partitions": "3.0",
        "headrace_cleaner_last_run_seconds": "1.5",
        "headrace_cleaner_seconds_since_last_run": "10.5",
    }


def test_all_threads_together_keep_to_the_speed_which_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    monkeypatch.setattr("headrace.broker.server.upkeep.cleaner.time.monotonic", lambda: seconds[0])

    def sleep(length_s: float) -> None:
        seconds[0] += length_s

    monkeypatch.setattr("headrace.broker.server.upkeep.cleaner.time.sleep", sleep)
    pace = Pace(1000)
    for _ in range(100):
        pace(100)
    assert 9.5 <= seconds[0] <= 10
    pace.bytes_per_second = 10_000
    for _ in range(100):
        pace(100)
    assert 10.5 <= seconds[0] <= 11
