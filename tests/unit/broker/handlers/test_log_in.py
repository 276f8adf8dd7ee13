"""The gate before the gate: who has not logged in is served nothing else, and a session that is over is not served on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.auth.principal import ANONYMOUS, Principal
from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError, Step, refused_openly
from headrace.broker.handlers import table
from headrace.broker.handlers.call import Client
from headrace.broker.handlers.log_in import LogIn, LogInFailedError
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.handlers.table import HANDLERS
from headrace.broker.quotas.usage import unlimited
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

HANDSHAKE, VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3
OTHER_KEYS = sorted(set(APIS) - {HANDSHAKE, VERSIONS, AUTHENTICATE})


class Exchange:
    """A mechanism of two messages: anything, and then a name that is let in."""

    def __init__(self, expires_at_ms: int | None = None) -> None:
        self.expires_at_ms = expires_at_ms
        self.count = 0

    def step(self, message: bytes, now_ms: int) -> Step:
        self.count += 1
        if message == b"open":
            raise refused_openly("told to all")
        if message == b"hidden":
            raise RefusedError("there is no such user")
        if self.count == 1:
            return Step(b"go on")
        return Step(b"welcome", Authenticated(message.decode(), self.expires_at_ms))


class World:
    """A broker, a client and its log-in."""

    names: tuple[str, ...] = ("MOCK", "OTHER")

    def __init__(self, *, session_ms: int = 0, expires_at_ms: int | None = None) -> None:
        self.session_ms = session_ms
        self.expires_at_ms = expires_at_ms
        self.now_ms = 1_000_000
        self.counted: list[tuple[str, ...]] = []
        self.client = Client("host", "SASL_PLAINTEXT")
        self.broker: Any = SimpleNamespace(
            client_usage=unlimited(),
            api_versions=table.VERSIONS,
            metrics=SimpleNamespace(request=lambda *_: None, failed=lambda *_: None),
            clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms, now_ms=lambda: self.now_ms),
        )
        self.log_in = LogIn(self, self, 1000)
        self.done_count = 0
        self.log_in.done = self.done

    def exchange(self, mechanism: str) -> Exchange:
        return Exchange(self.expires_at_ms)

    def session_ms_max(self, mechanism: str) -> int:
        return self.session_ms

    def logged_in(self, mechanism: str, *, again: bool) -> None:
        self.counted.append(("in", mechanism, str(again)))

    def refused(self, mechanism: str, *, again: bool) -> None:
        self.counted.append(("refused", mechanism, str(again)))

    def expired(self) -> None:
        self.counted.append(("expired",))

    def done(self) -> None:
        self.done_count += 1

    def send(self, frame: bytes) -> Any:
        return self.log_in.serve(self.broker, self.client, memoryview(bytearray(frame)), (), 0.0)[1]

    def ask(self, key: int, version: int, message: dict[str, Any] | None = None) -> dict[str, Any]:
        body = APIS[key].encode_request(version, message or {})
        reply = self.send(frames.encode_request_header(key, version, 7, "unit") + body)
        return decoded(key, version, reply)

    def handshake(self, mechanism: str = "MOCK", version: int = 1) -> dict[str, Any]:
        return self.ask(HANDSHAKE, version, {"mechanism": mechanism})

    def authenticate(self, message: bytes, version: int = 2) -> dict[str, Any]:
        return self.ask(AUTHENTICATE, version, {"auth_bytes": message})

    def logged(self, name: bytes = b"alice") -> World:
        self.handshake()
        self.authenticate(b"hello")
        assert self.authenticate(name)["error_code"] == 0
        return self


def decoded(key: int, version: int, parts: Any) -> dict[str, Any]:
    reply = b"".join(parts)[4:]
    _, offset = frames.read_response_header(key, version, reply)
    return APIS[key].decode_response(version, reply, offset)


def failure(call: Any, *arguments: Any) -> LogInFailedError:
    with pytest.raises(LogInFailedError) as refused:
        call(*arguments)
    return refused.value


def test_a_client_that_logs_in_is_known_and_served() -> None:
    world = World()
    assert (
        world.ask(VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"})["error_code"]
        == 0
    )
    assert world.handshake() == {"error_code": 0, "mechanisms": ["MOCK", "OTHER"]}
    assert world.authenticate(b"hello")["auth_bytes"] == b"go on"
    assert (world.client.principal, world.log_in.is_known) == (ANONYMOUS, False)
    answer = world.authenticate(b"alice")
    assert (answer["auth_bytes"], answer["session_lifetime_ms"]) == (b"welcome", 0)
    assert world.client.principal == Principal("User", "alice")
    assert (world.done_count, world.counted) == (1, [("in", "MOCK", "False")])
    assert world.ask(VERSIONS, 0)["error_code"] == 0
    assert world.authenticate(b"again")["error_code"] == 34
    assert world.handshake()["error_code"] == 34


@pytest.mark.parametrize("key", OTHER_KEYS)
@pytest.mark.parametrize("steps", range(4))
def test_nothing_else_is_served_before(key: int, steps: int) -> None:
    """A request is looked at only when its client is known."""
    world = World()
    before: list[Callable[[], Any]] = [
        lambda: world.ask(VERSIONS, 0),
        world.handshake,
        lambda: world.authenticate(b"hello"),
    ][:steps]
    for step in before:
        step()
    for version in range(APIS[key].versions[0], APIS[key].versions[1] + 1):
        refused = failure(world.send, frames.encode_request_header(key, version, 7, "unit") + b"\0" * 50)
        assert refused.answer is None
    assert world.client.principal == ANONYMOUS


def test_versions_may_be_asked_for_once_and_again_after_an_error() -> None:
    world = World()
    answer = decoded(VERSIONS, 0, world.send(frames.encode_request_header(VERSIONS, 99, 7, "unit")))
    assert answer["error_code"] == 35
    assert (
        world.ask(VERSIONS, 3, {"client_software_name": "", "client_software_version": ""})["error_code"]
        == 42
    )
    assert world.ask(VERSIONS, 0)["error_code"] == 0
    assert failure(world.ask, VERSIONS, 0).answer is None


def test_a_mechanism_that_is_not_enabled_is_answered_and_ends_it() -> None:
    world = World()
    refused = failure(world.handshake, "GSSAPI")
    assert decoded(HANDSHAKE, 1, refused.answer) == {"error_code": 33, "mechanisms": ["MOCK", "OTHER"]}
    assert world.counted == [("refused", "", "False")]


def test_a_refusal_is_told_in_general_words_unless_the_mechanism_says_more() -> None:
    for message, told in (
        (b"open", "told to all"),
        (
            b"hidden",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism MOCK",
        ),
    ):
        world = World()
        world.handshake()
        refused = failure(world.authenticate, message)
        answer = decoded(AUTHENTICATE, 2, refused.answer)
        assert (answer["error_code"], answer["error_message"]) == (58, told)
        assert world.counted == [("refused", "MOCK", "False")]


def test_version_0_of_the_handshake_has_raw_messages_after_it() -> None:
    world = World()
    world.handshake(version=0)
    assert world.send(b"hello") == [b"\0\0\0\x05go on"]
    assert world.send(b"alice") == [b"\0\0\0\x07welcome"]
    assert world.client.principal.name == "alice"
    world = World()
    world.handshake(version=0)
    assert failure(world.send, b"hidden").answer is None


def test_a_second_handshake_in_the_middle_is_out_of_place() -> None:
    world = World()
    world.handshake()
    assert decoded(HANDSHAKE, 1, failure(world.handshake).answer)["error_code"] == 34


@pytest.mark.parametrize("version", range(5))
def test_versions_are_not_told_in_the_middle(version: int) -> None:
    world = World()
    world.handshake()
    answer = decoded(VERSIONS, version, failure(world.ask, VERSIONS, version).answer)
    assert (answer["error_code"], answer["api_keys"]) == (34, [])


@pytest.mark.parametrize(
    "frame", [b"", b"\0", b"\0\x24", b"\0\x24\0\x02\0\0\0\x07\xff\xff", b"\x7f\xff" * 10, b"`\x82\x01"]
)
def test_frames_that_are_cut_short_end_it(frame: bytes) -> None:
    for steps in range(2):
        world = World()
        if steps:
            world.handshake()
        assert failure(world.send, frame).answer is None


def test_a_session_ends_with_its_time_or_with_its_credential() -> None:
    for world, lifetime_ms in (
        (World(session_ms=5000), 5000),
        (World(expires_at_ms=1_003_000), 3000),
        (World(session_ms=5000, expires_at_ms=1_003_000), 3000),
        (World(session_ms=2000, expires_at_ms=1_003_000), 2000),
        (World(expires_at_ms=999_000), 0),
    ):
        world.handshake()
        world.authenticate(b"hello")
        assert world.authenticate(b"alice")["session_lifetime_ms"] == lifetime_ms
        world.now_ms += lifetime_ms
        assert world.ask(VERSIONS, 0)["error_code"] == 0
        world.now_ms += 1
        with pytest.raises(CloseConnectionError, match="session is over"):
            world.ask(VERSIONS, 0)
        assert world.counted[-1] == ("expired",)


def test_a_session_is_renewed_by_the_same_mechanism_for_the_same_principal() -> None:
    world = World(session_ms=5000).logged()
    world.now_ms += 6000
    world.logged()
    assert (world.done_count, world.counted[-1]) == (1, ("in", "MOCK", "True"))
    world.now_ms += 500
    assert world.handshake()["error_code"] == 34
    world.now_ms += 4500
    assert world.ask(VERSIONS, 0)["error_code"] == 0

    world.handshake()
    world.authenticate(b"hello")
    answer = decoded(AUTHENTICATE, 2, failure(world.authenticate, b"bob").answer)
    assert answer["error_message"] == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert world.client.principal.name == "alice"
    assert world.counted[-1] == ("refused", "MOCK", "True")

    world = World(session_ms=5000).logged()
    assert world.handshake("OTHER")["error_code"] == 0
    assert failure(world.authenticate, b"hello").answer is None


def test_nothing_is_served_in_the_middle_of_a_renewal() -> None:
    world = World(session_ms=5000).logged()
    world.handshake()
    assert failure(world.ask, METADATA, 0, {"topics": []}).answer is None


def test_the_keys_of_a_log_in_are_served_everywhere_and_out_of_place() -> None:
    assert {HANDSHAKE, AUTHENTICATE} <= HANDLERS.keys()
    assert HANDLERS[HANDSHAKE].version_max == 1
    assert HANDLERS[AUTHENTICATE].version_max == 2
