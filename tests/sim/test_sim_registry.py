"""Registries that share a topic, under seeded schedules of late reads, late appends, sleep, death and compaction.

What was answered is there in every process and in every replay; each rule that is switched off makes some seed fail.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from registry_world import World

from headrace.registry.catalog import Catalog
from headrace.registry.turns import Turns
from headrace.registry.writer import Writer

SEEDS, BLOCK = 40, 10
MUTATION_SEEDS = (14, *range(40))
"""Few but the first show that nobody waits for a turn."""


def run(seed: int) -> World:
    world = World(seed)
    try:
        world.run()
    except AssertionError as error:
        error.add_note(f"seed {seed}\n" + "\n".join(world.stories[-20:]))
        raise
    return world


@pytest.mark.long
@pytest.mark.parametrize("first", range(BLOCK, SEEDS, BLOCK))
def test_what_was_answered_is_in_every_process_and_every_replay(first: int) -> None:
    for seed in range(first, first + BLOCK):
        run(seed)


@pytest.mark.acceptance
def test_answers_are_kept_through_all_that_the_schedules_are_for() -> None:
    worlds = [run(seed) for seed in range(BLOCK)]
    stories = "\n".join(story for world in worlds for story in world.stories)
    for happening in (
        "dies",
        "sleeps",
        "does not hear of an append",
        "reads a late record",
        "the cleaner comes by",
    ):
        assert happening in stories
    assert sum(len(world.known) for world in worlds) > 500
    assert sum(world.refused for world in worlds) > 100


def _nobody_waits_for_a_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turns, "head", property(lambda turns: next(reversed(turns._asked), None)))


def _late_records_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turns, "admit", lambda turns, turn: True)


def _late_records_stay_the_last_of_their_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Catalog, "needs_repair", False)


def _requests_are_answered_before_they_are_read_back(patch: pytest.MonkeyPatch) -> None:
    read_back = Writer._read_back

    def at_once(writer: Writer, now_ms: int) -> object:
        if writer._written is not None:
            return writer._settle_written(None)
        return read_back(writer, now_ms)

    patch.setattr(Writer, "_read_back", at_once)


@pytest.mark.parametrize(
    "break_rule",
    [
        _nobody_waits_for_a_turn,
        _late_records_count,
        _late_records_stay_the_last_of_their_keys,
        _requests_are_answered_before_they_are_read_back,
    ],
)
@pytest.mark.acceptance
def test_without_a_rule_some_seed_fails(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    for seed in MUTATION_SEEDS:
        try:
            World(seed).run()
        except AssertionError:
            return
    pytest.fail("no seed fails")
