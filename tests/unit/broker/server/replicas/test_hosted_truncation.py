"""Logs that are cut together in threads: the event loop goes on while the disk is slow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from log_kit import NOW_MS, append, batch, offsets, open_store

from headrace.broker.log.files import OsFiles
from headrace.broker.server.replicas.logs import in_threads


class SlowFiles(OsFiles):
    """Folders are synced once the gate is open; `reached` is called when somebody comes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.reached: Callable[[], object] = lambda: None

    def sync_directory(self, path: str) -> None:
        self.reached()
        assert self.gate.wait(10), "the loop did not go on meanwhile"
        super().sync_directory(path)


def test_the_loop_goes_on_while_many_logs_are_cut_side_by_side(tmp_path: Path) -> None:
    files = SlowFiles()
    store, _ = open_store(tmp_path, files=files)
    logs = [store.create("events", partition, None, now_ms=NOW_MS) for partition in range(8)]
    for log in logs:
        append(log, *(batch() for _ in range(5)))
    bystander = store.create("others", 0, None, now_ms=NOW_MS)
    append(bystander, batch())
    files.gate.clear()

    async def cut() -> None:
        truncations = [truncation for log in logs if (truncation := store.truncation(log, 2))]
        await in_threads(store.lowering_jobs(truncations))
        await in_threads([truncation.run for truncation in truncations])
        for truncation in truncations:
            truncation.end()

    async def go_on(reached: asyncio.Event) -> None:
        await reached.wait()
        append(bystander, batch())
        assert offsets(bystander) == [0, 1]
        assert all(log.is_truncating and log.log_end_offset == 5 for log in logs)
        files.gate.set()

    async def script() -> None:
        loop, reached = asyncio.get_running_loop(), asyncio.Event()
        files.reached = lambda: loop.call_soon_threadsafe(reached.set)
        await asyncio.gather(cut(), go_on(reached))

    asyncio.run(script())
    assert [offsets(log) for log in logs] == [[0, 1]] * 8
