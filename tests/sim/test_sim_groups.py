"""Consumer groups under seeded schedules: members stall, die and leave, messages get lost, the coordinator crashes or is deposed.

Each safety rule that is switched off must make some seed fail, or the simulation would prove nothing.
"""

from __future__ import annotations

import pytest
from group_world import Mutation, World

from headrace.broker.coordinators.records import Record
from headrace.broker.errors import ErrorCode
from headrace.broker.groups import offsets, rebalance
from headrace.broker.groups.decision import Turn
from headrace.broker.groups.events import CommitOffsets
from headrace.broker.groups.group import Group
from headrace.broker.groups.records import encode_offset_key, encode_offset_value

SEEDS, BLOCK = 240, 20
MUTATION_SEEDS = 60


def run(seed: int, mutation: Mutation = Mutation.NONE) -> World:
    world = World(seed, mutation)
    try:
        world.run()
    except AssertionError as error:
        error.add_note(f"seed {seed}\n" + "\n".join(world.stories[-20:]))
        raise
    return world


@pytest.mark.long
@pytest.mark.parametrize("first", range(BLOCK, SEEDS, BLOCK))
def test_groups_stay_safe_and_become_whole_again(first: int) -> None:
    for seed in range(first, first + BLOCK):
        run(seed)


@pytest.mark.acceptance
def test_groups_become_whole_again_from_all_that_the_schedules_are_for() -> None:
    worlds = [run(seed) for seed in range(BLOCK)]
    stories = "\n".join(story for world in worlds for story in world.stories)
    for happening in (
        "coordinator crashes",
        "coordinator is deposed",
        "coordinator leads on",
        "append of CommitOffsets fails",
        "append of SyncGroup fails",
        "hears UNKNOWN_MEMBER_ID",
        "hears REBALANCE_IN_PROGRESS",
    ):
        assert happening in stories
    assert sum(len(world.acknowledged) for world in worlds) > 60


def some_seed_fails(mutation: Mutation = Mutation.NONE) -> bool:
    for seed in range(MUTATION_SEEDS):
        try:
            World(seed, mutation).run()
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("mutation", [each for each in Mutation if each is not Mutation.NONE])
@pytest.mark.acceptance
def test_without_a_rule_of_the_runtime_a_seed_fails(mutation: Mutation) -> None:
    assert some_seed_fails(mutation)


@pytest.mark.acceptance
def test_without_a_check_of_who_commits_a_seed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(group: Group | None, event: CommitOffsets, turn: Turn) -> None:
        for partition, value in event.offsets.items():
            key = encode_offset_key(event.group_id, *partition)
            turn.decision.records.append(Record(key, encode_offset_value(value)))
        turn.answer(dict.fromkeys(event.offsets, ErrorCode.NONE))

    monkeypatch.setattr(offsets, "commit", commit)
    assert some_seed_fails()


def test_without_a_new_generation_for_each_rebalance_a_seed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = rebalance._begin_generation

    def begin_again(group: Group, turn: Turn) -> None:
        group.generation = max(group.generation - 1, 0)
        begin(group, turn)

    monkeypatch.setattr(rebalance, "_begin_generation", begin_again)
    assert some_seed_fails()
