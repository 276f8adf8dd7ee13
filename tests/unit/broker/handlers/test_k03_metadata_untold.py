"""A broker that no controller has told of the cluster yet: who asks it for metadata waits for that word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from calls import call_of

from headrace.broker.handlers import k03_metadata
from headrace.broker.handlers.metadata_bodies import MetadataBodies
from headrace.broker.replication.model import Broker, Endpoint
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.status.metrics import BrokerMetrics
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting
from headrace.broker.wire import frames
from headrace.broker.wire.api.k03_metadata import API


class Scheduler:
    """`run` does what is soon; `timers` end the time of what waits."""

    def __init__(self) -> None:
        self.timers: list[Any] = []
        self.soon: list[Any] = []

    def call_soon(self, callback: Any, *args: Any) -> None:
        self.soon.append(lambda: callback(*args))

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def call_later(self, delay: float, callback: Any, *args: Any) -> Any:
        self.timers.append(lambda: callback(*args))
        return SimpleNamespace(cancel=lambda: None)


@pytest.fixture
def broker() -> Any:
    metadata, scheduler = MetadataCache("cluster"), Scheduler()
    waiting = Waiting(scheduler)
    metadata.on_change(lambda: waiting.wake(*k03_metadata.UNTOLD))
    return SimpleNamespace(
        metadata=metadata,
        metadata_bodies=MetadataBodies(),
        authorizer=None,
        metrics=BrokerMetrics(),
        config=SimpleNamespace(topics=SimpleNamespace(auto_create_topics_enable=False)),
        waiting=waiting,
        scheduler=scheduler,
    )


def ask(broker: Any, listener: str = "PLAINTEXT") -> list[dict[str, Any]]:
    """The answers come into the list that is returned."""
    request = frames.encode_request_header(3, 12, 1, None) + API.encode_request(12, {"topics": []})
    frame = memoryview(bytearray(request))
    answers: list[dict[str, Any]] = []

    def take(parts: Any) -> None:
        (data,) = parts
        _, offset = frames.read_response_header(3, 12, data[4:])
        answers.append(API.decode_response(12, data[4:], offset))

    reply = k03_metadata.handle(broker, call_of(frame, listener=listener), frame)
    if isinstance(reply, Deferred):
        reply.then(take)
    else:
        take(reply)
    frame[:] = bytes(len(frame))
    return answers


def tell(broker: Any) -> None:
    endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=9092)
    broker.metadata._brokers = {1: Broker(broker_id=1, epoch=1, endpoints=(endpoint,))}
    broker.metadata.controller_id = 1
    broker.metadata._changed()


def test_who_asks_before_the_controllers_first_word_is_answered_upon_it(broker: Any) -> None:
    answers = ask(broker)
    broker.metadata.set_cluster_id("cluster")
    broker.scheduler.run()
    assert answers == []
    tell(broker)
    broker.scheduler.run()
    assert [(a["controller_id"], [b["node_id"] for b in a["brokers"]]) for a in answers] == [(1, [1])]
    assert ask(broker, "OTHER")[0]["brokers"] == [], (
        "who asks afterwards is answered at once, by its own listener"
    )


def test_without_a_controller_the_answer_is_empty_in_the_end(broker: Any) -> None:
    answers = ask(broker)
    broker.scheduler.timers[0]()
    assert [(a["controller_id"], a["brokers"]) for a in answers] == [(-1, [])]
