"""Work for a handler that cannot wait, in a task of the broker."""

from __future__ import annotations

import asyncio
import inspect

from headrace.broker.server.later import Later
from headrace.broker.tasks import Tasks


async def work() -> int:
    return 7


def test_work_that_a_stop_keeps_from_its_first_step_is_closed() -> None:
    async def test() -> str:
        tasks, unstarted = Tasks(), work()
        Later(tasks)("work", unstarted)
        await tasks.stop()
        return inspect.getcoroutinestate(unstarted)

    assert asyncio.run(test()) == inspect.CORO_CLOSED
