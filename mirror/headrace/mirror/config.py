"""The mirror's part of `server.properties`: which clusters are copied, and how.

    mirror.sources=dc-east,dc-west
    mirror.dc-east.bootstrap.servers=broker-1.east:9092,broker-2.east:9092
    mirror.dc-east.topics=pageviews|_schemas

Values are parsed once; a bad one is a ConfigurationError that names the key, the value and what is allowed. A setting
without a datacenter (`mirror.fetch.max.bytes`) holds for all of them. Knows nothing of sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from headrace.broker.client.security import HIDDEN, PLAINTEXT, ClientSecurity, is_about_security
from headrace.broker.config.keys import ConfigurationError, integer, keys_of, parse_section
from headrace.broker.moment import moment_ms
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.special_values import LATEST_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED
from headrace.mirror import lineage

PREFIX = "mirror."
SOURCES_KEY = "mirror.sources"
BOOTSTRAP_SUFFIX, TOPICS_SUFFIX, LIMIT_SUFFIX = "bootstrap.servers", "topics", "bytes.per.second"
GROUPS_SUFFIX, CONFIGS_SUFFIX, ACLS_SUFFIX = "sync.groups", "sync.configs", "sync.acls"
START_SUFFIX, MODE_SUFFIX = "start", "mode"
ISOLATION_SUFFIX = "isolation"
SUFFIXES = (
    BOOTSTRAP_SUFFIX,
    TOPICS_SUFFIX,
    LIMIT_SUFFIX,
    GROUPS_SUFFIX,
    CONFIGS_SUFFIX,
    ACLS_SUFFIX,
    START_SUFFIX,
    MODE_SUFFIX,
    ISOLATION_SUFFIX,
)
TOPICS_DEFAULT = ".*"
EARLIEST, LATEST = "earliest", "latest"
COPY, AGGREGATE = "copy", "aggregate"
ISOLATIONS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
SERVICES_PREFIX = "headrace."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunables:
    """Settings that hold for every source; attribute = property name without `mirror.`, underscores for dots."""

    fetch_max_bytes: int = integer(
        1024 * 1024, "The most that one partition may fill of a reply.", low=1024, high=64 * 1024 * 1024
    )
    # Larger replies fall out of the processor's cache between two steps (8 MiB: half as many bytes a CPU-second), and hold
    # up the broker's other clients; over a long distance more bytes in flight are worth that, up to the window.
    fetch_response_max_bytes: int = integer(
        2 * 1024 * 1024,
        "The most that a reply should hold, where a round trip is short.",
        low=1024,
        high=64 * 1024 * 1024,
    )
    fetch_window_max_bytes: int = integer(
        64 * 1024 * 1024,
        "The most that is asked of a source's broker at once, where a round trip is long.",
        low=1024,
        high=1024 * 1024 * 1024,
    )
    fetch_min_bytes: int = integer(1, "A source waits until it has so much to answer.", low=1)
    fetch_wait_max_ms: int = integer(500, "The longest that a source waits for it.", low=1, high=10_000)
    num_fetchers: int = integer(2, "Connections to each broker of a source for what lags.", low=1, high=8)
    request_timeout_ms: int = integer(30_000, "An unanswered request fails.", low=1_000, high=600_000)
    metadata_max_age_ms: int = integer(
        5_000, "Topics, partitions and leaders are asked for so often.", low=100, high=10_000
    )
    sync_groups_interval_ms: int = integer(
        60_000, "Groups' offsets are brought so often.", low=1_000, high=3_600_000
    )
    verify_max_bytes_per_second: int = integer(
        -1,
        "How fast copies are compared with each source; 0: not at all; -1: a hundredth of what is copied, and at least 64 KiB.",
        low=-1,
        high=1024**3,
    )
    retry_backoff_ms: int = integer(100, "Pause after the first failure.", low=1, high=10_000)
    retry_backoff_max_ms: int = integer(5_000, "Longest pause between retries.", low=1, high=60_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """One live datacenter to copy from."""

    name: str
    bootstrap_servers: tuple[Address, ...]
    topics: re.Pattern[str]
    bytes_per_second: int | None = None
    sync_groups: re.Pattern[str] | None = None
    """Groups of the source whose offsets are brought here; None: nobody's."""
    sync_configs: bool = True
    """Whether the copies' configurations follow."""
    sync_acls: bool = False
    """Whether who may read the topics may read the copies."""
    start: int | None = None
    """Where new copies begin, as ListOffsets has it: a time in milliseconds, or -1 for the end; None: at the log's start."""
    is_aggregate: bool = False
    """Whether its topics go into those of the same names here, together with other sources'; they are copies otherwise."""
    security: ClientSecurity = field(default=PLAINTEXT, repr=False)
    """How this mirror is let in there."""
    isolation: int = READ_UNCOMMITTED
    """Whether copies end at the high watermark, or at the last stable offset."""

    @property
    def bootstrap(self) -> str:
        """HOST:PORT,HOST:PORT, as it was configured."""
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap_servers)

    def matches(self, topic: str) -> bool:
        """Whether the topic of the source is wanted: the expression must match the whole name, and never an internal one.

        Nor, into an aggregate, what headrace's services write of their own datacenter.
        """
        is_services = self.is_aggregate and topic.startswith(SERVICES_PREFIX)
        return not (lineage.is_internal(topic) or is_services) and self.topics.fullmatch(topic) is not None

    def may_be_named(self, topic: str) -> bool:
        """Whether a topic here may be configured to be the copy of that one, whatever the expression says."""
        return not (self.is_aggregate or lineage.is_internal(topic))

    def target_topic(self, topic: str) -> str:
        """What the copy is called here by itself, or the aggregate."""
        return topic if self.is_aggregate else f"{self.name}.{topic}"

    def source_topic(self, target_topic: str, *, is_named: bool = False) -> str | None:
        """The source's topic that `target_topic` is the copy of, or None when it is no copy from this source.

        `is_named`: a topic of another name is configured to be that copy.
        """
        prefix = f"{self.name}."
        topic = target_topic.removeprefix(prefix)
        is_wanted = self.may_be_named(topic) if is_named else self.matches(topic)
        return topic if target_topic.startswith(prefix) and is_wanted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """What this broker mirrors: `sources` as copies, `aggregates` into topics that sources share; without both, nothing."""

    sources: tuple[SourceConfig, ...] = ()
    aggregates: tuple[SourceConfig, ...] = ()
    tunables: Tunables = field(default_factory=Tunables)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> MirrorConfig:
        """Raises ConfigurationError, also for a key below `mirror.` that means nothing."""
        names = _names(properties.get(SOURCES_KEY, ""))
        own = {name[len(PREFIX) :]: text for name, text in properties.items() if name.startswith(PREFIX)}
        _check_keys(own, names)
        try:
            tunables = Tunables(**parse_section(Tunables, own))
        except ConfigurationError as error:
            raise ConfigurationError(PREFIX + error.key, error.value, error.allowed) from None
        found = [_source(name, properties) for name in names]
        return cls(
            sources=tuple(source for source in found if not source.is_aggregate),
            aggregates=tuple(source for source in found if source.is_aggregate),
            tunables=tunables,
        )


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name for name in (part.strip() for part in text.split(",")) if name)
    if len(set(names)) < len(names) or not all(_NAME.fullmatch(name) for name in names):
        raise ConfigurationError(
            SOURCES_KEY,
            text,
            "datacenter names of letters, digits and dashes, each once, separated by commas",
        )
    return names


