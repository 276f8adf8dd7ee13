"""How random scripts are drawn and shrunk, without a broker: a difference that is put in is found, and comes with little else."""

from __future__ import annotations

import re
from functools import partial
from random import Random
from typing import Any

import pytest
from random_events import EventGenerator
from random_fetches import Generator as FetchRules
from random_scripts import TURNS_MAX, DifferenceError, Script, check_scripts

EventRules = partial(EventGenerator, now_ms=1_800_000_000_000, restarts=True)


class Counter:
    """Rules of scripts that add to something, and take from it."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def opening(self) -> Script:
        return ["create"]

    def turn(self) -> Script:
        return [f"{self._rng.choice(('add', 'take', 'look'))} {self._rng.randrange(100)}"]

    def closing(self) -> Script:
        return ["delete"]


def takes_after_much_was_added(script: Script) -> tuple[int, str] | None:
    """As if a broker answered otherwise to what is taken after more than 30 were added."""
    much = next((n for n, step in enumerate(script) if re.match(r"add (3[1-9]|[4-9]\d)", step)), len(script))
    found = next((n for n in range(much, len(script)) if script[n].startswith("take")), None)
    return None if found is None else (found, f"{script[found]}\ncount: headrace 1, Kafka 2")


def failure() -> tuple[str, str, list[Script]]:
    """What differs, what is told of it, and the scripts that were performed."""
    performed: list[Script] = []

    def differs(script: Script) -> tuple[int, str] | None:
        performed.append(script)
        return takes_after_much_was_added(script)

    with pytest.raises(DifferenceError) as raised:
        check_scripts(1, Counter, differs, count=20)
    return str(raised.value), "\n".join(getattr(raised.value, "__notes__", ())), performed


@pytest.mark.acceptance
def test_a_difference_is_found_shrunk_to_the_steps_that_it_takes_and_replayed_by_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    differs, told, performed = failure()
    smallest = ["create", "add 31", "take 0", "delete"]
    assert len(next(filter(takes_after_much_was_added, performed))) > len(smallest)
    assert performed[-1] == smallest
    assert differs.startswith("seed 1, step 2: take 0")
    assert f"script={smallest}" in told
    example = re.search(r"reproduce_failure\('[0-9.]+', b'([^']+)'\)", told)
    assert example is not None, told
    monkeypatch.setenv("HEADRACE_EXAMPLE", example[1])
    again, _, performed = failure()
    assert (again, performed) == (differs, [smallest])


@pytest.mark.parametrize("make", [EventRules, FetchRules])
def test_a_seed_always_draws_the_same(make: Any) -> None:
    drawn: list[Script] = []
    for seed in (1, 1, 2):
        check_scripts(seed, make, drawn.append)
    first, again, other = map(repr, drawn)
    assert first == again != other


@pytest.mark.acceptance
def test_scripts_are_of_all_lengths() -> None:
    drawn: list[Script] = []
    check_scripts(1, Counter, drawn.append, count=100)
    lengths = sorted(len(script) - 2 for script in drawn)
    assert lengths[10] < 10
    assert 10 < lengths[50] < 40
    assert 0.8 * TURNS_MAX < lengths[-1] <= TURNS_MAX
