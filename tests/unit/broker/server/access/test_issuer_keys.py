"""The keys of an issuer: from a file or by HTTP, again and again, sooner when a token needs it, and never from elsewhere."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from tls_kit import authority, pem_settings, signed

from headrace.broker.auth.sasl.exchange import RefusedError
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.sections import Sasl
from headrace.broker.server.access import issuer_keys
from headrace.broker.server.access.issuer_keys import JWKS_SIZE_MAX, IssuerKeys, read
from headrace.broker.tls.contexts import server_context

OLD, NEW = (ECKey.generate_key("P-256", {"kid": kid}) for kid in ("old", "new"))


def jwks(*keys: ECKey) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


def token(key: ECKey) -> str:
    return jwt.encode({"alg": "ES256", "kid": key.kid}, {"sub": "alice", "iat": 1, "exp": 100}, key)


class Issuer:
    """An HTTP server whose answer may be changed."""

    def __init__(self) -> None:
        issuer = self
        self.answer = jwks(OLD)
        self.status = 200
        self.location = ""
        self.count = 0

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.count += 1
                self.send_response(issuer.status)
                if issuer.location:
                    self.send_header("Location", issuer.location)
                self.end_headers()
                self.wfile.write(issuer.answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.server.shutdown()
    issuer.server.server_close()


def test_keys_are_read_from_a_file_and_by_http(issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(jwks(OLD, NEW))
    assert [key.kid for key in read(f"file://{file}", {})] == ["old", "new"]
    assert [key.kid for key in read(issuer.url, {})] == ["old"]


def test_answers_that_are_no_keys_are_refused(issuer: Issuer, tmp_path: Path) -> None:
    """CVE-2025-27817: an address that a broker is sent on to is not read, a file least of all."""
    secret = tmp_path / "secret"
    secret.write_bytes(jwks(NEW))
    for status, location in ((302, f"file://{secret}"), (302, issuer.url), (404, ""), (500, "")):
        issuer.status, issuer.location = status, location
        with pytest.raises(OSError, match=str(status)):
            read(issuer.url, {})
    issuer.status, issuer.location = 200, ""
    issuer.answer = jwks(OLD) + b" " * JWKS_SIZE_MAX
    with pytest.raises(ValueError, match="bytes"):
        read(issuer.url, {})


def test_an_issuer_that_speaks_no_http_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            connection.recv(1000)
            connection.sendall(b"what\r\n" * 3)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match="does not speak HTTP"):
            read(f"http://127.0.0.1:{listening.getsockname()[1]}/", {})
        thread.join()


def test_an_issuer_by_https_is_trusted_by_the_options_of_the_login_module(
    issuer: Issuer, tmp_path: Path
) -> None:
    ours = authority()
    stores = pem_settings(tmp_path, signed(ours, "issuer"), [ours.certificate])
    issuer.server.socket = server_context(stores).wrap_socket(issuer.server.socket, server_side=True)
    url = issuer.url.replace("http://", "https://")
    trust = {name: text for name, text in stores.items() if name.startswith("ssl.truststore.")}
    assert [key.kid for key in read(url, trust)] == ["old"]
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        read(url, {})
    with pytest.raises(ConfigurationError, match=r"ssl\.truststore"):
        IssuerKeys(settings(url), {"ssl.truststore.location": "/nowhere", "ssl.truststore.type": "PEM"})


def settings(url: str, **more: Any) -> Sasl:
    return Sasl(sasl_oauthbearer_jwks_endpoint_url=url, **more)


def test_a_token_with_a_key_that_is_not_known_has_them_read_sooner(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "SOONER_MS_MIN", 50)

    def names(keys: IssuerKeys, key: ECKey) -> bool:
        try:
            return keys.check(token(key), 50_000).name == "alice"
        except RefusedError:
            return False

    async def run() -> None:
        keys = IssuerKeys(settings(issuer.url), {})
        assert not names(keys, OLD)
        reading = asyncio.get_running_loop().create_task(keys.run())
        await until(lambda: names(keys, OLD))
        await asyncio.sleep(0.2)
        assert issuer.count == 1
        issuer.answer = jwks(NEW)
        await until(lambda: names(keys, NEW))
        assert not names(keys, OLD)
        issuer.status = 500
        await asyncio.sleep(0.3)
        assert names(keys, NEW)
        reading.cancel()

    asyncio.run(run())


async def until(condition: Any) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come true")
