"""The replies of one connection, in the order of its requests: what is to be sent, and those that are to come.

Behind a reply that is to come nothing else is served, as in Kafka, but Produce requests behind Produce
requests: a producer that does not wait for its answers is not held up until the others in sync have each batch.
Invariants: replies leave in the order of the requests, whenever they come; at most `REPLY_SIZE_MAX` bytes and
`PARKED_MAX` replies are held for a client. Must not know: what a request says, whose turn it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.log.results import LogSlice
from headrace.broker.server.sockets.holdings import LARGE_SIZE
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k00_produce

if TYPE_CHECKING:
    from headrace.broker.server.sockets.transport import Transport
    from headrace.broker.server.status.metrics import BrokerMetrics

PRODUCE_KEY = k00_produce.API.key
REPLY_SIZE_MAX = 1 << 20
# Of a producer; each may be that to as many requests as are written together.
PARKED_MAX = 32
SIZE_PER_TURN_MAX = 4 << 20


class _Place:
    """Where a reply goes; `parts` is None while it is to come, which is when `pending` gives it."""

    __slots__ = ("parked_at", "parts", "pending")

    def __init__(self, parts: Parts | None, pending: Deferred[Parts] | None, parked_at: float) -> None:
        self.parts = parts
        self.pending = pending
        self.parked_at = parked_at


class Channel:
    """See the module's text. `parked` has the places from the first reply that is to come on, `replies` what is to be sent.

    `answered()` is called when the reply that was to come next is there, `failed(error)` when one will not come, `held()`
    when `held_size`, the bytes of large replies that wait, has changed.
    """

    __slots__ = (
        "_answered",
        "_failed",
        "_held",
        "_key",
        "_metrics",
        "_now",
        "_position",
        "_transport",
        "held_size",
        "parked",
        "replies",
        "size",
    )

    def __init__(
        self,
        transport: Transport,
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
        self.replies: deque[bytes | LogSlice] = deque()
        # How much of the first part has gone.
        self._position = 0
        self.parked: deque[_Place] = deque()
        # The API that all who are parked asked.
        self._key = 0
        self.size = 0
        self.held_size = 0

    @property
    def takes_more(self) -> bool:
        """Whether another request may be served, whichever."""
        return not self.parked and self.size < REPLY_SIZE_MAX

    def takes_behind(self, key: int) -> bool:
        """Whether a request of that API may be served while a reply is to come."""
        return (
            key == PRODUCE_KEY == self._key and len(self.parked) < PARKED_MAX and self.size < REPLY_SIZE_MAX
        )

    def reply(self, key: int, reply: Reply) -> None:
        """What the request served last, of that API, is answered with."""
        if isinstance(reply, list):
            self._take(reply)
            if self.parked:
                self.parked.append(_Place(reply, None, 0.0))
            else:
                self.replies.extend(reply)
        elif reply is not None:
            self._park(key, reply)

    def send(self) -> bool:
        """Send what there is, as much as one turn may; whether that is all.

        Raises BlockingIOError when no more fits, OSError when the connection is over.
        """
        size_left_min = self.size - SIZE_PER_TURN_MAX
        parts = self.replies
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
        for place in list(self.parked):
            if place.pending is not None:
                place.pending.cancel()
        self.replies.clear()

    def _take(self, parts: Parts) -> None:
        """Count what is held from now on."""
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
            reply.then(lambda parts: self.reply(key, parts), self._failed)
            return
        place = _Place(None, reply, self._now())
        self.parked.append(place)
        self._key = key
        reply.then(lambda parts: self._complete(place, parts), lambda error: self._fail(place, error))

    def _complete(self, place: _Place, parts: Parts) -> None:
        place.pending = None
        self._metrics.waiting_seconds[self._key] += self._now() - place.parked_at
        self._take(parts)
        place.parts = parts
        places = self.parked
        if places[0] is not place:
            return
        while places and (ready := places[0].parts) is not None:
            self.replies.extend(ready)
            places.popleft()
        self._answered()

    def _fail(self, place: _Place, error: BaseException) -> None:
        place.pending = None
        self._failed(error)

    def _sent(self, size: int) -> None:
        """Take `size` bytes, and whatever parts they complete, from what is to be sent."""
        parts = self.replies
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
