"""What one broker runs with: `server.properties` of Apache Kafka, read once.

`BrokerConfig` is frozen. An unknown key is reported, never fatal; a bad value is a ConfigurationError that names the key,
the value and what is allowed. Knows nothing of files: text comes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from headrace.broker.config import foreign, sections
from headrace.broker.config.keys import (
    ConfigurationError,
    Key,
    default_of,
    keys_of,
    parse_section,
    without_aliases,
)
from headrace.broker.config.listeners import (
    PREFIX,
    Listener,
    base_name,
    own_limit,
    own_setting,
    parse_listeners,
    protocol_map,
    settings_of,
    told_of,
)
from headrace.broker.config.providers import is_of_providers

SECTIONS: dict[str, Any] = {
    "network": sections.Network,
    "tls": sections.Tls,
    "sasl": sections.Sasl,
    "tokens": sections.DelegationTokens,
    "passwords": sections.Passwords,
    "zookeeper": sections.ZooKeeper,
    "logs": sections.Logs,
    "topics": sections.Topics,
    "replication": sections.Replication,
    "groups": sections.Groups,
    "transactions": sections.Transactions,
    "quotas": sections.Quotas,
    "authorization": sections.Authorization,
}
PREFIXES_OF_EMBEDDED_PARTS = ("mirror.",)
# Older names, and what they set where that has no value of its own.
ALIASES = {
    "node.id": ("broker.id",),
    "log.message.timestamp.difference.max.ms": (
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
    ),
}
CLEANER_MEMORY_MIN = 1024 * 1024
NONROUTABLE_HOST = "0.0.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What one broker runs with; `properties` are the raw ones, the mirror's included."""

    network: sections.Network = field(default_factory=sections.Network)
    tls: sections.Tls = field(default_factory=sections.Tls)
    sasl: sections.Sasl = field(default_factory=sections.Sasl)
    tokens: sections.DelegationTokens = field(default_factory=sections.DelegationTokens)
    passwords: sections.Passwords = field(default_factory=sections.Passwords)
    zookeeper: sections.ZooKeeper = field(default_factory=sections.ZooKeeper)
    logs: sections.Logs = field(default_factory=sections.Logs)
    topics: sections.Topics = field(default_factory=sections.Topics)
    replication: sections.Replication = field(default_factory=sections.Replication)
    groups: sections.Groups = field(default_factory=sections.Groups)
    transactions: sections.Transactions = field(default_factory=sections.Transactions)
    quotas: sections.Quotas = field(default_factory=sections.Quotas)
    authorization: sections.Authorization = field(default_factory=sections.Authorization)
    listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "", 9092),)
    advertised_listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "", 9092),)
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """The configuration and the keys that nobody knows; raises ConfigurationError."""
        foreign.check(properties)
        given, properties = properties, without_aliases(properties, ALIASES)
        values: dict[str, Any] = {
            name: section(**parse_section(section, properties)) for name, section in SECTIONS.items()
        }
        network: sections.Network = values["network"]
        protocols = protocol_map(network.listener_security_protocol_map)
        listeners = parse_listeners("listeners", network.listeners, protocols)
        _check_broker_id(network, given)
        _check_listeners(listeners)
        _check_cleaner(values["logs"])
        _check_connections(network, properties)
        super_users(values["authorization"])
        advertised = (
            parse_listeners("advertised.listeners", network.advertised_listeners, protocols) or listeners
        )
        _check_advertised(advertised, listeners)
        _check_between_brokers(network, advertised, properties)
        for listener in listeners:
            _check_settings(listener, properties)
        config = cls(
            **values,
            listeners=listeners,
            advertised_listeners=advertised,
            properties=dict(given),
        )
        return config, [name for name in given if not is_known(name)]

    @property
    def broker_id(self) -> int:
        return self.network.broker_id

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The data directories; `log.dir` stands in when `log.dirs` is not given."""
        return self.logs.log_dirs or (self.logs.log_dir,)

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use between them."""
        name = self.network.inter_broker_listener_name
        return self.network.security_inter_broker_protocol if name is None else name.upper()

    @property
    def control_plane_listener(self) -> str:
        """The name of the listener by which the controller and the others talk (KIP-291)."""
        name = self.network.control_plane_listener_name
        return self.inter_broker_listener if name is None else name.upper()

    def settings_of(self, listener: str) -> dict[str, str]:
        """The texts of all properties as they go by a listener: `listener.name.<name>.<key>` in place of `key`."""
        return settings_of(self.properties, listener)

    @property
    def connections_per_address(self) -> dict[str, int]:
        """How many connections single addresses, or names of hosts, may have: `max.connections.per.ip.overrides`."""
        text = self.network.max_connections_per_ip_overrides
        pairs = (part.strip().rpartition(":") for part in text.split(",") if part.strip())
        return {host: int(count) for host, _, count in pairs}

    def value_of_listener(self, listener: str, name: str) -> Any:
        """The typed value of a property for one listener: `listener.name.LISTENER.NAME` comes before NAME."""
        own = f"{PREFIX}{listener.lower()}.{name}"
        if own in self.properties:
            return BROKER_KEYS[name][1].parse(own, self.properties[own])
        return self.value(name)

    def value(self, name: str) -> Any:
        """The typed value of a property by its Kafka name; KeyError when no section has it."""
        section, attribute = BROKER_KEYS[name][0], name.replace(".", "_")
        return getattr(getattr(self, section), attribute)


