"""The topics in which coordinators keep their state, and what they are made with, unlike others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.broker.config.sections import Groups, Transactions

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


class StateTopic(NamedTuple):
    """A topic of coordinators, as it will be when it is made on demand."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


def offsets_topic(config: Groups) -> StateTopic:
    return StateTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {
            "compression.type": "producer",
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def transactions_topic(config: Transactions) -> StateTopic:
    return StateTopic(
        TRANSACTIONS_TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        {
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
