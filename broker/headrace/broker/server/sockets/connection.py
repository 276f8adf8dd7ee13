"""One client connection: its socket (`transport`), its replies (`channel`), and what it does in its turn.

All complete requests that a read brought are handled, as far as the turn lasts (`server.sockets.turns`), and the replies of a
turn leave with one system call; file slices go from the page cache to the socket by sendfile. Invariants: requests of one
connection are served one after the other, so a parked fetch holds up what was sent after it (as in Kafka), a parked
produce all but more of the kind; while something is held up, or the client does not read, nothing more is read from it, so
a connection never holds more than one read buffer of requests and what its channel holds of replies; what all hold
together is bounded by `server.sockets.holdings`.
Whatever is wrong with the input closes this connection with one warning. Where clients log in, requests pass `handlers.log_in`
first, which serves none before the client is known; a log-in that takes longer than `LOG_IN_S_MAX` ends its connection. Must
not know what a request means.
"""

from __future__ import annotations

import select
from asyncio import TimerHandle
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.handlers.call import Client
from headrace.broker.handlers.log_in import AUTHENTICATE, LogIn, LogInFailedError
from headrace.broker.handlers.replies import CloseConnectionError, Parts
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.table import serve
from headrace.broker.handlers.throttle import count_network_s
from headrace.broker.quotas.buckets import Rate
from headrace.broker.quotas.usage import Share
from headrace.broker.server.sockets.channel import PRODUCE_KEY, Channel
from headrace.broker.server.sockets.holdings import LARGE_SIZE, Holdings
from headrace.broker.server.sockets.transport import Transport
from headrace.broker.server.sockets.turns import Turns
from headrace.broker.structured_log import get_logger
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.frames import FrameDecoder, FrameError

if TYPE_CHECKING:
    from headrace.broker.server.status.metrics import BrokerMetrics

