"""Rounds that fail: as nobody expected, or since the source's broker is gone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.mirror.aggregate.held import Held
from headrace.mirror.aggregate.position import Position
from headrace.mirror.aggregate.puller import Puller
from headrace.mirror.aggregate.stream import Phase
from headrace.mirror.copy.progress import Progress
from headrace.mirror.pause import Pause


def test_what_a_round_had_begins_again_with_what_the_registry_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    source = SimpleNamespace(
        config=SimpleNamespace(name="dc"),
        clock=SimpleNamespace(now_ms=lambda: 5, monotonic_ms=lambda: 5),
        refresh_soon=lambda: asked.append("source"),
    )
    target = SimpleNamespace(close=lambda: None, refresh_soon=lambda: asked.append("target"))
    nothing = cast("Any", None)
    puller = Puller(cast("Any", source), 1, {}, nothing, nothing, lambda: cast("Any", target), nothing)
    held = Held(key=("clicks", 0), pause=Pause(100, 100), progress=Progress())
    held.begins(Position(producer_id=1, topic_id=UUID(int=1), offset=0), 3)

    async def fail(_: object) -> bool:
        raise KeyError("topics")

    monkeypatch.setattr(puller, "_bring", fail)
    assert not asyncio.run(puller._round([held]))
    assert (held.stream, held.is_idle.is_set(), held.pause.lasts(50)) == (None, True, True)
    assert held.reason == "an error that nobody expected, see the log: KeyError('topics')"
    assert asked == ["target", "source"]


def test_what_another_broker_led_before_is_taken_once_its_round_is_over() -> None:
    held = Held(key=("clicks", 0), pause=Pause(100, 100), progress=Progress(), leader=1)
    nothing = cast("Any", None)
    source = cast("Any", SimpleNamespace(config=SimpleNamespace(name="dc")))
    pullers = [
        Puller(source, node, {held.key: held}, nothing, nothing, lambda: nothing, nothing) for node in (1, 2)
    ]
    assert [puller._mine() for puller in pullers] == [[held], []]
    held.is_idle.clear()
    held.leader = 2
    assert [puller._mine() for puller in pullers] == [[], []]
    held.is_idle.set()
    assert [puller._mine() for puller in pullers] == [[], [held]]


class SilentLink:
    """To a broker that takes a request and never answers."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.is_closed = False

    def version(self, api: object, highest: int) -> int:
        return highest

    async def ask(self, *_: object) -> None:
        self.is_asked.set()
        await asyncio.Event().wait()

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("moved_count", [1, 2])
def test_a_broker_that_leads_nothing_more_of_what_it_was_asked_for_is_not_waited_for(
    moved_count: int,
) -> None:
    link = SilentLink()
    refreshed: list[str] = []

    async def link_to(address: object) -> SilentLink:
        return link

    source = SimpleNamespace(
        config=SimpleNamespace(name="dc"),
        clock=SimpleNamespace(now_ms=lambda: 5, monotonic_ms=lambda: 5),
        addresses={1: ("silent", 9092)},
        link_to=link_to,
        limit=SimpleNamespace(share=lambda size: size, pause_ms=lambda now_ms: 0),
        tunables=SimpleNamespace(
            fetch_wait_max_ms=500, fetch_min_bytes=1, fetch_response_max_bytes=1, fetch_max_bytes=1
        ),
        refresh_soon=lambda: refreshed.append("source"),
    )
    target = SimpleNamespace(close=lambda: None, refresh_soon=lambda: refreshed.append("target"))
    held = [
        Held(key=("clicks", n), pause=Pause(100, 100), progress=Progress(), leader=1, topic_id=UUID(int=1))
        for n in range(2)
    ]
    for each in held:
        each.begins(Position(producer_id=1, topic_id=UUID(int=1), offset=0), 3)
        assert each.stream is not None
        each.stream.phase = Phase.COPYING
    nothing = cast("Any", None)
    puller = Puller(cast("Any", source), 1, {}, nothing, nothing, lambda: cast("Any", target), nothing)

    async def run() -> bool:
        async with asyncio.TaskGroup() as tasks:
            round_ = tasks.create_task(puller._round(held))
            await link.is_asked.wait()
            for each in held[:moved_count]:
                each.leader = 2
            puller.leaders_changed()
            is_over, _ = await asyncio.wait([round_], timeout=0.2)
            round_.cancel()
        return bool(is_over)

    is_over = asyncio.run(run())
    assert is_over == (moved_count == 2)
    if is_over:
        assert link.is_closed
        assert [each.is_idle.is_set() for each in held] == [True, True]
        assert refreshed == ["target", "source"]
