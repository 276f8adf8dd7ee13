"""Batch headers are counted by block and window, without a look at a record; copies have the same sums, others do not."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.audit.batch_counts import (
    BLOCK_SIZE,
    SEQUENCES,
    BatchCounts,
    Entry,
    SequenceRun,
    Sums,
    as_json,
    census,
    from_json,
)
from headrace.broker.wire.batches import BatchHeader, Record, encode_batch, read_header

WINDOW_MS = 10_000


def batch(
    base: int, count: int = 5, *, time_ms: int = 12_345, text: str = "v", leader_epoch: int = 0, **fields: Any
) -> BatchHeader:
    """The header of a batch, whose records nobody sees."""
    records = [Record(base + at, time_ms, None, f"{text}{base + at}".encode(), []) for at in range(count)]
    return read_header(encode_batch(records, base_offset=base, leader_epoch=leader_epoch, **fields))


def counted(*headers: BatchHeader, first: int = 0, aborted: tuple[int, ...] = ()) -> BatchCounts:
    return census(headers, frozenset(aborted), first, WINDOW_MS)


def total(found: BatchCounts) -> Sums:
    sums = Sums()
    for entry in found.entries:
        sums = sums.plus(entry.sums)
    return sums


def test_messages_bytes_and_checksums_are_summed_by_block_and_window() -> None:
    headers = [batch(0), batch(5), batch(10, time_ms=25_000), batch(15, BLOCK_SIZE), batch(BLOCK_SIZE + 15)]
    found = counted(*headers)
    assert [(item.block, item.window_start, item.sums.messages) for item in found.entries] == [
        (0, 10_000, 10 + BLOCK_SIZE),
        (0, 20_000, 5),
        (1, 10_000, 5),
    ]
    assert found.entries[1].sums.size_bytes == headers[2].size
    assert (found.gaps, found.runs, found.messages) == ((), (), BLOCK_SIZE + 20)


def test_ranges_of_another_counter_have_the_same_sums() -> None:
    headers = [batch(at, text="x") for at in range(0, 50, 5)]
    parts = [counted(*headers[:3]), counted(*headers[3:4], first=15), counted(*headers[4:], first=20)]
    whole = Sums()
    for part in parts:
        whole = whole.plus(total(part))
    assert whole == total(counted(*headers))
    copied = [batch(at, text="x", leader_epoch=7) for at in range(0, 50, 5)]
    assert total(counted(*copied)) == whole


def test_a_batch_that_changed_or_moved_changes_the_checksum() -> None:
    whole = total(counted(batch(0, text="a"), batch(5, text="b")))
    changed = total(counted(batch(0, text="a"), batch(5, text="c")))
    assert whole._replace(checksum=0) == changed._replace(checksum=0)
    assert whole.checksum != changed.checksum
    first, second = batch(0, text="a"), batch(5, text="b")
    moved = counted(first._replace(crc=second.crc), second._replace(crc=first.crc))
    assert total(moved).checksum != whole.checksum


def test_offsets_without_a_batch_are_named() -> None:
    found = counted(batch(10), batch(20), batch(25), first=7)
    assert found.gaps == ((7, 9), (15, 19))


def test_a_batch_that_begins_before_the_range_belongs_to_who_counted_before() -> None:
    found = counted(batch(0, 10), batch(10), first=4)
    assert (found.messages, found.gaps) == (5, ())


def test_a_batch_without_a_time_is_of_the_first_window() -> None:
    assert [item.window_start for item in counted(batch(0, time_ms=-1)).entries] == [0]


def test_control_batches_and_aborted_messages_are_counted_apart() -> None:
    transaction: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    headers = [
        batch(0, base_sequence=0, **transaction),
        batch(5, 1, control=True, **transaction),
        batch(6, base_sequence=5, **transaction),
    ]
    sums = total(counted(*headers, aborted=(0,)))
    assert (sums.messages, sums.control, sums.aborted) == (5, 1, 5)
    assert sums.size_bytes == sum(header.size for header in headers)


def test_what_compaction_took_from_batches_is_told() -> None:
    thinned = batch(0)._replace(record_count=2)
    assert total(counted(thinned))[:1] + total(counted(thinned))[-1:] == (2, 3)


def test_sequences_of_idempotent_producers_are_runs() -> None:
    headers = [
        batch(0, producer_id=1, producer_epoch=0, base_sequence=0),
        batch(5, producer_id=2, producer_epoch=0, base_sequence=40),
        batch(10, producer_id=1, producer_epoch=0, base_sequence=5),
        batch(15, producer_id=1, producer_epoch=0, base_sequence=12),
        batch(20, producer_id=1, producer_epoch=1, base_sequence=0),
        batch(25),
    ]
    assert counted(*headers).runs == (
        SequenceRun(1, 0, 0, 9, 0, 10_000),
        SequenceRun(2, 0, 40, 44, 5, 10_000),
        SequenceRun(1, 0, 12, 16, 15, 10_000),
        SequenceRun(1, 1, 0, 4, 20, 10_000),
    )


def test_sequences_go_on_at_0_behind_the_last_one() -> None:
    headers = [
        batch(0, producer_id=1, producer_epoch=0, base_sequence=SEQUENCES - 5),
        batch(5, producer_id=1, producer_epoch=0, base_sequence=0),
    ]
    assert counted(*headers).runs == (SequenceRun(1, 0, SEQUENCES - 5, 4, 0, 10_000),)


def test_counts_are_read_as_they_were_written() -> None:
    found = counted(batch(3, producer_id=1, producer_epoch=0, base_sequence=7), batch(BLOCK_SIZE + 5))
    assert from_json(as_json(found), 0, BLOCK_SIZE + 10) == found


@pytest.mark.parametrize(
    "bad",
    [
        {"entries": [[5, 0, 1, 1, 1, 0, 0, 0]]},
        {"entries": [[0, -1, 1, 1, 1, 0, 0, 0]]},
        {"entries": [[0, 1 << 63, 1, 1, 1, 0, 0, 0]]},
        {"entries": [[0, 0, -1, 1, 1, 0, 0, 0]]},
        {"gaps": [[0, 10]]},
        {"gaps": [[3, 2]]},
        {"runs": [[1, 0, 0, SEQUENCES, 0, 0]]},
        {"runs": [[1, 0, 0, 0, 10, 0]]},
    ],
)
def test_counts_of_other_offsets_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_json({**as_json(BatchCounts()), **bad}, 0, 10)


def test_an_empty_range_is_nothing() -> None:
    assert counted() == BatchCounts(entries=())
    assert Entry(0, 0, Sums()).sums == Sums()
