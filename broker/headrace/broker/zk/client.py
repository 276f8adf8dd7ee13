"""ZooKeeper as the broker has it: requests become awaitables, watches and session events become calls on the loop. Beside this
file only `reading` and `subscription` know kazoo.

Invariants: no callback runs outside the broker's loop; a request that ZooKeeper's absence interrupted, or that
was not answered for as long as two sessions may be silent, is sent again once the session is back, until
`close`; a session is told of once its log-in is through, and one that kazoo gave up is opened again. A repeated write may meet
its own first attempt: the methods that can tell say so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from headrace.broker.structured_log import get_logger
from headrace.broker.zk.access import OPEN, ZooKeeperAccess
from headrace.broker.zk.reading import ReadingKazoo
from headrace.broker.zk.reopening import Reopening
from headrace.broker.zk.secured import TlsHandler
from headrace.broker.zk.subscription import Subscription
from headrace.broker.zk.znodes import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    NoZnodeError,
    Operation,
    Set,
    Znode,
    ZnodeExistsError,
    ZnodeVersionError,
    ZooKeeperClosedError,
    ZooKeeperError,
)

MakeKazoo = Callable[[str, int, ZooKeeperAccess], Any]
RETRY_DELAY_SECONDS = 0.05
READS_TOGETHER_MAX = 200
RECONNECT_DELAY_SECONDS_MAX = 1.0
_INTERRUPTED = (
    AuthFailedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    KazooTimeoutError,
    TimeoutError,
)
logger = get_logger(__name__)


class SessionListener:
    """What a session's owner may hear; the methods run on the loop."""

    def session_started(self) -> None:
        """A new session begins: the ephemeral znodes of the last one are gone or will be."""

    def session_suspended(self) -> None:
        """The connection is gone; the session may live on."""

    def session_resumed(self) -> None:
        """The connection is back within the same session."""


def kazoo_client(hosts: str, session_timeout_ms: int, access: ZooKeeperAccess = OPEN) -> Any:
    """A client of kazoo that connects again for ever. Raises ConfigurationError where a store cannot be used."""
    context = access.context()
    sasl = {"mechanism": "DIGEST-MD5", "username": access.user, "password": access.password}
    return ReadingKazoo(
        hosts=hosts,
        handler=None if context is None else TlsHandler(context),
        sasl_options=sasl if access.user else None,
        timeout=session_timeout_ms / 1000,
        connection_retry=KazooRetry(
            max_tries=-1, delay=0.1, backoff=2, max_delay=RECONNECT_DELAY_SECONDS_MAX
        ),
        logger=logging.getLogger("headrace.zookeeper"),
    )


