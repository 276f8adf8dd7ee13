"""What a controller changed is told, a line for each partition, and elections are counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from headrace.broker.replication.events import StatesWritten, StateWrite, WriteStates
from headrace.broker.replication.model import PartitionState
from headrace.broker.server.control.state_changes import LINES_AT_ONCE, StateChanges, state_changes
from headrace.broker.tasks import Tasks
from headrace.broker.wire.partitions import PartitionKey

KEY = ("t", 3)


def state(leader: int, *isr: int, epoch: int = 4) -> PartitionState:
    return PartitionState(leader=leader, leader_epoch=epoch, isr=isr, controller_epoch=7, zk_version=9)


def told(
    caplog: pytest.LogCaptureFixture, before: PartitionState | None, after: PartitionState
) -> tuple[str, dict[str, object], tuple[int, int]]:
    """The line's event and facts, and (elections, unclean ones)."""
    changes = StateChanges()
    write = StateWrite(topic="t", partition=3, state=after, create=before is None, reason="why")
    known: Mapping[PartitionKey, PartitionState] = {} if before is None else {KEY: before}
    with caplog.at_level(logging.INFO):
        command, outcome = WriteStates(writes=(write,)), StatesWritten(written={KEY: after})
        asyncio.run(changes.tell(state_changes(known, command, outcome)))
    (record,) = caplog.records
    ((event, facts),) = record.events  # type: ignore[attr-defined]
    return event, facts, (changes.leader_elections, changes.unclean_leader_elections)


def test_a_new_leader_is_told_with_epochs_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    event, facts, counts = told(caplog, state(1, 1, 2), state(2, 2, epoch=5))
    assert (event, counts) == ("leader elected", (1, 0))
    assert facts == {
        "topic": "t",
        "partition": 3,
        "leader": 2,
        "before": 1,
        "isr": "2",
        "isr_before": "1,2",
        "leader_epoch": 5,
        "partition_epoch": 9,
        "controller_epoch": 7,
        "reason": "why",
    }


@pytest.mark.parametrize(
    ("before", "after", "event", "counts"),
    [
        (None, state(1, 1, 2), "leader elected", (1, 0)),
        (state(-1, 1), state(2, 2), "leader elected", (1, 1)),
        (state(1, 1), state(-1, 1), "partition has no leader", (0, 0)),
        (state(1, 1), state(1, 1, 2), "in-sync replicas changed", (0, 0)),
    ],
)
def test_each_change_has_its_name(
    caplog: pytest.LogCaptureFixture,
    before: PartitionState | None,
    after: PartitionState,
    event: str,
    counts: tuple[int, int],
) -> None:
    found, facts, counted = told(caplog, before, after)
    assert (found, counted) == (event, counts)
    assert facts["isr"] == ",".join(map(str, after.isr))


def test_what_was_not_written_is_not_told() -> None:
    write = StateWrite(topic="t", partition=3, state=state(2, 2), create=False)
    outcome = StatesWritten(written={}, conflicts={KEY: state(1, 1)})
    assert state_changes({}, WriteStates(writes=(write,)), outcome) == []


def test_others_have_their_turn_between_many_lines() -> None:
    turns: list[None] = []
    count = 3 * LINES_AT_ONCE

    async def script() -> None:
        async def other() -> None:
            while True:
                turns.append(None)
                await asyncio.sleep(0)

        tasks = Tasks()
        tasks.start("other", other())
        writes = tuple(
            StateWrite(topic="t", partition=p, state=state(1, 1), create=True) for p in range(count)
        )
        written = {("t", p): state(1, 1) for p in range(count)}
        changes = state_changes({}, WriteStates(writes=writes), StatesWritten(written=written))
        await StateChanges().tell(changes)
        await tasks.stop()

    asyncio.run(script())
    assert len(turns) >= 2
