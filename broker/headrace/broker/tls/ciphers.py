"""Cipher suites: Java's names, which are those of IANA, to OpenSSL's. Pure."""

from __future__ import annotations

import ssl
from functools import cache

TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""Those of TLS 1.3, in the order in which OpenSSL's servers take them."""


def openssl_name(name: str) -> str | None:
    """The name of a suite of TLS 1.2 in OpenSSL, or None when it has none or when it is not served."""
    exchange, separator, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not separator or not name.startswith("TLS_"):
        return None
    cipher = cipher.replace("AES_", "AES").replace("_CBC_", "_")
    if "CHACHA20" in cipher:
        cipher = cipher.removesuffix("_SHA256")
    found = "-".join([*([] if exchange == "RSA" else [exchange]), cipher]).replace("_", "-")
    return found if found in _served() else None


@cache
def _served() -> frozenset[str]:
    """What OpenSSL has of TLS 1.2 that encrypts and authenticates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:!aNULL:!eNULL")
    return frozenset(each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3")
