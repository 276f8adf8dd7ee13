"""The names of quotas as they are stored and asked for, and what a value of each may be (`QuotaConfigs`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.broker.config.keys import INT_MAX, LONG_MAX, text_of
from headrace.broker.errors import InvalidRequestError, UnknownServerError
from headrace.broker.quotas.entities import IPS, USERS

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
DOUBLE, LONG, INT = "DOUBLE", "LONG", "INT"
CLIENT_QUOTAS: Mapping[str, str] = {
    PRODUCER_BYTE_RATE: LONG,
    CONSUMER_BYTE_RATE: LONG,
    REQUEST_PERCENTAGE: DOUBLE,
    CONTROLLER_MUTATION_RATE: DOUBLE,
}
IP_QUOTAS: Mapping[str, str] = {CONNECTION_CREATION_RATE: INT}
# Stored with users' quotas, but changed by requests of their own.
CREDENTIALS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# Whole numbers come as floating ones.
_EPSILON = 1e-6


def known_of(kind: str) -> Mapping[str, str]:
    """The quotas that entities of that kind may have."""
    return IP_QUOTAS if kind == IPS else CLIENT_QUOTAS


def altered(
    kind: str, overrides: Mapping[str, str], changes: Iterable[tuple[str, float | None]]
) -> dict[str, str]:
    """The overrides with some quotas set, or removed (None). Raises InvalidRequestError, UnknownServerError."""
    changed = dict(overrides)
    for name, value in changes:
        if value is None:
            changed.pop(name, None)
            continue
        if kind == USERS and name in CREDENTIALS:
            raise UnknownServerError(f"{name} is no quota.")
        changed[name] = stored_text(known_of(kind), name, value)
    return changed


def check_range(kind: str, overrides: Mapping[str, str]) -> None:
    """Raises UnknownServerError, which is what Kafka answers, for a value that must not be stored."""
    if kind == IPS and int(overrides.get(CONNECTION_CREATION_RATE, "0")) < 0:
        raise UnknownServerError(f"Value must be at least 0 for configuration {CONNECTION_CREATION_RATE}.")


def stored_text(known: Mapping[str, str], name: str, value: float) -> str:
    """What is stored of a value. Raises InvalidRequestError."""
    kind = known.get(name)
    if kind is None:
        raise InvalidRequestError(f"Invalid configuration key {name}")
    if kind == DOUBLE:
        return _java_text(value)
    whole = _java_whole(value + _EPSILON, LONG_MAX if kind == LONG else INT_MAX)
    if abs(whole - value) > _EPSILON:
        raise InvalidRequestError(f"Configuration {name} must be a {kind} value")
    return str(whole)


def number(text: str) -> float:
    """The value again, written by whichever Kafka. Raises ValueError."""
    return float(text)


def _java_text(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return text_of(value) or ""


def _java_whole(value: float, most: int) -> int:
    """As Java turns a floating number into a whole one: NaN is 0, and what is too large the largest."""
    if value != value:
        return 0
    if value in (float("inf"), float("-inf")):
        return most if value > 0 else -most - 1
    return max(-most - 1, min(most, int(value)))