def _check_keys(own: Mapping[str, str], names: tuple[str, ...]) -> None:
    known = {"sources", *keys_of(Tunables)}
    known |= {f"{name}.{suffix}" for name in names for suffix in SUFFIXES}
    for key in own:
        name, _, setting = key.partition(".")
        is_security = name in names and is_about_security(setting)
        if key not in known and not is_security:
            raise ConfigurationError(
                PREFIX + key,
                HIDDEN if is_about_security(setting) else own[key],
                f"one of {', '.join(PREFIX + f.name.replace('_', '.') for f in fields(Tunables))}, or "
                f"{', '.join(f'mirror.<datacenter>.{suffix}' for suffix in SUFFIXES)}, or Kafka's client settings about security "
                f"(mirror.<datacenter>.security.protocol, .ssl.…, .sasl.…) of a datacenter that "
                f"{SOURCES_KEY} names",
            )


def _source(name: str, properties: Mapping[str, str]) -> SourceConfig:
    keys = {suffix: f"{PREFIX}{name}.{suffix}" for suffix in SUFFIXES}
    groups = properties.get(keys[GROUPS_SUFFIX])
    is_aggregate = _is_aggregate(keys, properties)
    return SourceConfig(
        name=name,
        bootstrap_servers=parse_addresses(keys[BOOTSTRAP_SUFFIX], properties.get(keys[BOOTSTRAP_SUFFIX], "")),
        topics=_pattern(keys[TOPICS_SUFFIX], properties.get(keys[TOPICS_SUFFIX], TOPICS_DEFAULT)),
        bytes_per_second=_limit(keys[LIMIT_SUFFIX], properties),
        sync_groups=None if groups is None else _pattern(keys[GROUPS_SUFFIX], groups),
        sync_configs=_switch(keys[CONFIGS_SUFFIX], properties.get(keys[CONFIGS_SUFFIX], "true")),
        sync_acls=_switch(keys[ACLS_SUFFIX], properties.get(keys[ACLS_SUFFIX], "false")),
        start=_start(keys[START_SUFFIX], properties.get(keys[START_SUFFIX], EARLIEST)),
        is_aggregate=is_aggregate,
        security=ClientSecurity.of(properties, f"{PREFIX}{name}."),
        isolation=_isolation(keys, properties, is_aggregate=is_aggregate),
    )


