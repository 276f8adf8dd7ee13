"""What a server keeps of a password for SCRAM (RFC 5802, section 3), and the text of it in ZooKeeper.

Kafka's text, under the mechanism in /config/users/NAME: `salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=NUMBER`.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field

from headrace.broker.auth.sasl.exchange import SCRAM_SHA_256, SCRAM_SHA_512

HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
MECHANISM_CODES = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""By the number that DescribeUserScramCredentials and its sister have for them (KIP-554)."""
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
"""The most that an administrator may ask for (KIP-554); what is in ZooKeeper already may have more."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def text(self) -> str:
        parts = (("salt", self.salt), ("stored_key", self.stored_key), ("server_key", self.server_key))
        return ",".join(f"{name}={b64encode(value).decode()}" for name, value in parts) + (
            f",iterations={self.iterations}"
        )

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Raises ValueError for what is no credential; its text is not in the message."""
        pairs = dict(part.strip().partition("=")[::2] for part in text.split(","))
        try:
            if len(pairs) != 4:
                raise ValueError
            salt, stored_key, server_key = (
                b64decode(pairs[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored_key, server_key, int(pairs["iterations"]))
        except (KeyError, ValueError, Base64Error):
            raise ValueError("a SCRAM credential has salt, stored_key, server_key and iterations") from None


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Costs a millisecond for each thousand of iterations or so. The password is not normalized, as in Kafka."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    stored_key = hashlib.new(HASHES[mechanism], client_key(mechanism, salted)).digest()
    return ScramCredential(salt, stored_key, server_key(mechanism, salted), iterations)


def credential_for(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def client_key(mechanism: str, salted: bytes) -> bytes:
    return keyed(mechanism, salted, b"Client Key")


def server_key(mechanism: str, salted: bytes) -> bytes:
    return keyed(mechanism, salted, b"Server Key")


def keyed(mechanism: str, key: bytes, data: bytes) -> bytes:
    """HMAC with the mechanism's hash."""
    return hmac.digest(key, data, HASHES[mechanism])
