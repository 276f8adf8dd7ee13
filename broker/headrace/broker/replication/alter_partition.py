"""AlterPartition as a leader writes the request and reads the answer, in all versions.

Pure. Version 0 and 1 name topics, 2 has their ids (KIP-704 is version 1, KIP-903's broker epochs are version 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.replication.events import IsrAnswer, IsrProposed, ProposedIsr
from headrace.broker.replication.isr_proposals import ProposalOf
from headrace.broker.replication.model import RECOVERED, RECOVERING, PartitionState
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH

LAST_VERSION_BY_NAME, LAST_VERSION = 1, 3
FIRST_VERSION_WITH_BROKER_EPOCHS = 3


def version_max(proposals: Iterable[ProposalOf]) -> int:
    """The highest version that can carry them: topics without an id have to be named."""
    return LAST_VERSION_BY_NAME if any(p.topic_id == ZERO_UUID for p in proposals) else LAST_VERSION


def request(
    proposals: Iterable[ProposalOf], version: int, *, broker_id: int, broker_epoch: int
) -> dict[str, Any]:
    """The message; a leader that takes part in elections has nothing left to recover from."""
    topics: dict[str, dict[str, Any]] = {}
    for topic, partition, topic_id, proposal in proposals:
        name: dict[str, Any] = (
            {"topic_name": topic} if version <= LAST_VERSION_BY_NAME else {"topic_id": topic_id}
        )
        told = topics.setdefault(topic, name | {"partitions": []})
        isr: dict[str, Any] = {"new_isr": list(proposal.isr)}
        if version >= FIRST_VERSION_WITH_BROKER_EPOCHS:
            members = zip(proposal.isr, proposal.broker_epochs, strict=True)
            isr = {"new_isr_with_epochs": [{"broker_id": b, "broker_epoch": e} for b, e in members]}
        told["partitions"].append(
            isr
            | {
                "partition_index": partition,
                "leader_epoch": proposal.leader_epoch,
                "partition_epoch": proposal.partition_epoch,
            }
        )
    return {"broker_id": broker_id, "broker_epoch": broker_epoch, "topics": list(topics.values())}


def answers(
    message: Mapping[str, Any], version: int, proposals: Iterable[ProposalOf]
) -> dict[PartitionKey, IsrAnswer]:
    """What the controller says of each partition; of those that it passes over, nothing."""
    topics = {p.topic_id: p.topic for p in proposals}
    found: dict[PartitionKey, IsrAnswer] = {}
    for told in message["topics"]:
        topic = told["topic_name"] if version <= LAST_VERSION_BY_NAME else topics.get(told["topic_id"])
        if topic is not None:
            found |= {(topic, p["partition_index"]): _answer(p) for p in told["partitions"]}
    return found


def _answer(told: Mapping[str, Any]) -> IsrAnswer:
    if told["error_code"]:
        return error_of(told["error_code"]).code
    recovery = told.get("leader_recovery_state", RECOVERED)
    if recovery not in (RECOVERED, RECOVERING):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return PartitionState(
        leader=told["leader_id"],
        leader_epoch=told["leader_epoch"],
        isr=tuple(told["isr"]),
        controller_epoch=NO_EPOCH,
        zk_version=told["partition_epoch"],
        leader_recovery_state=recovery,
    )


def event(proposals: Sequence[ProposalOf], *, broker_id: int, broker_epoch: int) -> IsrProposed:
    """The same for a controller in this process."""
    return IsrProposed(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        proposals=tuple(
            ProposedIsr(
                topic=p.topic if p.topic_id == ZERO_UUID else p.topic_id,
                partition=p.partition,
                leader_epoch=p.proposal.leader_epoch,
                partition_epoch=p.proposal.partition_epoch,
                isr=p.proposal.isr,
                broker_epochs=p.proposal.broker_epochs,
                leader_recovery_state=RECOVERED,
            )
            for p in proposals
        ),
    )