class ZooKeeperClient:
    """One session after another with one ensemble; `hosts` may end in a chroot, which is created when
    missing.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        access: ZooKeeperAccess = OPEN,
        make_kazoo: MakeKazoo = kazoo_client,
    ) -> None:
        self._hosts = hosts
        self._connection_timeout_ms = connection_timeout_ms
        self._answer_seconds_max = 2 * session_timeout_ms / 1000
        self._access = access
        self._kazoo = make_kazoo(hosts, session_timeout_ms, access)
        self._reopening = Reopening(self._kazoo, access)
        # How often kazoo told of its state.
        self._states = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connected = asyncio.Event()
        self._closed = False
        self._listeners: list[SessionListener] = []
        self._subscriptions: dict[Subscription, None] = {}
        # Until a server knows no such request.
        self._reads_together = True
        self.session_id = 0

    async def connect(self) -> None:
        """Open the first session; raises ZooKeeperError with a sentence when no server answers in time."""
        self._loop = asyncio.get_running_loop()
        logging.getLogger("headrace.zookeeper").setLevel(logging.ERROR)
        self._kazoo.add_listener(self._state_changed)
        await self._loop.run_in_executor(None, self._kazoo.start_async)
        try:
            await asyncio.wait_for(self._connected.wait(), self._connection_timeout_ms / 1000)
        except TimeoutError:
            reason = self._refusal()
            await self.close()
            raise ZooKeeperError(
                reason
                or f"no ZooKeeper server of {self._hosts} answered within {self._connection_timeout_ms} ms: "
                "start it, or correct zookeeper.connect"
            ) from None
        await self._make_chroot()

    def _refusal(self) -> str:
        """A sentence on why servers do not let in; empty where they do not answer at all."""
        if self._reopening.is_refused:
            return (
                f"ZooKeeper at {self._hosts} refused the log-in of {self._access.user}: correct its JAAS file"
            )
        failure = getattr(getattr(self._kazoo, "handler", None), "failure", "")
        return (
            failure and f"ZooKeeper at {self._hosts} does not agree on TLS ({failure}): see zookeeper.ssl.…"
        )

    def _acl(self, path: str) -> dict[str, Any]:
        acl = self._access.acl_of(path)
        return {} if acl is None else {"acl": acl}

    async def _make_chroot(self) -> None:
        """kazoo creates nothing above its chroot, so this is done without one, before any other request."""
        chroot, self._kazoo.chroot = self._kazoo.chroot, ""
        try:
            if chroot:
                await self._request(lambda: self._kazoo.ensure_path_async(chroot, **self._acl(chroot)))
        finally:
            self._kazoo.chroot = chroot

    async def close(self) -> None:
        """End the session; its ephemeral znodes go at once."""
        self._closed = True
        self._connected.set()
        for subscription in list(self._subscriptions):
            subscription.cancel()
        await self._reopening.end()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._kazoo.stop)
        try:
            await loop.run_in_executor(None, self._kazoo.close)
        except (
            Exception
        ) as error:  # of no class of its own: after a refused log-in its thread may still be ending
            logger.warning("the connection to ZooKeeper is not closed in order", reason=error)

    @property
    def last_zxid(self) -> int:
        """The last change that the server knew of when it answered last: later ones have higher numbers."""
        return int(self._kazoo.last_zxid)

    def add_listener(self, listener: SessionListener) -> None:
        """Tell `listener` about sessions that begin, are interrupted and go on, from the next one on."""
        self._listeners.append(listener)

    async def get(self, path: str) -> Znode | None:
        """The znode, or None."""
        try:
            return _znode(await self._request(lambda: self._kazoo.get_async(path)))
        except NoZnodeError:
            return None

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """The znodes in order, `READS_TOGETHER_MAX` with a request."""
        if self._reads_together:
            slices = [paths[n : n + READS_TOGETHER_MAX] for n in range(0, len(paths), READS_TOGETHER_MAX)]
            try:
                found = await asyncio.gather(*map(self._get_together, slices))
            except ZooKeeperError as error:
                if not isinstance(error.__cause__, UnimplementedError):
                    raise
                self._reads_together = False
            else:
                return [znode for znodes in found for znode in znodes]
        return list(await asyncio.gather(*(self.get(path) for path in paths)))

    async def _get_together(self, paths: Sequence[str]) -> list[Znode | None]:
        return list(map(_znode_or_none, await self._request(lambda: self._kazoo.get_many_async(paths))))

    async def children(self, path: str) -> list[str]:
        """The names of the children, sorted; empty when there is no such znode."""
        try:
            return sorted(await self._request(lambda: self._kazoo.get_children_async(path)))
        except NoZnodeError:
            return []

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Create a znode, with its parents unless it is ephemeral; answers its path.

        Raises ZnodeExistsError, also when an interrupted first attempt had succeeded.
        """
        return str(
            await self._request(
                lambda: self._kazoo.create_async(
                    path,
                    data,
                    ephemeral=ephemeral,
                    sequence=sequence,
                    makepath=not ephemeral,
                    **self._acl(path),
                )
            )
        )

    async def ensure(self, path: str, data: bytes | None = None) -> None:
        """Create a persistent znode unless it is there."""
        try:
            await self.create(path, data)
        except ZnodeExistsError:
            return

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace the content; answers the new version.

        Raises NoZnodeError, and ZnodeVersionError unless what is there is exactly this write's own first
        attempt.
        """
        attempts: list[None] = []

        def send() -> Any:
            attempts.append(None)
            return self._kazoo.set_async(path, data, version)

        try:
            stat = await self._request(send)
        except ZnodeVersionError:
            found = await self.get(path) if len(attempts) > 1 else None
            if found is None or found.version != version + 1 or found.data != data:
                raise
            return found.version
        return int(stat.version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete the znode; nothing when there is none. Raises ZnodeVersionError."""
        try:
            await self._request(lambda: self._kazoo.delete_async(path, version))
        except NoZnodeError:
            return

    async def delete_tree(self, path: str, delete: Callable[[str], Awaitable[None]] | None = None) -> None:
        """Delete the znode and all below it, each with `delete`; what others create meanwhile is deleted too."""
        while True:
            children = await self.children(path)
            await asyncio.gather(*(self.delete_tree(f"{path}/{child}", delete) for child in children))
            try:
                await (delete or self.delete)(path)
            except ZooKeeperError as error:
                if isinstance(error.__cause__, NotEmptyError):
                    continue
                raise
            return

    async def transaction(self, operations: Sequence[Operation]) -> list[Any]:
        """All of the operations or none; answers a path for each Create, a stat for each Set.

        Raises the error of the first operation that failed; when it `is_repeated`, that may be for this very
        transaction's own first attempt, which only the caller can tell.
        """
        attempts: list[None] = []

        def send() -> Any:
            attempts.append(None)
            return self._transaction(operations).commit_async()

        results = await self._request(send)
        for index, result in enumerate(results):
            if isinstance(result, KazooException) and type(result).__name__ not in _NOT_THE_CAUSE:
                error = _translated(result)
                error.index, error.is_repeated = index, len(attempts) > 1
                raise error from result
        return list(results)

    def watch_children(self, path: str, callback: Callable[[list[str]], None]) -> Subscription:
        """Call `callback(names)` now and after each change of the children (sorted; empty without the
        znode).
        """
        return self._subscribe(
            path, lambda watch: self._kazoo.get_children_async(path, watch), _names, callback
        )

    def watch_data(self, path: str, callback: Callable[[Znode | None], None]) -> Subscription:
        """Call `callback(znode)` now and after each change of the content (None without the znode)."""
        return self._subscribe(
            path, lambda watch: self._kazoo.get_async(path, watch), _znode_or_none, callback
        )

    def _subscribe(
        self,
        path: str,
        send: Callable[[Callable[[Any], None]], Any],
        convert: Callable[[Any], Any],
        callback: Callable[[Any], None],
    ) -> Subscription:
        subscription = Subscription(
            self._kazoo,
            path,
            send,
            convert,
            callback,
            on_loop=self._on_loop,
            ended=lambda subscription: self._subscriptions.pop(subscription, None),
        )
        self._subscriptions[subscription] = None
        subscription.read()
        return subscription

    def _transaction(self, operations: Sequence[Operation]) -> Any:
        transaction = self._kazoo.transaction()
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral, sequence):
                    transaction.create(
                        path, data or b"", ephemeral=ephemeral, sequence=sequence, **self._acl(path)
                    )
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Check(path, version):
                    transaction.check(path, version)
                case Delete(path, version):
                    transaction.delete(path, version)
        return transaction

    async def _request(self, send: Callable[[], Any]) -> Any:
        while True:
            await self._connected.wait()
            if self._closed:
                raise ZooKeeperClosedError("the ZooKeeper session was closed")
            try:
                async with asyncio.timeout(self._answer_seconds_max):
                    return await self._sent(send)
            except _INTERRUPTED:
                await asyncio.sleep(RETRY_DELAY_SECONDS)
            except KazooException as error:
                if self._closed:
                    raise ZooKeeperClosedError("the ZooKeeper session was closed") from error
                raise _translated(error) from error

    def _sent(self, send: Callable[[], Any]) -> asyncio.Future[Any]:
        assert self._loop is not None, "connect first"
        future: asyncio.Future[Any] = self._loop.create_future()
        send().rawlink(lambda result: self._on_loop(_settle, future, result))
        return future

    def _on_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        """From kazoo's threads to the loop; a loop that is closed already needs no word."""
        assert self._loop is not None, "connect first"
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _state_changed(self, state: str) -> None:
        session_id = self._kazoo.client_id[0] if self._kazoo.client_id else 0
        self._on_loop(self._take_state, state, session_id)

    def _take_state(self, state: str, session_id: int) -> None:
        if self._closed:
            return
        assert self._loop is not None, "connect first"
        self._states += 1
        if state != KazooState.CONNECTED:
            self._connected.clear()
            self._tell(SessionListener.session_suspended)
            if state == KazooState.LOST:
                self._reopening.lost(self._loop)
        elif self._access.user:
            self._await_login(session_id)
        else:
            self._take_session(session_id)

    def _await_login(self, session_id: int) -> None:
        """kazoo tells of a session before it logs in there; an answer comes after that."""
        states = self._states
        self._kazoo.exists_async("/").rawlink(
            lambda result: self._on_loop(self._login_ended, states, session_id, result)
        )

    def _login_ended(self, states: int, session_id: int, result: Any) -> None:
        if isinstance(result.exception, AuthFailedError):
            self._reopening.refused()
        elif result.exception is None and states == self._states and not self._closed:
            self._take_session(session_id)

    def _take_session(self, session_id: int) -> None:
        self._reopening.opened()
        is_new = session_id != self.session_id
        self.session_id = session_id
        self._connected.set()
        self._tell(SessionListener.session_started if is_new else SessionListener.session_resumed)
        for subscription in list(self._subscriptions):
            subscription.read()

    def _tell(self, method: Callable[[SessionListener], None]) -> None:
        for listener in self._listeners:
            getattr(listener, method.__name__)()


_NOT_THE_CAUSE = frozenset({"RolledBackError", "RuntimeInconsistency"})
_TRANSLATED: tuple[tuple[type[Exception], type[ZooKeeperError]], ...] = (
    (NoNodeError, NoZnodeError),
    (NodeExistsError, ZnodeExistsError),
    (BadVersionError, ZnodeVersionError),
)


def _translated(error: Exception) -> ZooKeeperError:
    for kazoo_type, ours in _TRANSLATED:
        if isinstance(error, kazoo_type):
            return ours(str(error) or type(error).__name__)
    return ZooKeeperError(f"{type(error).__name__}: {error}")


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.get_nowait())


def _names(answer: Any) -> list[str]:
    return sorted(answer or ())


def _znode_or_none(answer: Any) -> Znode | None:
    return None if answer is None else _znode(answer)


def _znode(answer: Any) -> Znode:
    data, stat = answer
    return Znode(data or b"", stat.version, stat.czxid, stat.ephemeralOwner, stat.ctime, stat.mzxid)
