"""The controller's words to a broker: in order, each until it is answered, and none holds up the next for good."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest
from scripted_broker import scripted_broker
from secured_broker import Gate, sasl
from virtual_time import VirtualLoop

from headrace.broker.replication.model import Endpoint
from headrace.broker.server.peers.requests import PeerLink, Peers, connector
from headrace.broker.tasks import Tasks
from headrace.broker.wire.api import APIS
from headrace.broker.wire.client.exchange import ProtocolError
from headrace.broker.wire.client.login import LoginError
from headrace.broker.wire.schema import Api

Message = dict[str, Any]

OWN = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=1)


METADATA, METADATA_VERSION = APIS[3], 12


def with_peer(outcomes: Iterable[Exception | Message], answered: Callable[[Message], None]) -> list[int]:
    """Send a request for each of `outcomes`, exceptions or answers; gives the numbers of those that were performed."""
    performed, left = [], list(outcomes)

    async def local(api: Api, message: Message) -> Message:
        performed.append(message["number"])
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def script() -> Any:
        tasks = Tasks()
        peers = Peers(1, local, tasks, timeout_ms=1000, on_overflow=lambda broker_id: None)
        for number in range(3):
            peers.send(1, OWN, APIS[6], 8, {"number": number}, answered)
        await asyncio.sleep(30)
        await tasks.stop()

    with VirtualLoop() as loop:
        loop.run_until_complete(script())
    return performed


def test_a_request_is_repeated_until_it_arrives_before_the_next_is_sent() -> None:
    answers: list[Message] = []
    lost = [OSError("reset"), ProtocolError("closed"), TimeoutError()]
    assert with_peer([*lost, {"n": 0}, {"n": 1}, {"n": 2}], answers.append) == [0, 0, 0, 0, 1, 2]
    assert answers == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_request_that_fails_in_an_unforeseen_way_holds_up_none() -> None:
    answers: list[Message] = []
    assert with_peer([KeyError("what"), {"n": 1}, {"n": 2}], answers.append) == [0, 1, 2]
    assert answers == [{"n": 1}, {"n": 2}]


def test_an_answer_that_nobody_understands_holds_up_none() -> None:
    def refuse(answer: Message) -> None:
        raise KeyError("error_code")

    assert with_peer([{}, {}, {}], refuse) == [0, 1, 2]


def test_others_have_the_loop_between_requests_to_the_broker_itself() -> None:
    turns = 0
    seen = []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def local(api: Api, message: Message) -> Message:
        seen.append(turns)
        return {}

    async def script() -> Any:
        tasks, over = Tasks(), asyncio.Event()

        def told(_: Message) -> None:
            if len(seen) == 3:
                over.set()

        tasks.start("others", others())
        peers = Peers(1, local, tasks, timeout_ms=1000, on_overflow=lambda broker_id: None)
        for number in range(3):
            peers.send(1, OWN, APIS[6], 8, {"number": number}, told)
        await over.wait()
        await tasks.stop()

    asyncio.run(script())
    assert len(set(seen)) == 3


def endpoint_of(address: tuple[str, int]) -> Endpoint:
    return Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host=address[0], port=address[1])


def test_a_link_asks_nobody_for_versions_and_opens_again_what_broke() -> None:
    answers: list[Message | bytes] = [{"controller_id": 1}, b"", {"controller_id": 2}]

    async def script(link: PeerLink) -> Any:
        async def ask() -> int:
            return int((await link.ask(METADATA, METADATA_VERSION, {"topics": []}))["controller_id"])

        found = [await ask()]
        with pytest.raises(ProtocolError):
            await ask()
        found.append(await ask())
        link.close()
        return found

    with scripted_broker(lambda key, message: answers.pop(0)) as broker:
        assert asyncio.run(script(PeerLink(endpoint_of(broker.address), "test", 5_000))) == [1, 2]
    assert broker.keys == [METADATA.key] * 3


def test_a_peer_that_is_forgotten_while_it_is_silent_is_let_go() -> None:
    async def script(silent: socket.socket) -> Any:
        tasks = Tasks()
        overflows: list[int] = []
        peers = Peers(1, cast(Any, None), tasks, timeout_ms=60_000, on_overflow=overflows.append)
        peers.send(2, endpoint_of(silent.getsockname()), METADATA, METADATA_VERSION, {"topics": []})
        loop = asyncio.get_running_loop()
        near, _ = await loop.sock_accept(silent)
        with near:
            near.setblocking(False)
            assert await loop.sock_recv(near, 4)
            peers.forget(2)
            while await loop.sock_recv(near, 1000):
                pass
        await tasks.stop()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        asyncio.run(asyncio.wait_for(script(silent), 30))


def test_a_broker_that_does_not_let_in_is_counted() -> None:
    refusals: list[int] = []
    connect = connector(lambda: sasl("PLAIN", "wrong"), lambda: refusals.append(1))

    async def run(address: tuple[str, int]) -> None:
        with pytest.raises(LoginError):
            await connect(address, "test", 5_000)

    with scripted_broker(Gate(lambda key, message: {}, {})) as broker:
        asyncio.run(run(broker.address))
    assert refusals == [1]
