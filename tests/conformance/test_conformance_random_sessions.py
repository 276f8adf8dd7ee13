"""Random sessions: whole answers and segment files of both brokers are the same, whatever the seed.

    HEADRACE_SEEDS=0-999 pytest tests/conformance/test_conformance_random_sessions.py

runs others than the fixed ones. A failure prints its seed, a shrunk script, and what differs at the end of it.
"""

from __future__ import annotations

import os
import time
from pprint import pformat

import pytest
from random_runs import first_difference, shrunk
from random_sessions import random_session
from sessions import Pair

FIXED_SEEDS = "0-9"


def seeds() -> range:
    first, _, last = os.environ.get("HEADRACE_SEEDS", FIXED_SEEDS).partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.mark.parametrize("seed", seeds())
def test_a_random_session(pair: Pair, seed: int) -> None:
    steps = random_session(seed, int(time.time() * 1000))
    found = first_difference(pair, steps)
    if found is None:
        return
    number, what = found
    script = shrunk(pair, steps[: number + 1], what)
    again = first_difference(pair, script)
    pytest.fail(
        f"seed {seed}, step {number}: {what}\n\nshrunk to\n{pformat(script, width=150)}\n\n{again}",
        pytrace=False,
    )
