"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677): both sides show that they know the password, and neither sends it.

A delegation token logs in this way, too (KIP-48): its id is the name, its HMAC the password, and `tokenauth=true` says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest

from headrace.broker.auth.sasl import credentials, messages
from headrace.broker.auth.sasl.credentials import HASHES, ITERATIONS_MIN, ScramCredential
from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError, Step, refused_openly

CLIENT_ITERATIONS_MAX = 1_000_000
"""A server that asks for more would keep its client computing."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the server knows of a name: whom it stands for, and how that is checked."""

    credential: ScramCredential
    found: Authenticated


Lookup = Callable[[str, bool], Known | None]
"""What is known of a name, or, when the second argument says so, of the id of a delegation token."""


class ScramServer:
    """`nonce` is this server's part of the nonce: printable, without a comma, never used before."""

    def __init__(self, mechanism: str, lookup: Lookup, nonce: str) -> None:
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = nonce
        self._begun: tuple[Known, messages.ClientFirst, str] | None = None

    def step(self, message: bytes, now_ms: int) -> Step:
        if self._begun is None:
            return self._first(message)
        return self._final(message, *self._begun)

    def _first(self, message: bytes) -> Step:
        first = messages.read_client_first(message)
        known = self._lookup(first.name, first.is_token)
        if known is None and first.is_token:
            raise RefusedError("Token Authentication failed: Invalid tokenId")
        if known is None:
            raise RefusedError("Authentication failed: Invalid user credentials")
        if first.authorization_id not in ("", first.name):
            raise refused_openly(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        credential = known.credential
        if credential.iterations < ITERATIONS_MIN:
            raise RefusedError(
                f"Iterations {credential.iterations} is less than the minimum {ITERATIONS_MIN} for {self._mechanism}"
            )
        self._nonce = first.nonce + self._nonce
        answer = messages.server_first(self._nonce, credential.salt, credential.iterations)
        self._begun = known, first, answer
        return Step(answer.encode())

    def _final(self, message: bytes, known: Known, first: messages.ClientFirst, answer: str) -> Step:
        final = messages.read_client_final(message)
        # librdkafka before 2.6.1 puts its own part before the whole nonce once more.
        if final.nonce not in (self._nonce, first.nonce + self._nonce):
            raise RefusedError("Invalid client nonce in the final client message.")
        signed = f"{first.bare},{answer},{final.without_proof}".encode()
        credential, mechanism = known.credential, self._mechanism
        signature = credentials.keyed(mechanism, credential.stored_key, signed)
        if len(final.proof) != len(signature):
            raise RefusedError("Invalid client credentials")
        key = _xor(final.proof, signature)
        if not compare_digest(hashlib.new(HASHES[mechanism], key).digest(), credential.stored_key):
            raise RefusedError("Invalid client credentials")
        answer_signature = credentials.keyed(mechanism, credential.server_key, signed)
        return Step(messages.server_final(answer_signature), known.found)


class ScramClient:
    """`nonce` is this client's part of the nonce, as for the server."""

    def __init__(
        self, mechanism: str, name: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = messages.client_first(name, nonce, is_token=is_token)
        self._is_begun = False
        self._expected: bytes | None = None
        self.is_done = False

    def step(self, challenge: bytes) -> bytes:
        if not self._is_begun:
            self._is_begun = True
            return (messages.NO_CHANNEL_BINDING + self._bare).encode()
        if self._expected is None:
            return self._proof(messages.read_server_first(challenge))
        if not compare_digest(messages.read_server_final(challenge), self._expected):
            raise RefusedError("the broker does not know the password: its signature is wrong")
        self.is_done = True
        return b""

    def _proof(self, first: messages.ServerFirst) -> bytes:
        if not first.nonce.startswith(self._nonce) or first.nonce == self._nonce:
            raise RefusedError("the broker answered another SCRAM exchange: its nonce is not this client's")
        if not ITERATIONS_MIN <= first.iterations <= CLIENT_ITERATIONS_MAX:
            raise RefusedError(
                f"the broker asks for {first.iterations} iterations, allowed are {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX}"
            )
        mechanism = self._mechanism
        salted = credentials.salted_password(mechanism, self._password, first.salt, first.iterations)
        without_proof = messages.client_final_without_proof(first.nonce)
        signed = f"{self._bare},{first.text},{without_proof}".encode()
        key = credentials.client_key(mechanism, salted)
        stored_key = hashlib.new(HASHES[mechanism], key).digest()
        signature = credentials.keyed(mechanism, stored_key, signed)
        self._expected = credentials.keyed(mechanism, credentials.server_key(mechanism, salted), signed)
        return messages.client_final(without_proof, _xor(key, signature))


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
