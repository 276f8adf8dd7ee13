"""The controller's commands as request messages, in the newest versions that Apache Kafka 3.9 brokers take.

A controller of a ZooKeeper cluster sends LeaderAndIsr 7, StopReplica 4 and UpdateMetadata 8; the KRaft
fields keep their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.events import (
    PartitionWord,
    ReplicasAnswered,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from headrace.broker.replication.model import Broker
from headrace.broker.wire.partitions import PartitionKey

LEADER_AND_ISR_VERSION = 7
STOP_REPLICA_VERSION = 4
UPDATE_METADATA_VERSION = 8
CONTROLLED_SHUTDOWN_VERSION = 3
SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


def leader_and_isr(
    command: SendLeaderAndIsr, *, controller_id: int, controller_epoch: int, listener: str
) -> dict[str, Any]:
    """`listener` is the one that brokers use between them."""
    return {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "broker_epoch": command.broker_epoch,
        "topic_states": [
            {
                "topic_name": words[0].topic,
                "topic_id": words[0].topic_id,
                "partition_states": [_leader_state(word) for word in words],
            }
            for words in _by_topic(command.partitions)
        ],
        "live_leaders": [
            {"broker_id": broker.broker_id, "host_name": endpoint.host, "port": endpoint.port}
            for broker in command.leaders
            if (endpoint := broker.endpoint(listener)) is not None
        ],
    }


def update_metadata(
    command: SendUpdateMetadata, *, controller_id: int, controller_epoch: int
) -> dict[str, Any]:
    """All live brokers and the partitions that changed."""
    return {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "broker_epoch": command.broker_epoch,
        "topic_states": [
            {
                "topic_name": words[0].topic,
                "topic_id": words[0].topic_id,
                "partition_states": [_metadata_state(word) for word in words],
            }
            for words in _by_topic(command.partitions)
        ],
        "live_brokers": [_live_broker(broker) for broker in command.brokers],
    }


def stop_replica(command: SendStopReplica, *, controller_id: int, controller_epoch: int) -> dict[str, Any]:
    """The replicas to stop, grouped by topic."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, partition, leader_epoch in command.partitions:
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "leader_epoch": leader_epoch,
                "delete_partition": command.delete,
            }
        )
    return {
        "controller_id": controller_id,
        "controller_epoch": controller_epoch,
        "broker_epoch": command.broker_epoch,
        "topic_states": [{"topic_name": t, "partition_states": states} for t, states in topics.items()],
    }


def stopped_partitions(response: Mapping[str, Any]) -> frozenset[PartitionKey]:
    """The partitions that a StopReplica response says were stopped."""
    if response["error_code"]:
        return frozenset()
    return frozenset(
        (p["topic_name"], p["partition_index"]) for p in response["partition_errors"] if not p["error_code"]
    )


def answered_replicas(command: SendLeaderAndIsr, response: Mapping[str, Any]) -> ReplicasAnswered:
    """Which replicas a LeaderAndIsr response says are in failed data directories, and which were taken.

    Those are also the ones that the broker knows in this leader epoch already: it took them when the request came before.
    """
    topics = {word.topic_id: word.topic for word in command.partitions}
    codes = {
        (topics[topic["topic_id"]], partition["partition_index"]): partition["error_code"]
        for topic in response.get("topics") or ()
        if topic["topic_id"] in topics
        for partition in topic["partition_errors"]
    }
    return ReplicasAnswered(
        broker_id=command.broker_id,
        offline=frozenset(key for key, code in codes.items() if code == ErrorCode.KAFKA_STORAGE_ERROR),
        online=frozenset(
            key for key, code in codes.items() if code in (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)
        ),
    )


def _by_topic(partitions: Iterable[PartitionWord]) -> Iterable[list[PartitionWord]]:
    topics: dict[str, list[PartitionWord]] = {}
    for word in partitions:
        topics.setdefault(word.topic, []).append(word)
    return topics.values()


def _leader_state(word: PartitionWord) -> dict[str, Any]:
    return {
        "partition_index": word.partition,
        "controller_epoch": word.state.controller_epoch,
        "leader": word.state.leader,
        "leader_epoch": word.state.leader_epoch,
        "isr": list(word.state.isr),
        "partition_epoch": word.state.zk_version,
        "replicas": list(word.assignment.replicas),
        "adding_replicas": list(word.assignment.adding),
        "removing_replicas": list(word.assignment.removing),
        "is_new": word.is_new,
        "leader_recovery_state": word.state.leader_recovery_state,
    }


def _metadata_state(word: PartitionWord) -> dict[str, Any]:
    return {
        "partition_index": word.partition,
        "controller_epoch": word.state.controller_epoch,
        "leader": word.state.leader,
        "leader_epoch": word.state.leader_epoch,
        "isr": list(word.state.isr),
        "zk_version": word.state.zk_version,
        "replicas": list(word.assignment.replicas),
        "offline_replicas": list(word.offline),
    }


def _live_broker(broker: Broker) -> dict[str, Any]:
    return {
        "id": broker.broker_id,
        "endpoints": [
            {
                "port": e.port,
                "host": e.host,
                "listener": e.listener,
                "security_protocol": SECURITY_PROTOCOL_IDS[e.security_protocol],
            }
            for e in broker.endpoints
        ],
        "rack": broker.rack,
    }
