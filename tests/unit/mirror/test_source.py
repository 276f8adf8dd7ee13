"""Which broker of a source is asked for its metadata, and for how long one that says nothing is waited for."""

from __future__ import annotations

import asyncio
import re
import sys
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.broker.wire.api import k32_describe_configs
from headrace.broker.wire.client.view import Address
from headrace.mirror import source as source_module
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.source import CONFIG_MAX_AGE_MS, Source

SILENT, WELL, CUT_OFF = [("silent", port) for port in (1, 2, 3)], ("well", 9092), ("cut-off", 9092)
METADATA = {
    "cluster_id": "THERE",
    "brokers": [{"node_id": n, "host": host, "port": port} for n, (host, port) in enumerate([*SILENT, WELL])],
    "topics": [],
}
CONFIGS = {
    "results": [
        {"error_code": 0, "resource_name": "t", "configs": [{"name": "cleanup.policy", "value": "delete"}]}
    ]
}


class Link:
    """To a broker that answers, or takes requests and says nothing, or nothing but metadata."""

    def __init__(self, address: Address, metadata: dict[str, Any] = METADATA) -> None:
        self._address = address
        self._metadata = metadata

    async def ask(self, api: object, *_: object) -> dict[str, Any]:
        if self._address in SILENT:
            await asyncio.Event().wait()
        if api is k32_describe_configs.API:
            if self._address == CUT_OFF:
                raise TimeoutError
            return CONFIGS
        return self._metadata

    def close(self) -> None:
        """It may be connected to again."""


def source_of(tasks: asyncio.TaskGroup, clock: object, *servers: Address) -> Source:
    config = SourceConfig(name="dc", bootstrap_servers=servers, topics=re.compile(".*"))
    return Source(
        config,
        Tunables(),
        cast("Any", clock),
        tasks,
        "mirror",
        lambda _: None,
        own_cluster="OWN",
        is_here=lambda _: False,
    )


def test_a_source_answers_as_long_as_one_of_its_brokers_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source_module, "PATIENCE_SECONDS", 0.02)
    asked: list[Address] = []

    async def link_to(address: Address) -> Link:
        asked.append(address)
        return Link(address)

    clock = SimpleNamespace(now_ms=lambda: 5, monotonic_ms=lambda: 5)

    expected = [*SILENT, WELL, WELL, WELL, *SILENT]

    async def run() -> list[bool]:
        async with asyncio.TaskGroup() as tasks:
            source = source_of(tasks, clock, *SILENT, WELL)
            monkeypatch.setattr(source, "link_to", link_to)
            found = [await source.refresh()]
            source.forget_link()
            found.append(await source.refresh())
            assert source.problem == ""
            source.forget_link()
            monkeypatch.setattr(sys.modules[__name__], "SILENT", [*SILENT, WELL])
            return [*found, await source.refresh()]

    assert asyncio.run(run()) == [True, True, False]
    assert asked == expected
    assert caplog.messages == ["source does not answer"]


def test_a_connection_that_was_closed_is_no_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimpleNamespace(now_ms=lambda: 5, monotonic_ms=lambda: 5)
    links: list[Link] = []

    async def link_to(address: Address) -> Link:
        links.append(Link(address, {**METADATA, "brokers": METADATA["brokers"][-1:]}))
        return links[-1]

    async def closed(*_: object) -> dict[str, Any]:
        raise ConnectionResetError("closed")

    async def run() -> list[bool]:
        async with asyncio.TaskGroup() as tasks:
            source = source_of(tasks, clock, WELL, CUT_OFF)
            monkeypatch.setattr(source, "link_to", link_to)
            found = [await source.refresh()]
            monkeypatch.setattr(links[0], "ask", closed)
            return [*found, await source.refresh()]

    assert asyncio.run(run()) == [True, True]
    assert caplog.messages == []


def test_configurations_stay_known_while_the_source_looks_for_them_in_vain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimpleNamespace(now_ms=lambda: 5, monotonic_ms=lambda: 5)
    topic = {"error_code": 0, "name": "t", "topic_id": UUID(int=7), "partitions": []}
    metadata = {**METADATA, "brokers": METADATA["brokers"][:1], "topics": [topic]}
    addresses = [WELL]

    async def link_to(_: Address) -> Link:
        return Link(addresses[-1], metadata)

    async def run() -> tuple[list[bool], Source]:
        async with asyncio.TaskGroup() as tasks:
            source = source_of(tasks, clock, WELL)
            monkeypatch.setattr(source, "link_to", link_to)
            found = [await source.refresh()]
            addresses.append(CUT_OFF)
            source.forget_link()
            clock.monotonic_ms = lambda: 5 + CONFIG_MAX_AGE_MS
            return [*found, await source.refresh()], source

    found, source = asyncio.run(run())
    assert (found, source.problem, caplog.messages) == ([True, True], "", [])
    assert source.topics["t"].configs == {"cleanup.policy": "delete"}
    assert source.unreadable == {}


def test_a_topic_whose_configuration_nobody_tells_says_why_it_has_no_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now_ms=lambda: 5, monotonic_ms=lambda: 5)
    topic = {"error_code": 0, "name": "t", "topic_id": UUID(int=7), "partitions": []}
    asked: list[Address] = []

    async def link_to(address: Address) -> Link:
        asked.append(address)
        return Link(CUT_OFF, {**METADATA, "brokers": METADATA["brokers"][:1], "topics": [topic]})

    async def run() -> Source:
        async with asyncio.TaskGroup() as tasks:
            source = source_of(tasks, clock, WELL)
            monkeypatch.setattr(source, "link_to", link_to)
            for _ in range(3):
                assert await source.refresh()
            return source

    source = asyncio.run(run())
    reason = "no answer in time; its brokers have them from its ZooKeeper, see that it runs"
    assert source.unreadable == {"dc.t": f"dc does not tell its configuration: {reason}"}
    assert len(asked) == 2, "it is not asked for again at once"


def test_another_cluster_at_the_address_is_told_as_a_source_that_is_not_reached() -> None:
    config = SourceConfig(name="dc", bootstrap_servers=(WELL,), topics=re.compile(".*"))
    clock = SimpleNamespace(now_ms=lambda: 5, monotonic_ms=lambda: 5)

    async def run() -> list[tuple[int | None, str]]:
        async with asyncio.TaskGroup() as tasks:
            source = Source(
                config,
                Tunables(),
                cast("Any", clock),
                tasks,
                "mirror",
                lambda _: None,
                own_cluster="OWN",
                copied_from=lambda _: ["ONE"],
                is_here=lambda _: False,
            )
            told = []
            for cluster in ("ONE", "TWO", "ONE"):
                refused = source._is_refused({"cluster_id": cluster})
                source.problem = source.problem if refused else ""
                # Its other connections get answers all the while.
                source.heard(7)
                told.append((source.report().answered_ms, source.report().problem))
            return told

    (first, other, again) = asyncio.run(run())
    assert (first, again) == ((7, ""), (7, ""))
    assert other[0] is None
    assert "TWO" in other[1]