logger = get_logger(__name__)
LOG_IN_S_MAX = 30.0
NO_MORE_TO_COME = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class Connection:
    """A client's connection, which takes turns."""

    __slots__ = (
        "_broker",
        "_channel",
        "_client",
        "_decoder",
        "_fd",
        "_frames",
        "_gate",
        "_has_unread",
        "_held_in",
        "_holdings",
        "_is_blocked",
        "_is_ending",
        "_is_readable",
        "_is_watched",
        "_log_in_timer",
        "_metrics",
        "_muted",
        "_muted_until_s",
        "_on_close",
        "_refusal",
        "_transport",
        "_turns",
        "idle_since_ms",
        "is_closed",
        "is_due",
        "is_used",
        "served_until",
    )

    def __init__(
        self,
        transport: Transport,
        client: Client,
        broker: Services,
        metrics: BrokerMetrics,
        turns: Turns,
        holdings: Holdings,
        on_close: Callable[[Connection], None],
        log_in: LogIn | None = None,
    ) -> None:
        """`log_in`: how its client says who it is, before anything is served; None where that is not asked, or known."""
        self._transport = transport
        self._fd = self._transport.fd
        self._channel = Channel(
            self._transport,
            metrics,
            turns.now,
            answered=self._answered,
            failed=self._failed,
            held=self._hold,
        )
        self._client = client
        self._broker = broker
        self._metrics = metrics
        self._turns = turns
        self._holdings = holdings
        # Bytes of a large read buffer.
        self._held_in = 0
        self._on_close = on_close
        self._gate = serve if log_in is None else log_in.serve
        self._log_in_timer: TimerHandle | None = None
        if log_in is not None:
            log_in.done = self._logged_in
            self._log_in_timer = turns.later(LOG_IN_S_MAX, self._took_too_long)
        size_max = broker.config.network.socket_request_max_bytes
        self._decoder = FrameDecoder(size_max if log_in is None else min(log_in.size_max, size_max))
        self._frames: deque[memoryview] = deque()
        # Edges are told once: what the socket has, and whether the end comes after it, is kept here.
        self._is_readable = False
        self._is_ending = False
        # Something arrived while a reply waits: no need to look again.
        self._has_unread = False
        # What is wrong with the bytes after the last whole request: the connection closes when that is answered.
        self._refusal: str | None = None
        # Until when nothing more is served, which its quotas say (KIP-219).
        self._muted: TimerHandle | None = None
        self._muted_until_s = 0.0
        # The socket is full, and whether epoll tells when it is no longer.
        self._is_blocked = False
        self._is_watched = False
        self.is_due = False
        self.served_until = 0.0
        self.is_closed = False
        self.is_used = True
        self.idle_since_ms = 0
        turns.join(self._fd, self)
        client.mute = self._mute

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for us: a reply of ours is to come, or it used too much."""
        return bool(self._channel.parked) or self._muted is not None

    @property
    def host(self) -> str:
        return self._client.host

    @property
    def listener(self) -> str:
        """The name of the listener that it came by."""
        return self._client.listener

    @property
    def peer(self) -> str:
        """HOST:PORT of the client."""
        return self._transport.peer

    def close(self, reason: str | None = None) -> None:
        """Drop the connection; a reason is worth a warning line."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason is not None:
            logger.warning("connection closed", peer=self.peer, reason=reason)
        self._turns.leave(self._fd)
        self._unmute()
        if self._log_in_timer is not None:
            self._log_in_timer.cancel()
        self._held_in = 0
        self._channel.close()
        self._holdings.hold(self, 0)
        self._client.gone()
        self._frames.clear()
        # The collector comes by for the rest.
        self._decoder.close()
        self._transport.close()
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

    def _mute(self, throttle_ms: int) -> None:
        """Read and serve nothing more for so long, or longer when that was said before; answers leave meanwhile."""
        if self.is_closed:
            return
        until_s = self._turns.now() + throttle_ms / 1000
        if self._muted is None or self._muted_until_s < until_s:
            self._unmute()
            self._muted = self._turns.later(throttle_ms / 1000, self._go_on_after_mute)
            self._muted_until_s = until_s
            self._metrics.muted_connections += 1

    def _go_on_after_mute(self) -> None:
        self._unmute()
        self._turns.want(self)

    def _unmute(self) -> None:
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
            self._metrics.muted_connections -= 1

    def turn(self, end: float) -> bool:
        """Serve and send what is there until about `end`; whether there is more to do at once."""
        if not self.is_closed:
            share = self._client.time_share
            if share is None:
                self._go_on(end)
            else:
                self._go_on_counted(end, share)
        return self._has_more()

    def _go_on_counted(self, end: float, share: Share[Rate]) -> None:
        """The same for a client whose time has a limit: all but handling its requests, which counts itself, is network time."""
        handling, began = self._metrics.handling_seconds, self._turns.now()
        handled_s = sum(handling)
        self._go_on(end)
        handled_s = sum(handling) - handled_s
        count_network_s(self._broker, share, max(0.0, self._turns.now() - began - handled_s))

    def settled(self, share_s: float) -> bool:
        """The Produce requests that joined others in this connection's turn are done; whether there is more to do at once."""
        self._metrics.handling_seconds[PRODUCE_KEY] += share_s
        if not self.is_closed and self._channel.replies and not self._is_blocked:
            self._send()
            if self._refusal is not None:
                self._close_if_answered(self._refusal)
        return self._has_more()

    def _has_more(self) -> bool:
        if self.is_closed:
            return False
        channel = self._channel
        if self._is_blocked or ((channel.parked or self._muted) and self._is_held_up()):
            is_to_send = bool(channel.replies) and not self._is_blocked
            return is_to_send or (self._is_readable and not self._has_unread)
        return bool(self._frames or channel.replies) or self._is_readable

    def _go_on(self, end: float) -> None:
        channel = self._channel
        if self._is_blocked or ((channel.parked or self._muted) and self._is_held_up()):
            if channel.replies and not self._is_blocked:
                self._send()
            elif self._is_readable and not self._has_unread:
                self._listen_for_goodbye()
        elif self._frames or (self._is_readable and not channel.replies and self._receive()):
            self._serve_frames(end)
        elif channel.replies:
            self._send()
        if self._refusal is not None:
            self._close_if_answered(self._refusal)

    def _close_if_answered(self, refusal: str) -> None:
        if not self._frames and not self._channel.parked:
            self.close(refusal)

    def _is_held_up(self) -> bool:
        """Whether a reply has to come, or a quota let go on, before anything else is served."""
        channel = self._channel
        if self._muted is not None:
            return True
        if not channel.parked:
            return False
        if self._refusal is not None and not self._frames:
            return True
        return not channel.takes_behind(_key_of(self._frames[0]) if self._frames else PRODUCE_KEY)

    def _receive(self) -> bool:
        """Read once; whether whole requests are there. Less than there was room for is all there was (epoll(7))."""
        try:
            space = self._writable()
            if self.is_closed:
                return False
            size = self._transport.receive_into(space)
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
            self._hold()
        return space

    def _hold(self) -> None:
        """Tell what is held now; that may close this connection."""
        self._holdings.hold(self, self._held_in + self._channel.held_size)

    def _listen_for_goodbye(self) -> None:
        """Something arrived before the last answer left: a goodbye is heard, requests wait in the kernel."""
        try:
            is_gone = self._transport.is_over()
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
        frames, channel, now = self._frames, self._channel, self._turns.now
        handling, began = self._metrics.handling_seconds, now()
        while frames and (
            channel.takes_more or (channel.parked and channel.takes_behind(_key_of(frames[0])))
        ):
            key = self._serve(frames.popleft(), began)
            if key is None:
                return
            ended = now()
            handling[key] += ended - began
            if ended >= end or self._muted is not None:
                break
            began = ended
        if channel.replies:
            self._send()

    def _serve(self, frame: memoryview, began_s: float) -> int | None:
        """Serve a request, and those its handler serves with it; its key, or None when that closed the connection."""
        frames = self._frames
        try:
            key, reply, more_count = self._gate(self._broker, self._client, frame, frames, began_s)
        except LogInFailedError as error:
            self._refuse_later(error)
            return None
        except CloseConnectionError as error:
            if self._channel.parked:
                # Those before it are answered first.
                self._refusal = str(error)
                frames.clear()
            else:
                self.close_after_replies(str(error))
            return None
        except Exception as error:
            logger.failure("request failed", error, peer=self.peer)
            self.close_after_replies()
            return None
        if more_count:
            for _ in range(more_count):
                frames.popleft()
        self._channel.reply(key, reply)
        return key

    def _logged_in(self) -> None:
        """The client is known: it may ask for more from now on, and take its time."""
        if self._log_in_timer is not None:
            self._log_in_timer.cancel()
            self._log_in_timer = None
        self._decoder.size_max = self._broker.config.network.socket_request_max_bytes

    def _took_too_long(self) -> None:
        self.close(f"it did not log in within {LOG_IN_S_MAX:.0f} s")

    def _refuse_later(self, error: LogInFailedError) -> None:
        """Its client has not shown who it is: answer after a delay, so that it cannot try many passwords, and close."""
        self._frames.clear()
        self._refusal = str(error)
        answer: Deferred[Parts] = Deferred()

        def end() -> None:
            if error.answer is None:
                self.close(str(error))
            else:
                answer.complete(error.answer)

        delay_ms = self._broker.config.sasl.connection_failed_authentication_delay_ms
        timer = self._turns.later(delay_ms / 1000, end)
        answer.on_cancel(timer.cancel)
        self._channel.reply(AUTHENTICATE.key, answer)

    def _answered(self) -> None:
        """A reply that had to wait is there: it leaves in a turn of its own, not in that of whoever completed it."""
        if not self._is_blocked and not self.is_due:
            self._turns.want(self)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, CloseConnectionError):
            self.close(str(error))
            return
        logger.failure("request failed", error, peer=self.peer)
        self.close()

    def _send(self) -> None:
        """Send what is ready; a full socket is waited for."""
        try:
            is_all = self._channel.send()
        except (BlockingIOError, InterruptedError):
            self._is_blocked = True
            if not self._is_watched:
                self._watch(writable=True)
        except OSError:
            self.close()
        else:
            if is_all and self._is_watched:
                self._watch(writable=False)

    def _watch(self, *, writable: bool) -> None:
        self._is_watched = writable
        self.is_used = True
        self._turns.watch(self._fd, writable=writable)


def _key_of(frame: memoryview) -> int:
    """The API that a request asks; -1 where it is too short to tell."""
    return int.from_bytes(frame[:2], "big") if len(frame) >= 2 else -1
