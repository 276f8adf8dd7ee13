"""What joins a round is done once, in order, at its end or when somebody asks for it earlier."""

from __future__ import annotations

import pytest

from headrace.broker.waiting import round as module
from headrace.broker.waiting.round import Round


def opened() -> tuple[Round, list[list[str]]]:
    together, performed = Round(), list[list[str]]()
    together.is_open = True
    return together, performed


def test_all_that_joined_is_done_together_in_order() -> None:
    together, performed = opened()
    for name in "abc":
        together.join(performed.append, name, request_count=1, size=1)
    assert (performed, together.joins) == ([], 3)
    together.end()
    together.end()
    assert (performed, together.is_open) == ([["a", "b", "c"]], False)


def test_what_is_asked_for_earlier_is_not_done_again() -> None:
    together, performed = opened()
    together.join(performed.append, "a", request_count=1, size=1)
    together.perform()
    assert together.is_open
    together.join(performed.append, "b", request_count=1, size=1)
    together.end()
    assert performed == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("request_count", "size"), [(module.ROUND_REQUESTS_MAX, 0), (1, module.ROUND_SIZE_MAX)]
)
def test_a_round_has_a_bound_of_requests_and_of_bytes(request_count: int, size: int) -> None:
    together, performed = opened()
    is_full = []
    for count, bytes_count in ((1, 0), (request_count, size)):
        together.join(performed.append, "a", request_count=count, size=bytes_count)
        is_full.append(together.is_full)
    together.perform()
    assert [*is_full, together.is_full] == [False, True, False]