BROKER_KEYS: dict[str, tuple[str, Key]] = {
    name: (section_name, key)
    for section_name, section in SECTIONS.items()
    for name, key in keys_of(section).items()
}


def default_of_broker(name: str) -> Any:
    """The default of a broker property by its Kafka name."""
    return default_of(SECTIONS[BROKER_KEYS[name][0]], name)


def listener_key(name: str) -> Key | None:
    """The key of what changes at run time of one listener, `listener.name.LISTENER.NAME`; None for any other property."""
    own = own_setting(name)
    return None if own is None else BROKER_KEYS[own][1]


def is_password(name: str) -> bool:
    """Whether a property's value is a secret, for all listeners or for one."""
    base = base_name(name)
    return base in BROKER_KEYS and BROKER_KEYS[base][1].type == "PASSWORD"


def is_secret(name: str) -> bool:
    """Whether a property's value is never shown: a password, or what nobody here knows, as in Kafka."""
    return is_password(name) or not is_known(name)


def is_known(name: str) -> bool:
    """Whether a property means something to this broker, to Apache Kafka or to a part embedded in the broker."""
    return (
        base_name(name) in BROKER_KEYS
        or name in ALIASES
        or name in foreign.CHECKED
        or own_limit(name) is not None
        or is_of_providers(name)
        or foreign.reason_without_effect(name) is not None
        or name.startswith(PREFIXES_OF_EMBEDDED_PARTS)
    )


def nearest_known(name: str) -> str | None:
    """The property that an unknown name is most like, if it is like one."""
    known = [*BROKER_KEYS, *ALIASES, *foreign.CHECKED, *foreign.names_without_effect()]
    return next(iter(get_close_matches(name, known, n=1)), None)


def unknown_key_sentence(key: str) -> str:
    """What to do about a key that nobody knows."""
    nearest = nearest_known(key)
    advice = f"the nearest is {nearest}" if nearest else "take it out"
    return f"{key} is no key that headrace or Apache Kafka knows: {advice}."


def super_users(authorization: sections.Authorization) -> frozenset[str]:
    """Those of `super.users`, as TYPE:NAME each; raises ConfigurationError."""
    text = authorization.super_users
    users = [user.strip() for user in text.split(";")] if text else []
    if not all(":" in user for user in users):
        raise ConfigurationError(
            "super.users", text, "TYPE:NAME for each, separated by semicolons, as in User:alice;User:bob"
        )
    return frozenset(users)


