"""The controller's commands as requests: made when they are first needed, once for all brokers that get the same.

Invariant: a request tells of `PARTITIONS_PER_REQUEST_MAX` partitions at most, so that neither who makes it nor who performs
it keeps others waiting. A controller of a ZooKeeper cluster leaves the fields of KRaft at their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from struct import Struct
from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.events import (
    PartitionWord,
    ReplicasAnswered,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from headrace.broker.replication.model import RECOVERED, Broker
from headrace.broker.replication.versions import Versions
from headrace.broker.wire.api import k04_leader_and_isr, k05_stop_replica, k06_update_metadata
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.schema import Api
from headrace.broker.wire.special_values import NO_EPOCH

CONTROLLED_SHUTDOWN_VERSION = 3
PARTITIONS_PER_REQUEST_MAX = 100
SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
Command = SendLeaderAndIsr | SendUpdateMetadata | SendStopReplica
_EPOCH = Struct(">q")


class SharedRequest:
    """One request for several brokers, an API of its own to who sends it: asked with the epoch of a broker's registration,
    in which alone its bytes differ.
    """

    def __init__(self, api: Api, version: int, make: Callable[[], Message]) -> None:
        self.key, self.name, self.version = api.key, api.name, version
        self.decode_response = api.decode_response
        self._api = api
        self._make = make
        self._message: Message | None = None
        self._encoded: bytearray | None = None

    def message(self, broker_epoch: int) -> Message:
        """For that broker."""
        if self._message is None:
            self._message = self._make()
        return {**self._message, "broker_epoch": broker_epoch}

    def encode_request(self, version: int, broker_epoch: int) -> bytes:
        """The bytes for that broker; `version` is the request's own."""
        if self._encoded is None:
            self._encoded = bytearray(self._api.encode_request(self.version, self.message(NO_EPOCH)))
        _EPOCH.pack_into(self._encoded, self._place, broker_epoch)
        return bytes(self._encoded)

    @property
    def _place(self) -> int:
        """Where the broker epoch is: behind the controller's id and epoch and, in the newest version, `is_kraft_controller`."""
        return 9 if self.version == self._api.versions[1] else 8


class Maker:
    """Makes the requests of one controller's term; `listener` is the one that brokers use between them."""

    def __init__(
        self, *, controller_id: int, controller_epoch: int, listener: str, versions: Versions
    ) -> None:
        self._office = {"controller_id": controller_id, "controller_epoch": controller_epoch}
        self._listener = listener
        self._versions = versions
        # The last command of each kind with its requests: the next broker mostly is to hear the same.
        self._last: dict[type, tuple[Command, list[SharedRequest]]] = {}

    def requests(self, command: Command) -> Sequence[tuple[Command, SharedRequest]]:
        """The command cut into pieces, each with its request."""
        pieces = _pieces(command)
        before, made = self._last.get(type(command), (None, []))
        if before is None or not _say_the_same(before, command):
            made = [self._request(piece) for piece in pieces]
            self._last[type(command)] = command, made
        return list(zip(pieces, made, strict=True))

    def done(self) -> None:
        """All brokers were told: what comes is another matter."""
        self._last.clear()

    def _request(self, command: Command) -> SharedRequest:
        match command:
            case SendLeaderAndIsr():
                version = self._versions.leader_and_isr
                return SharedRequest(k04_leader_and_isr.API, version, lambda: self.leader_and_isr(command))
            case SendUpdateMetadata():
                version = self._versions.update_metadata
                return SharedRequest(k06_update_metadata.API, version, lambda: self.update_metadata(command))
            case SendStopReplica():
                version = self._versions.stop_replica
                return SharedRequest(k05_stop_replica.API, version, lambda: self.stop_replica(command))

    def leader_and_isr(self, command: SendLeaderAndIsr) -> Message:
        """Who leads these partitions, and where the leaders are."""
        tells_recovery = self._versions.tells_recovery
        return {
            **self._office,
            "topic_states": [
                {
                    "topic_name": words[0].topic,
                    "topic_id": words[0].topic_id,
                    "partition_states": [_leader_state(word, tells_recovery) for word in words],
                }
                for words in _by_topic(command.partitions)
            ],
            "live_leaders": [
                {"broker_id": broker.broker_id, "host_name": endpoint.host, "port": endpoint.port}
                for broker in command.leaders
                if (endpoint := broker.endpoint(self._listener)) is not None
            ],
        }

    def update_metadata(self, command: SendUpdateMetadata) -> Message:
        """All live brokers and the partitions that changed."""
        return {
            **self._office,
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

    def stop_replica(self, command: SendStopReplica) -> Message:
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
            **self._office,
            "topic_states": [{"topic_name": t, "partition_states": states} for t, states in topics.items()],
        }


def _pieces(command: Command) -> list[Command]:
    partitions: Sequence[Any] = command.partitions
    if len(partitions) <= PARTITIONS_PER_REQUEST_MAX:
        return [command]
    slices: Iterable[Any] = (
        partitions[first : first + PARTITIONS_PER_REQUEST_MAX]
        for first in range(0, len(partitions), PARTITIONS_PER_REQUEST_MAX)
    )
    return [replace(command, partitions=piece) for piece in slices]


def _say_the_same(one: Command, other: Command) -> bool:
    """Whether two commands differ in their brokers alone."""
    if one.partitions is not other.partitions:
        return False
    return replace(one, broker_id=other.broker_id, broker_epoch=other.broker_epoch) == other


def stopped_partitions(response: Mapping[str, Any]) -> frozenset[PartitionKey]:
    """The partitions that a StopReplica response says were stopped."""
    if response["error_code"]:
        return frozenset()
    return frozenset(
        (p["topic_name"], p["partition_index"]) for p in response["partition_errors"] if not p["error_code"]
    )


def answered_replicas(command: SendLeaderAndIsr, response: Mapping[str, Any]) -> ReplicasAnswered:
    """Which replicas a LeaderAndIsr response says are in failed data directories, and which were taken.

    A response with an error of its own says nothing of them.
    Those are also the ones that the broker knows in this leader epoch already: it took them when the request came before.
    """
    topics = {word.topic_id: word.topic for word in command.partitions}
    codes = {
        (topics[topic["topic_id"]], partition["partition_index"]): partition["error_code"]
        for topic in (() if response["error_code"] else response.get("topics") or ())
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


def _leader_state(word: PartitionWord, tells_recovery: bool) -> dict[str, Any]:
    recovery = word.state.leader_recovery_state if tells_recovery else RECOVERED
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
        "leader_recovery_state": recovery,
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
