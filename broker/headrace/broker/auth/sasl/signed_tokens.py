"""The check of a signed token (RFC 7519) against the keys of its issuer (a JWKS, RFC 7517), as KIP-768 has it.

Only signatures of a private key are taken: never `alg: none`, and no secret that is shared, with which a public key could be
taken for it. A text of a refusal has nothing of the token.
"""

from __future__ import annotations

import json
import warnings
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import Key, KeySet

from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
KEYS_MAX = 100
TOKEN_SIZE_MAX = 64 * 1024
_CLOCK_END_S = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What a token has to say; no audience, or no issuer, is any."""

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    subject_claim: str = "sub"


def read_keys(text: str | bytes) -> tuple[Key, ...]:
    """The keys of a JWKS; raises ValueError for what is none, is empty, or has more than KEYS_MAX."""
    try:
        document = json.loads(text)
        found = document["keys"]
        if not isinstance(found, list) or len(found) > KEYS_MAX:
            raise ValueError(f"its `keys` is no list of at most {KEYS_MAX}")
        return tuple(KeySet.import_key_set({"keys": found}).keys)
    except (JoseError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"no set of keys (JWKS) can be read: {error}") from None


def key_id(token: str) -> str | None:
    """Which key a token says that it is signed with, which nothing proves; None where it cannot be told."""
    try:
        return _header(token).get("kid")
    except RefusedError:
        return None


def check(token: str, keys: Sequence[Key], expected: Expectations, now_ms: int) -> Authenticated:
    """Whom the token names; raises RefusedError."""
    header = _header(token)
    if header.get("alg") not in ALGORITHMS:
        raise RefusedError("the bearer token is not signed with a private key")
    claims = _verified(token, header, keys)
    expires_at_s = _check_times(claims, expected.clock_skew_s, now_ms // 1000)
    _check_parties(claims, expected)
    subject = claims.get(expected.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise RefusedError(f"the bearer token has no claim {expected.subject_claim!r} that names somebody")
    scope = claims.get(expected.scope_claim, [])
    if not isinstance(scope, str) and not (
        isinstance(scope, list) and all(isinstance(s, str) for s in scope)
    ):
        raise RefusedError(f"the claim {expected.scope_claim!r} of the bearer token is no list of texts")
    return Authenticated(subject.strip(), int(expires_at_s * 1000))


def _header(token: str) -> dict[str, Any]:
    """What a token says of its signature, unproved."""
    if len(token) > TOKEN_SIZE_MAX or token.count(".") != 2:
        raise RefusedError("the bearer token is no signed JSON web token")
    encoded = token.split(".", 1)[0]
    try:
        header = json.loads(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise RefusedError("the header of the bearer token cannot be read")
    return header


def _verified(token: str, header: dict[str, Any], keys: Sequence[Key]) -> dict[str, Any]:
    """The claims, once the signature is found good by a key that the token may mean."""
    wanted = header.get("kid")
    for key in keys:
        if wanted is not None and key.kid != wanted:
            continue
        try:
            with warnings.catch_warnings():
                # RFC 9864 has another name for EdDSA; issuers still write the old one.
                warnings.simplefilter("ignore", SecurityWarning)
                return jwt.decode(token, key, algorithms=[header["alg"]]).claims
        except (JoseError, ValueError, TypeError, RecursionError):
            continue
    raise RefusedError("no key of the issuer has signed the bearer token")


def _check_times(claims: dict[str, Any], skew_s: int, now_s: int) -> float:
    expires_at_s, issued_at_s = _seconds(claims, "exp"), _seconds(claims, "iat")
    if expires_at_s is None or issued_at_s is None:
        raise RefusedError("the bearer token does not say when it was issued (iat) and when it expires (exp)")
    if now_s - skew_s >= expires_at_s:
        raise RefusedError("the bearer token has expired")
    not_before_s = _seconds(claims, "nbf")
    if issued_at_s > expires_at_s or (not_before_s is not None and now_s + skew_s < not_before_s):
        raise RefusedError("the bearer token is not good yet")
    return expires_at_s


def _seconds(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _CLOCK_END_S:
        raise RefusedError(f"the claim {name!r} of the bearer token is no time")
    return value


def _check_parties(claims: dict[str, Any], expected: Expectations) -> None:
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise RefusedError("the bearer token is of another issuer")
    audience = claims.get("aud", [])
    named = audience if isinstance(audience, list) else [audience]
    if expected.audiences and not any(each in expected.audiences for each in named):
        raise RefusedError("the bearer token is for another audience")