def _is_aggregate(keys: Mapping[str, str], properties: Mapping[str, str]) -> bool:
    mode = properties.get(keys[MODE_SUFFIX], COPY)
    if mode not in (COPY, AGGREGATE):
        raise ConfigurationError(keys[MODE_SUFFIX], mode, f"{COPY} or {AGGREGATE}")
    for suffix in (GROUPS_SUFFIX, CONFIGS_SUFFIX, ACLS_SUFFIX):
        if mode == AGGREGATE and keys[suffix] in properties:
            allowed = (
                f"nothing beside {keys[MODE_SUFFIX]}={AGGREGATE}, where nothing else than messages is brought"
            )
            raise ConfigurationError(keys[suffix], properties[keys[suffix]], allowed)
    return mode == AGGREGATE


def _start(key: str, text: str) -> int | None:
    if text == EARLIEST:
        return None
    if text == LATEST:
        return LATEST_TIMESTAMP
    try:
        return max(0, moment_ms(text))
    except ValueError:
        allowed = f"{EARLIEST}, {LATEST} or a time such as 2026-01-31T23:59:50Z"
        raise ConfigurationError(key, text, allowed) from None


def _isolation(keys: Mapping[str, str], properties: Mapping[str, str], *, is_aggregate: bool) -> int:
    key, own = keys[ISOLATION_SUFFIX], properties.get(keys[ISOLATION_SUFFIX])
    if is_aggregate and own not in (None, "read_committed"):
        raise ConfigurationError(key, str(own), f"read_committed, beside {keys[MODE_SUFFIX]}={AGGREGATE}")
    text = own or "read_uncommitted"
    if text not in ISOLATIONS:
        raise ConfigurationError(key, text, " or ".join(ISOLATIONS))
    return ISOLATIONS[text]


def _switch(key: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(key, text, "true or false")
    return text.lower() == "true"


def _pattern(key: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigurationError(key, text, f"a regular expression ({error})") from None


def _limit(key: str, properties: Mapping[str, str]) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    if not (text.isdecimal() and int(text) > 0):
        raise ConfigurationError(key, text, "a whole number above 0")
    return int(text)


def parse_addresses(key: str, text: str) -> tuple[Address, ...]:
    """HOST:PORT,HOST:PORT as pairs; raises ConfigurationError."""
    parts = [part for part in (piece.strip() for piece in text.split(",")) if part]
    matches = [_ADDRESS.fullmatch(part) for part in parts]
    addresses = tuple((m[1] or m[2], int(m[3])) for m in matches if m is not None and 0 < int(m[3]) < 65536)
    if not parts or len(addresses) < len(parts):
        raise ConfigurationError(key, text, "HOST:PORT,HOST:PORT of the source's brokers")
    return addresses
