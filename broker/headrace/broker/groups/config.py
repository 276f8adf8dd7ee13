"""The group coordinator's settings, with Apache Kafka 3.9's names, units and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of one broker's coordinator; the two `_count_max` bound what clients can make it hold."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    group_size_max: int = 2_147_483_647
    offset_metadata_size_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_load_buffer_size: int = 5_242_880
    offsets_commit_timeout_ms: int = 5_000
    offsets_topic_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600
    offsets_topic_compression_codec: int = 0
    groups_count_max: int = 100_000
    pending_members_count_max: int = 10_000

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> GroupConfig:
        """Take the coordinator's keys from `server.properties`; values have been checked by the broker's configuration."""

        def number(key: str, default: int) -> int:
            return int(properties.get(key, default))

        return cls(
            initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms", 3_000),
            session_timeout_ms_min=number("group.min.session.timeout.ms", 6_000),
            session_timeout_ms_max=number("group.max.session.timeout.ms", 1_800_000),
            group_size_max=number("group.max.size", 2_147_483_647),
            offset_metadata_size_max=number("offset.metadata.max.bytes", 4_096),
            offsets_retention_ms=number("offsets.retention.minutes", 10_080) * 60_000,
            offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms", 600_000),
            offsets_load_buffer_size=number("offsets.load.buffer.size", 5_242_880),
            offsets_commit_timeout_ms=number("offsets.commit.timeout.ms", 5_000),
            offsets_topic_partitions=number("offsets.topic.num.partitions", 50),
            offsets_topic_replication_factor=number("offsets.topic.replication.factor", 3),
            offsets_topic_segment_bytes=number("offsets.topic.segment.bytes", 104_857_600),
            offsets_topic_compression_codec=number("offsets.topic.compression.codec", 0),
        )
