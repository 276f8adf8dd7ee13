"""Blocks of PEM, whatever stands between them."""

from __future__ import annotations

from headrace.broker.tls import pem

BODY = "QUJD" * 40
BLOCK = f"-----BEGIN CERTIFICATE-----\n{BODY}\n-----END CERTIFICATE-----\n"


def test_blocks_are_wrapped_anew() -> None:
    found = pem.certificates(f"bag attributes\n{BLOCK.replace(chr(10), ' ')} and {BLOCK}")
    assert len(found) == 2
    assert found[0] == found[1]
    assert max(len(line) for line in found[0].splitlines()) <= 64


def test_keys_of_any_kind() -> None:
    for label in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PRIVATE KEY"):
        text = BLOCK + f"-----BEGIN {label}-----\nQUJD\n-----END {label}-----"
        assert pem.private_key(text) == f"-----BEGIN {label}-----\nQUJD\n-----END {label}-----\n".encode()
    assert pem.private_key(BLOCK) is None


def test_headers_of_an_encrypted_key_stay() -> None:
    text = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nQUJD\n-----END EC PRIVATE KEY-----\n"
    assert pem.private_key(text) == text.encode()
