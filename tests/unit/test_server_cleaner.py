"""The cleaner's shell: one bad log holds up no other, its pace is kept, and it ends with the broker."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from log_kit import NOW_MS, append

from headrace.broker.clock import SystemClock
from headrace.broker.config import LogConfig
from headrace.broker.config_sections import Logs
from headrace.broker.log.files import OsFiles
from headrace.broker.log.store import LogStore
from headrace.broker.server.cleaner import Cleaner, Pace, _Stopped
from headrace.broker.wire.batches import Record, encode_batch


def dirty_store(folder: Path, partitions: int) -> LogStore:
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=20_000)
    store, _ = LogStore.open(
        OsFiles(),
        [str(folder)],
        config,
        broker_id=1,
        cluster_id="c",
        overrides=lambda _: {},
        now_ms=NOW_MS,
    )
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
    asyncio.run(Cleaner(Logs(), store, SystemClock()).run())
    assert sys.getswitchinterval() == interval_s
    cleaned = {log.partition: log.cleaner.clean_offset for log in store.all()}
    assert cleaned[1] is None
    assert min(cleaned[0] or 0, cleaned[2] or 0) > 100
    assert [log.cleaner.uncleanable is None for log in store.all()] == [True, False, True]
    assert rotten.read_bytes() == data
    assert "events 0" in (tmp_path / "cleaner-offset-checkpoint").read_text()


def test_a_broker_that_stops_waits_for_no_cleaning(tmp_path: Path) -> None:
    store = dirty_store(tmp_path, 1)
    cleaner = Cleaner(Logs(log_cleaner_io_max_bytes_per_second=10.0), store, SystemClock())

    async def stop_soon() -> None:
        running = asyncio.get_running_loop().create_task(cleaner.run())
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
    pace.is_stopped = True
    with pytest.raises(_Stopped):
        pace(1)
