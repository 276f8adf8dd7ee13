"""One client connection: bytes in, replies out, in the order of the requests.

All complete requests that a read brought are handled, as far as the turn lasts (`server.turns`), and the replies of a turn
leave with one system call; file slices go from the page cache to the socket by sendfile. Invariants: requests of one
connection are served one after the other, so a parked fetch holds up what was sent after it (as in Kafka); while a
reply waits, or the client does not read, nothing more is read from it, so a connection never holds more than one read
buffer of requests and `REPLY_SIZE_MAX` of replies plus one reply; what all hold together is bounded by `server.holdings`.
Whatever is wrong with the input closes this connection with one warning. Must not know what a request means.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.config.listeners import address_text
from headrace.broker.handlers.call import Client
from headrace.broker.handlers.replies import CloseConnectionError, Parts
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.table import serve
from headrace.broker.log.results import LogSlice
from headrace.broker.server.holdings import LARGE_SIZE, Holdings
from headrace.broker.server.turns import Turns
from headrace.broker.structured_log import get_logger
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.frames import FrameDecoder, FrameError

if TYPE_CHECKING:
    from headrace.broker.server.metrics import BrokerMetrics

log = get_logger(__name__)
REPLY_SIZE_MAX = 1 << 20
BUFFERS_PER_CALL_MAX = 512
SENDFILE_SIZE_MAX = 1 << 20
SIZE_PER_TURN_MAX = 4 << 20
NO_MORE_TO_COME = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class Connection:
    """A client's socket and what is on its way in and out."""

    __slots__ = (
        "_broker",
        "_client",
        "_decoder",
        "_fd",
        "_frames",
        "_has_unread",
        "_held_in",
        "_held_out",
        "_holdings",
        "_is_blocked",
        "_is_ending",
        "_is_readable",
        "_is_watched",
        "_key",
        "_metrics",
        "_on_close",
        "_out",
        "_out_position",
        "_out_size",
        "_parked_at",
        "_pending",
        "_refusal",
        "_socket",
        "_turns",
        "idle_since_ms",
        "is_closed",
        "is_due",
        "is_used",
        "peer",
        "served_until",
    )

    def __init__(
        self,
        sock: socket.socket,
        client: Client,
        broker: Services,
        metrics: BrokerMetrics,
        turns: Turns,
        holdings: Holdings,
        on_close: Callable[[Connection], None],
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._client = client
        self._broker = broker
        self._metrics = metrics
        self._turns = turns
        self._holdings = holdings
        # Bytes of a large read buffer, and of large replies that wait.
        self._held_in = self._held_out = 0
        self._on_close = on_close
        self._decoder = FrameDecoder(broker.config.network.socket_request_max_bytes)
        self._frames: deque[memoryview] = deque()
        self._out: deque[bytes | LogSlice] = deque()
        self._out_position = 0
        self._out_size = 0
        self._key = 0
        self._parked_at = 0.0
        self._pending: Deferred[Parts] | None = None
        # Edges are told once: what the socket has, and whether the end comes after it, is kept here.
        self._is_readable = False
        self._is_ending = False
        # Something arrived while a reply waits: no need to look again.
        self._has_unread = False
        # What is wrong with the bytes after the last whole request: the connection closes when that is answered.
        self._refusal: str | None = None
        # The socket is full, and whether epoll tells when it is no longer.
        self._is_blocked = False
        self._is_watched = False
        self.is_due = False
        self.served_until = 0.0
        self.is_closed = False
        self.is_used = True
        self.idle_since_ms = 0
        self.peer = _peer_of(sock)
        turns.join(self._fd, self)

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for us: a reply of ours is to come."""
        return self._pending is not None

    @property
    def host(self) -> str:
        return self._client.host

    def close(self, reason: str | None = None) -> None:
        """Drop the connection; a reason is worth a warning line."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason is not None:
            log.warning("connection closed", peer=self.peer, reason=reason)
        self._turns.leave(self._fd)
        self._held_in = self._held_out = 0
        self._holdings.hold(self, 0)
        if self._pending is not None:
            self._pending.cancel()
        self._client.gone()
        self._out.clear()
        self._frames.clear()
        self._socket.close()
        self._on_close(self)

    def close_after_replies(self, reason: str | None = None) -> None:
        """Close, after what was answered so far has been handed to the kernel as far as it goes."""
        self._frames.clear()
        self._send()
        self.close(reason)

    def heard(self, events: int) -> None:
        """Take note of new epoll events."""
        if events & select.EPOLLOUT:
            self._is_blocked = False
        if events & ~select.EPOLLOUT:
            self._is_readable = True
            self._has_unread = False
            if events & NO_MORE_TO_COME:
                self._is_ending = True

    def turn(self, end: float) -> bool:
        """Serve and send what is there until about `end`; whether there is more to do at once."""
        if not self.is_closed:
            self._go_on(end)
        if self.is_closed:
            return False
        if self._pending is not None or self._is_blocked:
            return self._is_readable and not self._has_unread
        return bool(self._frames or self._out) or self._is_readable

    def _go_on(self, end: float) -> None:
        if self._pending is not None or self._is_blocked:
            if self._is_readable and not self._has_unread:
                self._listen_for_goodbye()
        elif self._frames or (self._is_readable and not self._out and self._receive()):
            self._serve_frames(end)
        elif self._out:
            self._send()
        if self._refusal is not None and not self._frames and self._pending is None:
            self.close(self._refusal)

    def _receive(self) -> bool:
        """Read once; whether whole requests are there. Less than there was room for is all there was (epoll(7))."""
        try:
            space = self._writable()
            if self.is_closed:
                return False
            size = self._socket.recv_into(space)
        except BlockingIOError:
            self._is_readable = False
            return False
        except OSError:
            self.close()
            return False
        except MemoryError:
            self.close("this process has no memory left for its request")
            return False
        if size == 0:
            self._closed_by_client()
            return False
        if size < len(space) and not self._is_ending:
            self._is_readable = False
        self.is_used = True
        self._metrics.bytes_in += size
        try:
            frames = self._decoder.received(size)
        except FrameError as error:
            frames = error.frames
            self._refusal = str(error)
        self._frames.extend(frames)
        return bool(frames)

    def _writable(self) -> memoryview:
        """Where to receive next; a buffer that grew beyond all bounds closes this connection or others."""
        space = self._decoder.writable()
        capacity = self._decoder.capacity
        held = capacity if capacity > LARGE_SIZE else 0
        if held != self._held_in:
            self._held_in = held
            self._holdings.hold(self, held + self._held_out)
        return space

    def _listen_for_goodbye(self) -> None:
        """Something arrived before the last answer left: a goodbye is heard, requests wait in the kernel."""
        try:
            is_gone = not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            self._is_readable = False
            return
        except OSError:
            is_gone = True
        if is_gone:
            self.close()
        else:
            self._has_unread = True

    def _closed_by_client(self) -> None:
        pending = self._decoder.pending
        self.close(f"the client went away {pending} bytes into a request" if pending else None)

    def _serve_frames(self, end: float) -> None:
        """Serve what was read, in order, until a reply has to wait or the turn is over; then send."""
        frames, now = self._frames, self._turns.now
        handling, began = self._metrics.handling_seconds, now()
        while frames and self._pending is None and self._out_size < REPLY_SIZE_MAX:
            if not self._serve(frames.popleft(), began):
                return
            ended = now()
            handling[self._key] += ended - began
            if ended >= end:
                break
            began = ended
        self._send()

    def _serve(self, frame: memoryview, began_s: float) -> bool:
        """Serve a request, and those behind it that its handler serves with it; False when that closed the connection."""
        frames = self._frames
        try:
            self._key, reply, more_count = serve(self._broker, self._client, frame, frames, began_s)
        except CloseConnectionError as error:
            self.close_after_replies(str(error))
            return False
        except Exception as error:
            log.failure("request failed", error, peer=self.peer)
            self.close_after_replies()
            return False
        if more_count:
            for _ in range(more_count):
                frames.popleft()
        if isinstance(reply, list):
            self._queue(reply)
        elif reply is not None:
            self._wait_for(reply)
        return True

    def _wait_for(self, reply: Deferred[Parts]) -> None:
        if reply.done:
            reply.then(self._queue, self._failed)
        else:
            self._pending = reply
            self._parked_at = self._turns.now()
            reply.then(self._answered, self._failed)

    def _queue(self, parts: Parts) -> None:
        self._out.extend(parts)
        for part in parts:
            if type(part) is LogSlice:
                self._out_size += part.size
                continue
            size = len(part)
            self._out_size += size
            if size > LARGE_SIZE:
                self._held_out += size
                self._holdings.hold(self, self._held_in + self._held_out)

    def _answered(self, parts: Parts) -> None:
        """A reply that had to wait is there: it leaves in a turn of its own, not in that of whoever completed it."""
        self._pending = None
        self._metrics.waiting_seconds[self._key] += self._turns.now() - self._parked_at
        self._queue(parts)
        if not self._is_blocked:
            self._turns.want(self)

    def _failed(self, error: BaseException) -> None:
        self._pending = None
        if isinstance(error, CloseConnectionError):
            self.close(str(error))
            return
        log.failure("request failed", error, peer=self.peer)
        self.close()

    def _send(self) -> None:
        """Send what is ready; a full socket is waited for."""
        out = self._out
        size_left_min = self._out_size - SIZE_PER_TURN_MAX
        try:
            while out:
                if type(out[0]) is not LogSlice:
                    self._send_buffers()
                elif self._out_size > size_left_min:
                    self._send_slice(out[0])
                else:
                    # A client that reads as fast as we send must not keep the others waiting.
                    return
        except (BlockingIOError, InterruptedError):
            self._is_blocked = True
            self._watch(writable=True)
        except OSError:
            self.close()
        else:
            self._watch(writable=False)
            if self._held_out:
                self._held_out = 0
                self._holdings.hold(self, self._held_in)

    def _watch(self, *, writable: bool) -> None:
        if self._is_watched != writable:
            self._is_watched = writable
            self.is_used = True
            self._turns.watch(self._fd, writable=writable)

    def _send_buffers(self) -> None:
        """Send the buffers before the next slice with one call; raises BlockingIOError when none of it fits."""
        out = self._out
        if len(out) == 1 and self._out_position == 0:
            self._sent(self._socket.send(out[0]))  # type: ignore[arg-type]
            return
        buffers: list[memoryview] = []
        for part in out:
            if type(part) is LogSlice or len(buffers) == BUFFERS_PER_CALL_MAX:
                break
            buffers.append(memoryview(part))  # type: ignore[arg-type]
        buffers[0] = buffers[0][self._out_position :]
        # A slice follows its header in the same segment when the kernel knows that more is coming.
        flags = socket.MSG_MORE if len(buffers) < len(out) else 0
        self._sent(self._socket.sendmsg(buffers, (), flags))

    def _send_slice(self, part: LogSlice) -> None:
        """Send from the page cache; raises BlockingIOError when nothing fits."""
        left = part.size - self._out_position
        if left > 0:
            assert part.file is not None
            position = part.position + self._out_position
            sent = os.sendfile(self._fd, part.file.fileno(), position, min(left, SENDFILE_SIZE_MAX))
            if sent == 0:
                raise OSError(f"the log file ends at {position}, {left} bytes early")
            self._sent(sent)
        else:
            self._sent(0)

    def _sent(self, size: int) -> None:
        """Take `size` bytes, and whatever parts they complete, from what is to be sent."""
        out = self._out
        self._metrics.bytes_out += size
        self._out_size -= size
        position = self._out_position + size
        while out:
            part = out[0]
            part_size = part.size if type(part) is LogSlice else len(part)
            if position < part_size:
                break
            position -= part_size
            out.popleft()
        self._out_position = position


def _peer_of(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "unknown"
    return address_text(host, port)
