"""Requests of clients that have quotas, as they pass the gate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.auth.principal import Principal
from headrace.broker.handlers.call import Call, Client
from headrace.broker.handlers.throttle import throttled
from headrace.broker.quotas.usage import unlimited
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS

PRODUCE, METADATA, HEARTBEAT, CONTROLLED_SHUTDOWN = 0, 3, 12, 7


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.muted: list[int] = []
        self.counted: list[tuple[str, int]] = []
        self.usage = unlimited()
        self.broker: Any = SimpleNamespace(
            client_usage=self.usage,
            clock=SimpleNamespace(monotonic_ms=lambda: int(self.now_s * 1000)),
            now=lambda: self.now_s,
            metrics=SimpleNamespace(throttled=lambda *counted: self.counted.append(counted)),
        )
        self.client = Client("here", "INSIDE", principal=Principal("User", "alice"), mute=self.muted.append)

    def limit(self, *, produced: float | None = None, requests: float | None = None) -> None:
        self.usage.set_limits(
            ("alice", ""), produced=produced, fetched=None, requests=requests, mutations=None
        )

    def pass_gate(self, key: int, version: int, reply: Any, *, size: int = 0, took_s: float = 0.0) -> Any:
        header = frames.RequestHeader(key, version, 7, "app", 0)
        call = Call(header, self.client, self.now_s)
        self.now_s += took_s
        return throttled(self.broker, APIS[key], call, size, reply)


@pytest.fixture
def world() -> World:
    return World()


def reply_of(key: int, version: int) -> list[bytes]:
    head = frames.encode_response_header(key, version, 7)
    message = {"responses": [{"name": "t", "partition_responses": [{"index": 1, "base_offset": 5}]}]}
    return [frames.frame(head, APIS[key].encode_response(version, message if key == PRODUCE else {}))]


def throttle_of(key: int, version: int, parts: Any) -> int | None:
    (whole,) = parts
    _, offset = frames.read_response_header(key, version, whole[4:])
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    found: int | None = APIS[key].decode_response(version, whole[4:], offset).get("throttle_time_ms")
    return found


@pytest.mark.parametrize("version", range(1, 12))
def test_a_producer_above_its_rate_is_told_how_long_it_waits(world: World, version: int) -> None:
    world.limit(produced=100)
    reply = reply_of(PRODUCE, version)
    assert world.pass_gate(PRODUCE, version, reply, size=1000) is reply
    told = world.pass_gate(PRODUCE, version, reply, size=500)
    assert throttle_of(PRODUCE, version, told) == 5000
    assert world.muted == [5000]
    assert world.counted == [("produce", 5000)]


def test_a_reply_that_is_to_come_tells_it_too(world: World) -> None:
    world.limit(produced=100)
    reply: Deferred[Any] = Deferred()
    told = world.pass_gate(PRODUCE, 9, reply, size=1500)
    assert world.muted == [5000]
    reply.complete(reply_of(PRODUCE, 9))
    found: list[Any] = []
    told.then(found.append)
    assert throttle_of(PRODUCE, 9, found[0]) == 5000


def test_who_wants_no_answer_is_muted_for_what_it_sends_but_not_for_time(world: World) -> None:
    world.limit(produced=100, requests=1)
    assert world.pass_gate(PRODUCE, 9, None, size=100, took_s=5) is None
    assert world.muted == []
    assert world.pass_gate(PRODUCE, 9, None, size=1400) is None
    assert world.muted == [5000]


def test_who_takes_too_much_time_waits_for_one_window_at_most(world: World) -> None:
    world.limit(requests=1)
    reply = reply_of(METADATA, 9)
    assert world.pass_gate(METADATA, 9, reply, took_s=0.05) is reply
    told = world.pass_gate(METADATA, 9, reply, took_s=60.0)
    assert throttle_of(METADATA, 9, told) == 1000
    assert world.muted == [1000]


def test_a_version_without_the_field_is_answered_as_it_is(world: World) -> None:
    world.limit(requests=1)
    reply = reply_of(HEARTBEAT, 0)
    assert world.pass_gate(HEARTBEAT, 0, reply, took_s=60.0) == reply
    assert world.muted == [1000]


def test_brokers_and_clients_without_a_limit_are_not_counted(world: World) -> None:
    world.limit(produced=1, requests=0.0001)
    reply = reply_of(CONTROLLED_SHUTDOWN, 3)
    assert world.pass_gate(CONTROLLED_SHUTDOWN, 3, reply, took_s=60.0) is reply
    world.client.principal = Principal("User", "bob")
    reply = reply_of(PRODUCE, 9)
    assert world.pass_gate(PRODUCE, 9, reply, size=10**9, took_s=60.0) is reply
    assert world.muted == []
