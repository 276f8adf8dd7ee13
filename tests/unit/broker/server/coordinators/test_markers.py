"""Markers on their way: to this broker at once, to others over one connection, again until they are written or void."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from timed_loop import Loop

from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.handlers.k27_write_txn_markers import Ending
from headrace.broker.handlers.produce.outcome import Outcome
from headrace.broker.log.producers import COMMIT, Marker
from headrace.broker.replication.model import Endpoint
from headrace.broker.server.coordinators import markers
from headrace.broker.server.coordinators.markers import MarkerSender
from headrace.broker.txn.events import SendMarkers
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import TopicPartition

OWN, OTHER = 1, 2
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
WRITTEN, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER


class Cluster:
    """Leaders of partitions; every broker is where its number says."""

    def __init__(self) -> None:
        self.leaders = {T0: OWN, T1: OTHER}
        self.is_told = True

    def topics(self, name: str) -> object | None:
        return {} if self.is_told else None

    def partition(self, topic: str, partition: int) -> Any:
        leader = self.leaders.get(TopicPartition(topic, partition))
        return None if leader is None else SimpleNamespace(leader=leader)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        return Endpoint(listener=listener, security_protocol="PLAINTEXT", host=f"host-{broker_id}", port=9092)


class World:
    """A sender, what each broker was asked to write, and what was told of it; `errors` are what brokers answer."""

    def __init__(self) -> None:
        self.loop, self.cluster = Loop(), Cluster()
        self.asked: list[tuple[int, Sequence[Message | Ending]]] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.told: list[set[TopicPartition]] = []
        self.is_away = False
        self.running: list[Coroutine[Any, Any, Any]] = []
        self.sender = MarkerSender(
            OWN,
            self.cluster,
            listener="PLAINTEXT",
            timeout_ms=1000,
            connect=self.connect,
            tasks=self,
            scheduler=self.loop,
            written=lambda _, partitions: self.told.append(set(partitions)),
        )
        self.sender.write_local = self.write

    async def connect(self, address: Any, client_id: str, timeout_ms: int) -> Any:
        return self

    async def ask(self, api: Any, version: int, message: Message) -> Message:
        if self.is_away:
            raise ConnectionError("away")
        return self.answer(OTHER, message["markers"])

    def close(self) -> None:
        """Of a link."""

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        self.running.append(work)

    def run(self) -> None:
        """What was started comes to its end."""
        while self.running:
            asyncio.run(self.running.pop(0))

    def write(self, ending: Ending) -> list[Outcome]:
        self.asked.append((OWN, [ending]))
        return [self.outcome(place) for place in ending.partitions]

    def outcome(self, place: TopicPartition) -> Outcome:
        code = self.errors.get(place, WRITTEN)
        return Outcome(*place, None, None, None if code is WRITTEN else error_of(code, ""))

    def answer(self, broker_id: int, wanted: list[Message]) -> Message:
        self.asked.append((broker_id, wanted))
        return {
            "markers": [
                {
                    "producer_id": marker["producer_id"],
                    "topics": [
                        {
                            "name": topic["name"],
                            "partitions": [
                                {
                                    "partition_index": index,
                                    "error_code": self.errors.get(
                                        TopicPartition(topic["name"], index), WRITTEN
                                    ),
                                }
                                for index in topic["partition_indexes"]
                            ],
                        }
                        for topic in marker["topics"]
                    ],
                }
                for marker in wanted
            ]
        }

    def send(self, *partitions: TopicPartition, name: str = "tx", index: int = 0) -> None:
        self.sender.send(
            index,
            5,
            SendMarkers(
                transactional_id=name,
                producer=ProducerEpoch(7, 3),
                is_commit=True,
                partitions=frozenset(partitions),
            ),
        )


@pytest.fixture
def world() -> World:
    return World()


def test_each_leader_gets_its_own(world: World) -> None:
    world.send(T0, T1)
    assert world.told == [{T0}]
    world.run()
    assert world.told == [{T0}, {T1}]
    marker = {
        "producer_id": 7,
        "producer_epoch": 3,
        "transaction_result": True,
        "coordinator_epoch": 5,
    }
    assert world.asked == [
        (OWN, [Ending(ProducerEpoch(7, 3), Marker(COMMIT, 5), [T0])]),
        (OTHER, [{**marker, "topics": [{"name": "t", "partition_indexes": [1]}]}]),
    ]


def test_what_waits_for_a_broker_goes_with_one_request(world: World) -> None:
    for name in ("a", "b", "c"):
        world.send(T1, name=name)
    world.run()
    world.loop.run(1)
    world.run()
    assert [len(wanted) for _, wanted in world.asked] == [1, 2]


def test_markers_are_sent_again_until_they_are_written(world: World) -> None:
    world.errors[T0] = NOT_LEADER
    world.send(T0)
    world.cluster.leaders[T0] = OTHER
    world.errors.clear()
    world.is_away = True
    world.loop.run(markers.RETRY_MS)
    world.run()
    assert not world.told
    world.is_away = False
    world.loop.run(markers.RETRY_MS)
    world.run()
    assert (world.told[-1], world.asked[-1][0]) == ({T0}, OTHER)


def test_a_partition_without_a_leader_waits_and_one_that_is_gone_is_left_out(world: World) -> None:
    world.cluster.leaders[T0] = -1
    world.send(T0, T2)
    assert (world.told, world.asked) == ([{T2}], [])
    world.cluster.leaders[T0] = OWN
    world.loop.run(markers.RETRY_MS)
    assert world.told == [{T2}, {T0}]


def test_a_broker_that_was_told_of_nothing_takes_no_partition_for_gone(world: World) -> None:
    world.cluster.is_told = False
    world.send(T2)
    assert not world.told
    world.cluster.is_told = True
    world.cluster.leaders[T2] = OWN
    world.loop.run(markers.RETRY_MS)
    assert world.told == [{T2}]


@pytest.mark.parametrize(
    "error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH]
)
def test_who_was_replaced_gives_up(world: World, error: ErrorCode) -> None:
    world.errors[T0] = error
    world.send(T0, T1)
    world.loop.run(10 * markers.RETRY_MS)
    world.run()
    assert (world.told, len(world.asked)) == ([], 1)


def test_a_coordinator_that_resigned_sends_nothing_more(world: World) -> None:
    world.errors[T0] = NOT_LEADER
    world.send(T0, index=3)
    world.sender.forget(3)
    world.errors.clear()
    world.loop.run(10 * markers.RETRY_MS)
    assert (world.told, len(world.asked)) == ([], 1)


def test_an_answer_may_come_later(world: World) -> None:
    later: Deferred[list[Outcome]] = Deferred()
    world.sender.write_local = lambda _: later
    world.send(T0)
    assert not world.told
    later.complete([world.outcome(T0)])
    assert world.told == [{T0}]


def test_what_is_written_of_several_transactions_is_told_of_each(world: World) -> None:
    world.errors[T2] = NOT_LEADER
    world.cluster.leaders |= {T0: -1, T2: -1}
    for name, partitions in (("a", (T0, T2)), ("b", (T0,))):
        world.send(*partitions, name=name)
    world.cluster.leaders |= {T0: OWN, T2: OWN}
    world.loop.run(markers.RETRY_MS)
    assert world.told == [{T0}, {T0}]
    world.errors.clear()
    world.loop.run(markers.RETRY_MS)
    assert world.told == [{T0}, {T0}, {T2}]


def test_a_transaction_without_partitions_is_written_at_once(world: World) -> None:
    world.send()
    assert (world.told, world.asked) == ([set()], [])
