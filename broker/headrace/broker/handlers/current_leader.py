"""The leader that an answer of NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH names at once (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.services import Metadata

LEADER_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class CurrentLeader(NamedTuple):
    """Both -1 when unknown."""

    leader_id: int = -1
    leader_epoch: int = -1


def current_leader(metadata: Metadata, topic: str, index: int) -> CurrentLeader:
    """Who leads the partition, as far as this broker knows."""
    known = metadata.partition(topic, index)
    return CurrentLeader() if known is None else CurrentLeader(known.leader, known.leader_epoch)


def node_endpoints(
    metadata: Metadata, listener: str, leaders: Iterable[CurrentLeader]
) -> list[dict[str, Any]]:
    """Where the live ones of these leaders are reached by clients of that listener."""
    found = []
    for broker_id in dict.fromkeys(leader.leader_id for leader in leaders):
        endpoint = metadata.endpoint(broker_id, listener)
        if endpoint is not None:
            rack = metadata.brokers[broker_id].rack
            found.append({"node_id": broker_id, "host": endpoint.host, "port": endpoint.port, "rack": rack})
    return found
