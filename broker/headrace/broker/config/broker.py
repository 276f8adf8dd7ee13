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
from headrace.broker.config.listeners import PREFIX, Listener, address_text, own_limit

SECTIONS: dict[str, Any] = {
    "network": sections.Network,
    "zookeeper": sections.ZooKeeper,
    "logs": sections.Logs,
    "topics": sections.Topics,
    "replication": sections.Replication,
    "groups": sections.Groups,
    "transactions": sections.Transactions,
    "quotas": sections.Quotas,
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
    zookeeper: sections.ZooKeeper = field(default_factory=sections.ZooKeeper)
    logs: sections.Logs = field(default_factory=sections.Logs)
    topics: sections.Topics = field(default_factory=sections.Topics)
    replication: sections.Replication = field(default_factory=sections.Replication)
    groups: sections.Groups = field(default_factory=sections.Groups)
    transactions: sections.Transactions = field(default_factory=sections.Transactions)
    quotas: sections.Quotas = field(default_factory=sections.Quotas)
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
        listeners = _listeners("listeners", network.listeners)
        _check_broker_id(network, given)
        _check_security(network, listeners)
        _check_cleaner(values["logs"])
        _check_connections(network, properties)
        advertised = _listeners("advertised.listeners", network.advertised_listeners) or listeners
        _check_advertised(advertised)
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
        return self.network.inter_broker_listener_name or self.listeners[0].name

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
    """The key of a limit of one listener, `listener.name.LISTENER.NAME`; None for any other property."""
    own = own_limit(name)
    return None if own is None else BROKER_KEYS[own][1]


def is_known(name: str) -> bool:
    """Whether a property means something to this broker, to Apache Kafka or to a part embedded in the broker."""
    return (
        name in BROKER_KEYS
        or name in ALIASES
        or name in foreign.CHECKED
        or own_limit(name) is not None
        or foreign.reason_without_effect(name) is not None
        or name.startswith(PREFIXES_OF_EMBEDDED_PARTS)
    )


def nearest_known(name: str) -> str | None:
    """The property that an unknown name is most like, if it is like one."""
    known = [*BROKER_KEYS, *ALIASES, *foreign.CHECKED, *foreign.names_without_effect()]
    return next(iter(get_close_matches(name, known, n=1)), None)


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


def _listeners(key: str, texts: tuple[str, ...]) -> tuple[Listener, ...]:
    listeners = tuple(Listener.parse(key, text) for text in texts)
    if len({listener.name for listener in listeners}) < len(listeners):
        raise ConfigurationError(key, ",".join(texts), "listeners with different names")
    return listeners


def _check_advertised(listeners: tuple[Listener, ...]) -> None:
    for listener in listeners:
        if listener.host == NONROUTABLE_HOST:
            raise ConfigurationError(
                "advertised.listeners",
                f"{listener.name}://{address_text(listener.host, listener.port)}",
                f"a routable address in place of the meta-address {NONROUTABLE_HOST}, which clients cannot connect to "
                "(without advertised.listeners those of listeners are advertised)",
            )


def _check_security(network: sections.Network, listeners: tuple[Listener, ...]) -> None:
    if not listeners:
        raise ConfigurationError("listeners", "", "at least one NAME://HOST:PORT")
    protocols = dict(entry.partition(":")[::2] for entry in network.listener_security_protocol_map)
    for listener in listeners:
        if protocols.get(listener.name, listener.name) != "PLAINTEXT":
            raise ConfigurationError(
                "listeners",
                f"{listener.name}://{address_text(listener.host, listener.port)}",
                "PLAINTEXT listeners only",
            )
    name = network.inter_broker_listener_name
    if name is not None and name not in {listener.name for listener in listeners}:
        raise ConfigurationError("inter.broker.listener.name", name, "the name of one of the listeners")


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
