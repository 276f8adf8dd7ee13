"""One client connection: bytes in, replies out, in the order of the requests.

All complete requests of a wake-up are handled, about `FRAMES_PER_TURN_MAX` a turn at most, and the replies of a turn leave
with one system call; file slices go from the page cache to the socket by sendfile. Invariants: requests of one
connection are served one after the other, so a parked fetch holds up what was sent after it (as in Kafka); while a
reply waits, or the client does not read, nothing more is read from it, so a connection never holds more than one read
buffer of requests and `REPLY_SIZE_MAX` of replies plus one reply. Whatever is wrong with the input closes this
connection with one warning. Must not know what a request means.
"""

from __future__ import annotations

import os
import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.handlers.context import Client, Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.handlers.replies import CloseConnectionError, Parts
from headrace.broker.handlers.table import HANDLERS
from headrace.broker.log.results import LogSlice
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.frames import FrameDecoder, FrameError, read_request_header

if TYPE_CHECKING:
    from headrace.broker.server.metrics import BrokerMetrics

log = get_logger(__name__)
REPLY_SIZE_MAX = 1 << 20
BUFFERS_PER_CALL_MAX = 512
SENDFILE_SIZE_MAX = 1 << 20
SIZE_PER_TURN_MAX = 4 << 20
# A read buffer holds thousands of the smallest requests, which may cost the most: the others have their turn in between.
FRAMES_PER_TURN_MAX = 128
TURN_MS_MAX = 2
API_VERSIONS_KEY = 18


