"""A ZooKeeper in memory, and what the broker sees of it through kazoo: sessions, watches, lost connections.

`Ensemble` keeps znodes and sessions as the real server does: one order of all writes, one-shot watches, ephemeral
znodes that go with their session, answers and watch events of a session in one order. `SimulatedKazoo` takes
`KazooClient`'s place: requests and answers take random time, a lost connection fails what is under way (performed or
not), a session that was not heard of for its time-out is over and a new one begins.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.states import KazooState

DELAY_SECONDS_MAX = 0.004
TICK = 1e-6


@dataclass
class Znode:
    """One znode; `sequence` is the number of the next sequential child."""

    data: bytes
    czxid: int
    ephemeralOwner: int
    ctime: int
    version: int = 0
    sequence: int = 0
    mzxid: int = 0


@dataclass
class Session:
    """A session, and since when nothing was heard of it (None while it is connected)."""

    number: int
    timeout: float
    client: SimulatedKazoo
    silent_since: float | None = None


@dataclass(frozen=True)
class Event:
    """A watch event; NONE stands for the loss of the connection."""

    type: str
    path: str | None = None


@dataclass
class Ensemble:
    """The servers; `is_up` is false while all of them are away."""

    loop: asyncio.AbstractEventLoop
    random: random.Random
    is_up: bool = True
    zxid: int = 0
    # Called with the path and the data of whatever is written.
    written: list[Callable[[str, bytes], None]] = field(default_factory=list)
    session_count: int = 0
    znodes: dict[str, Znode] = field(default_factory=dict)
    sessions: dict[int, Session] = field(default_factory=dict)
    data_watches: dict[str, list[tuple[SimulatedKazoo, Callable[[Event], None]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    child_watches: dict[str, list[tuple[SimulatedKazoo, Callable[[Event], None]]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def __post_init__(self) -> None:
        self.znodes["/"] = Znode(b"", 0, 0, 0)

    def open_session(self, client: SimulatedKazoo, timeout: float) -> Session:
        self.session_count += 1
        session = self.sessions[self.session_count] = Session(self.session_count, timeout, client)
        return session

    def end_session(self, number: int) -> None:
        self.sessions.pop(number, None)
        for path in [p for p, z in self.znodes.items() if z.ephemeralOwner == number]:
            self.delete(path, -1)

    def expire_silent_sessions(self) -> None:
        """What the leader's clock does."""
        now = self.loop.time()
        for session in list(self.sessions.values()):
            if session.silent_since is not None and now - session.silent_since > session.timeout:
                self.end_session(session.number)

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return [
            p[len(prefix) :]
            for p in self.znodes
            if p.startswith(prefix) and "/" not in p[len(prefix) :] and p != "/"
        ]

    def create(self, path: str, data: bytes, owner: int, *, sequence: bool, makepath: bool) -> str:
        parent = path.rpartition("/")[0] or "/"
        if parent not in self.znodes:
            if not makepath:
                raise NoNodeError
            self.create(parent, b"", 0, sequence=False, makepath=True)
        if sequence:
            path = f"{path}{self.znodes[parent].sequence:010}"
            self.znodes[parent].sequence += 1
        if path in self.znodes:
            raise NodeExistsError
        self.zxid += 1
        self.znodes[path] = Znode(data, self.zxid, owner, int(self.loop.time() * 1000), mzxid=self.zxid)
        self._tell_written(path)
        self.fire(self.data_watches, path, "CREATED")
        self.fire(self.child_watches, parent, "CHILD")
        return path

    def set(self, path: str, data: bytes, version: int) -> Znode:
        self.check(path, version)
        self.zxid += 1
        znode = self.znodes[path]
        znode.data, znode.version, znode.mzxid = data, znode.version + 1, self.zxid
        self._tell_written(path)
        self.fire(self.data_watches, path, "CHANGED")
        return znode

    def _tell_written(self, path: str) -> None:
        for callback in self.written:
            callback(path, self.znodes[path].data)

    def delete(self, path: str, version: int) -> None:
        self.check(path, version)
        if self.children(path):
            raise NotEmptyError
        self.zxid += 1
        del self.znodes[path]
        self.fire(self.data_watches, path, "DELETED")
        self.fire(self.child_watches, path, "DELETED")
        self.fire(self.child_watches, path.rpartition("/")[0] or "/", "CHILD")

    def check(self, path: str, version: int) -> None:
        if path not in self.znodes:
            raise NoNodeError
        if version not in (-1, self.znodes[path].version):
            raise BadVersionError

    def transaction(self, operations: list[tuple[Any, ...]], owner: int) -> list[Any]:
        """All or none: tried on a copy first, since an operation may depend on the one before."""
        for index, operation in enumerate(operations):
            failure = self._refusal(operation)
            if failure is not None:
                before = [RolledBackError() for _ in range(index)]
                return [*before, failure, *[RuntimeInconsistency() for _ in operations[index + 1 :]]]
        return [self._perform(operation, owner) for operation in operations]

    def _refusal(self, operation: tuple[Any, ...]) -> KazooException | None:
        kind, path, *rest = operation
        if kind == "create":
            if path in self.znodes:
                return NodeExistsError()
            return None if (path.rpartition("/")[0] or "/") in self.znodes else NoNodeError()
        try:
            self.check(path, rest[-1])
        except (NoNodeError, BadVersionError) as error:
            return error
        return NotEmptyError() if kind == "delete" and self.children(path) else None

    def _perform(self, operation: tuple[Any, ...], owner: int) -> Any:
        match operation:
            case ("create", path, data, ephemeral):
                return self.create(path, data, owner if ephemeral else 0, sequence=False, makepath=False)
            case ("set", path, data, version):
                return _stat(self.set(path, data, version))
            case ("delete", path, version):
                return self.delete(path, version)
        return True

    def fire(self, watches: dict[str, list[Any]], path: str, kind: str) -> None:
        for client, callback in watches.pop(path, []):
            client.deliver(lambda callback=callback: callback(Event(kind, path)))

    def drop_watches(self, client: SimulatedKazoo) -> None:
        for watches in (self.data_watches, self.child_watches):
            for path, watching in watches.items():
                watches[path] = [(c, w) for c, w in watching if c is not client]


