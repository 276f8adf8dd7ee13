"""Until when a member may believe that its session lives, by its own clock alone. Pure.

ZooKeeper ends a session only when it has heard nothing of it for its time-out; it heard of this one after the question was sent
that it answered. So nobody else owns what the member owns before that long after the question. A process that was stopped
finds its lease over when it goes on.
"""

from __future__ import annotations


class Lease:
    """Times are of a monotonic clock that goes on while the process is stopped."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._until_ms: int | None = None

    def renewed(self, asked_ms: int) -> None:
        """ZooKeeper answered, within the session, what it was asked at `asked_ms`."""
        until_ms = asked_ms + self._session_timeout_ms
        self._until_ms = until_ms if self._until_ms is None else max(self._until_ms, until_ms)

    def ended(self) -> None:
        """The session is over, or may be."""
        self._until_ms = None

    def holds(self, now_ms: int) -> bool:
        return self._until_ms is not None and now_ms < self._until_ms
