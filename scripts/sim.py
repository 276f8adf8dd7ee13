"""`make sim`: replication's simulations under other seeds than the tests', until one fails.

python scripts/sim.py --seeds N [--from SEED] runs the machines' simulation with N seeds and whole brokers with a tenth of them.
A seed that fails is printed with what happened in it, and how to replay it; exit 1 then.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "world"), str(TESTS / "sim")]

import broker_simulation  # noqa: E402
import machine_simulation  # noqa: E402

BROKERS_SHARE = 10
"""Whole brokers cost some thirty times as much a seed."""
TOLD_EVERY_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sim", description="Simulate replication under many seeds.")
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many (default: 1000)")
    parser.add_argument(
        "--from", type=int, default=10_000, dest="first", metavar="SEED", help="the first one"
    )
    options = parser.parse_args(arguments)
    first, count = options.first, options.seeds
    machines = _all_hold(
        "MACHINE_SEEDS", "machines", range(first, first + count), machine_simulation.simulate
    )
    brokers = range(first, first + max(1, count // BROKERS_SHARE))
    return 0 if machines and _all_hold("BROKER_SEEDS", "brokers", brokers, _brokers) else 1


def _brokers(seed: int) -> object:
    return broker_simulation.simulate(seed, factor=3)


def _all_hold(variable: str, name: str, seeds: range, simulate: Callable[[int], object]) -> bool:
    told = time.monotonic()
    for seed in seeds:
        try:
            simulate(seed)
        except Exception as error:
            print(f"{name}: seed {seed} fails: {error}", *getattr(error, "__notes__", ()), sep="\n")
            print(
                f"Replay it: {variable}={seed} .venv/bin/python -m pytest -m '' tests/sim/test_sim_{name}.py"
            )
            return False
        if time.monotonic() - told > TOLD_EVERY_SECONDS:
            told = time.monotonic()
            print(f"{name}: {seed - seeds.start + 1} of {len(seeds)} seeds hold")
    print(f"{name}: seeds {seeds.start} to {seeds.stop - 1} hold")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
