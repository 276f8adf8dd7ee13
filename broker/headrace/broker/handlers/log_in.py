"""How a connection learns who its client is: the gate before the gate at listeners that ask for a log-in (KIP-43, 152, 368).

Until a client is known, nothing is served but one ApiVersions, SaslHandshake, and the messages of the mechanism: in
SaslAuthenticate, or, after version 0 of the handshake, as frames of their own. A session that has an end is renewed by the same
requests, with the same mechanism and for the same principal; after its end nothing else is served. What fails is told once and
ends the connection.

Deviations: in the middle of a log-in any request but ApiVersions and SaslHandshake closes the connection without Kafka's answer
to it, since nothing is read of requests whose client is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Any, Protocol

from headrace.broker.auth.principal import USER, Principal
from headrace.broker.auth.sasl.exchange import (
    Authenticated,
    RefusedError,
    ServerExchange,
    Step,
    refused_openly,
)
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.call import Client
from headrace.broker.handlers.replies import CloseConnectionError, Parts, Reply
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.table import serve
from headrace.broker.wire import frames
from headrace.broker.wire.api import k17_sasl_handshake, k18_api_versions, k36_sasl_authenticate
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.frames import RequestHeader, read_request_header
from headrace.broker.wire.schema import Api

HANDSHAKE, AUTHENTICATE = k17_sasl_handshake.API, k36_sasl_authenticate.API
VERSIONS_KEY = k18_api_versions.API.key
_BEGINNINGS: dict[int, tuple[Api, str]] = {
    VERSIONS_KEY: (k18_api_versions.API, "api_keys"),
    HANDSHAKE.key: (HANDSHAKE, "mechanisms"),
}
"""With what a log-in begins, and the list in each answer."""
RENEWAL_INTERVAL_MS = 1000
"""Between two renewals of a session, as in Kafka."""
# Where an answer's error code is: behind the frame's size and the correlation id.
_ERROR_CODE = slice(8, 10)


class Mechanisms(Protocol):
    """The mechanisms of a listener."""

    names: tuple[str, ...]

    def exchange(self, mechanism: str, /) -> ServerExchange:
        """A log-in by one of them."""
        ...

    def session_ms_max(self, mechanism: str, /) -> int:
        """How long a log-in by it is good; 0 for as long as its credential is."""
        ...


class LogInCounts(Protocol):
    """Counters of a listener."""

    def logged_in(self, mechanism: str, /, *, again: bool) -> None: ...

    def refused(self, mechanism: str, /, *, again: bool) -> None: ...

    def expired(self) -> None:
        """A connection is closed since its session was over."""
        ...


class LogInFailedError(CloseConnectionError):
    """The connection ends; `answer` is the last that its client is sent, after the delay for those that failed."""

    def __init__(self, reason: str, answer: Parts | None = None) -> None:
        super().__init__(reason)
        self.answer = answer


class _State(Enum):
    VERSIONS_OR_HANDSHAKE = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    AUTHENTICATE_RAW = auto()
    OTHER_MECHANISM = auto()
    DONE = auto()


class LogIn:
    """Of one connection; `done()` is called when its client is known for the first time."""

    __slots__ = (
        "_again",
        "_counts",
        "_ends_at_ms",
        "_exchange",
        "_mechanism",
        "_mechanisms",
        "_renewed_at_ms",
        "_state",
        "done",
        "size_max",
    )

    def __init__(self, mechanisms: Mechanisms, counts: LogInCounts, size_max: int) -> None:
        self._mechanisms = mechanisms
        self._counts = counts
        self.size_max = size_max
        self.done: Callable[[], None] = lambda: None
        self._state = _State.VERSIONS_OR_HANDSHAKE
        self._mechanism = ""
        self._exchange: ServerExchange | None = None
        # Whether a client that is known logs in again.
        self._again = False
        # Milliseconds of the monotonic clock.
        self._ends_at_ms: int | None = None
        self._renewed_at_ms: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the client has logged in once."""
        return self._again or self._state is _State.DONE

    def serve(
        self,
        broker: Services,
        client: Client,
        frame: memoryview,
        more: Collection[memoryview],
        began_s: float,
    ) -> tuple[int, Reply, int]:
        """As `table.serve`, for who has logged in."""
        if self._state is _State.DONE and not self._is_renewal(broker, frame):
            self._check_session(broker)
            return serve(broker, client, frame, more, began_s)
        try:
            return self._stepped(broker, client, frame, began_s)
        except MalformedError as error:
            raise self._failed(str(error)) from None

    def _is_renewal(self, broker: Services, frame: memoryview) -> bool:
        """Whether a session that has an end is to be renewed by this, but no more often than it may."""
        if self._ends_at_ms is None or int.from_bytes(frame[:2], "big") != HANDSHAKE.key:
            return False
        now_ms = broker.clock.monotonic_ms()
        if self._renewed_at_ms is not None and now_ms - self._renewed_at_ms < RENEWAL_INTERVAL_MS:
            return False
        self._renewed_at_ms = now_ms
        self._again, self._state = True, _State.HANDSHAKE
        return True

    def _check_session(self, broker: Services) -> None:
        if self._ends_at_ms is not None and broker.clock.monotonic_ms() > self._ends_at_ms:
            self._counts.expired()
            raise CloseConnectionError("its session is over, and it did not log in again")

    def _stepped(
        self, broker: Services, client: Client, frame: memoryview, began_s: float
    ) -> tuple[int, Reply, int]:
        if self._state is _State.OTHER_MECHANISM:
            raise self._failed(f"a session may not be renewed by another mechanism than {self._mechanism}")
        if self._state is _State.AUTHENTICATE_RAW:
            broker.metrics.request(AUTHENTICATE.key, len(frame))
            step = self._exchanged(broker, client, bytes(frame), lambda _: None)
            self._found(broker, client, step.found)
            return AUTHENTICATE.key, [frames.frame(step.answer)], 0
        header = read_request_header(frame)
        if self._state is _State.AUTHENTICATE:
            return AUTHENTICATE.key, self._authenticated(broker, client, header, frame), 0
        if header.key == VERSIONS_KEY and self._state is _State.VERSIONS_OR_HANDSHAKE:
            return self._versions(broker, client, frame, began_s)
        if header.key == HANDSHAKE.key:
            return HANDSHAKE.key, self._begun(broker, header, frame), 0
        raise self._failed(f"a request of API key {header.key} came before a log-in")

    def _versions(
        self, broker: Services, client: Client, frame: memoryview, began_s: float
    ) -> tuple[int, Reply, int]:
        key, reply, more_count = serve(broker, client, frame, (), began_s)
        assert isinstance(reply, list), "it is answered at once"
        head = reply[0]
        if isinstance(head, bytes) and not any(head[_ERROR_CODE]):
            self._state = _State.HANDSHAKE
        return key, reply, more_count

    def _begun(self, broker: Services, header: RequestHeader, frame: memoryview) -> Parts:
        """Answer a SaslHandshake."""
        mechanism = self._decoded(broker, HANDSHAKE, header, frame)["mechanism"]
        names = list(self._mechanisms.names)
        if mechanism not in names:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            broker.metrics.failed(HANDSHAKE.key, code)
            answer = _encoded(HANDSHAKE, header, {"error_code": code, "mechanisms": names})
            raise self._failed("it asked for a SASL mechanism that is not enabled", answer)
        if self._again and mechanism != self._mechanism:
            self._state = _State.OTHER_MECHANISM
        else:
            self._mechanism = mechanism
            self._exchange = self._mechanisms.exchange(mechanism)
            self._state = _State.AUTHENTICATE if header.version >= 1 else _State.AUTHENTICATE_RAW
        return _encoded(HANDSHAKE, header, {"error_code": ErrorCode.NONE, "mechanisms": names})

    def _authenticated(
        self, broker: Services, client: Client, header: RequestHeader, frame: memoryview
    ) -> Parts:
        """Answer a SaslAuthenticate."""
        if header.key != AUTHENTICATE.key:
            raise self._failed(
                f"a request of API key {header.key} came in the middle of a log-in", _out_of_place(header)
            )

        def refusal(told: str) -> Parts:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            broker.metrics.failed(AUTHENTICATE.key, code)
            return _encoded(
                AUTHENTICATE, header, {"error_code": code, "error_message": told, "auth_bytes": b""}
            )

        message = self._decoded(broker, AUTHENTICATE, header, frame)["auth_bytes"]
        step = self._exchanged(broker, client, bytes(message), refusal)
        answer = {
            "error_code": ErrorCode.NONE,
            "error_message": "",
            "auth_bytes": step.answer,
            "session_lifetime_ms": self._found(broker, client, step.found),
        }
        return _encoded(AUTHENTICATE, header, answer)

    def _exchanged(
        self, broker: Services, client: Client, message: bytes, refusal: Callable[[str], Parts | None]
    ) -> Step:
        assert self._exchange is not None, "a mechanism was chosen"
        try:
            step = self._exchange.step(message, broker.clock.now_ms())
            if self._again and step.found is not None:
                _check_unchanged(client.principal, step.found)
        except RefusedError as error:
            told = error.told or (
                f"Authentication failed during {'re-' if self._again else ''}authentication due to invalid"
                f" credentials with SASL mechanism {self._mechanism}"
            )
            raise self._failed(str(error), refusal(told)) from None
        return step

    def _found(self, broker: Services, client: Client, found: Authenticated | None) -> int:
        """Take note of who the client is; for how many milliseconds, 0 for no end."""
        if found is None:
            return 0
        client.principal, client.is_by_token = Principal(USER, found.name), found.is_by_token
        most_ms = self._mechanisms.session_ms_max(self._mechanism)
        lifetimes_ms = [most_ms] if most_ms else []
        if found.expires_at_ms is not None:
            lifetimes_ms.append(found.expires_at_ms - broker.clock.now_ms())
        lifetime_ms = max(0, min(lifetimes_ms, default=0))
        self._ends_at_ms = broker.clock.monotonic_ms() + lifetime_ms if lifetimes_ms else None
        self._counts.logged_in(self._mechanism, again=self._again)
        self._exchange, self._state = None, _State.DONE
        if not self._again:
            self.done()
        return lifetime_ms

    def _decoded(
        self, broker: Services, api: Api, header: RequestHeader, frame: memoryview
    ) -> dict[str, Any]:
        low, high = api.versions
        if not low <= header.version <= high:
            raise self._failed(f"api key {header.key} version {header.version} is not served here")
        broker.metrics.request(api.key, len(frame))
        return api.decode_request(header.version, frame, header.body_offset)

    def _failed(self, reason: str, answer: Parts | None = None) -> LogInFailedError:
        self._counts.refused(self._mechanism, again=self._again)
        return LogInFailedError(f"it failed to log in: {reason}", answer)


def _check_unchanged(before: Principal, found: Authenticated) -> None:
    if before != Principal(USER, found.name):
        raise refused_openly(
            f"Cannot change principals during re-authentication from {before.type}.{before.name}: {USER}.{found.name}"
        )


def _out_of_place(header: RequestHeader) -> Parts | None:
    """What a client is told that begins anew in the middle of a log-in."""
    if header.key not in _BEGINNINGS:
        return None
    api, listed = _BEGINNINGS[header.key]
    if not api.versions[0] <= header.version <= api.versions[1]:
        return None
    return _encoded(api, header, {"error_code": ErrorCode.ILLEGAL_SASL_STATE, listed: []})


def _encoded(api: Api, header: RequestHeader, message: dict[str, Any]) -> Parts:
    return [
        frames.frame(
            frames.encode_response_header(api.key, header.version, header.correlation_id),
            api.encode_response(header.version, message),
        )
    ]
