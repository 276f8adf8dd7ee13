"""Groups are brought by one broker, at its interval, and what a round came to is told."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.mirror import group_rounds
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.group_rounds import follow_groups
from headrace.mirror.group_sync import GroupMove
from headrace.mirror.reports import GROUPS, SyncReport

MOVES = [
    GroupMove(group="a", offsets={("dc-east.t", 0): 7}, not_yet=5),
    GroupMove(group="b", offsets={}, refusal="it has members"),
    GroupMove(group="c", offsets={}, not_yet=2),
]
DONE = SyncReport(source="dc-east", what=GROUPS, succeeded_ms=0, in_step=2, left_alone=1, behind=7)


class World:
    """A broker and its source; a look takes a second of its clock, and after so many of them the broker ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, pattern: str | None = ".*") -> None:
        self.leader: int | None = 1
        self.now_ms = 0
        self.rounds: list[int] = []
        self.looks = 5
        self.error: Exception | None = None
        self.host = SimpleNamespace(
            broker_id=1,
            clock=SimpleNamespace(now_ms=lambda: 0, monotonic_ms=lambda: self.now_ms),
            metadata=SimpleNamespace(
                partition=lambda *_: None if self.leader is None else SimpleNamespace(leader=self.leader)
            ),
        )
        self.source = SimpleNamespace(
            config=SourceConfig(
                name="dc-east",
                bootstrap_servers=(),
                topics=re.compile(".*"),
                sync_groups=None if pattern is None else re.compile(pattern),
            ),
            tunables=Tunables(sync_groups_interval_ms=3_000),
            is_known=True,
            syncs={},
        )
        monkeypatch.setattr(group_rounds, "_bring", self.bring)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def bring(self, *_: Any) -> list[GroupMove]:
        self.rounds.append(self.now_ms)
        if self.error is not None:
            raise self.error
        return MOVES

    async def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)
        self.looks -= 1
        if self.looks == 0:
            raise EOFError

    def run(self) -> SyncReport | None:
        with pytest.raises(EOFError):
            asyncio.run(follow_groups(cast("Any", self.host), cast("Any", self.source)))
        found: SyncReport | None = self.source.syncs.get(GROUPS)
        return found


def test_rounds_come_at_their_interval_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert world.run() == DONE
    assert world.rounds == [0, 3_000]


@pytest.mark.parametrize(("leader", "is_known"), [(2, True), (None, True), (1, False)])
def test_nothing_is_brought_by_another_broker_or_of_a_source_that_never_answered(
    monkeypatch: pytest.MonkeyPatch, leader: int | None, *, is_known: bool
) -> None:
    world = World(monkeypatch)
    world.leader, world.source.is_known = leader, is_known
    world.source.syncs[GROUPS] = DONE
    assert world.run() == (None if leader != 1 else DONE), "who does it no more tells no more of it"
    assert world.rounds == []


def test_without_an_expression_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, pattern=None)
    asyncio.run(follow_groups(cast("Any", world.host), cast("Any", world.source)))
    assert (world.rounds, world.looks) == ([], 5)


@pytest.mark.parametrize(
    ("error", "problem"),
    [(error_of(ErrorCode.NOT_COORDINATOR, "it moved"), "it moved"), (ConnectionError(), "ConnectionError")],
)
def test_a_round_that_fails_says_why_and_keeps_what_the_last_good_one_was(
    monkeypatch: pytest.MonkeyPatch, error: Exception, problem: str
) -> None:
    world = World(monkeypatch)
    world.source.syncs[GROUPS] = DONE
    world.error = error
    found = world.run()
    assert found is not None
    assert (found.problem, found.succeeded_ms, found.in_step) == (problem, 0, 2)
    assert isinstance(error, KafkaError | OSError)
