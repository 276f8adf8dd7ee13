"""How proposals reach the controller: at home and elsewhere, after failures, after a sync, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from log_kit import NOW_MS, batch, open_log
from replica_kit import LAG_MS_MAX, ScriptedHost, told
from virtual_time import VirtualLoop

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode, NotControllerError
from headrace.broker.replication.events import AnswerIsrProposal, IsrProposed
from headrace.broker.replication.model import PartitionState
from headrace.broker.replication.partition import Partition
from headrace.broker.server.replicas.isr_changes import IsrChanges
from headrace.broker.tasks import Tasks
from headrace.broker.wire.schema import Api

TOPIC_ID = UUID(int=1)
SILENCE = object()


class World:
    """Broker 1, which leads `events-0` with broker 2; `script` gives the controller's outcomes, one a request."""

    def __init__(self, folder: Path, *outcomes: Any, is_controller: bool = True, min_isr: int = 1) -> None:
        self.outcomes = list(outcomes)
        self.is_controller = is_controller
        self.asked: list[Any] = []
        self.tasks = Tasks()
        self.syncs_well = True
        self.sync_seconds = 0
        self.synced = 0
        log, _ = open_log(folder, LogConfig(min_insync_replicas=min_isr))
        self.host = ScriptedHost()
        self.partition = Partition(self.host, "events", 0, TOPIC_ID, log)
        self.changes = IsrChanges(
            1,
            self,
            cast(Any, self),
            self.tasks,
            broker_epoch=lambda: 77,
            timeout_ms=30_000,
            secure=self.secure,
        )
        self.host.propose = self.changes.propose  # type: ignore[method-assign]

    async def answer(self, event: IsrProposed) -> AnswerIsrProposal:
        self.asked.append(event)
        outcome = self._outcome()
        if outcome is SILENCE:
            await asyncio.sleep(3600)
        return outcome if isinstance(outcome, AnswerIsrProposal) else AnswerIsrProposal(answers=(outcome,))

    async def ask(self, api: Api, version_max: int, message: Callable[[int], Any]) -> tuple[int, Any]:
        self.asked.append(message(version_max))
        return version_max, self._outcome()

    def close(self) -> None:
        """The channel's connection."""

    def _outcome(self) -> Any:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def secure(self, partition: Partition) -> bool:
        await asyncio.sleep(self.sync_seconds)
        self.synced = partition.log.log_end_offset
        return self.syncs_well

    def run(self, script: Callable[[], Awaitable[None]]) -> None:
        async def scripted() -> None:
            self.tasks.start("changes", self.changes.run())
            await script()
            await self.tasks.stop()

        with VirtualLoop() as loop:
            loop.run_until_complete(scripted())

    async def propose_follower(self) -> None:
        """Broker 2 is out of the ISR, and has everything."""
        self.partition.follow(told(epoch=3, isr=(1,), replicas=(1, 2), partition_epoch=4))
        self.partition.follower_fetched(2, 0, broker_epoch=30)
        await asyncio.sleep(120)

    async def lose_follower(self) -> None:
        """Broker 2 is in the ISR, and lags."""
        self.partition.follow(told(epoch=3, isr=(1, 2), partition_epoch=4))
        self.partition.append(batch(5), required_acks=1, now_ms=NOW_MS)
        self.host.now_ms += LAG_MS_MAX + 1
        self.partition.check_lag()
        await asyncio.sleep(60)


def state(isr: tuple[int, ...], partition_epoch: int, leader_epoch: int = 3) -> PartitionState:
    return PartitionState(
        leader=1, leader_epoch=leader_epoch, isr=isr, controller_epoch=1, zk_version=partition_epoch
    )


def test_a_controller_in_this_process_is_asked_without_a_connection(tmp_path: Path) -> None:
    world = World(tmp_path, state((1, 2), 5))
    world.run(world.propose_follower)
    (event,) = world.asked
    assert (event.broker_id, event.broker_epoch) == (1, 77)
    assert (event.proposals[0].topic, event.proposals[0].broker_epochs) == (TOPIC_ID, (-1, 30))
    assert (world.partition.isr, world.partition.partition_epoch) == ((1, 2), 5)
    assert (world.changes.counts.expands, world.changes.counts.shrinks, world.changes.counts.failed) == (
        1,
        0,
        0,
    )


