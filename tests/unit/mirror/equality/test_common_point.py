"""Where what was a copy and its source part, found by asking both for few batches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from mirror_kit import SHARED, batch, log

from headrace.mirror.equality.common_point import CommonPoint
from headrace.mirror.equality.difference import Batch


def at(side: Sequence[Batch], offset: int) -> Batch | None:
    return next((one for one in side if one.header.next_offset > offset), None)


def point_of(source: Sequence[Batch], copy: Sequence[Batch], first: int = 0) -> tuple[CommonPoint, int]:
    """Found, with so many questions."""
    ends = [side[-1].header.next_offset if side else first for side in (source, copy)]
    point, asked = CommonPoint(first, min(ends)), 0
    while (wanted := point.wants) is not None:
        point.served(at(source, wanted), at(copy, wanted))
        asked += 1
    return point, asked


@pytest.mark.parametrize("shared", [0, 1, 2, 250, 499, 500])
@pytest.mark.parametrize(("theirs", "own"), [(0, 0), (0, 3), (3, 0), (1, 7), (200, 1)])
def test_it_is_the_end_of_the_last_batch_that_both_have(shared: int, theirs: int, own: int) -> None:
    source = log(*SHARED[:shared], *[(2, b"source")] * theirs, epoch=5)
    copy = log(*SHARED[:shared], *[(2, b"own")] * own, epoch=9)
    point, asked = point_of(source, copy)
    end = sum(size for size, _ in SHARED[:shared])
    assert point.offset == end
    assert asked <= 12
    assert (point.last is None) == (shared == 0)
    if point.last is not None:
        assert (point.last.next_offset, point.last.leader_epoch) == (end, 5)


def test_batches_of_other_bounds_are_not_the_same() -> None:
    point, _ = point_of(log((2, b"a"), (4, b"b")), log((2, b"a"), (2, b"b"), (2, b"b")))
    assert point.offset == 2


def test_an_offset_that_one_side_no_longer_has_is_nothing_in_common() -> None:
    point = CommonPoint(0, 8)
    while point.wants is not None:
        point.served(batch(point.wants, 1), None)
    assert (point.offset, point.last) == (0, None)
