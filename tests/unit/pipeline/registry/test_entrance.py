"""Basic authentication and TLS of a server, asked over a real socket."""

from __future__ import annotations

import asyncio
import http.client
import os
import ssl
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import tls_kit
from click.testing import CliRunner
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from headrace.registry import listening
from headrace.registry.entrance import BasicAuthentication, Entrance, entrance_options
from headrace.registry.listening import Server, listen
from headrace.registry.passwords import HashedPassword, Users

SECRET = "canary-secret"
USERS = Users({"ada": HashedPassword.of(SECRET, b"salt")})


async def page(_: Request) -> PlainTextResponse:
    return PlainTextResponse("in")


APP = Starlette(routes=[Route("/", page), Route("/live", page)])


def serve(entrance: Entrance, story: Callable[[int], Any]) -> Any:
    async def run() -> Any:
        sock = listen(("127.0.0.1", 0))
        server = Server(entrance.guarded(APP, open_paths=["/live"]), entrance)
        running = asyncio.get_running_loop().create_task(server.serve(sockets=[sock]))
        try:
            return await asyncio.to_thread(story, sock.getsockname()[1])
        finally:
            server.stop()
            await running

    return asyncio.run(run())


def status(connection: http.client.HTTPConnection, path: str, shown: str | None = None) -> int:
    headers = {} if shown is None else {"Authorization": shown}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status == 401:
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    return answer.status


def basic(name: str, password: str) -> str:
    return f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"


def test_only_users_are_let_in_and_everybody_at_open_paths() -> None:
    def story(port: int) -> list[int]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        shown = [
            basic("ada", SECRET),
            basic("ada", SECRET),
            basic("ada", "wrong"),
            basic("bob", SECRET),
            "Basic !!",
            "Bearer x",
            "Basic " + "A" * 5000,
        ]
        return [
            status(connection, "/"),
            *(status(connection, "/", each) for each in shown),
            status(connection, "/live"),
        ]

    assert serve(Entrance(users=USERS), story) == [401, 200, 200, 401, 401, 401, 401, 401, 200]


def test_who_was_let_in_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    users = Users({"ada": HashedPassword.of(SECRET, b"salt")})
    monkeypatch.setattr(Users, "is_known", lambda self, name, password: checked.append(name) or True)  # type: ignore[func-returns-value]

    def story(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        assert [status(connection, "/", basic("ada", SECRET)) for _ in range(3)] == [200] * 3

    serve(Entrance(users=users), story)
    assert checked == ["ada"]


def test_a_renewed_certificate_is_served_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "LOOK_TICKS", 1)
    authority = tls_kit.authority()
    file = tmp_path / "server.pem"

    def write(name: str) -> None:
        identity = tls_kit.signed(authority, f"CN={name}")
        file.write_text(identity.key_pem() + identity.chain_pem())

    write("first")
    trusted = ssl.create_default_context(cadata=tls_kit.pem_of(authority.certificate))

    def name(port: int) -> str:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trusted)
        assert status(connection, "/") == 200
        shown: Any = connection.sock.getpeercert()
        subject = shown["subject"]
        return str(subject[0][0][1])

    def story(port: int) -> list[str]:
        found = [name(port)]
        write("second")
        os.utime(file, ns=(1, 1))
        for _ in range(100):
            found.append(name(port))
            if found[-1] != found[0]:
                break
        return found

    assert serve(Entrance(certificate=file), story)[-1] == "second"


def test_a_server_tells_when_the_certificate_that_it_serves_expires(tmp_path: Path) -> None:
    authority = tls_kit.authority()
    file = tmp_path / "server.pem"

    def write(days: float) -> float:
        identity = tls_kit.signed(authority, days=(-1, days))
        file.write_text(identity.key_pem() + identity.chain_pem())
        return identity.certificate.not_valid_after_utc.timestamp()

    first = write(5)
    server = Server(APP, Entrance(certificate=file))
    assert server.certificate_expires_s == first
    renewed = write(30)
    os.utime(file, ns=(1, 1))
    server._look_at_certificate()
    assert server.certificate_expires_s == renewed > first
    file.write_text("nonsense")
    server._look_at_certificate()
    assert server.certificate_expires_s == renewed
    assert Server(APP).certificate_expires_s is None


def options(*arguments: str) -> str:
    @click.command()
    @entrance_options
    def command(entrance: Entrance) -> None:
        entrance.context()
        click.echo(entrance.scheme)

    return CliRunner().invoke(command, arguments).output.splitlines()[-1]


def test_options_that_cannot_be_are_one_sentence(tmp_path: Path) -> None:
    identity = tls_kit.signed(tls_kit.authority())
    certificate, key, encrypted = tmp_path / "c.pem", tmp_path / "k.pem", tmp_path / "e.pem"
    certificate.write_text(identity.chain_pem())
    key.write_text(identity.key_pem())
    encrypted.write_text(identity.key_pem(SECRET))
    assert options() == "http"
    assert options("--tls-certificate", str(certificate), "--tls-key", str(key)) == "https"
    assert "name both, or neither" in options("--tls-key", str(key))
    assert "cannot be used (" in options("--tls-certificate", str(key))
    encrypted_key = options("--tls-certificate", str(certificate), "--tls-key", str(encrypted))
    assert "the key is encrypted" in encrypted_key
    assert "--users: " in options("--users", str(key))


def test_so_many_guesses_at_once_that_more_are_refused_unchecked() -> None:
    async def run() -> int:
        guard = BasicAuthentication(APP, USERS, ())
        guard._waiting = 64
        scope = {"type": "http", "path": "/", "headers": [(b"authorization", basic("ada", SECRET).encode())]}
        return await guard._is_user(scope)

    assert asyncio.run(run()) is False
