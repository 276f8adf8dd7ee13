"""Checking segments at rest: every bad stretch is told once, with what it hides, and a log that is written to is sound."""

from pathlib import Path

import pytest
from log_kit import batch

from headrace.broker.log.checking import Damage, SegmentAtRest, damages
from headrace.broker.log.files import OsFiles

SIZE = len(batch())


class UnreadableFile:
    """A file that the disk reads up to a byte."""

    def __init__(self, data: bytes, readable_size: int) -> None:
        self._data = data
        self._readable_size = readable_size

    def read_at(self, size: int, position: int) -> bytes:
        if position + size > self._readable_size:
            raise OSError(5, "Input/output error")
        return self._data[position : position + size]


def segment(
    data: bytes, *, following_offset: int | None = 6, synced_offset: int = 6, readable_size: int = 10**6
) -> SegmentAtRest:
    return SegmentAtRest(
        base_offset=0,
        size=len(data),
        log=UnreadableFile(data, readable_size),
        following_offset=following_offset,
        synced_offset=synced_offset,
        next_offset=0,
    )


def six_batches() -> bytearray:
    return bytearray(b"".join(batch(at=offset) for offset in range(6)))


def flipped(*positions: int) -> bytes:
    data = six_batches()
    for position in positions:
        data[position] ^= 1
    return bytes(data)


def places(at_rest: SegmentAtRest) -> list[tuple[int, int, int]]:
    return [(damage.position, damage.size, damage.offset) for damage in damages(at_rest)]


@pytest.mark.parametrize("byte", [0, 3, 7, 8, 11, 16, 17, 20, 40, 60, SIZE - 1])
@pytest.mark.parametrize("number", range(6))
def test_a_flipped_bit_is_found_wherever_it_is(number: int, byte: int) -> None:
    data = flipped(number * SIZE + byte)
    assert places(segment(data)) == [(number * SIZE, SIZE, number)]


def test_each_stretch_of_bad_bytes_is_told_once() -> None:
    data = flipped(65, SIZE + 65, 4 * SIZE + 8)
    assert places(segment(data)) == [(0, 2 * SIZE, 0), (4 * SIZE, SIZE, 4)]


def test_holes_that_compaction_left_are_no_damage() -> None:
    data = b"".join(batch(at=offset) for offset in (2, 5, 90))
    assert places(segment(data, following_offset=91)) == []


def test_a_closed_segment_that_was_cut_is_damaged() -> None:
    assert places(segment(bytes(six_batches()[:-1]))) == [(5 * SIZE, SIZE - 1, 5)]


@pytest.mark.parametrize("tail", [bytes(batch(at=6))[:70], b"\0" * 500], ids=["written", "preallocated"])
def test_the_end_of_a_log_that_is_written_to_is_no_damage_but_what_was_synced_is(tail: bytes) -> None:
    data = bytes(six_batches()) + tail
    assert places(segment(data, following_offset=None)) == []
    assert places(segment(data, following_offset=None, synced_offset=7)) == [(6 * SIZE, len(tail), 6)]


def test_damage_with_sound_batches_behind_it_is_told_of_data_that_was_never_synced() -> None:
    data = flipped(2 * SIZE + 65)
    assert places(segment(data, following_offset=None, synced_offset=0)) == [(2 * SIZE, SIZE, 2)]


def test_what_the_disk_cannot_read_ends_the_check_of_a_segment() -> None:
    data = bytes(six_batches())
    found = list(damages(segment(data, readable_size=4 * SIZE)))
    assert found == [Damage(4 * SIZE, 2 * SIZE, 4, "the rest cannot be read: Input/output error")]


def test_a_file_of_the_log_itself_can_be_checked(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(flipped(65))
    at_rest = segment(flipped(65))
    at_rest.log = OsFiles().open(str(path))
    assert places(at_rest) == [(0, SIZE, 0)]
