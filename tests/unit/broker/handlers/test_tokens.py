"""Requests about delegation tokens: who may ask, and an answer in every version."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.auth.delegation_tokens import Lifetimes, Token, Tokens
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import ANONYMOUS, Principal
from headrace.broker.config.listeners import Listener
from headrace.broker.handlers import (
    k38_create_delegation_token,
    k39_renew_delegation_token,
    k40_expire_delegation_token,
    k41_describe_delegation_token,
)
from headrace.broker.handlers.call import Call, Client
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.frames import RequestHeader

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
LISTENERS = tuple(Listener(name, "", 1, name) for name in ("PLAINTEXT", "SSL", "SASL_SSL"))
NOT_ALLOWED, DENIED, BAD_TYPE, DISABLED = 64, 65, 67, 61
MODULES: tuple[Any, ...] = (
    k38_create_delegation_token,
    k39_renew_delegation_token,
    k40_expire_delegation_token,
    k41_describe_delegation_token,
)


class World:
    """A broker whose tokens are in memory, and a client of it."""

    def __init__(self, client: Client, *, secret: bytes | None = b"s", allowed: bool | None = None) -> None:
        self.client = client
        self.book = Tokens(secret, Lifetimes(expiry_ms=1000, max_ms=5000))
        self.asked: list[tuple[Operation, ResourceType, str]] = []

        def allows(principal: Principal, host: str, *asked: Any) -> bool | None:
            self.asked.append(asked)
            return allowed

        authorizer = SimpleNamespace(allows=allows, denied=lambda *_: None, granted=lambda *_: None)
        self.broker: Any = SimpleNamespace(
            config=SimpleNamespace(listeners=LISTENERS),
            authorizer=None if allowed is None else authorizer,
            tokens=self,
            later=later,
        )

    async def create(
        self, owner: Any, requester: Any, renewers: Any, lifetime_ms: int
    ) -> tuple[Token, bytes]:
        token = self.book.created("t1", owner, requester, renewers, lifetime_ms, 0)
        self.book.put(token)
        return token, self.book.hmac("t1")

    async def renew(self, principal: Principal, mac: bytes, period_ms: int) -> Token:
        return self.book.renewed(principal, mac, period_ms, 0)

    async def expire(self, principal: Principal, mac: bytes, period_ms: int) -> Token:
        return self.book.shortened(principal, mac, period_ms, 0)[0]

    def ask(self, module: Any, version: int, **message: Any) -> dict[str, Any]:
        """The answer as it comes out at the other side."""
        api = module.API
        request = api.decode_request(version, memoryview(api.encode_request(version, message)))
        answer = module.handle(
            self.broker, Call(RequestHeader(api.key, version, 1, None, 0), self.client, 0.0), request
        )
        found: list[dict[str, Any]] = []
        if isinstance(answer, Deferred):
            answer.then(found.append)
            answer = found[0]
        decoded: dict[str, Any] = api.decode_response(
            version, memoryview(api.encode_response(version, answer))
        )
        return decoded


def later(name: str, work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
    deferred: Deferred[Any] = Deferred()
    deferred.complete(asyncio.run(work))
    return deferred


def alice(listener: str = "SASL_SSL", **more: Any) -> Client:
    return Client("host", listener, principal=ALICE, **more)


def messages(mac: bytes = b"") -> list[dict[str, Any]]:
    return [
        {"renewers": [{"principal_type": "User", "principal_name": "bob"}], "max_lifetime_ms": -1},
        {"hmac": mac, "renew_period_ms": 10},
        {"hmac": mac, "expiry_time_period_ms": 20},
        {"owners": None},
    ]


def test_every_version_is_answered() -> None:
    for version in range(4):
        world = World(alice())
        made = world.ask(MODULES[0], version, **messages()[0])
        assert (made["error_code"], made["token_id"], made["max_timestamp_ms"]) == (0, "t1", 5000)
        described = world.ask(MODULES[3], version, owners=None)["tokens"][0]
        assert described["hmac"] == made["hmac"]
        assert described["renewers"] == messages()[0]["renewers"]
        if version >= 3:
            assert (
                made["token_requester_principal_name"]
                == described["token_requester_principal_name"]
                == "alice"
            )
        for module, message, expiry_ms in zip(
            MODULES[1:3], messages(made["hmac"])[1:3], (10, 20), strict=True
        ):
            answer = world.ask(module, min(version, 2), **message)
            assert (answer["error_code"], answer["expiry_timestamp_ms"]) == (0, expiry_ms)


@pytest.mark.parametrize(
    "client",
    [alice("PLAINTEXT"), alice(is_by_token=True), Client("host", "SSL", principal=ANONYMOUS)],
    ids=["plain text", "by token", "no certificate"],
)
def test_who_has_not_shown_who_it_is_has_no_tokens(client: Client) -> None:
    world = World(client)
    codes = [world.ask(m, 1, **message)["error_code"] for m, message in zip(MODULES, messages(), strict=True)]
    assert codes == [NOT_ALLOWED] * 4


def test_a_certificate_shows_enough() -> None:
    assert World(alice("SSL")).ask(MODULES[0], 1, **messages()[0])["error_code"] == 0


def test_there_are_none_without_a_secret() -> None:
    world = World(alice(), secret=None)
    codes = [world.ask(m, 1, **message)["error_code"] for m, message in zip(MODULES, messages(), strict=True)]
    assert codes == [DISABLED] * 4


def test_a_token_for_somebody_else_takes_a_right() -> None:
    message = messages()[0] | {"owner_principal_type": "User", "owner_principal_name": "bob"}
    for allowed, code in ((True, 0), (False, DENIED), (None, 0)):
        world = World(alice(), allowed=allowed)
        assert world.ask(MODULES[0], 3, **message)["error_code"] == code
        if allowed is not None:
            assert world.asked[0] == (Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")
    own = messages()[0] | {"owner_principal_type": "User", "owner_principal_name": "alice"}
    assert World(alice(), allowed=False).ask(MODULES[0], 3, **own)["error_code"] == 0


def test_renewers_are_users() -> None:
    message = {"renewers": [{"principal_type": "Group", "principal_name": "x"}], "max_lifetime_ms": -1}
    assert World(alice()).ask(MODULES[0], 1, **message)["error_code"] == BAD_TYPE


def test_tokens_of_others_take_a_right_to_be_seen() -> None:
    for allowed, count in ((False, 0), (True, 1)):
        world = World(Client("host", "SASL_SSL", principal=Principal("User", "carol")), allowed=allowed)
        world.book.put(world.book.created("t1", ALICE, ALICE, [BOB], -1, 0))
        assert len(world.ask(MODULES[3], 3, owners=None)["tokens"]) == count
        assert world.asked[0] == (Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "t1")
