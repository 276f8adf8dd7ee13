"""Requests to other brokers: one connection a broker, in order, one at a time, repeated until they arrive.

Invariants: a request is sent again after any failure until it is answered or its peer is forgotten, so a
broker sees the controller's words in their order; what fails in any other way is logged, and the next one is
sent; a peer's queue is bounded by `QUEUE_SIZE_MAX`, and one
that does not keep up is reported through `on_overflow` once its queue was emptied. A request to the broker
itself is a call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from headrace.broker.replication.model import Endpoint
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

log = get_logger(__name__)
Message = dict[str, Any]
Answered = Callable[[Message], None]
LocalCall = Callable[[int, Message], Awaitable[Message]]
QUEUE_SIZE_MAX = 10_000
RESPONSE_SIZE_MAX = 64 * 1024 * 1024
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.05, 1.0


class PeerError(Exception):
    """The peer closed the connection or sent what is no answer."""


@dataclass(frozen=True, slots=True)
class _Pending:
    key: int
    version: int
    message: Message
    answered: Answered | None


class Connection:
    """One connection to one broker; requests are answered in order. Not safe for concurrent use."""

    def __init__(self, endpoint: Endpoint, client_id: str, timeout_ms: int) -> None:
        self._endpoint = endpoint
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._correlation_id = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, key: int, version: int, message: Message) -> Message:
        """Send a request and wait for its response; raises OSError, PeerError or TimeoutError, then
        closed.
        """
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await self._ask(key, version, message)
        except (OSError, EOFError, PeerError, TimeoutError):
            self.close()
            raise

    def close(self) -> None:
        """Close at once; the next `ask` connects anew."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _ask(self, key: int, version: int, message: Message) -> Message:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                self._endpoint.host, self._endpoint.port, limit=RESPONSE_SIZE_MAX
            )
        assert self._reader is not None, "a writer comes with a reader"
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = frames.encode_request_header(key, version, self._correlation_id, self._client_id)
        self._writer.write(frames.frame(header, APIS[key].encode_request(version, message)))
        await self._writer.drain()
        size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
        if not 0 <= size <= RESPONSE_SIZE_MAX:
            raise PeerError(f"a response of {size} bytes")
        frame = memoryview(await self._reader.readexactly(size))
        correlation_id, body_offset = frames.read_response_header(key, version, frame)
        if correlation_id != self._correlation_id:
            raise PeerError(f"answer {correlation_id} to request {self._correlation_id}")
        return APIS[key].decode_response(version, frame, body_offset)


class Peer:
    """The queue of one broker and the task that empties it."""

    def __init__(
        self,
        broker_id: int,
        perform: Callable[[_Pending], Awaitable[Message]],
        close: Callable[[], None],
        tasks: Tasks,
        on_overflow: Callable[[int], None],
    ) -> None:
        self._broker_id = broker_id
        self._perform = perform
        self._close = close
        self._on_overflow = on_overflow
        self._queue: deque[_Pending] = deque()
        self._filled = asyncio.Event()
        self._task = tasks.start(f"peer-{broker_id}", self._run())

    def send(self, pending: _Pending) -> None:
        """Put a request at the end of the queue."""
        if len(self._queue) >= QUEUE_SIZE_MAX:
            log.error("peer does not keep up, its queue is dropped", broker=self._broker_id)
            self._queue.clear()
            self._on_overflow(self._broker_id)
        self._queue.append(pending)
        self._filled.set()

    def stop(self) -> None:
        """Drop the queue and close the connection."""
        self._queue.clear()
        self._task.cancel()
        self._close()

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            pending = self._queue.popleft()
            try:
                response = await self._until_answered(pending)
                if pending.answered is not None:
                    pending.answered(response)
            except Exception as error:
                log.failure("request to a peer failed", error, broker=self._broker_id, key=pending.key)

    async def _until_answered(self, pending: _Pending) -> Message:
        pause = PAUSE_SECONDS_MIN
        while True:
            try:
                return await self._perform(pending)
            except (OSError, EOFError, PeerError, TimeoutError) as error:
                log.warning(
                    "peer does not answer", broker=self._broker_id, key=pending.key, reason=repr(error)
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)


class Peers:
    """All brokers that the controller talks to, this one included; `local` performs a request to itself."""

    def __init__(
        self,
        own_id: int,
        local: LocalCall,
        tasks: Tasks,
        *,
        timeout_ms: int,
        on_overflow: Callable[[int], None],
    ) -> None:
        self._own_id = own_id
        self._local = local
        self._tasks = tasks
        self._timeout_ms = timeout_ms
        self._on_overflow = on_overflow
        self._peers: dict[int, Peer] = {}

    def send(
        self,
        broker_id: int,
        endpoint: Endpoint,
        key: int,
        version: int,
        message: Message,
        answered: Answered | None = None,
    ) -> None:
        """Queue a request; `answered(response)` runs once it is answered, never after `forget`."""
        if broker_id not in self._peers:
            self._peers[broker_id] = self._open(broker_id, endpoint)
        self._peers[broker_id].send(_Pending(key, version, message, answered))

    def forget(self, broker_id: int) -> None:
        """The broker is gone: what is queued is void."""
        peer = self._peers.pop(broker_id, None)
        if peer is not None:
            peer.stop()

    def forget_all(self) -> None:
        """This broker is no longer controller."""
        for broker_id in list(self._peers):
            self.forget(broker_id)

    def _open(self, broker_id: int, endpoint: Endpoint) -> Peer:
        if broker_id == self._own_id:
            return Peer(broker_id, self._call_self, lambda: None, self._tasks, self._on_overflow)
        connection = Connection(endpoint, f"headrace-controller-{self._own_id}", self._timeout_ms)

        async def perform(pending: _Pending) -> Message:
            return await connection.ask(pending.key, pending.version, pending.message)

        return Peer(broker_id, perform, connection.close, self._tasks, self._on_overflow)

    async def _call_self(self, pending: _Pending) -> Message:
        return await self._local(pending.key, pending.message)
