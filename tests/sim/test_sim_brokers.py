"""Whole brokers in one process, their clients, and faults: what was acknowledged holds, and all of it gets on afterwards.

Each seed is run with topics of three replicas, and the first ones with topics of one.

BROKER_SEEDS=7 python -m pytest -m "" tests/sim/test_sim_brokers.py replays one; BROKER_SEEDS=0-999 tries a thousand.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from broker_faults import KINDS
from broker_simulation import simulate
from faulty_files import Inode
from long_runs import first_of

from headrace.broker.coordinators.loader import LogLoader
from headrace.broker.groups import offsets
from headrace.broker.groups.decision import Turn
from headrace.broker.groups.events import CommitOffsets
from headrace.broker.log.epochs import LeaderEpochs
from headrace.broker.log.producers import ProducerStates
from headrace.broker.log.results import EpochEndOffset
from headrace.broker.replication.controller.elections import Elections
from headrace.broker.replication.leader import Leadership
from headrace.broker.server.replicas.hosted import Partitions

REACHING, REACHING_MAX = range(8), 40
"""Whose schedules together reach everything, and which are therefore run together; or some more, as other seeds schedule it."""
FIRST, _, LAST = os.environ.get("BROKER_SEEDS", f"{len(REACHING)}-199").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
SEEDS_IN_SHORT, SEEDS_OF_SINGLES_IN_SHORT = 20, 4


@pytest.mark.parametrize("seed", first_of(SEEDS_IN_SHORT - len(REACHING) - SEEDS_OF_SINGLES_IN_SHORT, SEEDS))
def test_three_brokers_with_three_replicas_keep_what_they_acknowledged_and_get_on(seed: int) -> None:
    simulate(seed, factor=3)


@pytest.mark.parametrize("seed", first_of(SEEDS_OF_SINGLES_IN_SHORT, SEEDS[:50]))
def test_three_brokers_with_single_replicas_keep_what_they_acknowledged_and_get_on(seed: int) -> None:
    simulate(seed)


@pytest.mark.acceptance
def test_the_schedules_reach_what_they_are_for() -> None:
    left = {
        *KINDS,
        "tried again",
        "joined",
        "stalled",
        "read from a follower",
        "committed",
        "create: NONE",
        "delete: NONE",
    }
    for seed in range(REACHING_MAX):
        if seed not in REACHING and not left:
            break
        left -= simulate(seed, factor=3).history.happened.keys()
    assert not left


@pytest.mark.acceptance
def test_a_seed_is_replayed_by_its_number() -> None:
    one, again, other = simulate(3, factor=3), simulate(3, factor=3), simulate(5, factor=3)
    assert one.world.stories == again.world.stories
    assert one.logs == again.logs
    assert one.logs != other.logs


async def _no_answer_with_a_deed(*_: object) -> dict[str, Any]:
    return {"error_code": 0, "partition_errors": [], "topics": []}


def _commit_of_anybody(group: object, event: CommitOffsets, turn: Turn, store: Any = offsets.commit) -> None:
    store(None, replace(event, generation=-1), turn)


def simulate_all(seeds: Iterable[int], factor: int = 1) -> None:
    for seed in seeds:
        simulate(seed, factor)


@pytest.mark.parametrize(
    ("rule", "name", "instead", "found"),
    [
        pytest.param(
            Inode,
            "sync",
            lambda *_: None,
            "acknowledged write is lost|the data here belongs to",
            id="unsynced",
            marks=pytest.mark.long,
        ),
        pytest.param(ProducerStates, "check", lambda *_: None, "a write is doubled", id="repeated"),
        pytest.param(
            Partitions,
            "leader_and_isr",
            _no_answer_with_a_deed,
            "not whole after",
            id="deaf",
            marks=pytest.mark.long,
        ),
        pytest.param(LogLoader, "_apply", lambda *_: None, "a committed offset went back", id="forgotten"),
        pytest.param(
            offsets,
            "commit",
            _commit_of_anybody,
            "a committed offset went back",
            id="unfenced",
            marks=pytest.mark.long,
        ),
    ],
)
@pytest.mark.acceptance
def test_a_rule_that_is_switched_off_is_missed(rule: Any, name: str, instead: Any, found: str) -> None:
    with patch.object(rule, name, instead), pytest.raises(AssertionError, match=found):
        simulate_all(range(100))


def _at_once(leadership: Leadership, end_offset: int, isr_size_min: int, now_ms: int) -> int:
    return end_offset


def _one_epoch(epochs: LeaderEpochs, epoch: int, log_end_offset: int) -> EpochEndOffset:
    return EpochEndOffset(epoch, log_end_offset)


@pytest.mark.long
@pytest.mark.parametrize(
    ("rule", "name", "instead"),
    [
        pytest.param(Leadership, "committed", _at_once, id="wait for the in-sync replicas"),
        pytest.param(LeaderEpochs, "end_offset", _one_epoch, id="truncation by epoch"),
        pytest.param(
            Elections, "_registered_since", lambda *_: frozenset(), id="registrations after the state"
        ),
    ],
)
def test_a_rule_of_replication_that_is_switched_off_is_missed(rule: Any, name: str, instead: Any) -> None:
    with patch.object(rule, name, instead), pytest.raises(AssertionError):
        simulate_all(range(100), factor=3)
