"""Metadata answers: kept while they are true, for those who asked the same by the same listener."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from calls import call_of

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers import k03_metadata
from headrace.broker.handlers.metadata_bodies import MetadataBodies
from headrace.broker.quotas.usage import unlimited
from headrace.broker.replication.model import Broker, Endpoint
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire import frames
from headrace.broker.wire.api.k03_metadata import API


class FakeMetadata:
    """One broker with two listeners and the topics that the test sets."""

    def __init__(self) -> None:
        self.version = 1
        self.cluster_id, self.controller_id = "cluster", 1
        endpoints = tuple(
            Endpoint(listener=name, security_protocol="PLAINTEXT", host="h", port=port)
            for name, port in (("INSIDE", 1), ("OUTSIDE", 2))
        )
        self.brokers = {1: Broker(broker_id=1, epoch=1, endpoints=endpoints)}
        self.led: dict[str, int] = {"pageviews": 1}
        self.expected: set[str] = set()

    def is_expected(self, topic: str) -> bool:
        return topic in self.expected

    def topic_names(self) -> list[str]:
        return sorted(self.led)

    def topics(self, name: str) -> Any:
        if name not in self.led:
            return None
        partition = SimpleNamespace(
            leader=self.led[name], leader_epoch=0, replicas=(1,), isr=(1,), offline_replicas=()
        )
        return {0: partition}

    def topic_id(self, name: str) -> UUID:
        return UUID(int=7)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        broker = self.brokers.get(broker_id)
        return broker.endpoint(listener) if broker is not None else None


@pytest.fixture
def broker() -> Any:
    created: list[str] = []
    return SimpleNamespace(
        metadata=FakeMetadata(),
        metadata_bodies=MetadataBodies(),
        authorizer=None,
        slicing=asyncio.Lock(),
        metrics=BrokerMetrics(),
        config=SimpleNamespace(topics=SimpleNamespace(auto_create_topics_enable=True)),
        topics=SimpleNamespace(
            auto_create=lambda names, allowance: created.extend(names),
            error_on_demand=lambda name: ErrorCode.LEADER_NOT_AVAILABLE,
        ),
        client_usage=unlimited(),
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        configurations=SimpleNamespace(is_mirrored=lambda name: name.startswith("dc-east.")),
        created=created,
    )


def ask(broker: Any, *names: str, version: int = 12, listener: str = "INSIDE") -> dict[str, Any]:
    message = {"topics": [{"name": name} for name in names]}
    frame = memoryview(
        frames.encode_request_header(3, version, 1, None) + API.encode_request(version, message)
    )
    parts = k03_metadata.handle(broker, call_of(frame, listener=listener), frame)
    assert not isinstance(parts, Deferred)
    (data,) = parts
    assert isinstance(data, bytes)
    _, offset = frames.read_response_header(3, version, data[4:])
    return API.decode_response(version, data[4:], offset)


def test_an_answer_is_kept_until_the_metadata_changes(broker: Any) -> None:
    assert ask(broker, "pageviews")["topics"][0]["error_code"] == 0
    broker.metadata.led["pageviews"] = -1
    assert ask(broker, "pageviews")["topics"][0]["partitions"][0]["leader_id"] == 1
    broker.metadata.version += 1
    partition = ask(broker, "pageviews")["topics"][0]["partitions"][0]
    assert (partition["leader_id"], partition["error_code"]) == (-1, 5)


def test_each_listener_has_answers_of_its_own(broker: Any) -> None:
    assert ask(broker)["brokers"][0]["port"] == 1
    assert ask(broker, listener="OUTSIDE")["brokers"][0]["port"] == 2


def test_an_unknown_topic_is_created_and_its_answer_not_kept(broker: Any) -> None:
    for _ in range(2):
        assert ask(broker, "new")["topics"][0]["error_code"] == 5
    assert broker.created == ["new", "new"]
    broker.metadata.led["new"] = 1
    assert ask(broker, "new")["topics"][0]["error_code"] == 0


def test_an_asker_is_told_why_a_topic_cannot_be_created(broker: Any) -> None:
    broker.topics.error_on_demand = lambda name: ErrorCode.INVALID_REPLICATION_FACTOR
    for _ in range(2):
        assert ask(broker, "new")["topics"][0]["error_code"] == 38
    broker.topics.error_on_demand = lambda name: ErrorCode.LEADER_NOT_AVAILABLE
    assert ask(broker, "new")["topics"][0]["error_code"] == 5


def test_others_have_the_loop_between_topics_that_are_looked_up(broker: Any) -> None:
    looked_up: list[str] = []

    def error_on_demand(name: str) -> ErrorCode:
        looked_up.append(name)
        return ErrorCode.LEADER_NOT_AVAILABLE

    broker.topics.error_on_demand = error_on_demand
    message = {"topics": [{"name": name} for name in ("a", "b", "c")]}
    frame = memoryview(frames.encode_request_header(3, 12, 1, None) + API.encode_request(12, message))
    work = k03_metadata._body(broker, call_of(frame, listener="INSIDE"), frame)
    for count in (1, 2):
        next(work)
        assert len(looked_up) == count
    with pytest.raises(StopIteration) as end:
        next(work)
    codes = [topic["error_code"] for topic in API.decode_response(12, end.value.value)["topics"]]
    assert (looked_up, codes, broker.created) == (["a", "b", "c"], [5, 5, 5], ["a", "b", "c"])


def test_without_auto_creation_an_unknown_topic_stays_unknown(broker: Any) -> None:
    broker.config.topics.auto_create_topics_enable = False
    assert ask(broker, "new")["topics"][0]["error_code"] == 3
    assert broker.created == []


@pytest.mark.parametrize("may_create", [True, False])
def test_a_topic_that_the_controller_has_yet_to_tell_of_is_not_unknown(broker: Any, may_create: bool) -> None:
    broker.config.topics.auto_create_topics_enable = may_create
    broker.topics.error_on_demand = lambda name: ErrorCode.INVALID_REPLICATION_FACTOR
    broker.metadata.expected = {"orders", "dc-east.orders"}
    codes = [topic["error_code"] for topic in ask(broker, "orders", "dc-east.orders")["topics"]]
    assert codes == [5, 5]
    assert broker.created == []


def test_a_name_for_a_copy_is_left_to_the_mirror(broker: Any) -> None:
    codes = [topic["error_code"] for topic in ask(broker, "dc-east.new", "new")["topics"]]
    assert codes == [3, 5]
    assert broker.created == ["new"]


def test_kept_answers_have_a_bound() -> None:
    bodies = MetadataBodies()
    body = bytes(1 << 20)
    for i in range(100):
        bodies.put((1, 0), (12, "L", str(i).encode(), None), body)
    kept = [i for i in range(100) if bodies.get((1, 0), (12, "L", str(i).encode(), None)) is not None]
    assert 0 < len(kept) <= 8
    bodies.put((1, 0), (12, "L", b"huge", None), bytes(9 << 20))
    assert bodies.get((1, 0), (12, "L", b"huge", None)) is None


def test_a_leader_without_the_clients_listener_is_told_as_that_from_version_6_on(broker: Any) -> None:
    errors = {
        version: ask(broker, "pageviews", version=version, listener="NOWHERE")["topics"][0]["partitions"][0][
            "error_code"
        ]
        for version in (5, 6, 12)
    }
    assert errors == {5: 5, 6: 72, 12: 72}


def test_many_small_kept_answers_have_a_bound_too() -> None:
    bodies = MetadataBodies()
    for i in range(20_000):
        bodies.put((1, 0), (12, "L", str(i).encode(), None), b"")
    kept = [i for i in range(20_000) if bodies.get((1, 0), (12, "L", str(i).encode(), None)) is not None]
    assert 0 < len(kept) <= MetadataBodies.SIZE_MAX // MetadataBodies.ENTRY_SIZE


class Later:
    """The broker's loop: takes one turn of the work that was left for later with each `turn`."""

    def __init__(self, broker: Any) -> None:
        broker.later = self._later
        self.turns = 0

    def _later(self, name: str, work: Any) -> Deferred[Any]:
        self._work = work
        self._deferred: Deferred[Any] = Deferred()
        return self._deferred

    def turn(self) -> bool:
        """Whether there is more to do."""
        self.turns += 1
        try:
            self._work.send(None)
        except StopIteration as end:
            self._deferred.complete(end.value)
            return False
        return True


