"""Passwords among dynamic settings, as Kafka stores them in ZooKeeper: encrypted with `password.encoder.secret` (KIP-226).

The form is that of Kafka's EncryptingPasswordEncoder, so that brokers of either kind read what the other one wrote. Must not know
where passwords are stored.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache

from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from headrace.broker.config.broker import is_password
from headrace.broker.config.sections import Passwords
from headrace.broker.errors import InvalidRequestError

_SALT_SIZE = 256
_BLOCK_BITS = 128
_KNOWN_COUNT_MAX = 64
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"


class PasswordError(ValueError):
    """A stored password that cannot be decoded."""


class PasswordEncoder:
    """Encodes with `password.encoder.secret`, and decodes with that or with `password.encoder.old.secret`."""

    def __init__(self, settings: Passwords) -> None:
        self._settings = settings
        # To derive a key takes milliseconds.
        self._decode = lru_cache(_KNOWN_COUNT_MAX)(self._decoded)

    def decode(self, text: str) -> str:
        """The password of a stored text. Raises PasswordError."""
        return self._decode(text)

    def decoded(self, overrides: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """The overrides with passwords in clear, but for those that cannot be decoded, and the names of these."""
        found, failed = dict(overrides), []
        for name in filter(is_password, overrides):
            try:
                found[name] = self.decode(overrides[name])
            except PasswordError:
                failed.append(name)
                del found[name]
        return found, failed

    def encoded(self, changed: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
        """The overrides as they are to be stored; a password that did not change stays as it is stored.

        Raises InvalidRequestError without a secret.
        """
        known, _ = self.decoded(stored)
        return {
            name: text
            if not is_password(name)
            else stored[name]
            if known.get(name) == text
            else self.encode(name, text)
            for name, text in changed.items()
        }

    def encode(self, name: str, password: str) -> str:
        """What is stored of the password of that setting. Raises InvalidRequestError without a secret."""
        settings = self._settings
        if settings.password_encoder_secret is None:
            raise InvalidRequestError(
                f"To store {name} in ZooKeeper a broker needs password.encoder.secret: set it and restart the broker."
            )
        salt, vector = os.urandom(_SALT_SIZE), os.urandom(_BLOCK_BITS // 8)
        factory = settings.password_encoder_keyfactory_algorithm or DEFAULT_KEY_FACTORY
        size, iterations = settings.password_encoder_key_length, settings.password_encoder_iterations
        key = _key(factory, settings.password_encoder_secret, salt, iterations, size)
        padder = padding.PKCS7(_BLOCK_BITS).padder()
        padded = padder.update(password.encode()) + padder.finalize()
        encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
        fields = {
            "keyFactoryAlgorithm": factory,
            "cipherAlgorithm": settings.password_encoder_cipher_algorithm,
            "keyLength": str(size),
            "salt": _text(salt),
            "iterations": str(iterations),
            "encryptedPassword": _text(encryptor.update(padded) + encryptor.finalize()),
            "passwordLength": str(_java_length(password)),
            "initializationVector": _text(vector),
        }
        return ",".join(f"{field}:{value}" for field, value in fields.items())

    def _decoded(self, text: str) -> str:
        settings = self._settings
        for secret in (settings.password_encoder_secret, settings.password_encoder_old_secret):
            if secret is not None:
                try:
                    return _decrypted(text, secret)
                except (ValueError, KeyError):
                    continue
        raise PasswordError("it is no password that password.encoder.secret was used for")


def _decrypted(text: str, secret: str) -> str:
    fields = dict(part.strip().rpartition(":")[::2] for part in text.split(","))
    if fields["cipherAlgorithm"] != "AES/CBC/PKCS5Padding":
        raise ValueError(fields["cipherAlgorithm"])
    factory = fields.get("keyFactoryAlgorithm", DEFAULT_KEY_FACTORY)
    salt, vector, sealed = (
        base64.b64decode(fields[name]) for name in ("salt", "initializationVector", "encryptedPassword")
    )
    key = _key(factory, secret, salt, int(fields["iterations"]), int(fields["keyLength"]))
    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    unpadder = padding.PKCS7(_BLOCK_BITS).unpadder()
    plain = unpadder.update(decryptor.update(sealed) + decryptor.finalize()) + unpadder.finalize()
    password = plain.decode()
    if _java_length(password) != int(fields["passwordLength"]):
        raise ValueError("the password has another length")
    return password


def _key(factory: str, secret: str, salt: bytes, iterations: int, size_bits: int) -> bytes:
    digest = factory.removeprefix("PBKDF2WithHmac").lower()
    return hashlib.pbkdf2_hmac(digest, secret.encode(), salt, iterations, size_bits // 8)


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