def test_another_controller_is_asked_by_alter_partition(tmp_path: Path) -> None:
    partition = {
        "partition_index": 0,
        "error_code": 0,
        "leader_id": 1,
        "leader_epoch": 3,
        "isr": [1],
        "partition_epoch": 5,
    }
    answer = {"error_code": 0, "topics": [{"topic_id": TOPIC_ID, "partitions": [partition]}]}
    world = World(tmp_path, answer, is_controller=False)
    world.run(world.lose_follower)
    (message,) = world.asked
    assert (message["broker_id"], message["broker_epoch"]) == (1, 77)
    assert (world.partition.isr, world.partition.high_watermark) == ((1,), 5)
    assert (world.changes.counts.expands, world.changes.counts.shrinks) == (0, 1)


@pytest.mark.parametrize(
    "failure",
    [
        OSError("reset"),
        NotControllerError(),
        AnswerIsrProposal(error=ErrorCode.STALE_BROKER_EPOCH),
        ErrorCode.NOT_CONTROLLER,
        SILENCE,
    ],
)
def test_what_failed_is_asked_again_until_it_is_answered(tmp_path: Path, failure: Any) -> None:
    world = World(tmp_path, failure, failure, failure, state((1, 2), 5))
    world.run(world.propose_follower)
    assert len(world.asked) == 4
    assert world.partition.isr == (1, 2)


def test_an_error_of_the_whole_answer_is_asked_again(tmp_path: Path) -> None:
    partition = {
        "partition_index": 0,
        "error_code": 0,
        "leader_id": 1,
        "leader_epoch": 3,
        "isr": [1, 2],
        "partition_epoch": 5,
    }
    answer = {"error_code": 0, "topics": [{"topic_id": TOPIC_ID, "partitions": [partition]}]}
    stale = {"error_code": ErrorCode.STALE_BROKER_EPOCH, "topics": []}
    world = World(tmp_path, stale, answer, is_controller=False)
    world.run(world.propose_follower)
    assert world.partition.isr == (1, 2)


def test_nobody_asks_for_a_leadership_that_is_over(tmp_path: Path) -> None:
    world = World(tmp_path, OSError("reset"))

    async def script() -> None:
        world.partition.follow(told(epoch=3, isr=(1,), replicas=(1, 2)))
        world.partition.follower_fetched(2, 0)
        await asyncio.sleep(0.01)
        assert world.asked
        world.partition.follow(told(2, 4, isr=(2,), replicas=(1, 2)))
        await asyncio.sleep(60)

    world.run(script)
    assert len(world.asked) == 1


def test_a_refusal_is_counted_and_the_next_fetch_proposes_again(tmp_path: Path) -> None:
    world = World(tmp_path, ErrorCode.INELIGIBLE_REPLICA, state((1, 2), 5))

    async def script() -> None:
        await world.propose_follower()
        assert (world.partition.isr, world.changes.counts.failed) == ((1,), 1)
        world.partition.follower_fetched(2, 0)
        await asyncio.sleep(60)

    world.run(script)
    assert world.partition.isr == (1, 2)


def test_the_log_is_on_the_disk_before_too_few_are_proposed(tmp_path: Path) -> None:
    world = World(tmp_path, state((1,), 5), min_isr=2)
    world.run(world.lose_follower)
    assert world.synced == 5
    assert world.partition.isr == (1,)
    assert world.partition.high_watermark == 0, "one is not enough"


def test_nothing_is_proposed_when_the_disk_cannot_sync(tmp_path: Path) -> None:
    world = World(tmp_path, min_isr=2)
    world.syncs_well = False
    world.run(world.lose_follower)
    assert world.asked == []
    assert world.partition.isr == (1, 2)
    assert world.partition.leadership is not None
    assert world.partition.leadership.proposed is None


def test_what_was_synced_for_a_leadership_that_is_over_replaces_no_newer_proposal(tmp_path: Path) -> None:
    world = World(tmp_path, SILENCE, state((1, 2), 5, leader_epoch=4), min_isr=2)
    world.sync_seconds = 65

    async def script() -> None:
        await world.lose_follower()
        assert world.asked == []
        world.partition.follow(told(epoch=4, isr=(1,), replicas=(1, 2), partition_epoch=4))
        world.partition.follower_fetched(2, 5, broker_epoch=30)
        await asyncio.sleep(60)
        assert world.synced == 5

    world.run(script)
    assert [event.proposals[0].isr for event in world.asked] == [(1, 2), (1, 2)]
    assert world.partition.isr == (1, 2)
