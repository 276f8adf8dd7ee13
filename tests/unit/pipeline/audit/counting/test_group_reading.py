"""What a group has read, has not read and never will, by the offsets that it committed and where the log begins."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.audit.batch_counts import BatchCounts, Entry, Sums
from headrace.audit.counting.group_reading import (
    LOST_WINDOWS_MAX,
    Ends,
    Reading,
    Windows,
    as_json,
    events_of,
    parting,
)
from headrace.audit.windows import Tally

FIRST, NEXT = 100, 110
LOG = [1000 if offset < 105 else 2000 for offset in range(FIRST, NEXT)]
"""The windows of the events at these offsets."""


def events(first: int, following: int) -> Windows:
    return Windows(LOG[first - FIRST : following - FIRST])


def read_by(committed: int, log_start: int) -> tuple[Windows, Windows, Windows]:
    """(read, unread, lost) as `Reading` sorts them."""
    ends, reading = Ends(committed, log_start), Reading()
    wanted = parting(FIRST, NEXT, ends)
    if wanted is not None:
        assert max(FIRST, log_start) <= wanted.first <= wanted.next <= NEXT or wanted.first == NEXT, (
            "the log has it"
        )
    again = None if wanted is None else (wanted, events(wanted.first, wanted.next))
    reading.add(FIRST, NEXT, ends, events(FIRST, NEXT), again)
    return reading.read, reading.unread, reading.lost


@pytest.mark.parametrize("committed", range(FIRST - 2, NEXT + 3))
@pytest.mark.parametrize("log_start", range(FIRST - 2, NEXT + 3))
def test_each_event_is_read_unread_or_lost(committed: int, log_start: int) -> None:
    read, unread, lost = read_by(committed, log_start)
    border = min(max(committed, FIRST), NEXT)
    begin = min(max(log_start, border), NEXT)
    assert read == events(FIRST, border)
    assert lost == events(border, begin)
    assert unread == events(begin, NEXT)


def test_a_range_that_is_all_the_same_is_not_counted_again() -> None:
    assert [
        parting(FIRST, NEXT, ends) for ends in (Ends(NEXT, 0), Ends(FIRST, FIRST), Ends(0, NEXT), Ends(0, 0))
    ] == [None] * 4
    assert parting(FIRST, NEXT, Ends(103, 0)) is not None


def test_where_it_committed_nothing_it_lost_nothing() -> None:
    reading = Reading()
    reading.add_uncommitted(FIRST, FIRST + 1, events(FIRST, NEXT))
    assert (reading.unread, reading.lost) == ({}, {})
    reading.add_uncommitted(FIRST, FIRST, events(FIRST, NEXT))
    assert reading.unread == events(FIRST, NEXT)
    assert reading.whole_up_to_ms == 1000


def test_what_is_read_is_whole_up_to_the_first_window_that_is_not() -> None:
    reading = Reading(read=Windows({1000: 5}), unread=Windows({2000: 1}), lost=Windows({3000: 1}))
    assert reading.whole_up_to_ms == 2000
    assert Reading(read=Windows({1000: 5})).whole_up_to_ms is None


def test_events_and_messages_of_the_windows_since_a_time() -> None:
    def tally(window: int, count: int) -> Tally:
        return Tally(
            producer="p",
            window_start=window,
            count=count,
            fingerprint=0,
            runs=np.zeros((0, 2), dtype=np.int64),
        )

    assert events_of([tally(1000, 3), tally(2000, 4), tally(2000, 1)], None, 2000) == {2000: 5}
    batches = BatchCounts(
        entries=(
            Entry(0, 1000, Sums(messages=7)),
            Entry(1, 1000, Sums(messages=1)),
            Entry(1, 2000, Sums(control=1)),
        )
    )
    assert events_of((), batches, 0) == {1000: 8}


def test_a_row_names_so_many_windows_at_most() -> None:
    lost = Windows(dict.fromkeys(range(LOST_WINDOWS_MAX + 5), 1))
    row = as_json("g", "t", Reading(lost=lost, uncommitted=2))
    assert row["lost"] == LOST_WINDOWS_MAX + 5
    assert row["lost_windows"] == [[window, 1] for window in range(LOST_WINDOWS_MAX)]
    assert row["partitions_without_offset"] == 2
