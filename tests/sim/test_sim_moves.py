"""A log that moves between data directories, under a disk that forgets; with a safety rule off, some seed notices."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
from long_runs import first_of
from move_simulation import MoveSimulation

from headrace.broker.errors import KafkaError
from headrace.broker.log import moving
from headrace.broker.log.data_directory import DataDirectory
from headrace.broker.log.moving import Moves

SEEDS = 80
STEPS = 150


@pytest.mark.parametrize("block", first_of(1, range(4)))
def test_a_moving_log_survives_every_crash(block: int) -> None:
    done = 0
    for seed in range(block, SEEDS, 4):
        simulation = MoveSimulation(seed)
        simulation.run(STEPS)
        done += simulation.moves_done
    assert done > SEEDS / 4, "the moves came to nothing"


@pytest.mark.parametrize("jobs_done", range(12))
def test_a_move_that_a_kill_ended_costs_nothing_that_was_synced(jobs_done: int) -> None:
    simulation = MoveSimulation(jobs_done)
    for _ in range(5):
        simulation._append()
    simulation._begin_move()
    for job in islice(simulation.steps or (), jobs_done):
        job()
    simulation._append()
    simulation._flush()
    next(simulation.steps or iter(()), None)
    simulation.files.kill()
    simulation._open()
    simulation.files.crash(simulation.random)
    simulation._open()
    assert simulation.log.log_end_offset == simulation.synced_end


def _successors_always_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Moves, "_holds_all_of", lambda self, source, successor: True)


def _truncations_leave_no_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Moves, "before_truncation", lambda self, key: None)


def _truncations_leave_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DataDirectory, "lowering_job", lambda self, keys: None)


def _the_copy_need_not_be_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving, "flush_job", lambda source, copy: None)


def _copies_are_never_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving, "align", lambda source, copy: None)


def _whatever_was_truncated_meanwhile(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving, "is_prefix", lambda source, copy: True)


@pytest.mark.parametrize(
    ("break_rule", "first_seed"),
    [
        (_successors_always_count, 0),
        (_truncations_leave_no_mark, 190),
        (_truncations_leave_the_checkpoint, 8),
        (_the_copy_need_not_be_synced, 8),
        (_copies_are_never_cut, 0),
        (_whatever_was_truncated_meanwhile, 30),
    ],
)
def test_without_a_safety_rule_some_seed_notices(
    break_rule: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    with pytest.raises((AssertionError, KafkaError)):
        live(range(first_seed, first_seed + SEEDS))


def live(seeds: range) -> None:
    for seed in seeds:
        MoveSimulation(seed).run(STEPS)
