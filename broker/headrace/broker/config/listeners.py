"""Where a broker listens, and what it tells clients of that: entries of `listeners` and `advertised.listeners`."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.broker.config.keys import ConfigurationError

PREFIX = "listener.name."
LIMITS = ("max.connections", "max.connection.creation.rate")
"""Properties of a broker that each listener may have of its own, as PREFIX LISTENER.NAME; all of them are dynamic."""


def own_limit(name: str) -> str | None:
    """The one of LIMITS that a property sets for a listener; None for any other property."""
    own = name.removeprefix(PREFIX).partition(".")[2] if name.startswith(PREFIX) else ""
    return own if own in LIMITS else None


@dataclass(frozen=True, slots=True)
class Listener:
    """One entry of `listeners` or `advertised.listeners`; port 0 lets the system choose one."""

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, key: str, text: str) -> Listener:
        """`NAME://HOST:PORT`, HOST may be empty or an IPv6 address in brackets; raises ConfigurationError."""
        name, separator, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not name or not port.isdecimal() or int(port) > 65535:
            raise ConfigurationError(key, text, "NAME://HOST:PORT, for example PLAINTEXT://0.0.0.0:9092")
        return cls(name.upper(), host.removeprefix("[").removesuffix("]"), int(port))


def address_text(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
