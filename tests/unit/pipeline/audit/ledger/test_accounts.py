"""What an account promises, and which events break no promise but are overdue."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.audit.ledger.accounts import Accounts
from headrace.events.monitoring import Account, WindowLedger

NOW = 1_700_000_000_000
WINDOW_MS = 10_000


def account(window: int, first: int, last: int, *, promised: int = 0, next_sequence: int = 0) -> Account:
    """An account of a window by its number; `promised` windows are whole."""
    empty = WindowLedger("p", window_size_ms=WINDOW_MS, now_ms=NOW).opened(NOW)
    return replace(
        empty,
        kind="window",
        window_start=NOW + window * WINDOW_MS,
        count=last - first + 1,
        complete_until=NOW + promised * WINDOW_MS if promised else 0,
        next_sequence=next_sequence or last + 1,
        first_sequence=first,
        last_sequence=last,
    )


def taken(*items: Account) -> Accounts:
    accounts = Accounts()
    for offset, item in enumerate(items):
        runs = np.array([[item.first_sequence, item.last_sequence]], dtype=np.int64)
        accounts.take(0, offset, item, runs[: int(item.count > 0)], NOW)
    return accounts


def overdue(accounts: Accounts) -> list[tuple[int, int]]:
    return [(run.first, run.last) for run in accounts.overdue.runs()]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ((account(0, 0, 4, promised=1), account(1, 5, 9, promised=2)), []),
        ((account(0, 0, 4, promised=1), account(0, 5, 9)), [(5, 9)]),
        ((account(0, 0, 4, promised=1, next_sequence=7), account(0, 5, 9)), [(7, 9)]),
        ((account(1, 5, 9, promised=2, next_sequence=12), account(0, 0, 4)), []),
        ((account(0, 0, 4, promised=1), account(0, 0, 4, promised=1)), []),
        (
            (account(0, 0, 4, promised=3), account(2, 5, 5), account(3, 6, 6), account(2, 7, 7)),
            [(5, 5), (7, 7)],
        ),
    ],
)
def test_overdue_is_what_was_handed_out_after_its_window_was_promised(
    items: tuple[Account, ...], expected: list[tuple[int, int]]
) -> None:
    assert overdue(taken(*items)) == expected


def test_a_promise_that_is_taken_back_stays() -> None:
    accounts = taken(account(0, 0, 4, promised=3), account(3, 5, 5, promised=1))
    assert accounts.whole_until == NOW + 3 * WINDOW_MS


def test_windows_are_promised_as_a_whole_but_not_those_before_the_beginning() -> None:
    promised = replace(account(0, 0, 4), complete_until=NOW + WINDOW_MS + 1)
    assert taken(promised).whole_until == NOW + WINDOW_MS
    opened = WindowLedger("p", window_size_ms=WINDOW_MS, now_ms=NOW + 5).opened(NOW + 5)
    assert taken(opened).whole_until == NOW + 5
