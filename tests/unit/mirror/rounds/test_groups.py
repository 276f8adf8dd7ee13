"""What a round that brings groups came to is told."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.memory.reports import GROUPS, SyncReport
from headrace.mirror.rounds import groups
from headrace.mirror.rounds.groups import follow_groups
from headrace.mirror.rounds.loop import Sync
from headrace.mirror.sync import group_offsets
from headrace.mirror.sync.groups import GroupMove

MOVES = [
    GroupMove(group="a", offsets={("dc-east.t", 0): 7}, not_yet=5),
    GroupMove(group="b", offsets={}, refusal="it has members"),
    GroupMove(group="c", offsets={}, not_yet=2),
]
HOST = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 9))


def followed(monkeypatch: pytest.MonkeyPatch, pattern: str | None) -> list[Sync]:
    """What would be done for ever."""
    found: list[Sync] = []

    async def follow(_host: Any, _source: Any, sync: Sync) -> None:
        found.append(sync)

    monkeypatch.setattr(groups, "follow", follow)
    config = SourceConfig(
        name="dc-east",
        bootstrap_servers=(),
        topics=re.compile(".*"),
        sync_groups=None if pattern is None else re.compile(pattern),
    )
    source = SimpleNamespace(config=config, tunables=Tunables(sync_groups_interval_ms=3_000))
    asyncio.run(follow_groups(cast("Any", HOST), cast("Any", source)))
    return found


def test_what_a_round_brought_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (sync,) = followed(monkeypatch, "a.*")
    asked: list[Any] = []

    async def moves(*arguments: Any) -> list[GroupMove]:
        asked.append(arguments)
        return MOVES

    async def bring(*arguments: Any) -> list[GroupMove]:
        asked.append(arguments)
        return MOVES

    monkeypatch.setattr(group_offsets, "moves", moves)
    monkeypatch.setattr(group_offsets, "bring", bring)
    here, there = cast("Any", "here"), cast("Any", "there")
    done = SyncReport(source="dc-east", what=GROUPS, succeeded_ms=9, in_step=2, left_alone=1, behind=7)
    assert asyncio.run(cast("Any", sync.bring(here, there))) == done
    assert asked == [(here, there, "dc-east", re.compile("a.*")), (here, MOVES)]
    assert (sync.what, sync.interval_ms()) == (GROUPS, 3_000)


def test_without_an_expression_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(monkeypatch, None) == []