def _check_broker_id(network: sections.Network, given: Mapping[str, str]) -> None:
    broker_id, id_max = network.broker_id, network.reserved_broker_max_id
    node_id = given.get("node.id", str(broker_id)).strip()
    if node_id != str(broker_id):
        raise ConfigurationError("node.id", node_id, f"the value of broker.id, {broker_id}")
    if network.broker_id_generation_enable and broker_id > id_max:
        allowed = (
            f"a whole number up to reserved.broker.max.id={id_max}, or broker.id.generation.enable=false"
        )
        raise ConfigurationError("broker.id", str(broker_id), allowed)
    if broker_id < 0 and not network.broker_id_generation_enable:
        allowed = "a whole number from 0, or broker.id.generation.enable=true"
        raise ConfigurationError("broker.id", str(broker_id), allowed)


def _check_listeners(listeners: tuple[Listener, ...]) -> None:
    if not listeners:
        raise ConfigurationError("listeners", "", "at least one NAME://HOST:PORT")
    taken: dict[int, Listener] = {}
    for listener in listeners:
        other = taken.setdefault(listener.port, listener)
        # One of each family may share a port (KIP-797).
        if other is not listener and listener.port and (":" in other.host) == (":" in listener.host):
            raise ConfigurationError("listeners", f"{other},{listener}", "each listener a port of its own")


def _check_settings(listener: Listener, properties: Mapping[str, str]) -> None:
    try:
        parse_section(sections.Tls, settings_of(properties, listener.name))
    except ConfigurationError as error:
        raise told_of(properties, listener.name, error) from None


def _check_advertised(advertised: tuple[Listener, ...], listeners: tuple[Listener, ...]) -> None:
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            raise ConfigurationError("advertised.listeners", str(listener), "names that listeners has, too")
        if listener.host == NONROUTABLE_HOST:
            raise ConfigurationError(
                "advertised.listeners",
                str(listener),
                f"a routable address in place of the meta-address {NONROUTABLE_HOST}, which clients cannot connect to "
                "(without advertised.listeners those of listeners are advertised)",
            )


def _check_between_brokers(
    network: sections.Network, advertised: tuple[Listener, ...], properties: Mapping[str, str]
) -> None:
    """The listeners that brokers use between them are among those that are told."""
    names = {listener.name for listener in advertised}
    name, key = network.inter_broker_listener_name, "inter.broker.listener.name"
    protocol = network.security_inter_broker_protocol
    if name is not None and "security.inter.broker.protocol" in properties:
        allowed = "either inter.broker.listener.name or security.inter.broker.protocol, not both"
        raise ConfigurationError(key, name, allowed)
    if (protocol if name is None else name.upper()) not in names:
        allowed = f"the name of an advertised listener ({', '.join(sorted(names))})"
        if name is None:
            allowed = f"an advertised listener of that name, or {allowed} as inter.broker.listener.name"
            raise ConfigurationError("security.inter.broker.protocol", protocol, allowed)
        raise ConfigurationError(key, name, allowed)
    control = network.control_plane_listener_name
    if control is not None and (
        control.upper() not in names or control.upper() == (protocol if name is None else name.upper())
    ):
        allowed = "the name of an advertised listener other than that of inter.broker.listener.name"
        raise ConfigurationError("control.plane.listener.name", control, allowed)


def _check_connections(network: sections.Network, properties: Mapping[str, str]) -> None:
    if network.max_connections_per_ip == 0 and not network.max_connections_per_ip_overrides.strip():
        raise ConfigurationError(
            "max.connections.per.ip", "0", "a number from 1, or max.connections.per.ip.overrides beside it"
        )
    for name, text in properties.items():
        key = listener_key(name)
        if key is not None:
            key.parse(name, text)


def _check_cleaner(logs: sections.Logs) -> None:
    if logs.log_cleaner_dedupe_buffer_size / logs.log_cleaner_threads <= CLEANER_MEMORY_MIN:
        raise ConfigurationError(
            "log.cleaner.dedupe.buffer.size",
            str(logs.log_cleaner_dedupe_buffer_size),
            f"more than {CLEANER_MEMORY_MIN} bytes for each of log.cleaner.threads={logs.log_cleaner_threads}",
        )
