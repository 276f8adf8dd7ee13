"""What a broker does by the clock, beside a disk that takes its time."""

import asyncio
from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.clock import SystemClock
from headrace.broker.config.sections import Logs
from headrace.broker.errors import StorageError
from headrace.broker.log.results import Job, LogFinding
from headrace.broker.log.store import LogStore
from headrace.broker.outage import REPEAT_MS
from headrace.broker.server.upkeep.housekeeping import Housekeeping
from headrace.broker.server.upkeep.syncing import FlushTimes
from headrace.broker.tasks import Tasks

TIMEOUT_S = 20


class SlowLogs:
    """Logs with one flush to do, which ends when `disk` is set."""

    def __init__(self) -> None:
        self.begun, self.disk, self.removed = Event(), Event(), Event()
        self.flush_count = self.maintained_count = 0
        self.findings: list[LogFinding] = []
        self.noted: list[int] = []

    def flush_tasks(self, monotonic_ms: int) -> list[tuple[Any, Callable[[], int]]]:
        self.flush_count += 1
        return [(SimpleNamespace(flushed=lambda offset: None), self._sync)]

    def _sync(self) -> int:
        self.begun.set()
        assert self.disk.wait(TIMEOUT_S)
        return 1

    def epoch_tasks(self) -> list[tuple[Any, Job]]:
        return [(SimpleNamespace(epochs_noted=lambda: self.noted.append(2)), lambda: self.noted.append(1))]

    def maintain(self, now_ms: int) -> list[LogFinding]:
        self.maintained_count += 1
        return self.findings

    def removals(self, now_ms: int) -> list[Job]:
        return [self.removed.set]

    def checkpoint_jobs(self) -> list[Job]:
        return []


def test_a_checkpoint_that_fails_is_told_once_a_minute_and_when_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "headrace")
    clock, logs = SimpleNamespace(), SlowLogs()
    is_full = True

    def checkpoint() -> None:
        if is_full:
            raise StorageError("No space left on device")

    logs.watermark_jobs = lambda: [checkpoint, lambda: None]  # type: ignore[attr-defined]
    clock.now_ms = clock.monotonic_ms = lambda: 0
    housekeeping = Housekeeping(
        Logs(), cast(LogStore, logs), clock, lambda: None, Tasks(), FlushTimes(), lambda *_: None
    )

    async def run() -> None:
        nonlocal is_full
        for now_ms in range(0, 5 * REPEAT_MS, 5000):
            is_full = now_ms <= 2 * REPEAT_MS
            clock.monotonic_ms = lambda now_ms=now_ms: now_ms
            await housekeeping.checkpoint_watermarks()

    asyncio.run(run())
    failed = "checkpoint of the high watermarks failed"
    assert caplog.messages == [failed] * 3 + ["checkpoint of the high watermarks works again"]


def test_retention_goes_on_while_one_flush_takes_long() -> None:
    logs = SlowLogs()
    sweeps: list[int] = []
    woken: list[tuple[str, int]] = []
    path = "/data/events-3/00000000000000000000"
    logs.findings = [
        LogFinding("retired", f"{path}.log", 0, 100, "old"),
        LogFinding("rebuilt", f"{path}.index", 0, 0, "missing"),
    ]

    async def run() -> None:
        tasks = Tasks()
        config = Logs(log_retention_check_interval_ms=0)
        store = cast(LogStore, logs)
        housekeeping = Housekeeping(
            config,
            store,
            SystemClock(),
            lambda: sweeps.append(1),
            tasks,
            FlushTimes(),
            lambda *partition: woken.append(partition),
        )
        try:
            housekeeping.run()
            assert await asyncio.to_thread(logs.begun.wait, TIMEOUT_S)
            housekeeping.run()
            housekeeping.run()
            await asyncio.sleep(0)
            assert (logs.flush_count, logs.maintained_count, len(sweeps)) == (1, 3, 3)
            assert woken == [("events", 3)] * 3
            assert not logs.removed.is_set()
            logs.disk.set()
            assert await asyncio.to_thread(logs.removed.wait, TIMEOUT_S)
            assert logs.noted == [1, 2]
        finally:
            logs.disk.set()
            await tasks.stop()

    asyncio.run(run())
