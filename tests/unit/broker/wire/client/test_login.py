"""What a client sends to log in, against the server's own machines."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker.auth.sasl.credentials import credential_for
from headrace.broker.auth.sasl.exchange import Authenticated, Identity, RefusedError, ServerExchange
from headrace.broker.auth.sasl.oauthbearer import OAuthBearerServer
from headrace.broker.auth.sasl.plain import PlainServer
from headrace.broker.auth.sasl.scram import Known, ScramServer
from headrace.broker.wire.client.login import STEPS_MAX, LoginError, log_in, renewal_after_ms

FOUND = Authenticated("alice", 5000)


def server(mechanism: str) -> ServerExchange:
    if mechanism == "PLAIN":
        return PlainServer({"alice": "secret"})
    if mechanism == "OAUTHBEARER":
        return OAuthBearerServer(bearer)
    known = Known(credential_for(mechanism, "secret", b"salt", 4096), FOUND)
    return ScramServer(mechanism, lambda name, _: known if name == "alice" else None, "there")


def bearer(token: str, now_ms: int) -> Authenticated:
    if token != "secret":
        raise RefusedError("no")
    return FOUND


def answered(asked: tuple[Any, int, dict[str, Any]], exchange: ServerExchange) -> dict[str, Any]:
    api, version, message = asked
    if api.key == 17:
        assert version == 1
        return {"error_code": 0, "mechanisms": []}
    try:
        step = exchange.step(message["auth_bytes"], 0)
    except RefusedError as error:
        return {"error_code": 58, "error_message": error.told, "auth_bytes": b""}
    return {
        "error_code": 0,
        "auth_bytes": memoryview(step.answer),
        "session_lifetime_ms": 7000 if step.found else 0,
    }


def logged_in(identity: Identity) -> int:
    exchange, steps = server(identity.mechanism), log_in(identity, "here")
    asked = next(steps)
    try:
        while True:
            asked = steps.send(answered(asked, exchange))
    except StopIteration as end:
        lifetime_ms: int = end.value
        return lifetime_ms


def identity(mechanism: str, secret: str) -> Identity:
    return Identity(mechanism, "alice", secret, bearer=secret)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_each_mechanism_logs_in_and_is_refused(mechanism: str) -> None:
    assert logged_in(identity(mechanism, "secret")) == 7000
    with pytest.raises(LoginError, match=mechanism) as refused:
        logged_in(identity(mechanism, "canary"))
    assert "canary" not in str(refused.value)
    assert "canary" not in repr(identity(mechanism, "canary"))


def test_a_broker_without_the_mechanism_says_what_it_offers() -> None:
    steps = log_in(identity("PLAIN", "secret"), "here")
    next(steps)
    with pytest.raises(LoginError, match="does not take the SASL mechanism PLAIN: it offers SCRAM-SHA-256"):
        steps.send({"error_code": 33, "mechanisms": ["SCRAM-SHA-256"]})


def test_an_unknown_mechanism_sends_nothing() -> None:
    with pytest.raises(LoginError, match="choose of PLAIN"):
        next(log_in(identity("GSSAPI", "secret"), "here"))


def test_challenges_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        is_done = False

        def step(self, challenge: bytes) -> bytes:
            return challenge

    monkeypatch.setattr("headrace.broker.wire.client.login.client_exchange", lambda *_: Endless())
    steps = log_in(identity("PLAIN", "secret"), "here")
    next(steps)
    steps.send({"error_code": 0, "mechanisms": []})
    more = {"error_code": 0, "auth_bytes": b"more"}
    for _ in range(STEPS_MAX - 1):
        steps.send(more)
    with pytest.raises(LoginError, match=f"more than {STEPS_MAX}"):
        steps.send(more)


def test_a_session_is_renewed_well_before_its_end() -> None:
    assert renewal_after_ms(0, 0.5) is None
    assert renewal_after_ms(10_000, 0) == 8500
    assert renewal_after_ms(10_000, 1) == 9500
