"""`make sim`: the simulations under other seeds than the tests', until one fails.

python scripts/sim.py --seeds N [--from SEED] [--only NAME] runs the machines of replication, mirrors, mirrors whose leaders fail
over and aggregating mirrors with N seeds each, and what costs more a seed (whole brokers, transactions, audits, a cluster that
mirrors another one) with a share of them. A seed that fails is printed with what happened in it, and how to replay it; exit 1
then.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "world"), str(TESTS / "sim")]

import aggregate_world  # noqa: E402
import aggregated_clusters  # noqa: E402
import audit_aggregates  # noqa: E402
import audit_checks  # noqa: E402
import broker_simulation  # noqa: E402
import machine_simulation  # noqa: E402
import mirror_fail_over  # noqa: E402
import mirror_restores  # noqa: E402
import mirror_world  # noqa: E402
import mirrored_clusters  # noqa: E402
import transaction_simulation  # noqa: E402

STEPS = 250
TOLD_EVERY_SECONDS = 10.0
Simulate = Callable[[int], object]


def _brokers(seed: int) -> object:
    return broker_simulation.simulate(seed, factor=3)


def _mirrors(seed: int) -> None:
    mirror_world.MirrorWorld(seed, begins_late=seed % 4 == 0).run(STEPS)


def _mirrors_that_fail_over(seed: int) -> None:
    mirror_fail_over.FailOverWorld(seed).run(STEPS)
    mirror_restores.RestoreWorld(seed).run(STEPS)
    mirror_restores.ReverseWorld(seed).run(STEPS)


def _aggregates(seed: int) -> None:
    aggregate_world.AggregateWorld(seed).run(STEPS)


def _audits(seed: int) -> object:
    checks: tuple[Simulate, ...] = (
        audit_checks.check,
        audit_checks.check_holes,
        audit_checks.check_odd,
        audit_checks.check_aged,
        audit_checks.check_told,
        audit_aggregates.check_aggregates,
    )
    return checks[seed % len(checks)](seed)


def _clusters(seed: int) -> object:
    """By turns a cluster that copies another one's topic, and one that brings it into its own."""
    if seed % 2:
        return mirrored_clusters.simulate(seed, mirrored_clusters.MirroredClusters)
    return aggregated_clusters.simulate(seed)


def _transactions(seed: int) -> object:
    return transaction_simulation.simulate(
        seed, transaction_simulation.SCHEDULES[seed % len(transaction_simulation.SCHEDULES)]
    )


SIMULATIONS: dict[str, tuple[Simulate, int]] = {
    "machines": (machine_simulation.simulate, 1),
    "brokers": (_brokers, 10),
    "transactions": (_transactions, 5),
    "mirrors": (_mirrors, 1),
    "fail-overs": (_mirrors_that_fail_over, 1),
    "aggregates": (_aggregates, 1),
    "audits": (_audits, 5),
    "clusters": (_clusters, 10),
}
"""By name: what a seed runs, and of how many seeds one does, by what it costs."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="make sim", description="Simulate replication, mirrors and the audit under many seeds."
    )
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many (default: 1000)")
    parser.add_argument(
        "--from", type=int, default=10_000, dest="first", metavar="SEED", help="the first one"
    )
    parser.add_argument("--only", choices=SIMULATIONS, help="run this simulation alone")
    options = parser.parse_args(arguments)
    # What a simulated broker logs of its faults is no news here.
    logging.getLogger().addHandler(logging.NullHandler())
    for name, (simulate, share) in SIMULATIONS.items():
        if options.only not in (None, name):
            continue
        seeds = range(options.first, options.first + max(1, options.seeds // share))
        if not _all_hold(name, seeds, simulate):
            return 1
    return 0


def _all_hold(name: str, seeds: range, simulate: Simulate) -> bool:
    told = time.monotonic()
    for seed in seeds:
        try:
            simulate(seed)
        except Exception as error:
            reason = str(error) or type(error).__name__
            print(f"{name}: seed {seed} fails: {reason}", *getattr(error, "__notes__", ()), sep="\n")
            print(f"Replay it: make sim ONLY={name} SEEDS=1 FROM={seed}")
            return False
        if time.monotonic() - told > TOLD_EVERY_SECONDS:
            told = time.monotonic()
            print(f"{name}: {seed - seeds.start + 1} of {len(seeds)} seeds hold", flush=True)
    print(f"{name}: seeds {seeds.start} to {seeds.stop - 1} hold", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
