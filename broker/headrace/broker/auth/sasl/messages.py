"""The four messages of SCRAM (RFC 5802, section 7) in the grammar that Kafka reads them by: names of characters below 128 only.

Every reading raises RefusedError for what does not have the form, and keeps the text as it was sent: signatures are made of it.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

from headrace.broker.auth.sasl.exchange import RefusedError

_SAFE = r"[\x01-\x2b\x2d-\x3c\x3e-\x7f]"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_SASL_NAME = rf"(?:{_SAFE}|=2C|=3D)+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_RESERVED = rf"(?:m={_VALUE},)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"

_CLIENT_FIRST = re.compile(
    rf"n,(?:a=({_SASL_NAME}))?,({_RESERVED}n=({_SASL_NAME}),r=({_PRINTABLE})({_EXTENSIONS}))", re.ASCII
)
_SERVER_FIRST = re.compile(
    rf"{_RESERVED}r=({_PRINTABLE}),s=({_BASE64}),i=([0-9]{{1,9}}){_EXTENSIONS}", re.ASCII
)
_CLIENT_FINAL = re.compile(rf"(c={_BASE64},r=({_PRINTABLE}){_EXTENSIONS}),p=({_BASE64})", re.ASCII)
_SERVER_FINAL = re.compile(rf"(?:e=({_SAFE}+)|v=({_BASE64})){_EXTENSIONS}", re.ASCII)

NO_CHANNEL_BINDING = "n,,"
TOKEN_EXTENSION = "tokenauth"


class ClientFirst(NamedTuple):
    """`bare` is what signatures are made of: all but what is said of channel binding."""

    authorization_id: str
    bare: str
    name: str
    nonce: str
    is_token: bool


class ServerFirst(NamedTuple):
    text: str
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """`without_proof` is what signatures are made of."""

    without_proof: str
    nonce: str
    proof: bytes


def read_client_first(message: bytes) -> ClientFirst:
    wanted, bare, name, nonce, extensions = _groups(_CLIENT_FIRST, message, "first client")
    pairs = dict(pair.split("=", 1) for pair in extensions.split(",") if pair)
    is_token = pairs.get(TOKEN_EXTENSION, "").lower() == "true"
    return ClientFirst(_unescaped(wanted or ""), bare, _unescaped(name), nonce, is_token)


def client_first(name: str, nonce: str, *, is_token: bool) -> str:
    """The bare message: what follows `NO_CHANNEL_BINDING`."""
    extension = f",{TOKEN_EXTENSION}=true" if is_token else ""
    return f"n={_escaped(name)},r={nonce}{extension}"


def read_server_first(message: bytes) -> ServerFirst:
    nonce, salt, iterations = _groups(_SERVER_FIRST, message, "first server")
    return ServerFirst(message.decode(), nonce, b64decode(salt), int(iterations))


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={_base64(salt)},i={iterations}"


def read_client_final(message: bytes) -> ClientFinal:
    without_proof, nonce, proof = _groups(_CLIENT_FINAL, message, "final client")
    return ClientFinal(without_proof, nonce, b64decode(proof))


def client_final_without_proof(nonce: str) -> str:
    return f"c={_base64(NO_CHANNEL_BINDING.encode())},r={nonce}"


def client_final(without_proof: str, proof: bytes) -> bytes:
    return f"{without_proof},p={_base64(proof)}".encode()


def read_server_final(message: bytes) -> bytes:
    """The server's signature."""
    error, signature = _groups(_SERVER_FINAL, message, "final server")
    if error is not None:
        raise RefusedError(f"the broker ended the SCRAM exchange with {error!r}")
    return b64decode(signature)


def server_final(signature: bytes) -> bytes:
    return f"v={_base64(signature)}".encode()


def _groups(pattern: re.Pattern[str], message: bytes, which: str) -> tuple[str | Any, ...]:
    found = pattern.fullmatch(message.decode("utf-8", "replace"))
    if found is None:
        raise RefusedError(f"Invalid SCRAM {which} message format")
    return found.groups()


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
