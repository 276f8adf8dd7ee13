"""A round that fails as nobody expected ends itself alone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.mirror.aggregate.held import Held
from headrace.mirror.aggregate.position import Position
from headrace.mirror.aggregate.puller import Puller
from headrace.mirror.pause import Pause
from headrace.mirror.progress import Progress


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
