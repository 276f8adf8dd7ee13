"""What a move would cost each group."""

from __future__ import annotations

import pytest

from headrace.mirror.sync.groups import Copies
from headrace.mirror.verbs import rehearsal
from headrace.mirror.verbs.rehearsal import Row, SourceLogs

COPIES = Copies(
    source="dc-east",
    starts={("dc-east.t", 0): 10, ("dc-east.t", 1): 0},
    ends={("dc-east.t", 0): 100, ("dc-east.t", 1): 7},
)
LOGS = SourceLogs(starts={("t", 0): 4, ("u", 0): 20}, ends={("t", 0): 140, ("t", 1): 7, ("u", 0): 50})


def rows(committed: dict[tuple[str, int], int], reason: str = "") -> list[Row]:
    return rehearsal.rows_of("g", committed, COPIES, LOGS, reason)


@pytest.mark.parametrize(
    ("offset", "read_twice", "lost", "not_copied"),
    [(50, 0, 0, 40), (100, 0, 0, 40), (130, 30, 0, 10), (4, 0, 6, 40), (150, 50, 0, 0)],
)
def test_what_is_read_twice_lost_or_not_copied_yet(
    offset: int, read_twice: int, lost: int, not_copied: int
) -> None:
    (row,) = rows({("t", 0): offset})
    assert (row["read_twice"], row["lost"], row["not_copied"]) == (read_twice, lost, not_copied)


def test_partitions_of_a_topic_are_one_row_and_one_without_a_copy_is_told() -> None:
    found = rows({("t", 0): 4, ("t", 1): 9, ("u", 0): 5, ("v", 0): -1}, "it has members")
    assert [(row["topic"], row["partitions"], row["without_copy"]) for row in found] == [
        ("t", 2, 0),
        ("u", 1, 1),
    ]
    assert [(row["read_twice"], row["lost"], row["not_copied"]) for row in found] == [(2, 6, 40), (0, 0, 30)]
    assert {row["reason"] for row in found} == {"it has members"}
    assert rehearsal.totals(found) == {
        "partitions": 3,
        "without_copy": 1,
        "read_twice": 2,
        "lost": 6,
        "not_copied": 70,
    }
