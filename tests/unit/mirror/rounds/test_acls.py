"""What a round that looks at who may read copies came to is told."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.mirror.config import SourceConfig
from headrace.mirror.memory.reports import ACLS, SyncReport
from headrace.mirror.rounds import acls
from headrace.mirror.rounds.acls import INTERVAL_MS, follow_acls
from headrace.mirror.rounds.loop import Sync
from headrace.mirror.sync import acl_grants
from headrace.mirror.sync.acls import AclMove

MOVES = [AclMove(copy=f"dc-east.{name}", added=(), removed=()) for name in "ab"]
HOST = SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 9))


def followed(monkeypatch: pytest.MonkeyPatch, *, sync_acls: bool) -> list[Sync]:
    """What would be done for ever."""
    found: list[Sync] = []

    async def follow(_host: Any, _source: Any, sync: Sync) -> None:
        found.append(sync)

    monkeypatch.setattr(acls, "follow", follow)
    config = SourceConfig(name="dc-east", bootstrap_servers=(), topics=re.compile(".*"), sync_acls=sync_acls)
    asyncio.run(follow_acls(cast("Any", HOST), cast("Any", SimpleNamespace(config=config))))
    return found


def test_what_a_round_brought_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    (sync,) = followed(monkeypatch, sync_acls=True)
    asked: list[Any] = []

    async def moves(*arguments: Any) -> list[AclMove]:
        asked.append(arguments)
        return MOVES

    async def bring(*arguments: Any) -> None:
        asked.append(arguments)

    monkeypatch.setattr(acl_grants, "moves", moves)
    monkeypatch.setattr(acl_grants, "bring", bring)
    here, there = cast("Any", "here"), cast("Any", "there")
    done = SyncReport(source="dc-east", what=ACLS, succeeded_ms=9, in_step=2)
    assert asyncio.run(cast("Any", sync.bring(here, there))) == done
    assert asked == [(here, there, "dc-east"), (here, MOVES)]
    assert (sync.what, sync.interval_ms()) == (ACLS, INTERVAL_MS)


def test_nothing_is_brought_unless_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(monkeypatch, sync_acls=False) == []
