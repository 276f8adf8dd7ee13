"""What a client sends to log in, and to stay logged in (KIP-43, KIP-152, KIP-368); knows no socket.

A log-in is a generator of requests: whoever carries bytes sends what it yields, and hands in the decoded answer, before
anything else is asked on the connection. It ends with the length of the session; a broker that ends sessions closes the
connection at the first request after it, so the same is done again on the same connection a while before.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headrace.broker.auth.sasl.clients import client_exchange
from headrace.broker.auth.sasl.exchange import ClientExchange, Identity, RefusedError
from headrace.broker.errors import ErrorCode
from headrace.broker.wire.api import k17_sasl_handshake, k36_sasl_authenticate
from headrace.broker.wire.client.exchange import ProtocolError
from headrace.broker.wire.schema import Api

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 2
STEPS_MAX = 8
"""No mechanism needs as many; a broker that sends challenges for ever is left."""
_RENEWED_FROM, _RENEWED_SPREAD = 0.85, 0.10

Asked = tuple[Api, int, dict[str, Any]]
"""A request: its API, the highest version to ask it in, and its message."""
Login = Generator[Asked, dict[str, Any], int]


class LoginError(ProtocolError):
    """The broker refuses the identity, or is none that knows it; another attempt with the same one is of no use."""


def log_in(identity: Identity, nonce: str) -> Login:
    """The requests of one log-in; returns the length of the session in milliseconds, 0 for one without an end.

    `nonce` is drawn anew for each: printable, without a comma. Raises LoginError, whose text has no secret.
    """
    try:
        machine = client_exchange(identity, nonce)
    except ValueError as error:
        raise LoginError(str(error)) from None
    chosen = yield k17_sasl_handshake.API, HANDSHAKE_VERSION, {"mechanism": identity.mechanism}
    if chosen["error_code"] != ErrorCode.NONE:
        raise LoginError(_refused_mechanism(identity.mechanism, chosen))
    return (yield from _exchanged(machine, identity))


def renewal_after_ms(lifetime_ms: int, spread: float) -> int | None:
    """How long after a log-in to log in again, None for never; `spread`, from 0 to 1, parts clients that came together."""
    if lifetime_ms <= 0:
        return None
    return int(lifetime_ms * (_RENEWED_FROM + _RENEWED_SPREAD * spread))


def _exchanged(machine: ClientExchange, identity: Identity) -> Login:
    message = _stepped(machine, b"")
    for _ in range(STEPS_MAX):
        answer = yield k36_sasl_authenticate.API, AUTHENTICATE_VERSION, {"auth_bytes": message}
        if answer["error_code"] != ErrorCode.NONE:
            reason = answer["error_message"] or f"error code {answer['error_code']}"
            raise LoginError(f"the broker refused a log-in by {identity.mechanism}: {reason}")
        message = _stepped(machine, bytes(answer["auth_bytes"]))
        if machine.is_done:
            return int(answer.get("session_lifetime_ms", 0))
    raise LoginError(f"the broker sent more than {STEPS_MAX} challenges of {identity.mechanism}")


def _stepped(machine: ClientExchange, challenge: bytes) -> bytes:
    try:
        return machine.step(challenge)
    except RefusedError as error:
        raise LoginError(str(error)) from None


def _refused_mechanism(mechanism: str, answer: dict[str, Any]) -> str:
    offered = ", ".join(answer["mechanisms"]) or "none"
    return f"the broker does not take the SASL mechanism {mechanism}: it offers {offered}"
