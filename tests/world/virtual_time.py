"""An event loop whose clock jumps to the next timer when nothing else is to be done: hours pass in seconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from faulty_files import Died


class _Selector(selectors.DefaultSelector):
    """Waits by moving the clock."""

    advance: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[Any]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        assert timeout is not None, "everything waits for something that will never come"
        self.advance(timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """Use as `with VirtualLoop() as loop: loop.run_until_complete(…)`; an executor's jobs take `job_seconds()`."""

    def __init__(self) -> None:
        self._now = 1000.0
        self.job_seconds: Callable[[], float] = lambda: 0.0
        selector = _Selector()
        selector.advance = self._advance
        super().__init__(selector)

    def _advance(self, seconds: float) -> None:
        self._now += seconds

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = self.create_future()
        self.call_later(self.job_seconds(), self._settle, future, func, args)
        return future

    @staticmethod
    def _settle(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if future.done():
            return
        try:
            future.set_result(func(*args))
        except Died:
            # So did whoever waits for the thread.
            return
        except Exception as error:
            future.set_exception(error)

    def __enter__(self) -> VirtualLoop:
        asyncio.set_event_loop(self)
        return self

    def __exit__(self, *_: object) -> None:
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        asyncio.set_event_loop(None)
        self.close()


class LoopClock:
    """The broker's clock on a virtual loop, whose wall clock showed `began_ms` when the loop's time was 0.

    `step` sets the wall clock alone, as a person or a time server does.
    """

    def __init__(self, loop: VirtualLoop, began_ms: int = 0) -> None:
        self._loop = loop
        self._began_ms = began_ms

    def step(self, milliseconds: int) -> None:
        self._began_ms += milliseconds

    def now_ms(self) -> int:
        return self._began_ms + int(self._loop.time() * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)
