"""Work to be done one after the other in a task of its own, in the order in which it was posted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from headrace.broker.structured_log import get_logger

logger = get_logger(__name__)
T = TypeVar("T")
Work = Callable[[], Awaitable[Any]]


class Mailbox:
    """A queue of asynchronous work; posting never waits. What fails goes to `failed`, and the next is done.

    Who posts bounds it: a watch fires once until it is set again, a peer has one request under way, and a connection asks
    one thing at a time.
    """

    def __init__(self, failed: Callable[[Exception], Awaitable[None]]) -> None:
        self._failed = failed
        self._queue: deque[Work] = deque()
        self._filled = asyncio.Event()

    def post(self, work: Work) -> None:
        """Do `work` after all that was posted before."""
        self._queue.append(work)
        self._filled.set()

    async def ask(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work` in its turn and answer what it answers, or raise what it raises."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def settle() -> None:
            try:
                result = await work()
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
                return
            if not future.done():
                future.set_result(result)

        self.post(settle)
        return await future

    async def run(self) -> None:
        """Do the work until cancelled."""
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            work = self._queue.popleft()
            try:
                await self._do(work)
            except Exception as error:
                logger.failure("a failure could not be dealt with", error)

    async def _do(self, work: Work) -> None:
        try:
            await work()
        except Exception as error:
            await self._failed(error)
