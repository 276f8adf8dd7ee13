"""The broker's configuration, read once: `server.properties` of Apache Kafka, and a topic's log configuration.

`BrokerConfig` is what one broker runs with; `LogConfig` is what one partition's log runs with (the broker's defaults
under the topic's own overrides). Both are frozen. An unknown key is reported, never fatal; a bad value is a
ConfigurationError that names the key, the value and what is allowed. Knows nothing of files: text comes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.broker import config_foreign
from headrace.broker import config_sections as sections
from headrace.broker.config_copies import OWN_TOPIC_CONFIGS, is_mirror_copy
from headrace.broker.config_inert import INERT_TOPIC_CONFIGS
from headrace.broker.config_keys import (
    LONG_MAX,
    ConfigurationError,
    Key,
    boolean,
    default_of,
    double,
    integer,
    keys_of,
    long,
    parse_section,
    string,
    strings,
    text_of,
)
from headrace.broker.errors import InvalidConfigError

__all__ = [
    "TOPIC_CONFIGS",
    "BrokerConfig",
    "ConfigurationError",
    "Listener",
    "LogConfig",
    "known_overrides",
    "parse_properties",
]

SECTIONS: dict[str, Any] = {
    "network": sections.Network,
    "zookeeper": sections.ZooKeeper,
    "logs": sections.Logs,
    "topics": sections.Topics,
    "replication": sections.Replication,
    "groups": sections.Groups,
    "transactions": sections.Transactions,
}
PREFIXES_OF_EMBEDDED_PARTS = ("mirror.", "headrace.")
# Older names, and what they set where that has no value of its own.
ALIASES = {
    "node.id": ("broker.id",),
    "log.message.timestamp.difference.max.ms": (
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
    ),
}
TOPIC_ALIASES = {
    "message.timestamp.difference.max.ms": (
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    ),
}
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
CLEANER_MEMORY_MIN = 1024 * 1024
NONROUTABLE_HOST = "0.0.0.0"


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties format: `key=value`, `key: value` or `key value`, `#` and `!` comments, `\\` continues a line."""
    properties: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + next(lines, "").lstrip()
        key, value = _split_pair(line)
        properties[key] = value
    return properties


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_pair(line: str) -> tuple[str, str]:
    """Cut at the first `=`, `:` or white space that no backslash protects."""
    index, escaped = 0, False
    while index < len(line) and (escaped or line[index] not in "=: \t"):
        escaped = not escaped and line[index] == "\\"
        index += 1
    rest = line[index:].lstrip(" \t")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t")
    return _unescape(line[:index]), _unescape(rest)


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, characters = [], iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        following = next(characters, "")
        if following == "u":
            digits = "".join(next(characters, "") for _ in range(4))
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ConfigurationError("\\u" + digits, text, "four hexadecimal digits after \\u") from None
        else:
            out.append(_ESCAPES.get(following, following))
    return "".join(out)


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
    listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "", 9092),)
    advertised_listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "", 9092),)
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """The configuration and the keys that nobody knows; raises ConfigurationError."""
        config_foreign.check(properties)
        given, properties = properties, _without_aliases(properties, ALIASES)
        values: dict[str, Any] = {
            name: section(**parse_section(section, properties)) for name, section in SECTIONS.items()
        }
        network: sections.Network = values["network"]
        listeners = _listeners("listeners", network.listeners)
        _check_broker_id(network, given)
        _check_security(network, listeners)
        _check_cleaner(values["logs"])
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


def is_known(name: str) -> bool:
    """Whether a property means something to this broker, to Apache Kafka or to a part embedded in the broker."""
    return (
        name in BROKER_KEYS
        or name in ALIASES
        or name in config_foreign.CHECKED
        or config_foreign.reason_without_effect(name) is not None
        or name.startswith(PREFIXES_OF_EMBEDDED_PARTS)
    )


