"""How far the opening of the logs is: written by the threads that open them, read by whoever tells of it.

A log is opened by one thread, which alone writes that log's figures: nothing needs a lock.
"""

from __future__ import annotations


class OpeningProgress:
    """Counts of one start; `bytes_total` is what recovery has to check after an unclean stop, at most."""

    def __init__(self) -> None:
        self.logs_total = 0
        self.logs_opened = 0
        self.bytes_total = 0
        self._checked: dict[str, int] = {}
        self._segments: dict[str, int] = {}
        self.is_over = False

    def checking(self, directory: str, size: int) -> None:
        """A segment of that many bytes was checked in a log."""
        self._checked[directory] = self._checked.get(directory, 0) + size
        self._segments[directory] = self._segments.get(directory, 0) + 1

    @property
    def logs_left(self) -> int:
        """Logs that are not open yet."""
        return 0 if self.is_over else self.logs_total - self.logs_opened

    @property
    def bytes_checked(self) -> int:
        """Bytes of segments that were checked batch by batch."""
        return sum(list(self._checked.values()))

    @property
    def segments_checked(self) -> int:
        """Segments that were checked batch by batch."""
        return sum(list(self._segments.values()))

    @property
    def bytes_left(self) -> int:
        """Bytes that may still have to be checked; those of synced segments are passed over."""
        return 0 if self.is_over else max(self.bytes_total - self.bytes_checked, 0)
