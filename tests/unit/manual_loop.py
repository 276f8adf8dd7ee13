"""An event loop whose turns the test makes."""

from __future__ import annotations

import select
from collections.abc import Callable


class Timer:
    """One callback that is to come; the test runs it."""

    def __init__(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.delay_s = delay_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualLoop:
    """Readers whose descriptors are readable, and callbacks, run when the test says so."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Timer] = []

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_s, callback))
        return self.timers[-1]

    def turn(self) -> None:
        due, self.soon = self.soon, []
        readable, _, _ = select.select(list(self.readers), [], [], 0)
        for callback in [*(self.readers[fd] for fd in readable), *due]:
            callback()

    def settle(self) -> None:
        """Turns until nothing is to come soon."""
        self.turn()
        while self.soon or select.select(list(self.readers), [], [], 0)[0]:
            self.turn()
