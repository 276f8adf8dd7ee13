"""The credentials of users, followed from what is configured for them."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.auth.sasl.credentials import credential_for
from headrace.broker.server.access.scram_users import ScramUsers

TEXT = credential_for("SCRAM-SHA-256", "canary", b"salt", 4096).text()
NAME, SANITIZED = "a,b c", "a%2Cb%20c"


def users(stored: dict[str, dict[str, str]] | None = None) -> ScramUsers:
    async def asked(kind: str, names: list[str] | None) -> dict[str, dict[str, str]]:
        found = stored or {}
        return found if names is None else {name: found.get(name, {}) for name in names}

    clients = SimpleNamespace(on_change=lambda _: None, stored=asked)
    configurations: Any = SimpleNamespace(of_clients=clients)
    return ScramUsers(configurations)


def test_a_user_is_known_by_the_mechanisms_that_it_has_a_password_for() -> None:
    found = users()
    found.changed("users", SANITIZED, {"SCRAM-SHA-256": TEXT, "producer_byte_rate": "5"})
    known = found.known("SCRAM-SHA-256", NAME)
    assert known is not None
    assert (known.found.name, known.credential.text()) == (NAME, TEXT)
    assert found.known("SCRAM-SHA-512", NAME) is None
    assert found.known("SCRAM-SHA-256", SANITIZED) is None
    found.changed("users", SANITIZED, {"producer_byte_rate": "5"})
    assert found.known("SCRAM-SHA-256", NAME) is None


def test_other_entities_are_no_users() -> None:
    found = users()
    for kind, name in (("clients", "alice"), ("users", "alice/clients/reports"), ("ips", "alice")):
        found.changed(kind, name, {"SCRAM-SHA-256": TEXT})
    assert found.known("SCRAM-SHA-256", "alice") is None


def test_a_credential_that_cannot_be_read_is_none_and_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    found = users()
    with caplog.at_level(logging.ERROR):
        found.changed("users", "alice", {"SCRAM-SHA-256": "salt=canary", "SCRAM-SHA-512": TEXT})
    assert found.known("SCRAM-SHA-256", "alice") is None
    assert found.known("SCRAM-SHA-512", "alice") is not None
    assert "canary" not in str([vars(record) for record in caplog.records])


def test_what_is_stored_is_told_by_name() -> None:
    stored = {
        SANITIZED: {"SCRAM-SHA-256": TEXT, "x": "y"},
        "bob": {},
        "bob/clients/c": {"SCRAM-SHA-256": TEXT},
    }
    found = users(stored)
    assert asyncio.run(found.stored(None)) == {NAME: {"SCRAM-SHA-256": TEXT}, "bob": {}}
    assert asyncio.run(found.stored([NAME, "nobody"])) == {NAME: {"SCRAM-SHA-256": TEXT}, "nobody": {}}