def begin(broker: Any, version: int) -> tuple[Later, list[dict[str, Any]]]:
    """Ask for all topics; answers what takes the turns, and where the decoded answer will be."""
    later = Later(broker)
    message: dict[str, Any] = {"topics": [] if version == 0 else None}
    frame = memoryview(
        frames.encode_request_header(3, version, 1, None) + API.encode_request(version, message)
    )
    answers: list[dict[str, Any]] = []

    def take(parts: Any) -> None:
        _, offset = frames.read_response_header(3, version, parts[0][4:])
        answers.append(API.decode_response(version, parts[0][4:], offset))

    reply = k03_metadata.handle(broker, call_of(frame), frame)
    if isinstance(reply, Deferred):
        reply.then(take)
    else:
        take(reply)
    return later, answers


@pytest.fixture
def many(broker: Any) -> Any:
    """A cluster with so many topics that an answer about all takes several turns."""
    broker.metadata.led = {f"topic-{n:05}": 1 for n in range(2 * k03_metadata.SLICE_SIZE)}
    return broker


def leaders(answer: dict[str, Any]) -> dict[str, int]:
    return {t["name"]: t["partitions"][0]["leader_id"] for t in answer["topics"]}


@pytest.mark.parametrize("version", range(13))
def test_others_have_turns_while_many_topics_are_told(many: Any, version: int) -> None:
    later, answers = begin(many, version)
    assert not answers
    while later.turn():
        assert not answers
    assert later.turns >= 3
    (answer,) = answers
    assert leaders(answer) == many.metadata.led
    few = ask(many, "topic-00007", version=version)
    assert {k: v for k, v in answer.items() if k != "topics"} == {
        k: v for k, v in few.items() if k != "topics"
    }
    assert few["topics"] == [t for t in answer["topics"] if t["name"] == "topic-00007"]


def test_what_changes_between_two_turns_is_told_of_all_topics_or_none(many: Any) -> None:
    later, answers = begin(many, 12)
    assert later.turn()
    many.metadata.led = dict.fromkeys(many.metadata.led, -1)
    many.metadata.version += 1
    while later.turn():
        ask(many, listener="NOWHERE")
    (answer,) = answers
    assert set(leaders(answer).values()) == {-1}
    assert answer["brokers"], "they are those of the listener that was asked"


def test_metadata_that_never_rests_keeps_nobody_from_an_answer(many: Any) -> None:
    later, answers = begin(many, 12)
    while later.turn():
        many.metadata.version += 1
        assert later.turns < 10
    assert leaders(answers[0]) == many.metadata.led
