"""Passwords of users: what may be asked, all of a user's wishes or none, and what is told afterwards (with key 50)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.auth.sasl.credentials import ScramCredential, credential_for, salted_password
from headrace.broker.handlers import k50_describe_user_scram_credentials as k50
from headrace.broker.handlers import k51_alter_user_scram_credentials as k51
from headrace.broker.handlers.call import Call, Client
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.frames import RequestHeader

SALT = b"salt"
GONE, TWICE, UNKNOWN_MECHANISM, BAD = 91, 92, 33, 93
NOT_CONTROLLER, DENIED = 41, 31


class World:
    """A broker whose users are in memory."""

    def __init__(self, *, is_controller: bool = True, allowed: bool | None = None) -> None:
        self.users: dict[str, dict[str, str]] = {}
        authorizer = SimpleNamespace(
            allows=lambda *_: allowed, denied=lambda *_: None, granted=lambda *_: None
        )
        self.broker: Any = SimpleNamespace(
            authorizer=None if allowed is None else authorizer,
            control=SimpleNamespace(is_controller=is_controller),
            credentials=self,
            later=later,
        )

    async def stored(self, users: Collection[str] | None) -> dict[str, dict[str, str]]:
        return self.users if users is None else {user: self.users.get(user, {}) for user in users}

    async def alter(self, user: str, change: Callable[[dict[str, str]], Mapping[str, str]]) -> None:
        self.users[user] = dict(change(dict(self.users.get(user, {}))))

    def ask(self, module: Any, message: dict[str, Any]) -> dict[str, int]:
        """Error codes by user."""
        api = module.API
        request = api.decode_request(0, memoryview(api.encode_request(0, message)))
        answer = module.handle(
            self.broker, Call(RequestHeader(api.key, 0, 1, None, 0), Client("h", "L"), 0.0), request
        )
        if isinstance(answer, Deferred):
            found: list[dict[str, Any]] = []
            answer.then(found.append)
            answer = found[0]
        self.answer = api.decode_response(0, memoryview(api.encode_response(0, answer)))
        return {result["user"]: result["error_code"] for result in self.answer["results"]}

    def alter_all(self, *wishes: dict[str, Any]) -> dict[str, int]:
        upsertions = [wish for wish in wishes if "salt" in wish]
        deletions = [wish for wish in wishes if "salt" not in wish]
        return self.ask(k51, {"upsertions": upsertions, "deletions": deletions})

    def described(self, *users: str) -> dict[str, int]:
        return self.ask(k50, {"users": [{"name": user} for user in users] if users else None})


def later(name: str, work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
    deferred: Deferred[Any] = Deferred()
    deferred.complete(asyncio.run(work))
    return deferred


def wish(user: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
    salted = salted_password("SCRAM-SHA-256", "secret", SALT, 4096)
    return {
        "name": user,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": salted,
    }


def gone(user: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": user, "mechanism": mechanism}


def test_a_password_is_stored_as_its_user_proves_it() -> None:
    world = World()
    world.users["alice"] = {"producer_byte_rate": "5"}
    assert world.alter_all(wish("alice")) == {"alice": 0}
    stored = world.users["alice"]
    assert ScramCredential.parse(stored["SCRAM-SHA-256"]) == credential_for(
        "SCRAM-SHA-256", "secret", SALT, 4096
    )
    assert world.alter_all(gone("alice"), wish("alice", 2, 8192)) == {"alice": 0}
    assert stored.keys() != world.users["alice"].keys() == {"producer_byte_rate", "SCRAM-SHA-512"}
    assert world.described() == {"alice": 0}
    assert world.answer["results"][0]["credential_infos"] == [{"mechanism": 2, "iterations": 8192}]


@pytest.mark.parametrize(
    ("wishes", "code"),
    [
        ((wish("alice", 1, 4095),), BAD),
        ((wish("alice", 1, 16385),), BAD),
        ((wish(""),), BAD),
        ((gone("", 9),), BAD),
        ((wish("alice", 0),), UNKNOWN_MECHANISM),
        ((gone("alice", 3),), UNKNOWN_MECHANISM),
        ((wish("alice"), wish("alice")), TWICE),
        ((wish("alice"), gone("alice")), TWICE),
        ((gone("alice", 2),), GONE),
        ((wish("alice"), gone("alice", 2)), GONE),
    ],
)
def test_what_is_wrong_with_one_user_changes_nothing_of_it_and_all_of_others(
    wishes: tuple[dict[str, Any], ...], code: int
) -> None:
    world = World()
    assert world.alter_all(*wishes, wish("bob")) == {wishes[0]["name"]: code, "bob": 0}
    assert world.users.keys() == {"bob"}


def test_who_asks_for_users_is_told_of_each_once() -> None:
    world = World()
    world.alter_all(wish("alice"), wish("bob"))
    world.users["carol"] = {"SCRAM-SHA-256": "canary"}
    world.users["dave"] = {}
    assert world.described() == {"alice": 0, "bob": 0, "carol": -1}
    assert "canary" not in str(world.answer)
    assert world.described("alice", "bob", "bob", "dave", "") == {
        "alice": 0,
        "bob": TWICE,
        "dave": GONE,
        "": GONE,
    }


def test_the_controller_alone_writes_and_only_for_who_may() -> None:
    assert World(is_controller=False).alter_all(wish("alice"), gone("bob")) == {
        "alice": NOT_CONTROLLER,
        "bob": NOT_CONTROLLER,
    }
    world = World(allowed=False)
    assert world.alter_all(wish("alice")) == {"alice": DENIED}
    assert world.described("alice") == {"": DENIED}
    assert world.answer["error_code"] == DENIED
    assert world.users == {}
    assert World(allowed=True).alter_all(wish("alice")) == {"alice": 0}