class Connection:
    """A client's socket and what is on its way in and out."""

    __slots__ = (
        "_client",
        "_context",
        "_decoder",
        "_fd",
        "_frames",
        "_is_reading",
        "_is_resuming",
        "_is_writing",
        "_loop",
        "_metrics",
        "_on_close",
        "_out",
        "_out_position",
        "_out_size",
        "_pending",
        "_socket",
        "idle_since_ms",
        "is_closed",
        "is_used",
        "peer",
    )

    def __init__(
        self,
        sock: socket.socket,
        client: Client,
        context: Context,
        metrics: BrokerMetrics,
        loop: AbstractEventLoop,
        on_close: Callable[[Connection], None],
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._client = client
        self._context = context
        self._metrics = metrics
        self._loop = loop
        self._on_close = on_close
        self._decoder = FrameDecoder(context.config.network.socket_request_max_bytes)
        self._frames: deque[memoryview] = deque()
        self._out: deque[bytes | LogSlice] = deque()
        self._out_position = 0
        self._out_size = 0
        self._pending: Deferred[Parts] | None = None
        self._is_reading = True
        self._is_resuming = False
        self._is_writing = False
        self.is_closed = False
        self.is_used = True
        self.idle_since_ms = 0
        self.peer = _peer_of(sock)
        loop.add_reader(self._fd, self._readable)

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
        self._loop.remove_reader(self._fd)
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)
        if self._pending is not None:
            self._pending.cancel()
        self._out.clear()
        self._frames.clear()
        self._socket.close()
        self._on_close(self)

    def _readable(self) -> None:
        if self._pending is not None or self._is_writing or self._is_resuming:
            self._readable_while_busy()
            return
        try:
            size = self._socket.recv_into(self._decoder.writable())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        except MemoryError:
            self.close("this process has no memory left for its request")
            return
        if size == 0:
            self._closed_by_client()
            return
        self.is_used = True
        self._metrics.bytes_in += size
        try:
            frames = self._decoder.received(size)
        except FrameError as error:
            self._frames.extend(error.frames)
            self._serve_frames()
            self.close(str(error))
            return
        if frames:
            self._frames.extend(frames)
            self._serve_frames()

    def _readable_while_busy(self) -> None:
        """Something arrived before the last answer left: a goodbye is heard, requests wait in the kernel."""
        try:
            is_gone = not self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            is_gone = True
        if is_gone:
            self.close()
        else:
            self._pause_reading()

    def _closed_by_client(self) -> None:
        pending = self._decoder.pending
        self.close(f"the client went away {pending} bytes into a request" if pending else None)

    def _serve_frames(self) -> None:
        """Serve what was read, in order, until a reply has to wait or it was enough for a turn; then send."""
        frames, clock = self._frames, self._context.clock
        left = FRAMES_PER_TURN_MAX
        end_ms = clock.monotonic_ms() + TURN_MS_MAX
        while left > 0 and frames and self._pending is None and self._out_size < REPLY_SIZE_MAX:
            served = self._serve(frames.popleft())
            if not served:
                return
            left = left - served if clock.monotonic_ms() <= end_ms else 0
        self._send()

    def _serve(self, frame: memoryview) -> int:
        """Serve a request, and those behind it that its handler serves with it; returns how many.

        0: that closed the connection.
        """
        context = self._context
        context.client = self._client
        try:
            header = read_request_header(frame)
            handler = HANDLERS.get(header.key)
            if handler is None or not handler.version_min <= header.version <= handler.version_max:
                if header.key != API_VERSIONS_KEY:
                    raise CloseConnectionError(
                        f"api key {header.key} version {header.version} is not served here"
                    )
                handler = HANDLERS[API_VERSIONS_KEY]
            self._metrics.request(header.key, len(frame))
            served = 1
            if handler.serve_run is None or not self._frames:
                reply = handler.serve(context, header, frame)
            else:
                reply, more = handler.serve_run(context, header, frame, self._frames)
                served += more
                for _ in range(more):
                    self._metrics.request(header.key, len(self._frames.popleft()))
        except (MalformedError, CloseConnectionError) as error:
            self._close_after_replies(str(error))
            return 0
        except Exception as error:
            log.failure("request failed", error, peer=self.peer)
            self._close_after_replies(None)
            return 0
        if isinstance(reply, list):
            self._queue(reply)
        elif reply is not None:
            self._wait_for(reply)
        return served

    def _close_after_replies(self, reason: str | None) -> None:
        """Close, after what was answered before the bad request has been handed to the kernel as far as it goes."""
        self._frames.clear()
        self._send()
        self.close(reason)

    def _wait_for(self, reply: Deferred[Parts]) -> None:
        if reply.done:
            reply.then(self._queue, self._failed)
        else:
            self._pending = reply
            reply.then(self._answered, self._failed)

    def _queue(self, parts: Parts) -> None:
        self._out.extend(parts)
        for part in parts:
            self._out_size += part.size if type(part) is LogSlice else len(part)

    def _answered(self, parts: Parts) -> None:
        """A reply that had to wait is there: it leaves in a turn of its own, not in that of whoever completed it."""
        self._pending = None
        self._queue(parts)
        if not self._is_writing:
            self._resume_soon()

    def _failed(self, error: BaseException) -> None:
        self._pending = None
        log.failure("request failed", error, peer=self.peer)
        self.close()

    def _resume_soon(self) -> None:
        self._is_resuming = True
        self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if not self.is_closed:
            self._is_resuming = False
            self._serve_frames()

    def _send(self) -> None:
        """Send what is ready; a full socket is waited for, then the next requests follow."""
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
                    self._wait_until_writable()
                    return
        except (BlockingIOError, InterruptedError):
            self._wait_until_writable()
        except OSError:
            self.close()
        else:
            self._all_sent()

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

    def _wait_until_writable(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._send)

    def _all_sent(self) -> None:
        if self._is_writing:
            self._is_writing = False
            self.is_used = True
            self._loop.remove_writer(self._fd)
        if self._pending is not None:
            return
        if self._frames:
            self._resume_soon()
        elif not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._readable)

    def _pause_reading(self) -> None:
        self._is_reading = False
        self._loop.remove_reader(self._fd)


def _peer_of(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "unknown"
    return f"{host}:{port}"