class Result:
    """kazoo's AsyncResult."""

    def __init__(self) -> None:
        self.exception: BaseException | None = None
        self._value: Any = None
        self._is_done = False
        self._callbacks: list[Callable[[Result], None]] = []

    def rawlink(self, callback: Callable[[Result], None]) -> None:
        if self._is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def get_nowait(self) -> Any:
        return self._value

    def finish(self, value: Any, exception: BaseException | None = None) -> None:
        if not self._is_done:
            self._value, self.exception, self._is_done = value, exception, True
            for callback in self._callbacks:
                callback(self)


class SimulatedKazoo:
    """One broker's client; `is_dead` once its process was killed, `frozen_until` while it is stopped, `is_cut` while alone."""

    def __init__(self, ensemble: Ensemble, timeout: float) -> None:
        self.chroot = ""
        self.last_zxid = 0
        self.client_state = "not closed"
        self.is_dead = False
        self.frozen_until = 0.0
        self.is_cut = False
        self._ensemble = ensemble
        self._timeout = timeout
        self._session: Session | None = None
        self._is_connected = False
        self._connection = 0
        self._listeners: list[Callable[[str], None]] = []
        self._waiting: deque[tuple[Callable[[], Any], Result]] = deque()
        self._in_flight: deque[Result] = deque()
        self._sent_until = self._delivered_until = 0.0

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return (self._session.number, b"") if self._session is not None and self._is_connected else None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def start_async(self) -> None:
        self._later(0.0, self._connect)

    def stop(self) -> None:
        self.is_dead = True
        if self._session is not None:
            self._ensemble.end_session(self._session.number)

    def close(self) -> None:
        pass

    def die(self) -> None:
        """SIGKILL: the server hears nothing more of this session."""
        self.is_dead = True
        self._ensemble.drop_watches(self)
        if self._session is not None and self._session.silent_since is None:
            self._session.silent_since = self._ensemble.loop.time()

    def freeze(self, seconds: float) -> None:
        """SIGSTOP and, later, SIGCONT."""
        self.frozen_until = self._ensemble.loop.time() + seconds
        if self._session is not None and seconds > self._timeout:
            session = self._session
            session.silent_since = session.silent_since or self._ensemble.loop.time()
            self._later(0.0, self.disconnect)

    def disconnect(self) -> None:
        """The connection breaks; kazoo tells everybody and tries again."""
        if self.is_dead or not self._is_connected:
            return
        self._is_connected = False
        self._connection += 1
        self._ensemble.drop_watches(self)
        assert self._session is not None
        self._session.silent_since = self._session.silent_since or self._ensemble.loop.time()
        self._fail_all(ConnectionLoss())
        self._tell(KazooState.SUSPENDED)
        self._later(self._ensemble.random.uniform(0.05, 0.6), self._connect)

    def cut(self) -> None:
        """The servers are out of reach for this client alone, until `heal`."""
        self.is_cut = True
        self.disconnect()

    def heal(self) -> None:
        self.is_cut = False

    @property
    def is_well(self) -> bool:
        """Whether it has a session, and will have for as long as nothing else happens."""
        return self._is_connected and not self.is_cut and self.frozen_until <= self._now()

    def expire(self) -> None:
        """The servers end the session of a client that lives: it hears so when it connects again."""
        if self._session is not None and self._is_connected:
            self._ensemble.end_session(self._session.number)
            self.disconnect()

    def deliver(self, word: Callable[[], None]) -> None:
        """From the server to this client, in order, unless the connection breaks before."""
        connection = self._connection
        at = max(self._delivered_until + TICK, self._now() + self._delay(), self.frozen_until)
        self._delivered_until = at
        self._ensemble.loop.call_at(at, lambda: None if self._is_gone(connection) else word())

    def ensure_path_async(self, path: str) -> Result:
        return self.create_async(path, b"", makepath=True)

    def get_async(self, path: str, watch: Callable[[Event], None] | None = None) -> Result:
        def work() -> tuple[bytes, Znode]:
            self._ensemble.check(path, -1)
            if watch is not None:
                self._ensemble.data_watches[path].append((self, watch))
            znode = self._ensemble.znodes[path]
            return znode.data, _stat(znode)

        return self._call(work)

    def get_many_async(self, paths: Sequence[str]) -> Result:
        def work() -> list[tuple[bytes, Znode] | None]:
            znodes = map(self._ensemble.znodes.get, paths)
            return [None if znode is None else (znode.data, _stat(znode)) for znode in znodes]

        return self._call(work)

    def exists_async(self, path: str, watch: Callable[[Event], None]) -> Result:
        def work() -> Znode | None:
            self._ensemble.data_watches[path].append((self, watch))
            return self._ensemble.znodes.get(path)

        return self._call(work)

    def get_children_async(self, path: str, watch: Callable[[Event], None] | None = None) -> Result:
        def work() -> list[str]:
            self._ensemble.check(path, -1)
            if watch is not None:
                self._ensemble.child_watches[path].append((self, watch))
            return self._ensemble.children(path)

        return self._call(work)

    def create_async(
        self,
        path: str,
        data: bytes | None,
        ephemeral: bool = False,
        sequence: bool = False,
        makepath: bool = False,
    ) -> Result:
        def work() -> str:
            owner = self._owner() if ephemeral else 0
            return self._ensemble.create(path, data or b"", owner, sequence=sequence, makepath=makepath)

        return self._call(work)

    def set_async(self, path: str, data: bytes, version: int) -> Result:
        return self._call(lambda: _stat(self._ensemble.set(path, data, version)))

    def delete_async(self, path: str, version: int) -> Result:
        return self._call(lambda: self._ensemble.delete(path, version))

    def transaction(self) -> Transaction:
        return Transaction(self)

    def commit(self, operations: list[tuple[Any, ...]]) -> Result:
        return self._call(lambda: self._ensemble.transaction(operations, self._owner()))

    def _owner(self) -> int:
        assert self._session is not None
        return self._session.number

    def _call(self, work: Callable[[], Any]) -> Result:
        result = Result()
        if self.is_dead:
            return result
        if self._is_connected:
            self._send(work, result)
        else:
            self._waiting.append((work, result))
        return result

    def _send(self, work: Callable[[], Any], result: Result) -> None:
        connection = self._connection
        at = max(self._sent_until + TICK, self._now() + self._delay())
        self._sent_until = at
        self._in_flight.append(result)

        def arrived() -> None:
            # A request that was sent before the connection broke may still be performed.
            if (
                self._session is None
                or self._session.number not in self._ensemble.sessions
                or not self._ensemble.is_up
            ):
                return
            if self._connection != connection and self._ensemble.random.random() < 0.5:
                return
            try:
                value, error = work(), None
            except Exception as refusal:
                value, error = None, refusal
            zxid = self._ensemble.zxid
            if self._connection == connection:
                self.deliver(lambda: self._answered(result, value, error, zxid))

        self._ensemble.loop.call_at(at, arrived)

    def _answered(self, result: Result, value: Any, error: BaseException | None, zxid: int) -> None:
        self.last_zxid = zxid
        self._in_flight.remove(result)
        result.finish(value, error)

    def _connect(self) -> None:
        if self.is_dead or self._is_connected:
            return
        if self._now() < self.frozen_until:
            self._later(self.frozen_until - self._now() + 0.001, self._connect)
            return
        self._ensemble.expire_silent_sessions()
        if self.is_cut or not self._ensemble.is_up:
            self._later(self._ensemble.random.uniform(0.1, 1.0), self._connect)
            return
        if self._session is not None and self._session.number not in self._ensemble.sessions:
            self._session = None
            self._fail_all(SessionExpiredError())
            self._tell(KazooState.LOST)
        if self._session is None:
            self._session = self._ensemble.open_session(self, self._timeout)
        self._session.silent_since = None
        self._is_connected = True
        self._tell(KazooState.CONNECTED)
        while self._waiting:
            self._send(*self._waiting.popleft())

    def _fail_all(self, error: Exception) -> None:
        for result in [*self._in_flight, *(r for _, r in self._waiting)]:
            self._ensemble.loop.call_soon(result.finish, None, error)
        self._in_flight.clear()
        self._waiting.clear()

    def _tell(self, state: str) -> None:
        for listener in self._listeners:
            listener(state)

    def _is_gone(self, connection: int) -> bool:
        return self.is_dead or self._connection != connection

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        self._ensemble.loop.call_later(seconds, work)

    def _now(self) -> float:
        return self._ensemble.loop.time()

    def _delay(self) -> float:
        slow = self._ensemble.random.random() < 0.02
        return self._ensemble.random.uniform(0, 50 * DELAY_SECONDS_MAX if slow else DELAY_SECONDS_MAX)


class Transaction:
    """kazoo's TransactionRequest."""

    def __init__(self, client: SimulatedKazoo) -> None:
        self._client = client
        self._operations: list[tuple[Any, ...]] = []

    def create(self, path: str, data: bytes, ephemeral: bool = False, sequence: bool = False) -> None:
        assert not sequence
        self._operations.append(("create", path, data, ephemeral))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self._operations.append(("set", path, data, version))

    def check(self, path: str, version: int) -> None:
        self._operations.append(("check", path, version))

    def delete(self, path: str, version: int) -> None:
        self._operations.append(("delete", path, version))

    def commit_async(self) -> Result:
        return self._client.commit(self._operations)


def _stat(znode: Znode) -> Znode:
    return Znode(znode.data, znode.czxid, znode.ephemeralOwner, znode.ctime, znode.version, mzxid=znode.mzxid)
