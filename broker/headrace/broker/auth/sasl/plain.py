"""PLAIN (RFC 4616): a name and a password in one message, to be sent over TLS only."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError, Step, refused_openly

MEMBER_COUNT = 3
WRONG = "Authentication failed: Invalid username or password"


class PlainServer:
    """`passwords` has the password of each user, as the listener's login module lists them."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def step(self, message: bytes, now_ms: int) -> Step:
        members = message.decode("utf-8", "replace").split("\0", MEMBER_COUNT)
        if len(members) != MEMBER_COUNT:
            raise refused_openly(
                f"Invalid SASL/PLAIN response: expected {MEMBER_COUNT} tokens, got {len(members)}"
            )
        wanted, name, password = members
        if not name:
            raise refused_openly("Authentication failed: username not specified")
        if not password:
            raise refused_openly("Authentication failed: password not specified")
        expected = self._passwords.get(name)
        if not compare_digest((expected or "").encode(), password.encode()) or expected is None:
            raise refused_openly(WRONG)
        if wanted not in ("", name):
            raise refused_openly(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Step(b"", Authenticated(name))


class PlainClient:
    def __init__(self, name: str, password: str) -> None:
        self._message = f"\0{name}\0{password}".encode()
        self._is_sent = False
        self.is_done = False

    def step(self, challenge: bytes) -> bytes:
        if challenge:
            raise RefusedError("the broker answered PLAIN with a challenge, which it has none of")
        if self._is_sent:
            self.is_done = True
            return b""
        self._is_sent = True
        return self._message
