"""Which broker of a source is asked for its metadata, and for how long one that says nothing is waited for."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.wire.client.view import Address
from headrace.mirror import source as source_module
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.source import Source

SILENT, WELL = [("silent", port) for port in (1, 2, 3)], ("well", 9092)
METADATA = {
    "cluster_id": "THERE",
    "brokers": [{"node_id": n, "host": host, "port": port} for n, (host, port) in enumerate([*SILENT, WELL])],
    "topics": [],
}


class Link:
    """To a broker that answers, or takes requests and says nothing."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def ask(self, *_: object) -> dict[str, Any]:
        if self._address in SILENT:
            await asyncio.Event().wait()
        return METADATA

    def close(self) -> None:
        """It may be connected to again."""


def test_brokers_that_say_nothing_are_asked_again_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PATIENCE_SECONDS", 0.02)
    asked: list[Address] = []

    async def link_to(address: Address) -> Link:
        asked.append(address)
        return Link(address)

    config = SourceConfig(name="dc", bootstrap_servers=(*SILENT, WELL), topics=re.compile(".*"))
    clock = SimpleNamespace(now_ms=lambda: 5, monotonic_ms=lambda: 5)

    async def run() -> list[bool]:
        async with asyncio.TaskGroup() as tasks:
            source = Source(
                config,
                Tunables(),
                cast("Any", clock),
                tasks,
                "mirror",
                lambda _: None,
                own_cluster="OWN",
                is_here=lambda _: False,
            )
            monkeypatch.setattr(source, "link_to", link_to)
            found = [await source.refresh() for _ in range(4)]
            assert source.problem == ""
            source.forget_link()
            return [*found, await source.refresh()]

    assert asyncio.run(run()) == [False, False, False, True, True]
    assert asked == [*SILENT, WELL, WELL]


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
