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
    assert not sim._all_hold("machines", range(5, 10), _fails_at_7)
    told = capsys.readouterr().out
    assert "seed 7 fails: an acknowledged write is lost\npower cut broker-1\n" in told
    assert "make sim ONLY=machines SEEDS=1 FROM=7" in told


def test_seeds_that_hold_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim._all_hold("brokers", range(8, 10), _fails_at_7)
    assert capsys.readouterr().out == "brokers: seeds 8 to 9 hold\n"


def test_each_simulation_runs_its_share_of_the_seeds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []
    fakes = {
        name: (lambda seed, name=name: ran.append((name, seed)), share)
        for name, (_, share) in sim.SIMULATIONS.items()
    }
    monkeypatch.setattr(sim, "SIMULATIONS", fakes)
    assert sim.main(["--seeds", "20", "--from", "100"]) == 0
    assert {name: sum(of == name for of, _ in ran) for name in fakes} == {
        name: 20 // share for name, (_, share) in fakes.items()
    }
    assert capsys.readouterr().out.startswith(
        "machines: seeds 100 to 119 hold\nbrokers: seeds 100 to 101 hold\n"
    )
    ran.clear()
    assert sim.main(["--seeds", "1", "--from", "7", "--only", "audits"]) == 0
    assert ran == [("audits", 7)]
