"""PLAIN's machines."""

from __future__ import annotations

import pytest

from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError
from headrace.broker.auth.sasl.plain import PlainClient, PlainServer

PASSWORDS = {"alice": "alice-secret", "bob": ""}


def test_a_client_that_knows_the_password_is_found() -> None:
    here = PlainClient("alice", "alice-secret")
    step = PlainServer(PASSWORDS).step(here.step(b""), 0)
    assert (step.answer, step.found) == (b"", Authenticated("alice"))
    here.step(step.answer)
    assert here.is_done


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0carol\0alice-secret", "Invalid username or password"),
        (b"\0bob\0\0", "expected 3 tokens, got 4"),
        (b"\0bob\0", "password not specified"),
        (b"\0\0secret", "username not specified"),
        (b"root\0alice\0alice-secret", "different from username"),
        (b"alice", "expected 3 tokens, got 1"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0alice\0alice-secret\0more\0and\0more", "expected 3 tokens, got 4"),
        (b"\0\xff\xfe\0\xff", "Invalid username or password"),
    ],
)
def test_others_are_told_what_apache_kafka_tells(message: bytes, told: str) -> None:
    with pytest.raises(RefusedError) as refused:
        PlainServer(PASSWORDS).step(message, 0)
    assert told in (refused.value.told or "")
    assert "alice-secret" not in str(refused.value)


def test_who_asks_for_its_own_name_is_found() -> None:
    assert PlainServer(PASSWORDS).step(b"alice\0alice\0alice-secret", 0).found == Authenticated("alice")


def test_a_client_takes_no_challenge() -> None:
    here = PlainClient("alice", "alice-secret")
    here.step(b"")
    with pytest.raises(RefusedError):
        here.step(b"what")
