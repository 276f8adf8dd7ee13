"""AlterPartition in every version: what is written, and what an answer says."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headrace.broker.errors import ErrorCode
from headrace.broker.replication import alter_partition
from headrace.broker.replication.events import ProposedIsr
from headrace.broker.replication.isr_proposals import ProposalOf
from headrace.broker.replication.leader import IsrProposal
from headrace.broker.replication.model import PartitionState
from headrace.broker.wire.api import k56_alter_partition
from headrace.broker.wire.fields import ZERO_UUID

API = k56_alter_partition.API
TOPIC_ID = UUID(int=9)
PROPOSALS = [
    ProposalOf(
        "t",
        partition,
        TOPIC_ID,
        IsrProposal(isr=(1, 3), broker_epochs=(-1, 30), leader_epoch=4, partition_epoch=partition),
    )
    for partition in (0, 1)
]


@pytest.mark.parametrize("version", range(4))
def test_a_request_says_the_same_in_each_version(version: int) -> None:
    message = alter_partition.request(PROPOSALS, version, broker_id=1, broker_epoch=7)
    read = API.decode_request(version, memoryview(API.encode_request(version, message)), 0)
    assert (read["broker_id"], read["broker_epoch"]) == (1, 7)
    (topic,) = read["topics"]
    assert (topic["topic_name"] == "t") if version < 2 else (topic["topic_id"] == TOPIC_ID)
    assert [p["partition_index"] for p in topic["partitions"]] == [0, 1]
    first = topic["partitions"][0]
    isr = (
        [(b["broker_id"], b["broker_epoch"]) for b in first["new_isr_with_epochs"]]
        if version == 3
        else first["new_isr"]
    )
    assert isr == ([(1, -1), (3, 30)] if version == 3 else [1, 3])
    assert (first["leader_epoch"], first["partition_epoch"]) == (4, 0)


def answer(version: int, *partitions: dict[str, Any]) -> dict[str, Any]:
    topic: dict[str, Any] = {"topic_name": "t"} if version < 2 else {"topic_id": TOPIC_ID}
    message = {"error_code": 0, "topics": [topic | {"partitions": list(partitions)}]}
    return API.decode_response(version, memoryview(API.encode_response(version, message)), 0)


@pytest.mark.parametrize("version", range(4))
def test_an_answer_is_a_state_or_an_error_for_each_partition(version: int) -> None:
    taken = {"partition_index": 0, "leader_id": 1, "leader_epoch": 4, "isr": [1, 3], "partition_epoch": 8}
    message = answer(version, taken, {"partition_index": 1, "error_code": ErrorCode.FENCED_LEADER_EPOCH})
    assert alter_partition.answers(message, version, PROPOSALS) == {
        ("t", 0): PartitionState(leader=1, leader_epoch=4, isr=(1, 3), controller_epoch=-1, zk_version=8),
        ("t", 1): ErrorCode.FENCED_LEADER_EPOCH,
    }


def test_odd_answers_are_no_states() -> None:
    odd = {"partition_index": 0, "leader_recovery_state": 2}
    message = answer(3, odd, {"partition_index": 1, "error_code": 9999})
    found = alter_partition.answers(message, 3, PROPOSALS)
    assert set(found.values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    message["topics"][0]["topic_id"] = UUID(int=10)
    assert alter_partition.answers(message, 3, PROPOSALS) == {}


def test_topics_without_an_id_are_named() -> None:
    assert alter_partition.version_max(PROPOSALS) == 3
    nameless = PROPOSALS[0]._replace(topic_id=ZERO_UUID)
    assert alter_partition.version_max([*PROPOSALS, nameless]) == 1
    event = alter_partition.event([nameless], broker_id=1, broker_epoch=7)
    assert event.proposals == (
        ProposedIsr(
            topic="t",
            partition=0,
            leader_epoch=4,
            partition_epoch=0,
            isr=(1, 3),
            broker_epochs=(-1, 30),
            leader_recovery_state=0,
        ),
    )
