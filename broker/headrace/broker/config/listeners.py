"""Where a broker listens, what it tells clients of that, and how each listener is secured.

`listeners` and `advertised.listeners` go through `listener.security.protocol.map`; a key `listener.name.<name>.<key>` sets `key`
for one listener (KIP-103, KIP-226). Pure: sockets and stores belong to others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.broker.addresses import address_text, split_address
from headrace.broker.config.keys import ConfigurationError

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
_PREFIXED = re.compile(
    r"listener\.name\.([^.]*)\.(?:(?:plain|scram-sha-256|scram-sha-512|oauthbearer|gssapi)\.)?(.+)"
)
PREFIX = "listener.name."
LIMITS = ("max.connections", "max.connection.creation.rate")
"""Properties of a broker that each listener may have of its own, as PREFIX LISTENER.NAME; all of them are dynamic."""


STORES = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""The same of keys and certificates, which are dynamic for single listeners only."""


def own_setting(name: str) -> str | None:
    """The one of LIMITS or STORES that a property sets for a listener; None for any other property."""
    base = base_name(name)
    return base if base != name and base in LIMITS + STORES else None


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
    security_protocol: str = "PLAINTEXT"

    @classmethod
    def parse(cls, key: str, text: str, protocols: Mapping[str, str]) -> Listener:
        """`NAME://HOST:PORT`, HOST may be empty or an IPv6 address in brackets; raises ConfigurationError."""
        name, separator, place = text.partition("://")
        address = split_address(place)
        if not separator or not name or address is None:
            raise ConfigurationError(key, text, "NAME://HOST:PORT, for example PLAINTEXT://0.0.0.0:9092")
        name = name.upper()
        if name not in protocols:
            allowed = f"names that listener.security.protocol.map has ({', '.join(protocols)})"
            raise ConfigurationError(key, text, allowed)
        return cls(name, *address, protocols[name])

    @property
    def is_tls(self) -> bool:
        """Whether TLS is spoken there."""
        return self.security_protocol in TLS_PROTOCOLS

    @property
    def is_sasl(self) -> bool:
        """Whether clients log in there."""
        return self.security_protocol in SASL_PROTOCOLS

    def __str__(self) -> str:
        return f"{self.name}://{address_text(self.host, self.port)}"


def protocol_map(entries: Iterable[str]) -> dict[str, str]:
    """Listener name → security protocol, of the entries of `listener.security.protocol.map`. Raises ConfigurationError."""
    key, found = "listener.security.protocol.map", {}
    for entry in entries:
        name, colon, protocol = entry.rpartition(":")
        if not colon or not name or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            allowed = f"a comma-separated list of NAME:PROTOCOL, each protocol one of {', '.join(SECURITY_PROTOCOLS)}"
            raise ConfigurationError(key, entry, allowed)
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def parse_listeners(key: str, texts: tuple[str, ...], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """The entries of `listeners` or `advertised.listeners`. Raises ConfigurationError."""
    listeners = tuple(Listener.parse(key, text, protocols) for text in texts)
    if len({listener.name for listener in listeners}) < len(listeners):
        raise ConfigurationError(key, ",".join(texts), "listeners with different names")
    return listeners


def base_name(name: str) -> str:
    """The key that `listener.name.<name>.<key>` sets for one listener, or for a mechanism there; any other name as it is."""
    match = _PREFIXED.fullmatch(name)
    return match[2] if match else name


def own_name(listener: str, key: str) -> str:
    """The name by which a key is set for one listener."""
    return f"listener.name.{listener.lower()}.{key}"


def settings_of(properties: Mapping[str, str], listener: str) -> dict[str, str]:
    """What goes by a listener: all properties, with those under its prefix in place of the general ones."""
    prefix = own_name(listener, "")
    own = {name[len(prefix) :]: text for name, text in properties.items() if name.startswith(prefix)}
    return {**properties, **own}


def told_of(properties: Mapping[str, str], listener: str, error: ConfigurationError) -> ConfigurationError:
    """What is wrong with a setting of a listener, under the name by which it was given."""
    prefixed = own_name(listener, error.key)
    return ConfigurationError(prefixed, error.value, error.allowed) if prefixed in properties else error
