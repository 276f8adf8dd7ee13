"""Who may read copies is looked at by one broker, at its interval, and what a round came to is told."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.errors import ErrorCode, error_of
from headrace.mirror import acl_rounds
from headrace.mirror.acl_rounds import INTERVAL_MS, follow_acls
from headrace.mirror.acl_sync import AclMove
from headrace.mirror.config import SourceConfig
from headrace.mirror.reports import ACLS, SyncReport

MOVES = [AclMove(copy=f"dc-east.{name}", added=(), removed=()) for name in "ab"]


class World:
    """A broker and its source; a look takes 20 s of its clock, and after so many of them the broker ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, sync_acls: bool = True) -> None:
        self.leader = 1
        self.now_ms = 0
        self.rounds: list[int] = []
        self.looks = 5
        self.error: Exception | None = None
        self.host = SimpleNamespace(
            broker_id=1,
            clock=SimpleNamespace(now_ms=lambda: 7, monotonic_ms=lambda: self.now_ms),
            metadata=SimpleNamespace(partition=lambda *_: SimpleNamespace(leader=self.leader)),
        )
        config = SourceConfig(
            name="dc-east", bootstrap_servers=(), topics=re.compile(".*"), sync_acls=sync_acls
        )
        self.source = SimpleNamespace(config=config, is_known=True, syncs={})
        monkeypatch.setattr(acl_rounds, "_bring", self.bring)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def bring(self, *_: Any) -> list[AclMove]:
        self.rounds.append(self.now_ms)
        if self.error is not None:
            raise self.error
        return MOVES

    async def sleep(self, seconds: float) -> None:
        self.now_ms += INTERVAL_MS // 3
        self.looks -= 1
        if self.looks == 0:
            raise EOFError

    def run(self) -> SyncReport | None:
        with pytest.raises(EOFError):
            asyncio.run(follow_acls(cast("Any", self.host), cast("Any", self.source)))
        found: SyncReport | None = self.source.syncs.get(ACLS)
        return found


def test_a_round_an_interval_by_one_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert world.run() == SyncReport(source="dc-east", what=ACLS, succeeded_ms=7, in_step=2)
    assert world.rounds == [0, INTERVAL_MS]
    world = World(monkeypatch)
    world.leader = 2
    assert world.run() is None
    assert world.rounds == []


def test_a_source_without_an_authorizer_changes_nothing_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.error = error_of(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    told = world.run()
    assert told is not None
    assert (told.problem, told.succeeded_ms) == ("No Authorizer is configured on the broker", None)


def test_nothing_is_brought_unless_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, sync_acls=False)
    asyncio.run(follow_acls(cast("Any", world.host), cast("Any", world.source)))
    assert world.rounds == []
