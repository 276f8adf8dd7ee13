"""Bearer tokens against the keys of their issuer."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError
from headrace.broker.auth.sasl.signed_tokens import KEYS_MAX, Expectations, check, key_id, read_keys

NOW_S = 1_700_000_000
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
KEYS = read_keys(json.dumps({"keys": [key.as_dict(private=False) for key in (RSA, EC, ED)]}))
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60}


def token(claims: dict[str, Any] | None = None, key: Any = RSA, **header: Any) -> str:
    header = {"alg": "RS256", "kid": key.kid} | header
    return jwt.encode(header, CLAIMS if claims is None else claims, key, algorithms=[header["alg"]])


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
def test_tokens_of_each_kind_of_key_name_their_subject() -> None:
    for key, algorithm in ((RSA, "RS256"), (RSA, "PS512"), (EC, "ES256"), (ED, "EdDSA")):
        signed = token(key=key, alg=algorithm)
        assert key_id(signed) == key.kid
        found = check(signed, KEYS, Expectations(), NOW_S * 1000)
        assert found == Authenticated("alice", (NOW_S + 60) * 1000)


def test_a_token_that_names_no_key_is_tried_with_all() -> None:
    signed = jwt.encode({"alg": "ES256"}, CLAIMS, EC)
    assert check(signed, KEYS, Expectations(), NOW_S * 1000).name == "alice"


def encoded(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def other_rsa() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "rsa"})


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS1", None, ["RS256"]])
def test_a_token_without_a_private_keys_signature_is_refused(algorithm: Any) -> None:
    unsigned = f"{encoded({'alg': algorithm})}.{encoded(CLAIMS)}."
    with pytest.raises(RefusedError, match="private key"):
        check(unsigned, KEYS, Expectations(), NOW_S * 1000)


def test_a_public_key_is_never_taken_for_a_shared_secret() -> None:
    unsigned = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(CLAIMS)}"
    mac = hmac.digest(RSA.as_pem(private=False), unsigned.encode(), "sha256")
    with pytest.raises(RefusedError, match="private key"):
        check(f"{unsigned}.{urlsafe_b64encode(mac).decode().rstrip('=')}", KEYS, Expectations(), NOW_S * 1000)


def test_a_token_of_another_key_or_changed_on_the_way_is_refused() -> None:
    head, _, signature = token().split(".")
    changed = f"{head}.{encoded(CLAIMS | {'sub': 'root'})}.{signature}"
    for signed in (token(key=other_rsa()), changed, token(kid="gone")):
        with pytest.raises(RefusedError, match="no key"):
            check(signed, KEYS, Expectations(), NOW_S * 1000)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": None}, "when it was issued"),
        ({"iat": None}, "when it was issued"),
        ({"iat": NOW_S + 61}, "not good yet"),
        ({"nbf": NOW_S + 31}, "not good yet"),
        ({"exp": "soon"}, "no time"),
        ({"exp": True}, "no time"),
        ({"exp": float("inf")}, "no time"),
        ({"sub": None}, "'sub'"),
        ({"sub": "  "}, "'sub'"),
        ({"sub": 7}, "'sub'"),
        ({"iss": "elsewhere"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "elsewhere"}, "another audience"),
        ({"aud": ["a", "b"]}, "another audience"),
        ({"aud": [["kafka"]]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"scope": 7}, "'scope'"),
        ({"scope": ["a", 7]}, "'scope'"),
    ],
)
def test_a_token_that_says_something_else_is_refused(claims: dict[str, Any], reason: str) -> None:
    expected = Expectations(audiences=("kafka",), issuer="here")
    good = CLAIMS | {"iss": "here", "aud": "kafka"}
    assert check(token(good), KEYS, expected, NOW_S * 1000).name == "alice"
    said = {name: value for name, value in (good | claims).items() if value is not None}
    with pytest.raises(RefusedError, match=reason):
        check(token(said), KEYS, expected, NOW_S * 1000)


def test_clock_skew_and_names_of_claims_are_as_configured() -> None:
    late = CLAIMS | {
        "iat": NOW_S - 60,
        "exp": NOW_S - 29,
        "user": "bob",
        "scp": ["read", "write"],
        "aud": ["x", "kafka"],
    }
    expected = Expectations(subject_claim="user", scope_claim="scp", audiences=("kafka", "other"))
    assert check(token(late), KEYS, expected, NOW_S * 1000).name == "bob"
    with pytest.raises(RefusedError, match="expired"):
        check(token(late), KEYS, Expectations(clock_skew_s=0), NOW_S * 1000)


@pytest.mark.parametrize(
    "text", ["", "a.b", "a.b.c", "....", "é.b.c", f"{encoded([])}.e30.e30", "a" * 70_000 + ".b.c"]
)
def test_what_is_no_token_is_refused(text: str) -> None:
    assert key_id(text) is None
    with pytest.raises(RefusedError):
        check(text, KEYS, Expectations(), NOW_S * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        "{}",
        '{"keys": 7}',
        '{"keys": []}',
        '{"keys": [{}]}',
        '{"keys": [7]}',
        '{"keys": [{"kty": "RSA"}]}',
    ],
)
def test_what_is_no_set_of_keys_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JWKS"):
        read_keys(text)


def test_a_set_has_a_bound_and_may_have_keys_of_kinds_to_come() -> None:
    key = EC.as_dict(private=False)
    with pytest.raises(ValueError, match="at most"):
        read_keys(json.dumps({"keys": [key] * (KEYS_MAX + 1)}))
    assert len(read_keys(json.dumps({"keys": [{"kty": "PQ", "kid": "new"}, key]}))) == 1
