"""What one partition's log runs with: the broker's defaults under the topic's own overrides.

`LogConfig` is frozen; a bad override is an InvalidConfigError that names the key, the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.broker.config import sections
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.copies import OWN_TOPIC_CONFIGS, is_mirror_copy
from headrace.broker.config.inert import INERT_TOPIC_CONFIGS
from headrace.broker.config.keys import (
    LONG_MAX,
    ConfigurationError,
    Key,
    boolean,
    default_of,
    double,
    integer,
    keys_of,
    long,
    string,
    strings,
    text_of,
    without_aliases,
)
from headrace.broker.errors import InvalidConfigError

TOPIC_ALIASES = {
    "message.timestamp.difference.max.ms": (
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
    ),
}
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


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
    """Whether only the mirror writes to it; see `config.copies`."""

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
            for name, text in without_aliases(overrides, TOPIC_ALIASES).items():
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
