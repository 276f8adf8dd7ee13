"""Deleted files and folders that stay for file.delete.delay.ms. Pure: time comes in, paths go out."""

from __future__ import annotations

from collections.abc import Iterator


class Deleted:
    """Paths and when their delay is over; bounded by what is deleted in that time.

    Time is a wall clock's, which may be set back: nobody waits longer for that than one more delay.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # (when it is due, its delay) by path.
        self._waiting: dict[str, tuple[int, int]] = {}

    def add(self, path: str, now_ms: int, delay_ms: int) -> None:
        """Have `due` give this path once `delay_ms` are over."""
        self._waiting[path] = now_ms + delay_ms, delay_ms

    def due(self, now_ms: int) -> Iterator[str]:
        """The paths to remove now; one whose removal raises comes again with the next call."""
        for path, (due_ms, delay_ms) in list(self._waiting.items()):
            if due_ms <= now_ms:
                yield path
                del self._waiting[path]
            elif due_ms > now_ms + delay_ms:
                self.add(path, now_ms, delay_ms)