def _without_aliases(given: Mapping[str, str], aliases: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
    found = dict(given)
    for alias, names in aliases.items():
        if alias in found:
            value = found.pop(alias)
            for name in names:
                # Long.MAX_VALUE, the default, stands for no value of its own, as in Kafka.
                if found.get(name, str(LONG_MAX)) == str(LONG_MAX):
                    found[name] = value
    return found


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


def _check_cleaner(logs: sections.Logs) -> None:
    if logs.log_cleaner_dedupe_buffer_size / logs.log_cleaner_threads <= CLEANER_MEMORY_MIN:
        raise ConfigurationError(
            "log.cleaner.dedupe.buffer.size",
            str(logs.log_cleaner_dedupe_buffer_size),
            f"more than {CLEANER_MEMORY_MIN} bytes for each of log.cleaner.threads={logs.log_cleaner_threads}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What one partition's log runs with; attributes are topic configuration names with underscores for dots."""

    cleanup_policy: tuple[str, ...] = strings(
        ("delete",),
        "What retires old data.",
        choices=sections.CLEANUP_POLICIES,
        synonyms=("log.cleanup.policy",),
    )
    compression_type: str = string(
        "producer",
        "How batches are compressed.",
        choices=sections.COMPRESSION_TYPES,
        synonyms=("compression.type",),
    )
    delete_retention_ms: int = long(
        86_400_000, "How long tombstones are kept.", low=0, synonyms=("log.cleaner.delete.retention.ms",)
    )
    file_delete_delay_ms: int = long(
        60_000, "Deleted files stay this long.", low=0, synonyms=("log.segment.delete.delay.ms",)
    )
    flush_messages: int = long(
        LONG_MAX, "Messages between two flushes.", low=1, synonyms=("log.flush.interval.messages",)
    )
    flush_ms: int = long(
        LONG_MAX,
        "How long a message may stay unflushed.",
        low=0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    index_interval_bytes: int = integer(
        4096, "Bytes of log between two index entries.", low=0, synonyms=("log.index.interval.bytes",)
    )
    max_compaction_lag_ms: int = long(
        LONG_MAX, "Older records must be compacted.", low=1, synonyms=("log.cleaner.max.compaction.lag.ms",)
    )
    max_message_bytes: int = integer(
        1048588, "The largest record batch.", low=0, synonyms=("message.max.bytes",)
    )
    message_downconversion_enable: bool = boolean(
        True,
        "Whether clients that know old message formats only get them.",
        synonyms=("log.message.downconversion.enable",),
    )
    message_timestamp_after_max_ms: int = long(
        LONG_MAX, "How far ahead a timestamp may be.", low=0, synonyms=("log.message.timestamp.after.max.ms",)
    )
    message_timestamp_before_max_ms: int = long(
        LONG_MAX, "How old a timestamp may be.", low=0, synonyms=("log.message.timestamp.before.max.ms",)
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "Whose clock stamps a record.",
        choices=sections.TIMESTAMP_TYPES,
        synonyms=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "Share of dirty bytes worth a cleaning.",
        low=0,
        high=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = long(
        0, "Younger records are not compacted.", low=0, synonyms=("log.cleaner.min.compaction.lag.ms",)
    )
    min_insync_replicas: int = integer(
        1, "In-sync replicas that acks=all asks for.", low=1, synonyms=("min.insync.replicas",)
    )
    preallocate: bool = boolean(
        False, "Whether segment files are allocated in full.", synonyms=("log.preallocate",)
    )
    retention_bytes: int = long(
        -1, "The size a partition may have; -1: any.", synonyms=("log.retention.bytes",)
    )
    retention_ms: int = long(
        604_800_000,
        "Older segments are deleted; -1: never.",
        low=-1,
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    segment_bytes: int = integer(
        1073741824, "The largest segment file.", low=14, synonyms=("log.segment.bytes",)
    )
    segment_index_bytes: int = integer(
        10485760, "The largest offset index.", low=4, synonyms=("log.index.size.max.bytes",)
    )
    segment_jitter_ms: int = long(
        0,
        "The most that a roll is moved forward.",
        low=0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    segment_ms: int = long(
        604_800_000, "A segment is rolled after this time.", low=1, synonyms=("log.roll.ms", "log.roll.hours")
    )
    unclean_leader_election_enable: bool = boolean(
        False, "Whether an out-of-sync replica may lead.", synonyms=("unclean.leader.election.enable",)
    )
    is_mirror_copy: bool = False
    """Whether only the mirror writes to it; see `config_copies`."""

    @classmethod
    def from_broker(cls, config: BrokerConfig) -> LogConfig:
        """The broker's defaults for a topic without overrides."""
        values: dict[str, Any] = {}
        for topic_config in TOPIC_CONFIGS.values():
            value = topic_config.broker_value(config)
            if value is not None:
                values[topic_config.name.replace(".", "_")] = value
        return cls(**values)

    def with_overrides(self, overrides: Mapping[str, str]) -> LogConfig:
        """This configuration under a topic's own values; raises InvalidConfigError with a sentence."""
        values: dict[str, Any] = {}
        try:
            for name in overrides.keys() & STORED_TOPIC_CONFIGS.keys():
                STORED_TOPIC_CONFIGS[name].check(name, overrides[name])
            for name, text in _without_aliases(overrides, TOPIC_ALIASES).items():
                if name in TOPIC_CONFIGS:
                    values[name.replace(".", "_")] = TOPIC_CONFIGS[name].key.parse(name, text)
                elif name not in STORED_TOPIC_CONFIGS:
                    raise InvalidConfigError(f"Unknown topic config name: {name}.")
        except ConfigurationError as error:
            raise InvalidConfigError(str(error)) from None
        merged = replace(self, is_mirror_copy=is_mirror_copy(overrides), **values)
        if merged.min_compaction_lag_ms > merged.max_compaction_lag_ms:
            raise InvalidConfigError("min.compaction.lag.ms must not be above max.compaction.lag.ms.")
        return merged


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic configuration: its key and the broker properties that stand in for it, most specific first."""

    name: str
    key: Key
    default: Any

    def broker_value(self, config: BrokerConfig) -> Any:
        """The first value that the broker's properties or their defaults give, in the topic's unit."""
        for synonym in self.key.synonyms:
            value = config.value(synonym)
            if value is not None:
                return in_topic_units(synonym, value)
        return None

    def text(self, config: LogConfig) -> str | None:
        """The value in a log configuration, as Kafka prints it."""
        return text_of(getattr(config, self.name.replace(".", "_")))


def in_topic_units(broker_property: str, value: Any) -> Any:
    """Hours and minutes as milliseconds; -1 (never) stays."""
    if broker_property.endswith(".hours"):
        return value if value < 0 else value * HOUR_MS
    if broker_property.endswith(".minutes"):
        return value if value < 0 else value * MINUTE_MS
    return value


TOPIC_CONFIGS: dict[str, TopicConfig] = {
    name: TopicConfig(name, key, default_of(LogConfig, name)) for name, key in keys_of(LogConfig).items()
}
STORED_TOPIC_CONFIGS = INERT_TOPIC_CONFIGS | OWN_TOPIC_CONFIGS
"""What is kept as the text that it is, and is no setting of a log."""


def known_overrides(stored: Mapping[str, str]) -> dict[str, str]:
    """What of a topic's znode has a name known here: Apache Kafka may have stored more, which has no effect."""
    known = TOPIC_CONFIGS.keys() | STORED_TOPIC_CONFIGS.keys()
    return {name: value for name, value in stored.items() if name in known}
