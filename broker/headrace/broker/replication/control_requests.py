"""What the controller asks of a broker: LeaderAndIsr, StopReplica and UpdateMetadata, as brokers perform them.

Made at the door from decoded messages of any version, whether they group partitions by topic or not; behind it nobody
looks into messages. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from headrace.broker.errors import ErrorCode, UnknownServerError
from headrace.broker.replication.model import (
    RECOVERED,
    Broker,
    Endpoint,
    PartitionMetadata,
    PartitionState,
)
from headrace.broker.wire.api import k04_leader_and_isr, k05_stop_replica, k06_update_metadata
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH

SECURITY_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


class ToldReplica(NamedTuple):
    """A partition that a broker is told to lead or to follow; the zero UUID is no topic id.

    `adding` and `removing` are filled while its assignment changes.
    """

    topic: str
    topic_id: UUID
    partition: int
    state: PartitionState
    replicas: tuple[int, ...]
    is_new: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class ToldStop(NamedTuple):
    """A replica that is to be stopped; a leader epoch below 0 is no fence."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


class ToldPartition(NamedTuple):
    """A partition as clients shall see it; its leader is LEADER_DURING_DELETE when it is going."""

    topic: str
    topic_id: UUID
    partition: int
    metadata: PartitionMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """Who asks, and which life of this broker is asked; NO_EPOCH: whichever it is."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr(ControlRequest):
    """These partitions are led so from now on."""

    partitions: tuple[ToldReplica, ...]

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> LeaderAndIsr:
        """The request in a decoded message."""
        return cls(
            **_sender(message),
            partitions=tuple(
                ToldReplica(
                    topic,
                    topic_id,
                    state["partition_index"],
                    PartitionState(
                        leader=state["leader"],
                        leader_epoch=state["leader_epoch"],
                        isr=tuple(state["isr"]),
                        controller_epoch=state["controller_epoch"],
                        zk_version=state["partition_epoch"],
                        leader_recovery_state=state.get("leader_recovery_state", RECOVERED),
                    ),
                    tuple(state["replicas"]),
                    state.get("is_new", False),
                    tuple(state.get("adding_replicas") or ()),
                    tuple(state.get("removing_replicas") or ()),
                )
                for topic, topic_id, state in _states(message)
            ),
        )

    def answer(self, codes: Iterable[ErrorCode], error: ErrorCode = ErrorCode.NONE) -> dict[str, Any]:
        """The response of all versions: what became of each partition, in their order, and of the whole."""
        topics: dict[str, tuple[UUID, list[dict[str, Any]]]] = {}
        for told, code in zip(self.partitions, codes, strict=True):
            answer = {"topic_name": told.topic, "partition_index": told.partition, "error_code": code}
            topics.setdefault(told.topic, (told.topic_id, []))[1].append(answer)
        return {
            "error_code": error,
            "partition_errors": [answer for _, answers in topics.values() for answer in answers],
            "topics": [{"topic_id": id_, "partition_errors": answers} for id_, answers in topics.values()],
        }

    def refused(self, error: ErrorCode) -> dict[str, Any]:
        """The response when none of it is done."""
        return self.answer([error] * len(self.partitions), error)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplica(ControlRequest):
    """These replicas stop, and are deleted where it says so."""

    replicas: tuple[ToldStop, ...]

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> StopReplica:
        """The request in a decoded message."""
        return cls(**_sender(message), replicas=tuple(_stops(message)))

    def answer(
        self, codes: Mapping[PartitionKey, ErrorCode], error: ErrorCode = ErrorCode.NONE
    ) -> dict[str, Any]:
        """The response: what became of each partition, and of the whole."""
        return {
            "error_code": error,
            "partition_errors": [
                {"topic_name": topic, "partition_index": partition, "error_code": code}
                for (topic, partition), code in codes.items()
            ],
        }

    def refused(self, error: ErrorCode) -> dict[str, Any]:
        """The response when none of it is done."""
        return self.answer({(told.topic, told.partition): error for told in self.replicas}, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadata(ControlRequest):
    """All brokers that are alive, and the partitions of which there is news."""

    brokers: tuple[Broker, ...]
    partitions: tuple[ToldPartition, ...]

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> UpdateMetadata:
        """The request in a decoded message. Raises UnknownServerError for an endpoint that speaks no known protocol."""
        return cls(
            **_sender(message),
            brokers=tuple(_broker_of(live) for live in message["live_brokers"]),
            partitions=tuple(
                ToldPartition(
                    topic,
                    topic_id,
                    state["partition_index"],
                    PartitionMetadata(
                        leader=state["leader"],
                        leader_epoch=state["leader_epoch"],
                        replicas=tuple(state["replicas"]),
                        isr=tuple(state["isr"]),
                        offline_replicas=tuple(state.get("offline_replicas") or ()),
                    ),
                )
                for topic, topic_id, state in _states(message)
            ),
        )

    def refused(self, error: ErrorCode) -> dict[str, Any]:
        """The response when none of it is done."""
        return {"error_code": error}


_BY_KEY: dict[int, type[LeaderAndIsr | StopReplica | UpdateMetadata]] = {
    k04_leader_and_isr.API.key: LeaderAndIsr,
    k05_stop_replica.API.key: StopReplica,
    k06_update_metadata.API.key: UpdateMetadata,
}


def control_request(key: int, message: Mapping[str, Any]) -> LeaderAndIsr | StopReplica | UpdateMetadata:
    """The request in a decoded message of that API key."""
    return _BY_KEY[key].of(message)


def _sender(message: Mapping[str, Any]) -> dict[str, int]:
    return {
        "controller_id": message["controller_id"],
        "controller_epoch": message["controller_epoch"],
        "broker_epoch": message.get("broker_epoch", NO_EPOCH),
    }


def _states(message: Mapping[str, Any]) -> Iterable[tuple[str, UUID, Mapping[str, Any]]]:
    """(topic, topic id, partition state), grouped by topic or not."""
    for topic in message.get("topic_states") or ():
        for state in topic["partition_states"]:
            yield topic["topic_name"], topic.get("topic_id") or ZERO_UUID, state
    for state in message.get("ungrouped_partition_states") or ():
        yield state["topic_name"], ZERO_UUID, state


def _stops(message: Mapping[str, Any]) -> Iterable[ToldStop]:
    for topic in message.get("topic_states") or ():
        for state in topic["partition_states"]:
            epoch, delete = state["leader_epoch"], state["delete_partition"]
            yield ToldStop(topic["topic_name"], state["partition_index"], epoch, delete)
    delete = bool(message.get("delete_partitions"))
    for topic in message.get("topics") or ():
        for partition in topic["partition_indexes"]:
            yield ToldStop(topic["name"], partition, NO_EPOCH, delete)
    for partition in message.get("ungrouped_partitions") or ():
        yield ToldStop(partition["topic_name"], partition["partition_index"], NO_EPOCH, delete)


def _broker_of(live: Mapping[str, Any]) -> Broker:
    endpoints = tuple(_endpoint_of(endpoint) for endpoint in live.get("endpoints") or ())
    if not endpoints and live.get("v0_host"):
        endpoints = (
            Endpoint(
                listener="PLAINTEXT",
                security_protocol="PLAINTEXT",
                host=live["v0_host"],
                port=live["v0_port"],
            ),
        )
    return Broker(broker_id=live["id"], epoch=-1, endpoints=endpoints, rack=live.get("rack"))


def _endpoint_of(told: Mapping[str, Any]) -> Endpoint:
    protocol = SECURITY_PROTOCOLS.get(told["security_protocol"])
    if protocol is None:
        raise UnknownServerError(f"{told['security_protocol']} is the number of no security protocol")
    return Endpoint(
        listener=told.get("listener") or protocol,
        security_protocol=protocol,
        host=told["host"],
        port=told["port"],
    )
