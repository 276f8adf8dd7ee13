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
    """One value or one failure; what comes second is ignored, so that a wake-up may race its time-out."""

    __slots__ = ("_callback", "_cancelled", "_error", "_failed", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callback: Callable[[T], None] | None = None
        self._failed: Callable[[BaseException], None] | None = None
        self._cancelled: Callable[[], None] | None = None

    def complete(self, value: T) -> None:
        """Give the value; runs the callback at once when one is set."""
        if not self.done:
            self._value = value
            self._finish()

    def fail(self, error: BaseException) -> None:
        """There will be no value: the reader is told why."""
        if not self.done:
            self._error = error
            self._finish()

    def then(
        self, callback: Callable[[T], None], failed: Callable[[BaseException], None] | None = None
    ) -> None:
        """Call `callback(value)`, or `failed(error)`, when it is there (at once when it already is); one reader only."""
        assert self._callback is None, "a deferred value has one reader"
        self._callback, self._failed = callback, failed
        if self.done:
            self._tell()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback()` when the reader goes away before the value came (its connection closed)."""
        self._cancelled = callback

    def cancel(self) -> None:
        """The reader is gone: forget it, and tell the one who would have completed this."""
        if self.done:
            return
        self.done = True
        self._callback = self._failed = None
        if self._cancelled is not None:
            cancelled, self._cancelled = self._cancelled, None
            cancelled()

    def follow(self, other: Deferred[T]) -> None:
        """Take what `other` gives, or its failure; cancelling this one cancels it."""
        if self.done:
            other.cancel()
            return
        self.on_cancel(other.cancel)
        other.then(self.complete, self.fail)

    def map(self, function: Callable[[T], U]) -> Deferred[U]:
        """A deferred of `function(value)`; cancelling it cancels this one, its failure and one of `function` come through."""
        mapped: Deferred[U] = Deferred()
        if self.done and self._error is None:
            self._give(mapped, function)
            return mapped
        mapped.on_cancel(self.cancel)
        self.then(lambda _: self._give(mapped, function), mapped.fail)
        return mapped

    def _give(self, mapped: Deferred[U], function: Callable[[T], U]) -> None:
        """Complete with what the function makes of the value."""
        try:
            result = function(self._value)  # type: ignore[arg-type]
        except Exception as error:
            mapped.fail(error)
        else:
            mapped.complete(result)

    def _finish(self) -> None:
        self.done = True
        self._cancelled = None
        if self._callback is not None:
            self._tell()

    def _tell(self) -> None:
        callback, failed = self._callback, self._failed
        self._callback = self._failed = None
        if self._error is None:
            assert callback is not None
            callback(self._value)  # type: ignore[arg-type]
        elif failed is not None:
            failed(self._error)
