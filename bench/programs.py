"""What a cell runs in a process of its own, so that the client's work is apart: a module of `bench` that prints JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import click


def told_by(module: str, arguments: Sequence[str], seconds_max: float) -> dict[str, float]:
    """Run `python -m bench.MODULE ARGUMENTS` to its end and return what it says of itself."""
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds_max, check=False)
    if done.returncode:
        raise click.ClickException(f"bench.{module} failed: {done.stderr[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found
