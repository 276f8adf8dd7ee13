"""Random scripts that hypothesis draws, has both brokers perform, and shrinks when they differ.

A script is what its rules say first, turns that they draw, and what they say last. Every number that rules draw is hypothesis's,
byte by byte: a smaller script has fewer turns or simpler values, and obeys the same rules. A failure is replayed by its seed,
which finds it and shrinks it again, or by the text that hypothesis prints with it: HEADRACE_EXAMPLE=AXic… performs that alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from random import Random
from typing import Any, Protocol

import hypothesis
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, Phase, given, reproduce_failure, settings
from hypothesis import strategies as st
from long_runs import first_of
from random_runs import Kind, RandomSession, first_difference, kind_of
from sessions import Pair

TURNS_MAX = 50
LAST_TURN_BELOW = 56
"""Two bytes below it, one turn in twenty: zero alone is too common."""
BYTE = st.integers(0, 255)
Script = list[Any]
Differs = Callable[[Script], tuple[int, str] | None]


class Rules(Protocol):
    """What a kind of scripts consists of."""

    def opening(self) -> Script:
        """The first steps."""

    def turn(self) -> Script:
        """The next few."""

    def closing(self) -> Script:
        """The last ones."""


class DifferenceError(AssertionError):
    """The brokers do not answer the same."""


class DrawnRandom(Random):
    """Draws bytes from hypothesis: of larger numbers it makes the small ones more often."""

    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(0)
        self._draw = draw

    def random(self) -> float:
        return self.getrandbits(16) / (1 << 16)

    def getrandbits(self, k: int, /) -> int:
        found = 0
        for _ in range(0, k, 8):
            found = found << 8 | self._draw(BYTE)
        return found >> -k % 8

    def randbytes(self, n: int) -> bytes:
        return Random(self.getrandbits(16)).randbytes(n)


@st.composite
def scripts(draw: st.DrawFn, make: Callable[[Random], Rules]) -> Script:
    """Scripts of some 20 turns, and never of none."""
    random = DrawnRandom(draw)
    rules = make(random)
    opening, turns = rules.opening(), Script()
    for _ in range(TURNS_MAX):
        # Each in a draw of its own, which hypothesis leaves out as a whole.
        turn = draw(st.builds(partial(_turn, rules, random)))
        if not turn:
            break
        turns += turn
    hypothesis.assume(turns)
    return [*opening, *turns, *rules.closing()]


def _turn(rules: Rules, random: Random) -> Script:
    is_last = random.getrandbits(8) < LAST_TURN_BELOW and random.getrandbits(8) < LAST_TURN_BELOW
    return [] if is_last else rules.turn()


@cache
def _error_of(kind: str) -> type[DifferenceError]:
    """Hypothesis tells failures apart by their types: it shrinks to one of the same kind."""
    return type("DifferenceError", (DifferenceError,), {"__doc__": kind})


def check_scripts(seed: int, make: Callable[[Random], Rules], differs: Differs, count: int = 1) -> None:
    """Try `count` scripts of the seed. Raises DifferenceError with the smallest script that differs in the same way.

    Hypothesis looks for it during five minutes at most.
    """

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=True,
    )
    @given(scripts(make))
    def both_do_the_same(script: Script) -> None:
        found = differs(script)
        if found is not None:
            number, what = found
            raise _error_of(kind_of(what))(f"seed {seed}, step {number}: {what}")

    example = os.environ.get("HEADRACE_EXAMPLE")
    if example is None:
        both_do_the_same()
    else:
        reproduce_failure(hypothesis.__version__, example.encode())(both_do_the_same)()


def check_session(pair: Pair, seed: int, make: Callable[[Random], Rules], kind: Kind = RandomSession) -> None:
    """`check_scripts` with both brokers."""
    check_scripts(seed, make, lambda script: first_difference(pair, script, kind))


def seeds(fixed: Sequence[int], variable: str = "HEADRACE_SEEDS") -> Sequence[int]:
    """Those that the environment variable names, FIRST-LAST or one, or else the fixed ones."""
    first, _, last = os.environ.get(variable, "").partition("-")
    return range(int(first), int(last or first) + 1) if first else fixed


def short_seeds(
    count: int, fixed: Sequence[int], variable: str = "HEADRACE_SEEDS"
) -> Sequence[int | ParameterSet]:
    """The same, of which only the first `count` of the fixed ones are tried by `make test`."""
    wanted = seeds(fixed, variable)
    return first_of(count, wanted) if wanted is fixed else wanted
