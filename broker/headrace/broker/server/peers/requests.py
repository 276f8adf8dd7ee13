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
from typing import Any, Protocol

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.client.entrance import NOT_LET_IN
from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.replication.model import Endpoint
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks
from headrace.broker.wire.client.exchange import A, Q, Spoken
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import Message

logger = get_logger(__name__)
Answered = Callable[[Message], None]
LocalCall = Callable[[Any, Any], Awaitable[Message]]
QUEUE_SIZE_MAX = 10_000
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class _Pending:
    api: Spoken[Any, Message]
    version: int
    message: Any
    answered: Answered | None


class Link(Protocol):
    """A connection to a broker; `ask` raises OSError when it is of no use any more."""

    async def ask(self, api: Spoken[Q, A], highest: int, message: Q, /) -> A: ...

    def close(self) -> None: ...


Connect = Callable[[Address, str, int], Awaitable[Link]]


async def connect(
    address: Address, client_id: str, timeout_ms: int, security: ClientSecurity = PLAINTEXT
) -> Link:
    """Between brokers of a cluster the versions are fixed: nobody is asked for them first."""
    return await AsyncLink.open(address, client_id, timeout_ms, negotiates=False, security=security)


def connector(security: Callable[[], ClientSecurity], refused: Callable[[], None]) -> Connect:
    """Connects with what the security is by then; `refused()` hears of each broker that does not let in."""

    async def connect_now(address: Address, client_id: str, timeout_ms: int) -> Link:
        try:
            return await connect(address, client_id, timeout_ms, security())
        except NOT_LET_IN:
            refused()
            raise

    return connect_now


class PeerLink:
    """A link to one broker that is opened when it is needed. Not safe for concurrent use."""

    def __init__(
        self, endpoint: Endpoint, client_id: str, timeout_ms: int, connect: Connect = connect
    ) -> None:
        self._endpoint = endpoint
        self._connect = connect
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._link: Link | None = None

    async def ask(self, api: Spoken[Q, A], version: int, message: Q) -> A:
        """Send a request and wait for its response, no longer than the time-out; raises OSError, then closed."""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                if self._link is None:
                    address = self._endpoint.host, self._endpoint.port
                    self._link = await self._connect(address, self._client_id, self._timeout_ms)
                return await self._link.ask(api, version, message)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close at once; the next `ask` connects anew."""
        if self._link is not None:
            self._link.close()
        self._link = None


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
            logger.error("peer does not keep up, its queue is dropped", broker=self._broker_id)
            self._queue.clear()
            self._on_overflow(self._broker_id)
        self._queue.append(pending)
        self._filled.set()

    def stop(self) -> None:
        """Drop the queue, and close the connection once nobody waits for it any more."""
        self._queue.clear()
        self._task.add_done_callback(lambda _: self._close())
        self._task.cancel()

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
                logger.failure("request to a peer failed", error, broker=self._broker_id, key=pending.api.key)
            # A call to the broker itself may be over without ever letting go of the loop.
            await asyncio.sleep(0)

    async def _until_answered(self, pending: _Pending) -> Message:
        pause = PAUSE_SECONDS_MIN
        while True:
            try:
                return await self._perform(pending)
            except OSError as error:
                logger.warning(
                    "peer does not answer", broker=self._broker_id, key=pending.api.key, reason=repr(error)
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)


class Peers:
    """All brokers that the controller talks to, this one included; `local(api, message)` performs a request to itself."""

    def __init__(
        self,
        own_id: int,
        local: LocalCall,
        tasks: Tasks,
        *,
        timeout_ms: int,
        on_overflow: Callable[[int], None],
        connect: Connect = connect,
    ) -> None:
        self._own_id = own_id
        self._connect = connect
        self._local = local
        self._tasks = tasks
        self._timeout_ms = timeout_ms
        self._on_overflow = on_overflow
        self._peers: dict[int, Peer] = {}

    def send(
        self,
        broker_id: int,
        endpoint: Endpoint,
        api: Spoken[Q, Message],
        version: int,
        message: Q,
        answered: Answered | None = None,
    ) -> None:
        """Queue a request; `answered(response)` runs once it is answered, never after `forget`."""
        if broker_id not in self._peers:
            self._peers[broker_id] = self._open(broker_id, endpoint)
        self._peers[broker_id].send(_Pending(api, version, message, answered))

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
        link = PeerLink(endpoint, f"headrace-controller-{self._own_id}", self._timeout_ms, self._connect)

        async def perform(pending: _Pending) -> Message:
            return await link.ask(pending.api, pending.version, pending.message)

        return Peer(broker_id, perform, link.close, self._tasks, self._on_overflow)

    async def _call_self(self, pending: _Pending) -> Message:
        return await self._local(pending.api, pending.message)
