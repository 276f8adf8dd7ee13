"""A znode that somebody hears of whenever it changes, however often watches are used up and connections go.

Invariant: after a change, a reconnection and the begin of a session the znode is read again, so that no change is missed for
good. Nothing is called but on the broker's loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.exceptions import NoNodeError


class Subscription:
    """A znode that is read again whenever it may have changed; ends with `cancel`."""

    def __init__(
        self,
        kazoo: Any,
        path: str,
        send: Callable[[Callable[[Any], None]], Any],
        convert: Callable[[Any], Any],
        callback: Callable[[Any], None],
        *,
        on_loop: Callable[..., None],
        ended: Callable[[Subscription], object],
    ) -> None:
        """`send(watch)` asks kazoo, `convert` makes of its answer, or of None, what `callback` is given.

        `on_loop(function, *arguments)` calls a function on the broker's loop, `ended(self)` is called once.
        """
        self._kazoo = kazoo
        self._path = path
        self._send = send
        self._convert = convert
        self._callback = callback
        self._on_loop = on_loop
        self._ended = ended
        self._reading = False
        self._again = False
        self._cancelled = False

    def cancel(self) -> None:
        """No further calls."""
        self._cancelled = True
        self._ended(self)

    def read(self) -> None:
        """Read now and tell; while a read is under way, once more after it."""
        if self._cancelled:
            return
        if self._reading:
            self._again = True
            return
        self._reading = True
        self._again = False
        self._ask(lambda: self._send(self._fired), self._answered)

    def _ask(self, send: Callable[[], Any], answered: Callable[[Any], None]) -> None:
        send().rawlink(lambda result: self._on_loop(answered, result))

    def _fired(self, event: Any) -> None:
        """kazoo's thread: the watch is used up, or the connection went and a later reconnection reads
        again.
        """
        if event.type != "NONE":
            self._on_loop(self.read)

    def _answered(self, result: Any) -> None:
        error = result.exception
        if isinstance(error, NoNodeError):
            self._ask(lambda: self._kazoo.exists_async(self._path, self._fired), self._watched_absence)
            return
        self._reading = False
        if error is None and not self._cancelled:
            self._callback(self._convert(result.get_nowait()))
        if self._again:
            self.read()

    def _watched_absence(self, result: Any) -> None:
        self._reading = False
        appeared = result.exception is None and result.get_nowait() is not None
        if result.exception is None and not appeared and not self._cancelled:
            self._callback(self._convert(None))
        if self._again or appeared:
            self.read()
