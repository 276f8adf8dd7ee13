"""Finding the controller, agreeing on versions with it, and letting go of one that is controller no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scripted_broker import scripted_broker, versions

from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.replication.control_requests import UpdateMetadata
from headrace.broker.replication.model import Broker, Endpoint
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.peers.controller_channel import ControllerChannel, NoControllerError
from headrace.broker.server.peers.requests import connect
from headrace.broker.wire.api import k18_api_versions, k67_allocate_producer_ids
from headrace.broker.wire.client.exchange import ProtocolError

API = k67_allocate_producer_ids.API
LISTENER = "INSIDE"


def cluster(metadata: MetadataCache, controller_id: int, addresses: dict[int, tuple[str, int]]) -> None:
    brokers = tuple(
        Broker(
            broker_id=number,
            epoch=1,
            endpoints=(
                Endpoint(listener=LISTENER, security_protocol="PLAINTEXT", host=address[0], port=address[1]),
            ),
        )
        for number, address in addresses.items()
    )
    metadata.update(
        UpdateMetadata(controller_id=controller_id, controller_epoch=1, brokers=brokers, partitions=())
    )


def run(
    metadata: MetadataCache, script: Callable[[ControllerChannel], Awaitable[Any]], timeout_ms: int = 60_000
) -> Any:
    async def scripted() -> Any:
        channel = ControllerChannel(
            metadata, listener=LISTENER, client_id="test", timeout_ms=timeout_ms, connect=connect
        )
        try:
            async with asyncio.timeout(60):
                return await script(channel)
        finally:
            channel.close()

    return asyncio.run(scripted())


async def ask(channel: ControllerChannel) -> int:
    _, answer = await channel.ask(API, 0, lambda version: {"broker_id": 1, "broker_epoch": version})
    return int(answer["producer_id_start"])


def test_versions_are_asked_for_once_a_connection_and_what_broke_is_opened_again() -> None:
    answers: list[Any] = [versions({API.key: (0, 3)}), {"producer_id_start": 5}, b""]
    answers += [versions({API.key: (0, 0)}), {"producer_id_start": 6}, {"producer_id_start": 7}]
    metadata = MetadataCache()

    async def script(channel: ControllerChannel) -> list[int]:
        found = [await ask(channel)]
        with pytest.raises(ProtocolError):
            await ask(channel)
        return [*found, await ask(channel), await ask(channel)]

    with scripted_broker(lambda key, message: answers.pop(0)) as broker:
        cluster(metadata, 2, {2: broker.address})
        assert run(metadata, script) == [5, 6, 7]
    assert broker.keys == [
        k18_api_versions.API.key,
        API.key,
        API.key,
        k18_api_versions.API.key,
        API.key,
        API.key,
    ]


def test_who_does_not_serve_the_request_is_not_sent_it() -> None:
    metadata = MetadataCache()
    with scripted_broker(lambda key, message: versions({API.key: (4, 5)})) as broker:
        cluster(metadata, 2, {2: broker.address})
        with pytest.raises(UnsupportedVersionError):
            run(metadata, ask)


def test_no_controller_is_a_failure_to_come_back_from() -> None:
    metadata = MetadataCache()
    with pytest.raises(NoControllerError):
        run(metadata, ask)
    cluster(metadata, 7, {})
    with pytest.raises(NoControllerError):
        run(metadata, ask)


def test_an_answer_is_not_waited_for_when_another_broker_became_controller() -> None:
    metadata = MetadataCache()

    async def script(channel: ControllerChannel) -> int:
        reached = asyncio.Event()
        hanging: list[asyncio.StreamWriter] = []

        def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            hanging.append(writer)
            reached.set()

        with scripted_broker(new) as second:
            server = await asyncio.start_server(hang, "127.0.0.1", 0)
            async with server:
                hung = server.sockets[0].getsockname()
                cluster(metadata, 2, {2: hung, 3: second.address})

                async def move() -> None:
                    await reached.wait()
                    cluster(metadata, 3, {2: hung, 3: second.address})

                asking = asyncio.gather(ask(channel), move(), return_exceptions=True)
                failure, _ = await asking
                assert isinstance(failure, TimeoutError)
                for writer in hanging:
                    writer.close()
                return await ask(channel)

    def new(key: int, message: Any) -> Any:
        return versions({API.key: (0, 0)}) if key == k18_api_versions.API.key else {"producer_id_start": 9}

    assert run(metadata, script, timeout_ms=600_000) == 9


def test_news_of_the_same_controller_disturbs_nobody() -> None:
    metadata = MetadataCache()

    def told_again(key: int, message: Any) -> Any:
        return versions({API.key: (0, 0)}) if key == k18_api_versions.API.key else {"producer_id_start": 9}

    async def script(channel: ControllerChannel) -> list[int]:
        found = [await ask(channel)]
        cluster(metadata, 2, {2: broker.address})
        return [*found, await ask(channel)]

    with scripted_broker(told_again) as broker:
        cluster(metadata, 2, {2: broker.address})
        assert run(metadata, script) == [9, 9]
    assert broker.keys.count(k18_api_versions.API.key) == 1
