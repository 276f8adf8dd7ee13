"""The C load generator: compiled once into a cache folder, run as a process of its own."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

SOURCE = Path(__file__).with_name("load_generator.c")
RUN_SECONDS_MAX = 360
PERCENTILES = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
TRANSACTIONS = "transactions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run saw: messages, seconds, payload bytes, percentiles of latency if it took any, transactions."""

    messages: int
    seconds: float
    bytes: int
    latency: Mapping[str, float] = field(default_factory=dict)
    transactions: int = 0


def build(cache: Path) -> Path:
    """Compile the generator unless this very source is compiled already; return the program's path."""
    source = SOURCE.read_bytes()
    program = cache / f"load_generator-{hashlib.sha256(source).hexdigest()[:12]}"
    if program.exists():
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise click.ClickException(
            "The benchmark needs a C compiler: install the packages gcc and librdkafka-dev."
        )
    cache.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [compiler, "-O2", "-x", "c", "-", "-o", str(program), "-pthread", "-lrdkafka"],
        input=source,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise click.ClickException(
            f"The load generator does not compile (is librdkafka-dev installed?): {done.stderr.decode()[:300]}"
        )
    return program


def run(program: Path, mode: str, /, **options: str | float) -> Outcome:
    """Run the generator in a mode (produce, consume, latency, transact) with options as the source's head lists them.

    A failed message or a time-out is an error.
    """
    return outcome(start(program, mode, **options))


def start(program: Path, mode: str, /, **options: str | float) -> subprocess.Popen[str]:
    """The generator at work; SIGTERM ends a `latency` before its time."""
    command = [str(program), mode, *(f"{name}={value}" for name, value in options.items())]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def outcome(running: subprocess.Popen[str]) -> Outcome:
    """What it saw, once it has ended."""
    assert isinstance(running.args, list), "start made it"
    command = " ".join(map(str, running.args[1:]))
    try:
        output, errors = running.communicate(timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        running.kill()
        raise click.ClickException(f"`{command}` did not end in {RUN_SECONDS_MAX} s") from None
    except BaseException:
        running.kill()
        raise
    if running.returncode:
        raise click.ClickException(f"`{command}` failed: {errors.strip()[:300] or output}")
    seen = json.loads(output)
    latency = {name: seen[name] for name in PERCENTILES if name in seen}
    return Outcome(
        messages=seen["messages"],
        seconds=seen["seconds"],
        bytes=int(seen["bytes"]),
        latency=latency,
        transactions=seen.get(TRANSACTIONS, 0),
    )
