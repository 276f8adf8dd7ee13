"""The connections to a source's broker, on real sockets, against a small source in the same loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from mirror_kit import CopiedHeaders

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.clock import SystemClock
from headrace.broker.errors import ErrorCode
from headrace.broker.outage import REPEAT_MS, Outage
from headrace.broker.wire import frames
from headrace.broker.wire.api import APIS
from headrace.broker.wire.batches import Record, encode_batch, iter_batches
from headrace.broker.wire.special_values import READ_UNCOMMITTED
from headrace.mirror.config import Tunables
from headrace.mirror.copy.copier import Copier
from headrace.mirror.fetch.fetcher import Fetcher
from headrace.mirror.fetch.window import Limit
from headrace.mirror.memory.state import State
from headrace.mirror.questions import Located

FETCH, LIST_OFFSETS, METADATA, VERSIONS = 1, 2, 3, 18
ID = UUID(int=3)
EARLIEST = -2
TUNABLES = Tunables(fetch_max_bytes=2_048, fetch_response_max_bytes=8_192, fetch_wait_max_ms=30)


class Source:
    """A broker that leads partitions of `t`, each a list of batches; it forgets sessions and drops connections on demand."""

    def __init__(self, partitions: int, fetch_version: int = 13) -> None:
        self.logs: list[list[bytes]] = [[] for _ in range(partitions)]
        self.ends = [0] * partitions
        self.fetch_version = fetch_version
        self.sessions: dict[int, dict[int, dict[str, Any]]] = {}
        self.connections: set[asyncio.StreamWriter] = set()
        self.asked: list[dict[str, Any]] = []

    def publish(self, partition: int, count: int, batches: int = 1) -> None:
        for _ in range(batches):
            records = [Record(0, 1, None, b"x" * 100, []) for _ in range(count)]
            batch = encode_batch(records, base_offset=self.ends[partition], leader_epoch=4)
            self.logs[partition].append(bytes(batch))
            self.ends[partition] += count

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        try:
            while True:
                request = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header = frames.read_request_header(request)
                api = APIS[header.key]
                message = api.decode_request(header.version, request, header.body_offset)
                answer = await self.answer(header.key, message)
                number = frames.encode_response_header(header.key, header.version, header.correlation_id)
                writer.write(frames.frame(number, api.encode_response(header.version, answer)))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            self.connections.discard(writer)

    async def answer(self, key: int, message: dict[str, Any]) -> dict[str, Any]:
        match key:
            case x if x == VERSIONS:
                served = {FETCH: self.fetch_version, LIST_OFFSETS: 5, METADATA: 12, VERSIONS: 0}
                keys = [
                    {"api_key": key, "min_version": 0, "max_version": high} for key, high in served.items()
                ]
                return {"error_code": 0, "api_keys": keys}
            case x if x == LIST_OFFSETS:
                return {"topics": [{"name": "t", "partitions": list(self.listed(message))}]}
            case x if x == METADATA:
                topic = {
                    "error_code": 0,
                    "name": "t",
                    "topic_id": ID,
                    "is_internal": False,
                    "partitions": [],
                }
                return {"brokers": [], "cluster_id": "C", "controller_id": 1, "topics": [topic]}
            case x if x == FETCH:
                self.asked.append(message)
                return await self.fetch(message)
        raise AssertionError(f"key {key} was not expected")

    def listed(self, message: dict[str, Any]) -> Any:
        for partition in message["topics"][0]["partitions"]:
            number = partition["partition_index"]
            offset = 0 if partition["timestamp"] == EARLIEST else self.ends[number]
            yield {
                "partition_index": number,
                "error_code": 0,
                "timestamp": -1,
                "offset": offset,
                "leader_epoch": 4,
            }

    async def fetch(self, message: dict[str, Any]) -> dict[str, Any]:
        epoch, session_id = message["session_epoch"], message["session_id"]
        asked = {
            partition["partition"]: partition
            for topic in message["topics"]
            for partition in topic["partitions"]
        }
        if epoch == 0:
            session_id = len(self.sessions) + 1
            self.sessions[session_id] = asked
        elif epoch > 0:
            if session_id not in self.sessions:
                return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "session_id": 0, "responses": []}
            for topic in message["forgotten_topics_data"]:
                for number in topic["partitions"]:
                    del self.sessions[session_id][number]
            asked = self.sessions[session_id] = self.sessions[session_id] | asked
        for _ in range(message["max_wait_ms"]):
            if any(self.ends[n] > partition["fetch_offset"] for n, partition in asked.items()):
                break
            await asyncio.sleep(0.001)
        found = [self.partition(n, partition) for n, partition in asked.items()]
        found = [one for one in found if one["records"] or epoch <= 0]
        topic = {"topic": "t", "topic_id": ID, "partitions": found}
        return {"error_code": 0, "session_id": max(session_id, 0), "responses": [topic] if found else []}

    def partition(self, number: int, asked: dict[str, Any]) -> dict[str, Any]:
        records = b""
        for batch in self.logs[number]:
            ((_, header),) = iter_batches(batch)
            if header.next_offset > asked["fetch_offset"]:
                if records and len(records) + len(batch) > asked["partition_max_bytes"]:
                    break
                records += batch
        return {
            "partition_index": number,
            "error_code": 0,
            "high_watermark": self.ends[number],
            "log_start_offset": 0,
            "aborted_transactions": None,
            "records": records,
        }


class World:
    """A source, copiers of its partitions, and a fetcher between them."""

    def __init__(self, source: Source, limit: int | None = None) -> None:
        self.source = source
        self.appended = asyncio.Event()
        self.targets = [CopiedHeaders(self.appended.set) for _ in source.logs]
        self.refreshed = 0
        self.copiers = {
            ("t", number): Copier(
                "dc-east",
                "t",
                number,
                target=target,
                journal=cast(
                    "Any",
                    SimpleNamespace(
                        write=lambda state, findings, written: written(), arrived=lambda *_: None
                    ),
                ),
                state=State(target_id=UUID(int=1)),
                backoff_ms=(5, 20),
            )
            for number, target in enumerate(self.targets)
        }
        self.view = SimpleNamespace(
            config=SimpleNamespace(name="dc-east", isolation=READ_UNCOMMITTED),
            tunables=TUNABLES,
            limit=Limit(limit),
            clock=SystemClock(),
            client_id="test",
            addresses={},
            outages={},
            after_fetch=lambda _: None,
            heard=lambda _: None,
            refresh_soon=self._refresh,
            link_to=lambda address: AsyncLink.open(address, "test", TUNABLES.request_timeout_ms),
        )
        self.fetcher = Fetcher(cast("Any", self.view), 1)

    def _refresh(self) -> None:
        self.refreshed += 1
        asyncio.get_running_loop().call_later(0.005, self.locate)

    def locate(self) -> None:
        found = Located(topic_id=ID, leader=1, leader_epoch=4, is_compacted=False)
        for copier in self.copiers.values():
            copier.located(found, self.view.clock.now_ms())
        self.fetcher.assign(self.copiers)

    def run(self, story: Callable[[], Any]) -> None:
        async def live() -> None:
            server = await asyncio.start_server(self.source.serve, "127.0.0.1", 0)
            async with server, asyncio.timeout(60), asyncio.TaskGroup() as tasks:
                self.view.addresses[1] = server.sockets[0].getsockname()
                running = tasks.create_task(self.fetcher.run())
                self.locate()
                await story()
                running.cancel()
                for connection in list(self.source.connections):
                    connection.close()

        asyncio.run(live())

    async def copied(self) -> None:
        while [target.log_end_offset for target in self.targets] != self.source.ends:
            self.appended.clear()
            await self.appended.wait()


@pytest.mark.parametrize("version", [13, 12, 11, 4])
def test_everything_is_copied_once_whatever_version_the_source_speaks(version: int) -> None:
    source = Source(5, version)
    world = World(source)

    async def story() -> None:
        for number in range(4):
            source.publish(number, 10, batches=30 * number)
        await world.copied()
        for _ in range(20):
            source.publish(4, 3)
            await world.copied()

    world.run(story)
    for target, log in zip(world.targets, source.logs, strict=True):
        assert [header.base_offset for header in target.headers] == [
            header.base_offset for batch in log for _, header in iter_batches(batch)
        ]


def test_dropped_connections_and_forgotten_sessions_cost_nothing_but_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source(3)
    world = World(source)

    async def story() -> None:
        for turn in range(8):
            source.publish(turn % 3, 10, batches=20)
            await asyncio.sleep(0.02)
            if turn % 2:
                source.sessions.clear()
            else:
                for connection in list(source.connections):
                    connection.close()
        await world.copied()

    world.run(story)
    assert world.refreshed > 0
    failures = [vars(r)["facts"] for r in caplog.records if r.getMessage() == "broker of a source failed"]
    assert len(failures) == 1, "it is said once a minute"
    assert not [failure for failure in failures if "Error(" in failure["reason"]], "told for people"


def test_a_broker_that_an_earlier_fetcher_lost_is_told_to_answer_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "headrace")
    source = Source(1)
    world = World(source)
    world.view.outages[1] = Outage()
    world.view.outages[1].failed(SystemClock().monotonic_ms() - REPEAT_MS)

    async def story() -> None:
        source.publish(0, 1)
        await world.copied()

    world.run(story)
    assert world.view.outages == {}
    assert caplog.messages.count("broker of a source answers again") == 1


def test_an_idle_session_is_asked_for_nothing_again() -> None:
    source = Source(50)
    world = World(source)

    async def story() -> None:
        source.publish(7, 1)
        await world.copied()
        await asyncio.sleep(0.2)
        source.asked.clear()
        await asyncio.sleep(0.2)
        source.publish(9, 1)
        await world.copied()

    world.run(story)
    named = [p["partition"] for m in source.asked for t in m["topics"] for p in t["partitions"]]
    assert set(named) <= {9}
    assert len(source.asked) < 30
