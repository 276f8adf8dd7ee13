"""Transactions are whole whatever happens, and each rule that they rest upon is missed when it is switched off."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from long_runs import first_of
from transaction_mutations import MUTATIONS, Mutation
from transaction_simulation import REPLACED, RIVALS, UNANSWERED, simulate

SEEDS_MAX = 120


@pytest.mark.parametrize("seed", first_of(1, range(20)))
def test_transactions_are_whole_whatever_becomes_of_brokers(seed: int) -> None:
    simulate(seed)


@pytest.mark.parametrize("seed", first_of(1, range(20)))
def test_producers_of_one_id_fence_each_other(seed: int) -> None:
    simulate(seed, RIVALS)


@pytest.mark.parametrize("seed", first_of(1, range(20)))
def test_markers_of_a_coordinator_that_was_replaced_do_nothing(seed: int) -> None:
    simulate(seed, REPLACED)


@pytest.mark.parametrize("seed", first_of(1, range(20)))
def test_who_begins_anew_after_a_request_without_an_answer_is_safe_from_it(seed: int) -> None:
    simulate(seed, UNANSWERED)


def missed_by(mutation: Mutation, seeds: Iterable[int]) -> int | None:
    """The first seed that fails without the rule."""
    for seed in seeds:
        try:
            mutation.simulate(seed)
        except (AssertionError, TimeoutError):
            return seed
    return None


@pytest.mark.acceptance
def test_without_verification_a_late_batch_does_harm() -> None:
    assert missed_by(MUTATIONS["verification"], range(5)) is not None


@pytest.mark.long
@pytest.mark.parametrize("rule", MUTATIONS)
def test_each_rule_is_missed(rule: str) -> None:
    assert missed_by(MUTATIONS[rule], range(SEEDS_MAX)) is not None
