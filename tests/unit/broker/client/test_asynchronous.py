"""An asynchronous link to one broker, through a real socket."""

from __future__ import annotations

import asyncio
import select
import socket
from typing import Any

import pytest
from scripted_broker import API_VERSIONS, Answer, scripted_broker, versions

from headrace.broker.client.async_carriers import PIECE_SIZE, _connected
from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire.api import k01_fetch, k03_metadata, k23_offset_for_leader_epoch
from headrace.broker.wire.client.exchange import ProtocolError


def listening() -> socket.socket:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.settimeout(10)
    return sock


def reached(*ports: int) -> int:
    """The port that answers when a name has these, in that order."""

    async def run() -> int:
        async def resolved(*_: object, **__: object) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in ports]

        asyncio.get_running_loop().getaddrinfo = resolved  # type: ignore[method-assign]
        with await _connected(("broker", 9092)) as sock:
            return int(sock.getpeername()[1])

    return asyncio.run(run())


def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    with listening() as server, listening() as gone:
        port, closed_port = server.getsockname()[1], gone.getsockname()[1]
        gone.close()
        assert reached(closed_port, port) == port
        with pytest.raises(ConnectionRefusedError):
            reached(closed_port, closed_port)


RECORDS = bytes(range(256)) * (3 * PIECE_SIZE // 256)


def serve(key: int, message: dict[str, Any]) -> Answer:
    if key == API_VERSIONS:
        return versions({1: (0, 11), 3: (0, 12)})
    if key == 3:
        return {"controller_id": 4}
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 7, "records": RECORDS}
    return {"responses": [{"topic": "t", "partitions": [partition]}]}


async def records(link: AsyncLink) -> memoryview:
    answer = await link.ask(k01_fetch.API, 13, {"topics": [], "forgotten_topics_data": [], "rack_id": ""})
    found = answer["responses"][0]["partitions"][0]["records"]
    assert isinstance(found, memoryview)
    return found


def test_answers_large_and_small_follow_each_other_over_one_buffer() -> None:
    async def run(address: tuple[str, int]) -> None:
        async with await AsyncLink.open(address, "test", 5_000) as link:
            buffers = set()
            for _ in range(3):
                found = await records(link)
                assert found == RECORDS
                buffers.add(id(found.obj))
                answer = await link.ask(k03_metadata.API, 12, {"topics": None})
                assert answer["controller_id"] == 4
            assert len(buffers) == 1
            assert link.version(k23_offset_for_leader_epoch.API, 3) == -1
            with pytest.raises(UnsupportedVersionError, match="does not serve OffsetForLeaderEpoch"):
                await link.ask(k23_offset_for_leader_epoch.API, 3, {"topics": []})

    with scripted_broker(serve) as broker:
        asyncio.run(run(broker.address))
    assert broker.keys == [API_VERSIONS, *[1, 3] * 3]


def test_who_asks_again_and_again_of_a_quick_broker_lets_others_have_the_loop() -> None:
    turns = 0

    async def run(address: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()

        async def received(sock: socket.socket, buffer: memoryview) -> int:
            """The answer is there already whenever it is looked for."""
            select.select([sock], [], [], 5)
            return sock.recv_into(buffer)

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        async with await AsyncLink.open(address, "test", 5_000, negotiates=False) as link:
            loop.sock_recv_into = received  # type: ignore[method-assign, assignment]
            turn()
            for asked in range(1, 6):
                await link.ask(k03_metadata.API, 12, {"topics": None})
                assert turns > asked

    with scripted_broker(serve) as broker:
        asyncio.run(run(broker.address))


def test_with_fixed_versions_nobody_is_asked_for_them() -> None:
    async def run(address: tuple[str, int]) -> None:
        async with await AsyncLink.open(address, "test", 5_000, negotiates=False) as link:
            assert (await link.ask(k03_metadata.API, 12, {"topics": None}))["controller_id"] == 4

    with scripted_broker(serve) as broker:
        asyncio.run(run(broker.address))
    assert broker.keys == [3]


@pytest.mark.parametrize("reply", [b"", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x05\x00\x00\x00\x63\x00"])
def test_a_peer_that_is_no_broker_is_no_use(reply: bytes) -> None:
    with scripted_broker(lambda key, message: reply) as broker, pytest.raises(ProtocolError):
        asyncio.run(AsyncLink.open(broker.address, "test", 5_000))


def test_a_link_that_waited_too_long_takes_no_other_answer_for_its_own() -> None:
    async def run(address: tuple[str, int]) -> None:
        async with await AsyncLink.open(address, "test", 300, negotiates=False) as link:
            for failure in (TimeoutError, ProtocolError):
                with pytest.raises(failure):
                    await link.ask(k03_metadata.API, 12, {"topics": None})

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(run(silent.getsockname()))
