"""A copy that is promoted, written to and restored while its leader moves, and a topic that becomes one for the first time; with
a safety rule off, some seed notices.

A seed is replayed by its number: `RestoreWorld(seed).run(STEPS)`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from long_runs import acceptance, first_of
from mirror_restores import RestoreWorld, ReverseWorld

from headrace.mirror.memory.journal import Journal
from headrace.mirror.restoring import Restoring

STEPS = 250
SEEDS = 240


@pytest.mark.parametrize("world_type", [RestoreWorld, acceptance(ReverseWorld)])
@pytest.mark.parametrize("block", first_of(1, range(8)))
def test_what_was_restored_is_its_source_and_nothing_else(block: int, world_type: type[RestoreWorld]) -> None:
    worlds = [world_type(seed) for seed in range(block, SEEDS, 8)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.restores for world in worlds) > 20
    assert sum(world.own_count for world in worlds) > 50
    assert sum(world.fail_overs for world in worlds) > 30


def _the_source_is_copied_before_all_in_sync_are_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Restoring, "is_done", property(lambda self: self._is_cut))


def _an_order_ends_before_it_is_carried_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "restore_of", lambda self, lead: None)


@pytest.mark.parametrize(
    ("break_rule", "first_seed"),
    [
        (_the_source_is_copied_before_all_in_sync_are_cut, 3),
        (_an_order_ends_before_it_is_carried_out, 0),
    ],
)
def test_without_a_safety_rule_some_seed_fails(
    break_rule: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    assert any(_fails((first_seed + number) % SEEDS) for number in range(SEEDS))


def _fails(seed: int) -> bool:
    try:
        RestoreWorld(seed).run(STEPS)
    except AssertionError:
        return True
    return False
