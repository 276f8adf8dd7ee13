"""What is compared of a copy, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

from mirror_kit import finding

from headrace.mirror.equality import verification
from headrace.mirror.equality.comparison import Comparison, Side
from headrace.mirror.equality.difference import Difference
from headrace.mirror.equality.verification import Extents, Result, Verdict, verdict
from headrace.mirror.memory.findings import Kind

EXTENTS = Extents(source_start=10, source_end=100, copy_start=4, copy_end=90, next_offset=90)
PLACE = "dc-east.t", 0


def test_what_both_have_is_compared_up_to_the_nearer_end() -> None:
    assert (EXTENTS.first, EXTENTS.end) == (10, 90)
    assert replace(EXTENTS, since=60).first == 60
    apart = replace(EXTENTS, source_start=95)
    assert (apart.first, apart.end) == (95, 95)
    assert replace(EXTENTS, source_end=50).end == 50


def test_a_row_says_what_was_compared_and_what_was_not() -> None:
    compared = Comparison(10, 90)
    compared.deleted_below(95)
    compared.only_at[Side.COPY] = 2
    row = verdict(PLACE, "dc-east", EXTENTS, compared).as_row()
    assert (row["result"], row["first_offset"], row["end_offset"], row["difference"]) == (
        "equal",
        10,
        90,
        None,
    )
    assert verification.outside(row) == (
        "10 not copied yet, 6 deleted at the source, 80 deleted before they were compared, "
        "2 compacted away at the source"
    )
    cut = verdict(PLACE, "dc-east", replace(EXTENTS, source_end=50), Comparison(10, 50)).as_row()
    assert verification.outside(cut) == "40 beyond the source's end, 6 deleted at the source"


def test_verdicts_are_equal_different_nothing_or_none() -> None:
    compared = Comparison(10, 90)
    compared.difference = Difference(offset=20, source="a", copy="b")
    found = verdict(PLACE, "dc-east", EXTENTS, compared)
    assert (found.result, found.as_row()["difference"]) == (
        Result.DIFFERENT,
        {"offset": 20, "source": "a", "copy": "b"},
    )
    empty = replace(EXTENTS, since=95)
    assert verdict(PLACE, "dc-east", empty, Comparison(95, 95)).result is Result.NOTHING
    unknown = Verdict(place=PLACE, source="dc-east", result=Result.NOT_COMPARED, reason="why").as_row()
    assert (unknown["behind"], unknown["end_offset"], unknown["reason"]) == (None, None, "why")
    assert verification.summary([found.as_row(), unknown]) == (
        "Partitions: 1 different, 1 not compared; 0 offsets and 0 bytes were compared."
    )
    assert verification.summary([]) == "Partitions: none; 0 offsets and 0 bytes were compared."


def test_only_losses_with_known_offsets_are_passed_over() -> None:
    found = [
        finding(Kind.LOSS, 5, 9),
        finding(Kind.ROT, 1, 2),
        finding(Kind.LOSS, 7, -1),
        finding(Kind.LOSS, 20, 20),
    ]
    assert verification.passed_over(found) == {("dc-east", "t", 0): [(5, 9), (20, 20)]}
