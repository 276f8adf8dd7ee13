"""OAUTHBEARER (RFC 7628, KIP-255): a bearer token in one message, to be sent over TLS only.

A token that is refused is answered with JSON that says so, and the exchange ends with the client's next message (section 3.2.2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError, Step, refused_openly

_SEPARATOR = "\x01"
_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST = re.compile(rf"n,(?:a=({_SASL_NAME}))?,\x01({_PAIRS})\x01", re.ASCII)
_AUTH = re.compile(r"(\w+)[ ]+([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_EXTENSION_NAME = re.compile(r"[A-Za-z]+", re.ASCII)
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+", re.ASCII)
_AUTH_KEY = "auth"
_NO_TOKEN = _SEPARATOR.encode()
_INVALID = "Invalid OAUTHBEARER client first message"

CheckToken = Callable[[str, int], Authenticated]
"""Whom a token names at that time of day; raises RefusedError for one that is not good."""


class OAuthBearerServer:
    def __init__(self, check: CheckToken) -> None:
        self._check = check
        self._refused = ""

    def step(self, message: bytes, now_ms: int) -> Step:
        if self._refused and message == _NO_TOKEN:
            raise refused_openly(self._refused)
        wanted, token = _read_first(message)
        try:
            found = self._check(token, now_ms)
        except RefusedError:
            self._refused = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            return Step(self._refused.encode())
        if wanted not in ("", found.name):
            raise refused_openly(
                "Authentication failed: Client requested an authorization id that is different from the"
                " token's principal name"
            )
        return Step(b"", found)


class OAuthBearerClient:
    """Raises ValueError for an extension that cannot be sent."""

    def __init__(self, token: str, extensions: Iterable[tuple[str, str]] = ()) -> None:
        pairs = [(_AUTH_KEY, f"Bearer {token}"), *extensions]
        for name, value in pairs[1:]:
            if name == _AUTH_KEY or not (
                _EXTENSION_NAME.fullmatch(name) and _EXTENSION_VALUE.fullmatch(value)
            ):
                raise ValueError(
                    f"{name!r} is no extension of OAUTHBEARER: give letters, and a printable value"
                )
        members = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        self._message = f"n,,{_SEPARATOR}{members}{_SEPARATOR}".encode()
        self._is_sent = False
        self._refusal = ""
        self.is_done = False

    def step(self, challenge: bytes) -> bytes:
        if not self._is_sent:
            self._is_sent = True
            return self._message
        if not challenge:
            self.is_done = True
            return b""
        if self._refusal:
            raise RefusedError(f"the broker refused the bearer token: {self._refusal}")
        self._refusal = challenge.decode("utf-8", "replace")[:200]
        return _NO_TOKEN


def _read_first(message: bytes) -> tuple[str, str]:
    """(the wanted authorization id, the token); raises RefusedError, whose text has nothing of either."""
    found = _FIRST.fullmatch(message.decode("utf-8", "replace"))
    if found is None:
        raise RefusedError(_INVALID)
    pairs = dict(pair.split("=", 1) for pair in found[2].split(_SEPARATOR) if pair)
    auth = _AUTH.fullmatch(pairs.get(_AUTH_KEY, ""))
    if auth is None:
        raise RefusedError(f"{_INVALID}: 'auth' not specified")
    if auth[1].lower() != "bearer":
        raise RefusedError("Invalid scheme in OAUTHBEARER client first message")
    wanted = (found[1] or "").replace("=2C", ",").replace("=3D", "=")
    return wanted, auth[2]
