"""Fuzz a broker of its own with frames that no client sends, between sessions of an ordinary one: `make fuzz`.

Prints progress and a result; exit 0 only when there was no crash, no hang (each ordinary session is answered), no growth of
resident memory beyond `GROWTH_MAX` over that after the warm-up, and no request that failed inside.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "sim")]

from fuzz_clients import SETTINGS, Flood, Tally, Witness, resident_size  # noqa: E402
from processes import DevProcess  # noqa: E402

WARM_UP_COUNT = 20_000
STEP_COUNT = 25_000
FAILURES_PRINTED_MAX = 20
# Two of the largest requests that the broker takes by default (socket.request.max.bytes).
GROWTH_MAX = 2 * 100 * (1 << 20)


def main() -> int:
    """Run; 0 when all held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--frames", type=int, default=1_000_000, help="frames that the broker must have examined"
    )
    parser.add_argument("--seed", default=str(time.time_ns()), help="the same seed makes the same frames")
    parser.add_argument("--connections", type=int, default=32, help="at a time")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with own_broker() as cluster:
        result = fuzz(cluster, options)
    print(json.dumps(result, indent=1))
    failures = [name for name, holds in result["holds"].items() if not holds]
    print(f"does not hold: {', '.join(failures)}" if failures else "all of it holds")
    return 1 if failures else 0


@contextmanager
def own_broker() -> Iterator[DevProcess]:
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder:
        cluster = DevProcess(Path(folder), set=SETTINGS)
        try:
            yield cluster
        finally:
            cluster.end()


def fuzz(cluster: DevProcess, options: argparse.Namespace) -> dict[str, Any]:
    """Warm up, then frames and sessions by turns; the result."""
    process = cluster.broker_process()
    witness = Witness(cluster.addresses[0])
    try:
        witness.make_topics()
        witness.session()
        flood = Flood(cluster, options.seed, connections=options.connections)
        flood.run(min(WARM_UP_COUNT, options.frames))
        resident = [resident_size(process)]
        began, began_cpu = time.monotonic(), cpu_seconds(process)
        while flood.tally.examined < options.frames:
            flood.run(min(STEP_COUNT, options.frames - flood.tally.examined))
            witness.session()
            resident.append(resident_size(process))
            print(progress(flood.tally, time.monotonic() - began, resident), flush=True)
        costs = {"seconds": time.monotonic() - began, "broker CPU seconds": cpu_seconds(process) - began_cpu}
        witness.session()
    finally:
        witness.close()
    failed = [line for line in cluster.broker_log().splitlines() if 'event="request failed"' in line]
    print(*failed[:FAILURES_PRINTED_MAX], sep="\n")
    return {
        "seed": options.seed,
        "connections at a time": options.connections,
        "frames": frames_of(flood.tally),
        **{name: round(value, 1) for name, value in costs.items()},
        "resident bytes": {
            "after the warm-up": resident[0],
            "largest": max(resident),
            "growth allowed": GROWTH_MAX,
        },
        "requests that failed inside": len(failed),
        "holds": {
            "no crash": process.is_running(),
            "no hang": True,
            "no growth": max(resident) - resident[0] <= GROWTH_MAX,
            "no failure inside": not failed,
        },
    }


def progress(tally: Tally, seconds: float, resident: list[int]) -> str:
    growth = (resident[-1] - resident[0]) / 1e6
    return (
        f"{tally.examined:>9,} frames, {seconds:6.0f} s, resident {resident[-1] / 1e6:.1f} MB ({growth:+.1f})"
    )


def frames_of(tally: Tally) -> dict[str, int]:
    return {
        "examined": tally.examined,
        "answered": tally.answered,
        "closed their connection": tally.closed,
        "sent": tally.sent,
        "connections": tally.connections,
        "connections left waiting": tally.left_waiting,
    }


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.exit(main())
