"""Fuzz a broker of its own with frames that no client sends, between sessions of an ordinary one: `make fuzz`.

Prints progress and a result; exit 0 only when there was no crash, no hang (each ordinary session is answered), no growth of
resident memory beyond `GROWTH_MAX` over that after the warm-up, no request that failed inside, and the p99 of a
bystander at most doubled: beside one connection that fuzzes against one whose frames go elsewhere (the fuzzer and the
bystander share the broker's cores), beside many against as many with valid requests. What it is alone, and what a
bystander of Apache Kafka sees beside the same frames, is measured, too, and not judged.
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
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "sim")]

from fuzz_clients import SETTINGS, Bystander, Elsewhere, Flood, Tally, Witness, p99, resident_size  # noqa: E402
from processes import DevCluster  # noqa: E402

from bench import contest  # noqa: E402
from bench.apache_kafka import find_jars  # noqa: E402

WARM_UP_COUNT = 20_000
STEP_COUNT = 25_000
KAFKA_COUNT = 100_000
ONE_COUNT, ELSEWHERE_COUNT, ROUNDS = 20_000, 50_000, 3
QUIET_S = 15.0
P99_RATIO_MAX = 2.0
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
    parser.add_argument("--json", type=Path, help="write the result there, too")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with own_broker() as cluster:
        result = fuzz(cluster, options)
    try:
        result["Apache Kafka's bystander p99 ms"] = kafka_p99_ms(options)
    except* OSError as lost:
        print(f"Apache Kafka went away meanwhile: {lost.exceptions[0]}")
        result["Apache Kafka's bystander p99 ms"] = None
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    failures = [name for name, holds in result["holds"].items() if not holds]
    print(f"does not hold: {', '.join(failures)}" if failures else "all of it holds")
    return 1 if failures else 0


@contextmanager
def own_broker() -> Iterator[DevCluster]:
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder:
        cluster = DevCluster(Path(folder), set=SETTINGS)
        try:
            yield cluster
        finally:
            cluster.end()


def fuzz(cluster: DevCluster, options: argparse.Namespace) -> dict[str, Any]:
    """All phases; the result."""
    address, process = cluster.addresses[0], cluster.broker_process()
    witness, bystander = Witness(address), None
    witness.make_topics()
    witness.session()
    try:
        bystander = Bystander(address)
        p99_ms = p99_before(bystander, address, options)
        flood = Flood(address, options.seed, connections=options.connections)
        flood.run(min(WARM_UP_COUNT, options.frames))
        resident = [resident_size(process)]
        bystander.latencies_ms()
        latencies: list[float] = []
        began, began_cpu = time.monotonic(), cpu_seconds(process)
        while flood.tally.examined < options.frames:
            flood.run(min(STEP_COUNT, options.frames - flood.tally.examined))
            witness.session()
            resident.append(resident_size(process))
            latest = bystander.latencies_ms()
            latencies += latest
            print(progress(flood.tally, time.monotonic() - began, resident, latest), flush=True)
        costs = {"seconds": time.monotonic() - began, "broker CPU seconds": cpu_seconds(process) - began_cpu}
        witness.session()
    finally:
        if bystander is not None:
            bystander.end()
        witness.close()
    p99_ms["beside fuzz"] = p99(latencies)
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
        "bystander p99 ms": rounded(p99_ms),
        "requests that failed inside": len(failed),
        "holds": {
            "no crash": process.is_running(),
            "no hang": True,
            "no growth": max(resident) - resident[0] <= GROWTH_MAX,
            "no failure inside": not failed,
            "bystander p99 beside one": p99_ms["beside one that fuzzes"]
            <= P99_RATIO_MAX * p99_ms["beside one whose frames go elsewhere"],
            "bystander p99 beside many": p99_ms["beside fuzz"]
            <= P99_RATIO_MAX * p99_ms["beside valid requests"],
        },
    }


def p99_before(
    bystander: Bystander, address: tuple[str, int], options: argparse.Namespace
) -> dict[str, float]:
    """The bystander's p99 in milliseconds: alone, beside one connection of the fuzzer, beside many with valid requests."""
    bystander.latencies_ms()
    time.sleep(QUIET_S)
    alone = bystander.latencies_ms()
    elsewhere = Elsewhere()
    try:
        floods = (
            (Flood(elsewhere.address, f"{options.seed}-elsewhere", connections=1), ELSEWHERE_COUNT),
            (Flood(address, f"{options.seed}-one", connections=1), ONE_COUNT),
        )
        beside: tuple[list[float], list[float]] = [], []
        for _ in range(ROUNDS):
            for (flood, count), latencies in zip(floods, beside, strict=True):
                flood.run(min(count, options.frames))
                latencies += bystander.latencies_ms()
    finally:
        elsewhere.end()
    valid = Flood(address, f"{options.seed}-valid", connections=options.connections, valid=True)
    valid.run(min(WARM_UP_COUNT, options.frames))
    return {
        "alone": p99(alone),
        "beside one whose frames go elsewhere": p99(beside[0]),
        "beside one that fuzzes": p99(beside[1]),
        "beside valid requests": p99(bystander.latencies_ms()),
    }


def kafka_p99_ms(options: argparse.Namespace) -> dict[str, float]:
    """A bystander's p99 in milliseconds beside Apache Kafka, once its code is compiled."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder,
        contest.zookeeper(Path(folder) / "zookeeper") as ensemble,
        contest.broker(contest.KAFKA, find_jars(), Path(folder) / "kafka", ensemble) as kafka,
    ):
        host, port = kafka.bootstrap.split(":")
        address, count = (host, int(port)), min(KAFKA_COUNT, options.frames)
        witness = Witness(address)
        witness.make_topics()
        witness.session()
        Flood(address, f"{options.seed}-warm", connections=options.connections).run(count)
        bystander = Bystander(address)
        try:
            found = p99_before(bystander, address, options)
            Flood(address, options.seed, connections=options.connections).run(count)
            return rounded({**found, "beside fuzz": p99(bystander.latencies_ms())})
        finally:
            bystander.end()
            witness.close()


def progress(tally: Tally, seconds: float, resident: list[int], latencies: list[float]) -> str:
    growth = (resident[-1] - resident[0]) / 1e6
    return (
        f"{tally.examined:>9,} frames, {seconds:6.0f} s, resident {resident[-1] / 1e6:.1f} MB ({growth:+.1f}), "
        f"bystander p99 {p99(latencies):.1f} ms"
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


def rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in found.items()}


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.exit(main())
