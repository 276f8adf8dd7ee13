"""Looking a producer's last batch up in the target."""

from __future__ import annotations

from headrace.broker.wire.batches import BatchHeader, Record, encode_batch, read_header
from headrace.mirror.aggregate.search import Search

OWN, ANOTHER = 9, 8


def header(base: int, count: int, producer_id: int, sequence: int) -> BatchHeader:
    records = [Record(0, 1, None, b"v", [])] * count
    return read_header(
        encode_batch(
            records,
            base_offset=base,
            leader_epoch=1,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
    )


def search(begin: int = 100, log_start: int = 0, log_end: int = 130) -> Search:
    return Search(OWN, begin, log_start=log_start, log_end=log_end)


def test_the_last_batch_of_the_producer_tells_what_is_next() -> None:
    found = search()
    assert (found.next_offset, found.is_over) == (100, False)
    found.take([header(100, 10, OWN, 50), header(110, 5, ANOTHER, 0)])
    assert (found.next_offset, found.is_over, found.next_sequence) == (115, False, 60)
    found.take([header(115, 15, OWN, 2**31 - 10)])
    assert (found.is_over, found.next_sequence, found.lost) == (True, 5, "")


def test_nothing_of_it_says_that_nothing_came_while_the_place_is_still_there() -> None:
    found = search()
    found.take([header(100, 30, ANOTHER, 0)])
    assert (found.is_over, found.next_sequence, found.lost) == (True, None, "")
    assert search(begin=-1, log_start=20).lost == "", "an earlier version's position has no place"


def test_a_place_that_retention_took_or_the_target_lost_tells_nothing() -> None:
    taken = search(log_start=101)
    assert taken.lost.startswith("forgotten: ")
    taken.take([header(101, 29, OWN, 50)])
    assert (taken.next_sequence, taken.lost) == (79, "")
    assert search(log_end=99).lost == (
        "loss: the target's log ends at 99, and had acknowledged messages up to 100"
    )
