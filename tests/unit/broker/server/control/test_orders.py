"""The controller's commands on their way: in pieces, and what their answers say to it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from headrace.broker.replication import events as ev
from headrace.broker.replication.model import (
    LEADER_DURING_DELETE,
    Broker,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
)
from headrace.broker.replication.requests import PARTITIONS_PER_REQUEST_MAX
from headrace.broker.replication.versions import versions_of
from headrace.broker.server.control.orders import Orders

COUNT = PARTITIONS_PER_REQUEST_MAX + 1
CORE: Any = SimpleNamespace(
    cluster=SimpleNamespace(
        brokers={
            1: Broker(
                broker_id=1,
                epoch=10,
                endpoints=(Endpoint(listener="INSIDE", security_protocol="PLAINTEXT", host="h", port=9092),),
            )
        },
        offline={},
    )
)
TOPIC_ID = UUID(int=5)


def sent(command: Any, responses: Callable[[dict[str, Any]], dict[str, Any]]) -> list[ev.Event | None]:
    """What the controller hears upon the answer to each request; None for nothing."""
    heard: list[ev.Event | None] = []
    queued: list[tuple[Any, int, Callable[[dict[str, Any]], None] | None]] = []

    def queue(
        broker_id: int, endpoint: Any, request: Any, version: int, broker_epoch: int, answered: Any
    ) -> None:
        queued.append((request, broker_epoch, answered))

    orders = Orders(
        SimpleNamespace(send=queue),  # type: ignore[arg-type]
        1,
        "INSIDE",
        versions_of("3.9"),
        lambda core, event: heard.append(event),
    )
    orders.begin(7)
    orders.send(command, CORE)
    found: list[ev.Event | None] = []
    for request, broker_epoch, answered in queued:
        heard.clear()
        if answered is not None:
            answered(responses(request.message(broker_epoch)))
        found += heard or [None]
    return found


def word(partition: int, leader: int) -> ev.PartitionWord:
    state = PartitionState(leader=leader, leader_epoch=4, isr=(1,), controller_epoch=7)
    return ev.PartitionWord(
        topic="t",
        topic_id=TOPIC_ID,
        partition=partition,
        state=state,
        assignment=ReplicaAssignment(replicas=(1,)),
    )


def test_a_topic_is_hidden_once_its_last_partition_is() -> None:
    going = tuple(word(p, LEADER_DURING_DELETE) for p in range(COUNT))
    command = ev.SendUpdateMetadata(broker_id=1, broker_epoch=10, partitions=going, brokers=())
    hidden = ev.TopicsHidden(broker_id=1, topics=frozenset({"t"}))
    assert sent(command, lambda message: {"error_code": 0}) == [None, hidden]
    assert sent(command, lambda message: {"error_code": 77}) == [None, None]


def test_each_piece_says_which_replicas_were_deleted() -> None:
    replicas = tuple(("t", p, -2) for p in range(COUNT))
    command = ev.SendStopReplica(broker_id=1, broker_epoch=10, partitions=replicas, delete=True)

    def response(message: dict[str, Any]) -> dict[str, Any]:
        (topic,) = message["topic_states"]
        errors = [
            {"topic_name": "t", "partition_index": state["partition_index"], "error_code": 0}
            for state in topic["partition_states"]
        ]
        return {"error_code": 0, "partition_errors": errors}

    first, last = sent(command, response)
    assert isinstance(first, ev.ReplicasDeleted)
    assert first.partitions == {("t", p) for p in range(PARTITIONS_PER_REQUEST_MAX)}
    assert last == ev.ReplicasDeleted(broker_id=1, partitions=frozenset({("t", COUNT - 1)}))


def test_replicas_that_are_out_of_reach_are_told_by_the_piece_that_asked_for_them() -> None:
    led = tuple(word(p, 1) for p in range(COUNT))
    command = ev.SendLeaderAndIsr(broker_id=1, broker_epoch=10, partitions=led, leaders=())

    def response(message: dict[str, Any]) -> dict[str, Any]:
        (topic,) = message["topic_states"]
        errors = [
            {
                "partition_index": state["partition_index"],
                "error_code": 56 * (state["partition_index"] == COUNT - 1),
            }
            for state in topic["partition_states"]
        ]
        return {"error_code": 0, "topics": [{"topic_id": TOPIC_ID, "partition_errors": errors}]}

    assert sent(command, response) == [
        None,
        ev.ReplicasAnswered(broker_id=1, offline=frozenset({("t", COUNT - 1)}), online=frozenset()),
    ]
