"""Whole brokers in one process, their clients, and faults: what was acknowledged holds, and all of it gets on afterwards.

BROKER_SEEDS=7 pytest tests/sim/test_sim_brokers.py replays one; BROKER_SEEDS=0-999 tries a thousand.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from broker_faults import KINDS
from broker_simulation import simulate
from faulty_files import Inode

from headrace.broker.groups import offsets
from headrace.broker.groups.decision import Turn
from headrace.broker.groups.events import CommitOffsets
from headrace.broker.groups.loader import GroupLoader
from headrace.broker.log.producers import ProducerStates
from headrace.broker.server.replicas import Partitions

first, _, last = os.environ.get("BROKER_SEEDS", "0-49").partition("-")


@pytest.mark.parametrize("seed", range(int(first), int(last or first) + 1))
def test_three_brokers_keep_what_they_acknowledged_and_get_on(seed: int) -> None:
    simulate(seed)


def test_the_schedules_reach_what_they_are_for() -> None:
    happened: Counter[str] = Counter()
    for seed in range(8):
        happened += simulate(seed).history.happened
    for happening in (
        *KINDS,
        "tried again",
        "joined",
        "stalled",
        "committed",
        "create: NONE",
        "delete: NONE",
    ):
        assert happened[happening], happening


def test_a_seed_is_replayed_by_its_number() -> None:
    one, again, other = simulate(3), simulate(3), simulate(5)
    assert one.world.stories == again.world.stories
    assert one.logs == again.logs
    assert one.logs != other.logs


async def _no_answer_with_a_deed(*_: object) -> dict[str, Any]:
    return {"error_code": 0, "partition_errors": [], "topics": []}


def _commit_of_anybody(group: object, event: CommitOffsets, turn: Turn, store: Any = offsets.commit) -> None:
    store(None, replace(event, generation=-1), turn)


@pytest.mark.parametrize(
    ("seed", "rule", "name", "instead", "found"),
    [
        (1, Inode, "sync", lambda *_: None, "acknowledged write is lost"),
        (1, ProducerStates, "check", lambda *_: None, "a write is doubled"),
        (31, offsets, "commit", _commit_of_anybody, "a committed offset went back"),
        (1, GroupLoader, "_apply", lambda *_: None, "a committed offset went back"),
        (0, Partitions, "leader_and_isr", _no_answer_with_a_deed, "not whole after"),
    ],
    ids=["unsynced", "repeated", "unfenced", "forgotten", "deaf"],
)
def test_a_rule_that_is_switched_off_is_missed(
    seed: int, rule: Any, name: str, instead: Any, found: str
) -> None:
    with patch.object(rule, name, instead), pytest.raises(AssertionError, match=found):
        simulate(seed)
