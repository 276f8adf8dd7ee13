"""Random sessions: whole answers and segment files of both brokers are the same, whatever the seed.

    HEADRACE_SEEDS=0-999 pytest tests/conformance/test_conformance_random_sessions.py

runs others than the fixed ones. A failure prints its seed, a shrunk script, what differs at the end of it, and what replays it.
"""

from __future__ import annotations

import time
from functools import partial

import pytest
from random_scripts import check_session, short_seeds
from random_sessions import Generator
from sessions import Pair

# Shrinking takes five minutes at most.
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("seed", short_seeds(1, range(10)))
def test_a_random_session(pair: Pair, seed: int) -> None:
    check_session(pair, seed, partial(Generator, now_ms=int(time.time() * 1000)))
