"""Blocks of PEM (RFC 7468) in a text; one that was put on a single line, as in a properties file, is read as well. Pure."""

from __future__ import annotations

import re
from textwrap import wrap

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
LINE_SIZE = 64


def certificates(text: str) -> list[bytes]:
    """Each certificate as a block of its own, in the order of the text."""
    return [_block("CERTIFICATE", body) for label, body in _BLOCK.findall(text) if label in CERTIFICATES]


def private_key(text: str) -> bytes | None:
    """The first private key, encrypted or not, as a block of its own."""
    return next(
        (_block(label, body) for label, body in _BLOCK.findall(text) if label.endswith("PRIVATE KEY")), None
    )


def _block(label: str, body: str) -> bytes:
    if ":" not in body:
        body = "\n" + "\n".join(wrap("".join(body.split()), LINE_SIZE)) + "\n"
    return f"-----BEGIN {label}-----{body}-----END {label}-----\n".encode()
