"""What `make sim` says of seeds that hold and of one that fails."""

from __future__ import annotations

import pytest
import sim


def _fails_at_7(seed: int) -> None:
    if seed == 7:
        error = AssertionError("an acknowledged write is lost")
        error.add_note("power cut broker-1")
        raise error


def test_a_failing_seed_is_told_with_its_story_and_how_to_replay_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not sim._all_hold("MACHINE_SEEDS", "machines", range(5, 10), _fails_at_7)
    told = capsys.readouterr().out
    assert "seed 7 fails: an acknowledged write is lost\npower cut broker-1\n" in told
    assert "MACHINE_SEEDS=7 .venv/bin/python -m pytest -m '' tests/sim/test_sim_machines.py" in told


def test_seeds_that_hold_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim._all_hold("BROKER_SEEDS", "brokers", range(8, 10), _fails_at_7)
    assert capsys.readouterr().out == "brokers: seeds 8 to 9 hold\n"
