"""Which replica a consumer shall read from: one in its rack, when the leader is in another (KIP-392).

The rules are those of org.apache.kafka.common.replica.RackAwareReplicaSelector: only followers in sync are chosen, which
have what is asked for, the most advanced of them first.
"""

from __future__ import annotations

from headrace.broker.handlers.services import Services
from headrace.broker.replication.partition import Partition


def preferred_replica(broker: Services, partition: Partition, rack: str, offset: int) -> int | None:
    """The broker that the consumer is sent to; None when it is to read here."""
    leadership = partition.leadership
    if leadership is None or not broker.config.replication.replica_selector_class:
        return None
    brokers = broker.metadata.brokers
    leader = brokers.get(partition.broker_id)
    if leader is not None and leader.rack == rack:
        return None
    found = [
        (progress.end_offset, progress.caught_up_ms, -replica)
        for replica, progress in leadership.followers.items()
        if replica in partition.isr
        and progress.log_start_offset <= offset <= progress.end_offset
        and replica in brokers
        and brokers[replica].rack == rack
    ]
    return -max(found)[2] if found else None
