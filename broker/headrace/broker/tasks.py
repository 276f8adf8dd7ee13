"""The only place that creates tasks: every task of a broker belongs to one group and ends with it.

Invariants: a task that fails for a reason nobody handled is logged and ends alone; `stop` cancels all and returns
when they are gone; nothing outlives the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from concurrent.futures import Executor
from typing import Any, TypeVar, cast

from headrace.broker.structured_log import get_logger

T = TypeVar("T")
logger = get_logger(__name__)


async def in_thread(
    job: Callable[[], None], pool: Executor | None = None, *, give_up: Callable[[], None] | None = None
) -> None:
    """Do a job in a thread; a task that is cancelled meanwhile calls `give_up()` and ends after the job."""
    working = asyncio.get_running_loop().run_in_executor(pool, job)
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        if give_up is not None:
            give_up()
        await asyncio.wait([working])
        working.exception()
        raise


def outcome(work: Generator[None, None, T]) -> T:
    """The outcome of `work`, which yields where others could have the loop, without letting it go."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return cast("T", end.value)


async def paced(items: Iterable[T], at_once: int) -> AsyncIterator[T]:
    """The items, `at_once` of them before others have the loop."""
    for count, item in enumerate(items):
        if count and count % at_once == 0:
            await asyncio.sleep(0)
        yield item


class Tasks:
    """Owns the tasks started on it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Run `work` until it ends or the group stops."""
        task = asyncio.get_running_loop().create_task(self._guarded(name, work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task cancelled before its first step leaves `work` unstarted.
        task.add_done_callback(lambda _: work.close())
        return task

    def every(self, name: str, interval_ms: int, work: Callable[[], Any]) -> None:
        """Call `work()` (or await what it returns) each `interval_ms`, counted from the end of the call before."""
        self.start(name, self._repeat(name, interval_ms, work))

    async def stop(self) -> None:
        """Cancel every task and wait until all are gone."""
        self._stopping = True
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, name: str, interval_ms: int, work: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                result = work()
                if asyncio.iscoroutine(result):
                    await result
            except Exception as error:
                logger.failure("periodic work failed", error, task=name)

    async def _guarded(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        except Exception as error:
            logger.failure("task failed", error, task=name)
