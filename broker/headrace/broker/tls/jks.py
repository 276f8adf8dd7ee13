"""Java's own key store format, JKS: entries out of its bytes, its digest checked, its keys' protection undone.

Written after the format that OpenJDK documents in sun.security.provider.JavaKeyStore and KeyProtector, since the one library
that reads it (pyjks) has had no release since 2020. Nothing here writes such stores, whose protection is weak: PKCS12 and PEM are
better. Pure: bytes in, DER out.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

MAGIC = b"\xfe\xed\xfe\xed"
_KEY, _CERTIFICATE = 1, 2
_WHITENER = b"Mighty Aphrodite"
_DIGEST_SIZE = 20
# AlgorithmIdentifier of 1.3.6.1.4.1.42.2.17.1.1 without parameters, then the tag of an octet string.
_PROTECTION = bytes.fromhex("300e060a2b060104012a021101010500") + b"\x04"


class JksError(ValueError):
    """Why a store cannot be read, in words that follow "give"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An alias with a certificate, or with a key, still protected, and its chain; certificates are DER."""

    alias: str
    protected_key: bytes | None = field(repr=False)
    chain: tuple[bytes, ...]


def entries(data: bytes, password: str | None) -> list[Entry]:
    """What a store holds; its digest is looked at only when a password is given, as in Java. Raises JksError."""
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if password is not None:
        expected = hashlib.sha1(_secret(password) + _WHITENER + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise JksError("the password that the store was written with, or a store that nobody changed")
    try:
        return _Reader(body).entries()
    except (struct.error, UnicodeDecodeError, IndexError):
        raise JksError("a whole JKS store") from None


def private_key(protected: bytes, password: str) -> bytes:
    """The key of an entry as PKCS #8 in DER. Raises JksError."""
    _, marker, rest = protected.partition(_PROTECTION)
    if not marker:
        raise JksError("a key that keytool protected the way of JKS")
    size_size = rest[0] & 0x7F if rest[:1] and rest[0] & 0x80 else 0
    sealed = rest[1 + size_size :]
    salt, cipher, digest = (
        sealed[:_DIGEST_SIZE],
        sealed[_DIGEST_SIZE:-_DIGEST_SIZE],
        sealed[-_DIGEST_SIZE:],
    )
    secret = _secret(password)
    stream, block = bytearray(), salt
    while len(stream) < len(cipher):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    plain = bytes(a ^ b for a, b in zip(cipher, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), digest):
        raise JksError("the key's password")
    return plain


def _secret(password: str) -> bytes:
    return password.encode("utf-16-be")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def entries(self) -> list[Entry]:
        magic = self._bytes(len(MAGIC))
        version, count = self._take(">II")
        if magic != MAGIC or version not in (1, 2):
            raise JksError("a JKS store of version 1 or 2")
        return [self._entry(version) for _ in range(count)]

    def _entry(self, version: int) -> Entry:
        (tag,) = self._take(">I")
        alias = self._text()
        self._take(">Q")
        if tag == _CERTIFICATE:
            return Entry(alias=alias, protected_key=None, chain=(self._certificate(version),))
        if tag != _KEY:
            raise JksError("a JKS store with keys and certificates only")
        key = self._bytes(*self._take(">I"))
        (count,) = self._take(">I")
        return Entry(
            alias=alias,
            protected_key=key,
            chain=tuple(self._certificate(version) for _ in range(count)),
        )

    def _certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self._text()) != "X.509":
            raise JksError(f"X.509 certificates in place of {kind}")
        return self._bytes(*self._take(">I"))

    def _text(self) -> str:
        return self._bytes(*self._take(">H")).decode()

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise IndexError(size)
        self._at += size
        return found

    def _take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values
