"""AlterPartition between its messages of every version and the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from calls import call_in

from headrace.broker.errors import ErrorCode, NotControllerError
from headrace.broker.handlers import k56_alter_partition
from headrace.broker.replication.events import AnswerIsrProposal, IsrProposed
from headrace.broker.replication.model import RECOVERED, RECOVERING, PartitionState

TOPIC_ID = UUID(int=5)
LED = PartitionState(leader=1, leader_epoch=4, isr=(1, 2), controller_epoch=7, zk_version=6)


def asked(
    version: int, answer: AnswerIsrProposal | NotControllerError
) -> tuple[list[IsrProposed], dict[str, Any]]:
    """What the controller was asked for a request of that version, and the response, both through the codec."""
    seen: list[IsrProposed] = []

    async def control(event: IsrProposed) -> AnswerIsrProposal:
        seen.append(event)
        if isinstance(answer, NotControllerError):
            raise answer
        return answer

    def later(name: str, work: Awaitable[dict[str, Any]]) -> Any:
        return asyncio.run(work)  # type: ignore[arg-type]

    api = k56_alter_partition.API
    broker: Any = SimpleNamespace(control=SimpleNamespace(answer=control), later=later, authorizer=None)
    message = api.decode_request(version, api.encode_request(version, request(version)))
    response: Any = k56_alter_partition.handle(broker, call_in(version), message)
    return seen, api.decode_response(version, api.encode_response(version, response))


def request(version: int) -> dict[str, Any]:
    topic: dict[str, Any] = {"topic_id": TOPIC_ID} if version >= 2 else {"topic_name": "t"}
    partitions: list[dict[str, Any]] = []
    for index in (3, 0):
        partition: dict[str, Any] = {"partition_index": index, "leader_epoch": 4, "partition_epoch": 5}
        if version >= 3:
            partition["new_isr_with_epochs"] = [
                {"broker_id": 1, "broker_epoch": 8},
                {"broker_id": 2, "broker_epoch": -1},
            ]
        else:
            partition["new_isr"] = [1, 2]
        if version >= 1:
            partition["leader_recovery_state"] = RECOVERING
        partitions.append(partition)
    return {"broker_id": 1, "broker_epoch": 8, "topics": [{**topic, "partitions": partitions}]}


@pytest.mark.parametrize("version", range(4))
def test_a_request_of_any_version_is_a_proposal_for_each_partition(version: int) -> None:
    refused = ErrorCode.INELIGIBLE_REPLICA
    (proposed,), response = asked(version, AnswerIsrProposal(answers=(LED, refused)))
    assert (proposed.broker_id, proposed.broker_epoch) == (1, 8)
    assert [(p.topic, p.partition, p.leader_epoch, p.partition_epoch, p.isr) for p in proposed.proposals] == [
        (TOPIC_ID if version >= 2 else "t", 3, 4, 5, (1, 2)),
        (TOPIC_ID if version >= 2 else "t", 0, 4, 5, (1, 2)),
    ]
    assert {p.broker_epochs for p in proposed.proposals} == {(8, -1) if version >= 3 else (-1, -1)}
    assert {p.leader_recovery_state for p in proposed.proposals} == {RECOVERING if version else RECOVERED}
    assert response["error_code"] == ErrorCode.NONE
    (topic,) = response["topics"]
    assert topic["topic_id" if version >= 2 else "topic_name"] == (TOPIC_ID if version >= 2 else "t")
    told, code = topic["partitions"]
    assert (told["partition_index"], told["leader_id"], told["leader_epoch"]) == (3, 1, 4)
    assert (told["isr"], told["partition_epoch"], told["error_code"]) == ([1, 2], 6, ErrorCode.NONE)
    assert (code["partition_index"], code["error_code"]) == (
        0,
        refused if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED,
    )


@pytest.mark.parametrize("version", range(4))
def test_an_error_for_all_answers_no_partition(version: int) -> None:
    for answer, code in (
        (AnswerIsrProposal(error=ErrorCode.STALE_BROKER_EPOCH), ErrorCode.STALE_BROKER_EPOCH),
        (NotControllerError(), ErrorCode.NOT_CONTROLLER),
    ):
        _, response = asked(version, answer)
        assert (response["error_code"], response["topics"]) == (code, [])
