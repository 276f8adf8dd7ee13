"""What is brought beside messages is brought by one broker, at its interval, and what a round came to is told."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.mirror.config import SourceConfig
from headrace.mirror.memory.reports import GROUPS, SyncReport
from headrace.mirror.rounds import loop
from headrace.mirror.rounds.loop import Sync, follow

DONE = SyncReport(source="dc-east", what=GROUPS, succeeded_ms=0, in_step=2, left_alone=1, behind=7)
ADDRESSES = {"here": ("here", 1), "there": ("there", 2)}


class NoClient:
    """Stands for a connection; `bootstrap` says to which cluster."""

    def __init__(self, bootstrap: list[tuple[str, int]], *_: Any) -> None:
        self.bootstrap = bootstrap

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class World:
    """A broker and its source; a look takes a second of its clock, and after so many of them the broker ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leader: int | None = 1
        self.now_ms = 0
        self.rounds: list[int] = []
        self.looks = 5
        self.error: Exception | None = None
        self.host = SimpleNamespace(
            broker_id=1,
            clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms),
            security=None,
            leader_address=lambda *_: ADDRESSES["here"],
            metadata=SimpleNamespace(
                partition=lambda *_: None if self.leader is None else SimpleNamespace(leader=self.leader)
            ),
        )
        config = SourceConfig(name="dc-east", bootstrap_servers=(), topics=re.compile(".*"))
        self.source = SimpleNamespace(
            config=config, addresses={7: ADDRESSES["there"]}, client_id="us", is_known=True, syncs={}
        )
        monkeypatch.setattr(loop, "ClusterClient", NoClient)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def bring(self, here: Any, there: Any) -> SyncReport:
        assert (here.bootstrap, there.bootstrap) == ([ADDRESSES["here"]], [ADDRESSES["there"]])
        self.rounds.append(self.now_ms)
        if self.error is not None:
            raise self.error
        return DONE

    async def sleep(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)
        self.looks -= 1
        if self.looks == 0:
            raise EOFError

    def run(self) -> SyncReport | None:
        sync = Sync(what=GROUPS, title="groups", interval_ms=lambda: 3_000, bring=self.bring)
        with pytest.raises(EOFError):
            asyncio.run(follow(cast("Any", self.host), cast("Any", self.source), sync))
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
