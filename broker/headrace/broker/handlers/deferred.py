"""A value that comes later, without an event loop.

A handler that cannot answer yet (a fetch that waits for data, a join that waits for members) returns a `Deferred`;
whoever learns the answer completes it, once, and the connection writes it in its turn. Callbacks run synchronously in
the caller of `complete`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """One value, completed at most once; a second `complete` is ignored, so that a wake-up may race its time-out."""

    __slots__ = ("_callback", "_cancelled", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._callback: Callable[[T], None] | None = None
        self._cancelled: Callable[[], None] | None = None

    def complete(self, value: T) -> None:
        """Give the value; runs the callback at once when one is set."""
        if self.done:
            return
        self.done = True
        self._value = value
        self._cancelled = None
        if self._callback is not None:
            callback, self._callback = self._callback, None
            callback(value)

    def then(self, callback: Callable[[T], None]) -> None:
        """Call `callback(value)` when the value is there (at once when it already is); one callback only."""
        assert self._callback is None, "a deferred value has one reader"
        if self.done:
            callback(self._value)  # type: ignore[arg-type]
        else:
            self._callback = callback

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback()` when the reader goes away before the value came (its connection closed)."""
        self._cancelled = callback

    def cancel(self) -> None:
        """The reader is gone: forget it, and tell the one who would have completed this."""
        if self.done:
            return
        self.done = True
        self._callback = None
        if self._cancelled is not None:
            cancelled, self._cancelled = self._cancelled, None
            cancelled()

    def map(self, function: Callable[[T], U]) -> Deferred[U]:
        """A deferred of `function(value)`; cancelling it cancels this one."""
        mapped: Deferred[U] = Deferred()
        self.then(lambda value: mapped.complete(function(value)))
        mapped.on_cancel(self.cancel)
        return mapped
