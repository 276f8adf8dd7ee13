"""Logging in, staying logged in, and asking for tokens, by both shells and through real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from scripted_broker import Answer, scripted_broker
from secured_broker import AUTHENTICATE, HANDSHAKE, PASSWORD, SCRAM, Gate, sasl

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.identities import identity_of
from headrace.broker.client.security import ClientSecurity
from headrace.broker.wire.api import k03_metadata
from headrace.broker.wire.client.login import LoginError

Address = tuple[str, int]
Ask = Callable[[Address, ClientSecurity, int, float], None]


def serve(key: int, message: dict[str, Any]) -> Answer:
    return {"controller_id": 4}


def ask_blocking(address: Address, security: ClientSecurity, count: int, pause: float) -> None:
    with BlockingLink(address, "test", 5, security=security) as link:
        for _ in range(count):
            assert link.ask(k03_metadata.API, 12, {"topics": None})["controller_id"] == 4
            time.sleep(pause)


def ask_asynchronously(address: Address, security: ClientSecurity, count: int, pause: float) -> None:
    async def run() -> None:
        async with await AsyncLink.open(address, "test", 5_000, security=security) as link:
            for _ in range(count):
                assert (await link.ask(k03_metadata.API, 12, {"topics": None}))["controller_id"] == 4
                await asyncio.sleep(pause)

    asyncio.run(run())


both = pytest.mark.parametrize("ask", [ask_blocking, ask_asynchronously])


@both
@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
def test_nothing_is_asked_before_the_log_in(ask: Ask, mechanism: str) -> None:
    gate = Gate(serve, {3: (0, 12)})
    with scripted_broker(gate) as broker:
        ask(broker.address, sasl(mechanism), 2, 0)
    assert (gate.mechanisms, gate.early) == ([mechanism], [])


@both
@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM])
def test_a_wrong_password_is_one_sentence_without_it(ask: Ask, mechanism: str) -> None:
    with scripted_broker(Gate(serve, {3: (0, 12)})) as broker:
        with pytest.raises(LoginError, match="refused a log-in by") as raised:
            ask(broker.address, sasl(mechanism, PASSWORD + "x"), 1, 0)
        assert PASSWORD not in str(raised.value)


@both
def test_a_session_is_renewed_before_it_ends_and_without_a_new_connection(ask: Ask) -> None:
    gate = Gate(serve, {3: (0, 12)}, lifetime_ms=60)
    with scripted_broker(gate) as broker:
        ask(broker.address, sasl("PLAIN"), 4, 0.07)
    assert broker.keys == [18, HANDSHAKE, AUTHENTICATE, 3, *[HANDSHAKE, AUTHENTICATE, 3] * 3]


def oauth(url: str, secret: str = PASSWORD) -> ClientSecurity:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return ClientSecurity.of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.jaas.config": f'{module} required clientId="app" clientSecret="{secret}" scope="logs"'
            ' extension_zone="east";',
        }
    )


def token(seconds: float) -> str:
    claims = json.dumps({"exp": time.time() + seconds}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).rstrip(b'=').decode()}.sig"


@contextmanager
def endpoint(answer: Callable[[], tuple[int, Any]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], body))
            status, found = answer()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_token_is_asked_for_with_the_clients_credentials_and_kept_while_it_holds() -> None:
    with endpoint(lambda: (200, {"access_token": token(60)})) as (url, asked):
        first, second = identity_of(oauth(url)), identity_of(oauth(url))
        assert first.bearer == second.bearer
        assert first.extensions == (("zone", "east"),)
    expected = base64.b64encode(f"app:{PASSWORD}".encode()).decode()
    assert asked == [(f"Basic {expected}", "grant_type=client_credentials&scope=logs")]


def test_a_token_whose_end_is_near_is_asked_for_again() -> None:
    with endpoint(lambda: (200, {"access_token": token(0.05)})) as (url, asked):
        identity_of(oauth(url))
        time.sleep(0.06)
        identity_of(oauth(url))
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("answer", "said"), [((401, {}), "HTTP status 401"), ((200, {"token": 1}), "has no access_token")]
)
def test_an_endpoint_that_gives_no_token_is_one_sentence(answer: tuple[int, Any], said: str) -> None:
    with endpoint(lambda: answer) as (url, _):
        with pytest.raises(LoginError, match=said) as raised:
            identity_of(oauth(url))
        assert PASSWORD not in str(raised.value)


def test_a_token_of_a_file_is_the_one_that_is_there_now(tmp_path: Path) -> None:
    file = tmp_path / "token"
    security = oauth(file.as_uri())
    for text in ("one", "two"):
        file.write_text(f"{text}\n")
        assert identity_of(security).bearer == text
    file.unlink()
    with pytest.raises(LoginError, match="cannot be read"):
        identity_of(security)
