"""The replies of one connection, in the order of its requests: what is to be sent, and the one that is to come.

Invariants: while a reply is to come (`is_parked`) nothing else is served, so that it keeps its place; at most
`REPLY_SIZE_MAX` bytes and one reply are held for a client that does not read. Must not know: requests, whose turn it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.log.results import LogSlice
from headrace.broker.server.holdings import LARGE_SIZE
from headrace.broker.waiting.deferred import Deferred

if TYPE_CHECKING:
    from headrace.broker.server.metrics import BrokerMetrics
    from headrace.broker.server.transport import PlainTransport

REPLY_SIZE_MAX = 1 << 20
SIZE_PER_TURN_MAX = 4 << 20


class Channel:
    """See the module's text.

    `answered()` is called when the reply that was to come is there, `failed(error)` when it will not come, `held()` when
    `held_size`, the bytes of large replies that wait, has changed.
    """

    __slots__ = (
        "_answered",
        "_failed",
        "_held",
        "_key",
        "_metrics",
        "_now",
        "_parked_at",
        "_parts",
        "_pending",
        "_position",
        "_transport",
        "held_size",
        "size",
    )

    def __init__(
        self,
        transport: PlainTransport,
        metrics: BrokerMetrics,
        now: Callable[[], float],
        *,
        answered: Callable[[], None],
        failed: Callable[[BaseException], None],
        held: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._metrics = metrics
        self._now = now
        self._answered, self._failed, self._held = answered, failed, held
        self._parts: deque[bytes | LogSlice] = deque()
        # How much of the first part has gone.
        self._position = 0
        self._pending: Deferred[Parts] | None = None
        self._key = 0
        self._parked_at = 0.0
        self.size = 0
        self.held_size = 0

    @property
    def is_parked(self) -> bool:
        """Whether the client waits for us: a reply is to come."""
        return self._pending is not None

    @property
    def has_replies(self) -> bool:
        """Whether there is something to send."""
        return bool(self._parts)

    @property
    def takes_more(self) -> bool:
        """Whether another request may be served."""
        return self._pending is None and self.size < REPLY_SIZE_MAX

    def reply(self, key: int, reply: Reply) -> None:
        """What the request served last, of that API, is answered with."""
        if isinstance(reply, list):
            self._queue(reply)
        elif reply is not None:
            self._park(key, reply)

    def send(self) -> bool:
        """Send what there is, as much as one turn may; whether that is all.

        Raises BlockingIOError when no more fits, OSError when the connection is over.
        """
        size_left_min = self.size - SIZE_PER_TURN_MAX
        parts = self._parts
        while parts:
            # A client that reads as fast as we send must not keep the others waiting.
            if self.size <= size_left_min and type(parts[0]) is LogSlice:
                return False
            self._sent(self._transport.send(parts, self._position))
        if self.held_size:
            self.held_size = 0
            self._held()
        return True

    def close(self) -> None:
        """Forget all replies; whoever would give the one that is to come hears of it."""
        self.held_size = 0
        if self._pending is not None:
            self._pending.cancel()
        self._parts.clear()

    def _queue(self, parts: Parts) -> None:
        self._parts.extend(parts)
        for part in parts:
            if type(part) is LogSlice:
                self.size += part.size
                continue
            size = len(part)
            self.size += size
            if size > LARGE_SIZE:
                self.held_size += size
                self._held()

    def _park(self, key: int, reply: Deferred[Parts]) -> None:
        if reply.done:
            reply.then(self._queue, self._fail)
        else:
            self._pending = reply
            self._key, self._parked_at = key, self._now()
            reply.then(self._complete, self._fail)

    def _complete(self, parts: Parts) -> None:
        self._pending = None
        self._metrics.waiting_seconds[self._key] += self._now() - self._parked_at
        self._queue(parts)
        self._answered()

    def _fail(self, error: BaseException) -> None:
        self._pending = None
        self._failed(error)

    def _sent(self, size: int) -> None:
        """Take `size` bytes, and whatever parts they complete, from what is to be sent."""
        parts = self._parts
        self._metrics.bytes_out += size
        self.size -= size
        position = self._position + size
        while parts:
            part = parts[0]
            part_size = part.size if type(part) is LogSlice else len(part)
            if position < part_size:
                break
            position -= part_size
            parts.popleft()
        self._position = position
