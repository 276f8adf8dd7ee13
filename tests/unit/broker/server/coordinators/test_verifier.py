"""Coordinators that are asked: this broker at once, others over one connection with all that waits, each question answered."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode
from headrace.broker.replication.model import Endpoint
from headrace.broker.server.coordinators import verifier
from headrace.broker.server.coordinators.verifier import Errors, Verifier
from headrace.broker.txn.events import VerifyPartitions
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import TopicPartition

OWN, OTHER, NOBODY = 1, 2, -1
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE, ABORTABLE = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
P3, P4, P5 = (ProducerEpoch(7, epoch) for epoch in (3, 4, 5))


class World:
    """A verifier; `errors` are what coordinators answer, `requests` what the other one was asked."""

    def __init__(self, leader: int = OTHER) -> None:
        self.leader = leader
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.request_error = NONE
        self.requests: list[list[Message]] = []
        self.is_away = False
        self.running: list[Coroutine[Any, Any, Any]] = []
        self.verifier = Verifier(
            OWN,
            self,  # type: ignore[arg-type]
            partition_for=lambda name: 0,
            ask_local=self.ask_local,
            is_in=lambda name, producer, partition: partition not in self.errors,
            listener="PLAINTEXT",
            timeout_ms=1000,
            connect=self.connect,
            tasks=self,
        )

    def partition(self, topic: str, partition: int) -> Any:
        return SimpleNamespace(leader=self.leader)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        return Endpoint(listener=listener, security_protocol="PLAINTEXT", host=f"host-{broker_id}", port=9092)

    def ask_local(self, request: VerifyPartitions) -> Deferred[Errors]:
        answer: Deferred[Errors] = Deferred()
        answer.complete({p: self.errors.get(p, NONE) for p in request.partitions})
        return answer

    async def connect(self, address: Any, client_id: str, timeout_ms: int) -> Any:
        return self

    async def ask(self, api: Any, version: int, message: Message) -> Message:
        if self.is_away:
            raise ConnectionError("away")
        self.requests.append(message["transactions"])
        if self.request_error is not NONE:
            return {"error_code": self.request_error, "results_by_transaction": []}
        return {"error_code": 0, "results_by_transaction": [self.result(t) for t in message["transactions"]]}

    def result(self, transaction: Message) -> Message:
        topics = [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {
                        "partition_index": index,
                        "partition_error_code": self.errors.get(TopicPartition(topic["name"], index), NONE),
                    }
                    for index in topic["partitions"]
                ],
            }
            for topic in transaction["topics"]
        ]
        return {"transactional_id": transaction["transactional_id"], "topic_results": topics}

    def close(self) -> None:
        """Of a link."""

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self.running.append(work)

    def run(self) -> None:
        """What was started comes to its end."""
        while self.running:
            asyncio.run(self.running.pop(0))

    def verify(
        self, *partitions: TopicPartition, name: str = "tx", producer: ProducerEpoch = P4, size: int = 0
    ) -> list[Errors]:
        """Where the answer will be."""
        answers: list[Errors] = []
        self.verifier.verify(name, producer, partitions, size).then(answers.append)
        return answers


@pytest.mark.parametrize("leader", [OWN, OTHER])
def test_the_coordinators_word_is_told(leader: int) -> None:
    world = World(leader)
    world.errors = {T1: ABORTABLE}
    answers = world.verify(T0, T1)
    world.run()
    assert answers == [{T0: NONE, T1: ABORTABLE}]
    world.errors = {T0: ErrorCode.PRODUCER_FENCED}
    answers = world.verify(T0)
    world.run()
    assert answers == [{T0: ErrorCode.INVALID_PRODUCER_EPOCH}]


@pytest.mark.parametrize("leader", [OWN, OTHER, NOBODY])
def test_at_once_only_this_broker_says_anything(leader: int) -> None:
    world = World(leader)
    world.errors = {T1: ABORTABLE}
    is_in = [world.verifier.is_in("tx", P4, place) for place in (T0, T1)]
    assert is_in == [leader == OWN, False]


def test_without_a_coordinator_it_is_not_available() -> None:
    assert World(NOBODY).verify(T0) == [{T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]


def test_what_comes_while_a_request_is_on_its_way_goes_with_the_next_one() -> None:
    world = World()
    answers = [world.verify(T0, name=f"tx-{number}") for number in range(3)]
    again = world.verify(T1, name="tx-1")
    assert len(world.running) == 1
    world.run()
    (request,) = world.requests
    assert [t["transactional_id"] for t in request] == ["tx-0", "tx-1", "tx-2"]
    assert [t["verify_only"] for t in request] == [True] * 3
    assert request[1]["topics"] == [{"name": "t", "partitions": [0, 1]}]
    assert answers[0] == [{T0: NONE}]
    assert answers[1] == again == [{T0: NONE, T1: NONE}]


def test_a_request_names_so_many_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "REQUEST_COUNT_MAX", 2)
    world = World()
    answers = [world.verify(T0, name=f"tx-{number}") for number in range(3)]
    world.run()
    assert [len(request) for request in world.requests] == [2, 1]
    assert answers == [[{T0: NONE}]] * 3


def test_a_higher_epoch_takes_the_place_of_a_lower_one() -> None:
    world = World()
    first = world.verify(T0, producer=P4)
    lower = world.verify(T0, producer=P3)
    assert (first, lower) == ([], [{T0: ErrorCode.INVALID_PRODUCER_EPOCH}])
    higher = world.verify(T1, producer=P5)
    assert first == [{T0: ErrorCode.INVALID_PRODUCER_EPOCH}]
    world.run()
    assert higher == [{T1: NONE}]
    assert [t["producer_epoch"] for t in world.requests[0]] == [5]


def test_another_producer_of_that_epoch_has_the_first_ask_again() -> None:
    world = World()
    first = world.verify(T0, producer=P4)
    second = world.verify(T0, producer=ProducerEpoch(8, 4))
    world.run()
    assert (first, second) == ([{T0: ErrorCode.NETWORK_EXCEPTION}], [{T0: NONE}])


def test_a_coordinator_that_does_not_answer_is_asked_again_by_who_comes_again() -> None:
    world = World()
    world.is_away = True
    answers = world.verify(T0)
    world.run()
    assert answers == [{T0: ErrorCode.NETWORK_EXCEPTION}]
    world.is_away = False
    answers = world.verify(T0)
    world.run()
    assert answers == [{T0: NONE}]


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_request_that_is_refused_refuses_all(theirs: ErrorCode, told: ErrorCode) -> None:
    world = World()
    world.request_error = theirs
    answers = world.verify(T0, T1)
    world.run()
    assert answers == [{T0: told, T1: told}]


def test_what_waits_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "QUESTIONS_MAX", 2)
    monkeypatch.setattr(verifier, "HELD_SIZE_MAX", 100)
    world = World()
    refused = [{T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]
    first = world.verify(T0, name="first", size=60)
    assert world.verify(T0, name="large", size=60) == refused
    world.verify(T0, name="second")
    assert world.verify(T0, name="third") == refused
    world.run()
    assert first == [{T0: NONE}]
    large = world.verify(T0, name="large", size=100)
    world.run()
    assert large == [{T0: NONE}]


def test_closing_answers_all() -> None:
    world = World()
    answers = world.verify(T0)
    world.verifier.close()
    assert answers == [{T0: ErrorCode.NETWORK_EXCEPTION}]
    world.run()
    assert world.requests == []
