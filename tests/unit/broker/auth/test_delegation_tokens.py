"""Who may create, renew, expire and see which delegation token."""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import Any

import pytest

from headrace.broker.auth import delegation_tokens
from headrace.broker.auth.delegation_tokens import Lifetimes, Token, Tokens
from headrace.broker.auth.principal import Principal
from headrace.broker.auth.sasl.credentials import credential_for
from headrace.broker.errors import (
    DelegationTokenDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotAllowedError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
)

ALICE, BOB, CAROL, DAVE = (Principal("User", name) for name in ("alice", "bob", "carol", "dave"))
NOW_MS, DAY_MS, WEEK_MS = 1_700_000_000_000, 86_400_000, 7 * 86_400_000


def book(secret: bytes | None = b"secret") -> Tokens:
    return Tokens(secret, Lifetimes(expiry_ms=DAY_MS, max_ms=WEEK_MS))


def made(tokens: Tokens, token_id: str = "t1", lifetime_ms: int = -1, owner: Principal = ALICE) -> Token:
    token = tokens.created(token_id, owner, CAROL, [BOB], lifetime_ms, NOW_MS)
    tokens.put(token)
    return token


def test_a_token_lives_as_long_as_is_asked_and_allowed() -> None:
    for asked_ms, expiry_ms, end_ms in (
        (-1, DAY_MS, WEEK_MS),
        (0, DAY_MS, WEEK_MS),
        (1000, 1000, 1000),
        (2 * DAY_MS, DAY_MS, 2 * DAY_MS),
        (2 * WEEK_MS, DAY_MS, WEEK_MS),
    ):
        token = made(book(), lifetime_ms=asked_ms)
        assert (token.expires_at_ms - NOW_MS, token.ends_at_ms - NOW_MS) == (expiry_ms, end_ms)


def test_owners_and_renewers_renew_up_to_its_end() -> None:
    tokens = book()
    made(tokens)
    mac = tokens.hmac("t1")
    assert tokens.renewed(ALICE, mac, -1, NOW_MS + 5).expires_at_ms == NOW_MS + 5 + DAY_MS
    assert tokens.renewed(BOB, mac, 10, NOW_MS).expires_at_ms == NOW_MS + 10
    assert tokens.renewed(BOB, mac, 2 * WEEK_MS, NOW_MS).expires_at_ms == NOW_MS + WEEK_MS
    for who in (CAROL, DAVE):
        with pytest.raises(DelegationTokenOwnerMismatchError):
            tokens.renewed(who, mac, -1, NOW_MS)
    with pytest.raises(DelegationTokenExpiredError):
        tokens.renewed(ALICE, mac, -1, NOW_MS + DAY_MS + 1)
    with pytest.raises(DelegationTokenNotFoundError):
        tokens.renewed(ALICE, mac[:-1], -1, NOW_MS)


def test_a_token_is_ended_at_once_or_later() -> None:
    tokens = book()
    made(tokens)
    mac = tokens.hmac("t1")
    token, is_over = tokens.shortened(BOB, mac, -1, NOW_MS + DAY_MS + 1)
    assert (token.expires_at_ms, is_over) == (NOW_MS + DAY_MS + 1, True)
    token, is_over = tokens.shortened(ALICE, mac, 20, NOW_MS)
    assert (token.expires_at_ms, is_over) == (NOW_MS + 20, False)
    with pytest.raises(DelegationTokenExpiredError):
        tokens.shortened(ALICE, mac, 20, NOW_MS + DAY_MS + 1)
    with pytest.raises(DelegationTokenOwnerMismatchError):
        tokens.shortened(DAVE, mac, -1, NOW_MS)
    tokens.put(token)
    assert tokens.over(NOW_MS + 20) == []
    assert tokens.over(NOW_MS + 21) == [token]
    tokens.drop("t1")
    tokens.drop("t1")
    with pytest.raises(DelegationTokenNotFoundError):
        tokens.shortened(ALICE, mac, -1, NOW_MS)


def test_tokens_are_seen_by_those_they_concern_and_by_who_may_see_more() -> None:
    tokens = book()
    one, two = made(tokens, "t1"), made(tokens, "t2", owner=DAVE)
    assert tokens.visible(ALICE, None, lambda _: False) == [one]
    assert tokens.visible(BOB, None, lambda _: False) == [one, two]
    assert tokens.visible(CAROL, None, lambda _: False) == []
    assert tokens.visible(CAROL, None, lambda token: token is two) == [two]
    assert tokens.visible(CAROL, [ALICE], lambda _: True) == [one]
    assert tokens.visible(BOB, [DAVE], lambda _: False) == [two]
    assert tokens.visible(BOB, [], lambda _: True) == []


def test_a_token_logs_in_as_its_owner_with_its_hmac_for_a_password() -> None:
    tokens = book()
    made(tokens)
    known = tokens.known("SCRAM-SHA-256", "t1", lambda: b"salt")
    assert known is not None
    assert (known.found.name, known.found.is_by_token) == ("alice", True)
    assert known.found.expires_at_ms == NOW_MS + DAY_MS
    password = b64encode(hmac.digest(b"secret", b"t1", "sha512")).decode()
    assert known.credential == credential_for("SCRAM-SHA-256", password, b"salt", 4096)
    assert tokens.known("SCRAM-SHA-256", "t1", lambda: b"other") is known
    tokens.put(tokens.renewed(ALICE, tokens.hmac("t1"), 10, NOW_MS))
    renewed = tokens.known("SCRAM-SHA-256", "t1", lambda: b"other")
    assert renewed is not None
    assert renewed.found.expires_at_ms == NOW_MS + 10
    assert tokens.known("SCRAM-SHA-256", "t2", lambda: b"salt") is None


def test_without_a_secret_there_are_none() -> None:
    tokens = book(None)
    asked: list[Any] = [
        lambda: tokens.created("t1", ALICE, ALICE, [], -1, NOW_MS),
        lambda: tokens.renewed(ALICE, b"", -1, NOW_MS),
        lambda: tokens.shortened(ALICE, b"", -1, NOW_MS),
        lambda: tokens.visible(ALICE, None, lambda _: True),
    ]
    for ask in asked:
        with pytest.raises(DelegationTokenDisabledError):
            ask()
    assert tokens.known("SCRAM-SHA-256", "t1", lambda: b"") is None


def test_their_count_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "TOKENS_COUNT_MAX", 1)
    tokens = book()
    made(tokens)
    with pytest.raises(DelegationTokenNotAllowedError, match="already"):
        made(tokens, "t2")


def test_nothing_secret_is_shown() -> None:
    tokens = book(b"canary")
    made(tokens)
    assert "canary" not in repr(tokens)
    assert str(tokens.hmac("t1")) not in repr(tokens)
