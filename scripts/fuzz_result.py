"""The section of docs/compatibility.md about bad input, from what `make fuzz JSON=docs/fuzz.json` wrote last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULT = Path(__file__).resolve().parents[1] / "docs" / "fuzz.json"
INTRODUCTION = """
`make fuzz` sends a broker of its own valid, odd and damaged frames of every API key and version, many connections at a
time, between sessions of an ordinary client, each of which must be answered. Frames that once broke something are kept in
`tests/sim/frame_corpus.txt` and compared with Apache Kafka. A bystander publishes and asks for metadata meanwhile. It shares
the machine's cores with the fuzzer as well as with the broker: what the same flood does to it while it goes to another
process stands in brackets. The last run that was recorded (docs/fuzz.json):

| what | figure |
|---|---|
"""


def section() -> str:
    """The figures of the run."""
    result: dict[str, Any] = json.loads(RESULT.read_text())
    frames, resident, p99 = result["frames"], result["resident bytes"], result["bystander p99 ms"]
    kafka = result["Apache Kafka's bystander p99 ms"]
    failed = [name for name, holds in result["holds"].items() if not holds]
    rows = {
        "frames that the broker examined": f"{frames['examined']:,} (seed {result['seed']})",
        "answered": f"{frames['answered']:,}",
        "closed their connection": f"{frames['closed their connection']:,}",
        "connections": f"{frames['connections']:,}",
        "requests that failed inside": f"{result['requests that failed inside']:,}",
        "CPU of the broker": f"{result['broker CPU seconds'] / frames['examined'] * 1e6:.0f} µs a frame",
        "resident memory": f"{resident['after the warm-up'] / 1e6:.1f} MB after the warm-up, at most "
        f"{resident['largest'] / 1e6:.1f} MB (two requests' size: {resident['growth allowed'] / 1e6:.0f} MB)",
        "p99 of a bystander": _p99_of(p99, result["connections at a time"]),
        "the same of Apache Kafka": _p99_of(kafka, result["connections at a time"]),
        "what did not hold": ", ".join(failed) or "nothing",
    }
    return INTRODUCTION + "".join(f"| {name} | {value} |\n" for name, value in rows.items()) + "\n"


def _p99_of(found: dict[str, float] | None, many: int) -> str:
    if found is None:
        return "it did not outlive the frames"
    return (
        f"{found['alone']:.1f} ms alone, {found['beside one that fuzzes']:.1f} ms beside one connection of the fuzzer "
        f"({found['beside one whose frames go elsewhere']:.1f} ms when its frames go to another process), "
        f"{found['beside valid requests']:.1f} ms beside {many} with valid requests, {found['beside fuzz']:.1f} ms "
        f"beside {many} of the fuzzer"
    )
