"""TLS of an asynchronous link: through a real socket, with answers that come in many records."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest
import tls_kit
from scripted_broker import API_VERSIONS, Answer, scripted_broker, versions
from secured_broker import tls_client_settings

from headrace.broker.client.async_carriers import PIECE_SIZE
from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.client.security import ClientSecurity
from headrace.broker.client.tls_contexts import TlsError
from headrace.broker.tls.contexts import server_context
from headrace.broker.wire.api import k01_fetch, k03_metadata

RECORDS = bytes(range(256)) * (5 * PIECE_SIZE // 256) + b"end"


@pytest.fixture(scope="module")
def authority() -> tls_kit.Identity:
    return tls_kit.authority()


def serve(key: int, message: dict[str, Any]) -> Answer:
    if key == API_VERSIONS:
        return versions({1: (0, 11), 3: (0, 12)})
    if key == 3:
        return {"controller_id": 4, "cluster_id": "c" * 30_000}
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 7, "records": RECORDS}
    return {"responses": [{"topic": "t", "partitions": [partition]}]}


def served_by(folder: Path, identity: tls_kit.Identity, **settings: str) -> ssl.SSLContext:
    return server_context({**tls_kit.pem_settings(folder, identity), **settings})


async def ask_all(address: tuple[str, int], security: ClientSecurity) -> None:
    async with await AsyncLink.open(address, "test", 5_000, security=security) as link:
        for _ in range(3):
            answer = await link.ask(
                k01_fetch.API, 13, {"topics": [], "forgotten_topics_data": [], "rack_id": ""}
            )
            assert answer["responses"][0]["partitions"][0]["records"] == RECORDS
            assert (await link.ask(k03_metadata.API, 12, {"topics": None}))["controller_id"] == 4


def test_answers_large_and_small_come_whole(tmp_path: Path, authority: tls_kit.Identity) -> None:
    security = ClientSecurity.of(tls_client_settings(tmp_path, authority))
    tls = served_by(tmp_path, tls_kit.signed(authority))
    with scripted_broker(serve, tls) as broker:
        asyncio.run(asyncio.wait_for(ask_all(broker.address, security), 20))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda ca: tls_kit.signed(tls_kit.authority("another")),
            "self-signed certificate in certificate chain",
        ),
        (lambda ca: tls_kit.signed(ca, hosts=("elsewhere",)), "IP address mismatch"),
        (lambda ca: tls_kit.signed(ca, days=(-3, -1)), "certificate has expired"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_one_sentence(
    tmp_path: Path, authority: tls_kit.Identity, made: Any, said: str
) -> None:
    security = ClientSecurity.of(tls_client_settings(tmp_path, authority))
    with scripted_broker(serve, served_by(tmp_path, made(authority))) as broker:
        with pytest.raises(TlsError, match=said) as raised:
            asyncio.run(AsyncLink.open(broker.address, "test", 5_000, security=security))
        assert str(raised.value).startswith(
            f"the certificate of 127.0.0.1:{broker.address[1]} is not accepted"
        )


def test_a_host_name_is_not_looked_at_where_the_settings_say_so(
    tmp_path: Path, authority: tls_kit.Identity
) -> None:
    settings = {**tls_client_settings(tmp_path, authority), "ssl.endpoint.identification.algorithm": ""}
    tls = served_by(tmp_path, tls_kit.signed(authority, hosts=("elsewhere",)))
    with scripted_broker(serve, tls) as broker:
        asyncio.run(ask_all(broker.address, ClientSecurity.of(settings)))


def test_a_broker_that_wants_a_certificate_says_so_after_the_handshake(
    tmp_path: Path, authority: tls_kit.Identity
) -> None:
    trusting = {**tls_client_settings(tmp_path, authority), "ssl.client.auth": "required"}
    tls = served_by(tmp_path, tls_kit.signed(authority), **trusting)
    own = tls_kit.pem_settings(tmp_path / "own", tls_kit.signed(authority, "client"))
    with scripted_broker(serve, tls) as broker:
        bare = ClientSecurity.of(tls_client_settings(tmp_path, authority))
        with pytest.raises((TlsError, ConnectionError)):
            asyncio.run(AsyncLink.open(broker.address, "test", 5_000, security=bare))
        shown = ClientSecurity.of({**tls_client_settings(tmp_path, authority), **own})
        asyncio.run(ask_all(broker.address, shown))


def test_a_broker_that_speaks_no_tls_is_one_sentence(tmp_path: Path, authority: tls_kit.Identity) -> None:
    security = ClientSecurity.of(tls_client_settings(tmp_path, authority))

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            with pytest.raises(TlsError, match="does not speak TLS"):
                await AsyncLink.open(address, "test", 5_000, security=security)

    asyncio.run(run())


def test_a_handshake_that_nobody_answers_ends_with_the_time_out(
    tmp_path: Path, authority: tls_kit.Identity
) -> None:
    security = ClientSecurity.of(tls_client_settings(tmp_path, authority))

    async def run() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer):
                await reader.read()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            with pytest.raises(TimeoutError):
                await AsyncLink.open(server.sockets[0].getsockname(), "test", 200, security=security)

    asyncio.run(run())
