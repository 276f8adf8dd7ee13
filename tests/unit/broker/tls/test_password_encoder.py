"""Passwords as ZooKeeper holds them: what Kafka wrote, what it reads, other secrets, and no secret at all."""

from __future__ import annotations

import pytest

from headrace.broker.config.sections import Passwords
from headrace.broker.errors import InvalidRequestError
from headrace.broker.tls.password_encoder import PasswordEncoder, PasswordError

NAME = "listener.name.ssl.ssl.keystore.password"
ENCODER = PasswordEncoder(Passwords(password_encoder_secret="secret"))


@pytest.mark.parametrize("password", ["", "x", "päss, wörd: 𝒳", "-----BEGIN PRIVATE KEY-----\nQUJD\n" * 40])
@pytest.mark.parametrize(("size", "factory"), [(128, None), (256, "PBKDF2WithHmacSHA1")])
def test_there_and_back(password: str, size: int, factory: str | None) -> None:
    settings = Passwords(
        password_encoder_secret="secret",
        password_encoder_key_length=size,
        password_encoder_keyfactory_algorithm=factory,
    )
    stored = PasswordEncoder(settings).encode(NAME, password)
    assert "," not in stored.partition("encryptedPassword:")[2].partition(",")[0]
    # The text says how it was made: settings of today do not matter.
    assert ENCODER.decode(stored) == password


def test_two_texts_of_one_password_are_different() -> None:
    assert ENCODER.encode(NAME, "x") != ENCODER.encode(NAME, "x")


def test_the_secret_of_before() -> None:
    stored = ENCODER.encode(NAME, "x")
    changed = PasswordEncoder(Passwords(password_encoder_secret="new", password_encoder_old_secret="secret"))
    assert changed.decode(stored) == "x"
    with pytest.raises(PasswordError):
        PasswordEncoder(Passwords(password_encoder_secret="new")).decode(stored)


@pytest.mark.parametrize("text", ["", "plain", "a:b", "keyLength:x,iterations:4096"])
def test_what_is_no_stored_password(text: str) -> None:
    with pytest.raises(PasswordError):
        ENCODER.decode(text)


def test_without_a_secret_none_is_stored() -> None:
    encoder = PasswordEncoder(Passwords())
    with pytest.raises(InvalidRequestError, match=r"needs password\.encoder\.secret") as raised:
        encoder.encoded({NAME: "hush"}, {})
    assert "hush" not in str(raised.value)
    assert encoder.encoded({"log.retention.ms": "1"}, {}) == {"log.retention.ms": "1"}


def test_overrides_in_clear_and_back() -> None:
    stored = {
        NAME: ENCODER.encode(NAME, "x"),
        "log.retention.ms": "5",
        f"{NAME.removesuffix('password')}type": "PEM",
    }
    clear, failed = ENCODER.decoded(stored)
    assert (clear[NAME], clear["log.retention.ms"], failed) == ("x", "5", [])
    # What did not change stays, letter by letter.
    assert ENCODER.encoded(clear, stored) == stored
    again = ENCODER.encoded({**clear, NAME: "y"}, stored)
    assert again[NAME] != stored[NAME]
    assert ENCODER.decode(again[NAME]) == "y"


def test_what_cannot_be_decoded_is_left_out_by_name() -> None:
    assert ENCODER.decoded({NAME: "garbage", "log.retention.ms": "5"}) == ({"log.retention.ms": "5"}, [NAME])
