"""What a load believes of fetched batches: a script of fetches, and the chunks or the standstill that follow."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from scripted_log import ScriptedLog, control

from headrace.broker.wire.batches import Record, encode_batch, set_base_offset_and_epoch
from headrace.load.ranges import OffsetRange
from headrace.load.source import Chunk, StandstillError, chunks, header_chunks


def batch(first: int, values: list[str], **settings: Any) -> tuple[int, int, bytes]:
    records = [Record(0, 1000, None, value.encode(), []) for value in values]
    return first, first + len(values) - 1, bytes(encode_batch(records, base_offset=first, **settings))


def wanted(first: int, following: int) -> OffsetRange:
    return OffsetRange(topic="dc.t", partition=0, first_offset=first, next_offset=following)


def values(found: list[Chunk]) -> dict[int, str]:
    return {
        int(offset): records.data[start : start + size].decode()
        for chunk in found
        for records in chunk.records
        for offset, start, size in zip(records.offset, records.value_start, records.value_size, strict=True)
    }


def read_until_standstill(log: ScriptedLog, span: OffsetRange) -> tuple[list[Chunk], StandstillError]:
    found: list[Chunk] = []
    try:
        found.extend(chunk for chunk in chunks(log, span))
    except StandstillError as standstill:
        return found, standstill
    raise AssertionError("the range was read to its end")


def test_a_range_is_read_whole_and_in_order() -> None:
    log = ScriptedLog([batch(0, ["a", "b"]), batch(2, ["c"]), batch(3, ["d", "e"], codec=4)], end=5)
    found = list(chunks(log, wanted(0, 5)))
    assert values(found) == {0: "a", 1: "b", 2: "c", 3: "d", 4: "e"}
    assert found[-1].next_offset == 5


def test_a_range_may_begin_and_end_inside_a_batch() -> None:
    log = ScriptedLog([batch(0, ["a", "b", "c"]), batch(3, ["d", "e", "f"])], end=6)
    found = list(chunks(log, wanted(1, 5)))
    assert values(found) == {1: "b", 2: "c", 3: "d", 4: "e"}
    assert found[-1].next_offset == 5


def test_gaps_that_compaction_leaves_are_passed() -> None:
    log = ScriptedLog([batch(0, ["a"]), batch(7, ["b"])], end=8)
    assert values(list(chunks(log, wanted(0, 8)))) == {0: "a", 7: "b"}


def test_a_range_that_ends_in_a_gap_is_done_there() -> None:
    log = ScriptedLog([batch(0, ["a"]), batch(7, ["b"])], end=8)
    found = list(chunks(log, wanted(1, 5)))
    assert values(found) == {}
    assert found[-1].next_offset == 5


def test_a_flipped_bit_ends_the_range_behind_the_last_good_batch() -> None:
    first, last, good = batch(2, ["c", "d"])
    rotten = bytearray(good)
    rotten[-3] ^= 1
    log = ScriptedLog([batch(0, ["a", "b"]), (first, last, bytes(rotten)), batch(4, ["e"])], end=5)
    found, standstill = read_until_standstill(log, wanted(0, 5))
    assert values(found) == {0: "a", 1: "b"}
    assert found[-1].next_offset == 2
    assert (standstill.finding.kind, standstill.finding.offset) == ("corruption", 2)
    assert "checksum" in standstill.finding.detail


@pytest.mark.parametrize("offset", [10_000, -3])
def test_a_base_offset_that_rotted_is_not_taken_for_a_gap(offset: int) -> None:
    first, last, good = batch(2, ["c", "d"])
    moved = bytearray(good)
    set_base_offset_and_epoch(moved, 0, offset, 0)
    log = ScriptedLog([batch(0, ["a", "b"]), (first, last, bytes(moved))], end=4)
    found, standstill = read_until_standstill(log, wanted(0, 20_000))
    assert values(found) == {0: "a", 1: "b"}
    assert standstill.finding.kind == "corruption"


@pytest.mark.parametrize("length", [-1, 10, 2**31 - 1])
def test_a_length_that_rotted_stops_the_partition(length: int) -> None:
    first, last, good = batch(2, ["c"])
    broken = bytearray(good)
    struct.pack_into(">i", broken, 8, length)
    log = ScriptedLog([batch(0, ["a", "b"]), (first, last, bytes(broken))], end=3)
    found, standstill = read_until_standstill(log, wanted(0, 3))
    assert values(found) == {0: "a", 1: "b"}
    assert (standstill.finding.kind, standstill.finding.offset) == ("corruption", 2)


@pytest.mark.parametrize(("magic", "kind"), [(0, "unsupported"), (1, "unsupported"), (9, "corruption")])
def test_another_message_format_stops_the_partition(magic: int, kind: str) -> None:
    first, last, good = batch(0, ["a"])
    other = bytearray(good)
    other[16] = magic
    _, standstill = read_until_standstill(ScriptedLog([(first, last, bytes(other))], end=1), wanted(0, 1))
    assert standstill.finding.kind == kind


def test_offsets_deleted_under_the_reader_stop_the_partition() -> None:
    log = ScriptedLog([batch(5, ["a"])], end=6)
    log.start = 5
    _, standstill = read_until_standstill(log, wanted(0, 6))
    assert (standstill.finding.kind, standstill.finding.offset) == ("retention", 0)


def test_a_batch_with_a_good_checksum_that_does_not_parse_is_handed_on_whole() -> None:
    first, last, liar = batch(2, ["c", "d"], codec=4)
    good_records = bytearray(liar)
    struct.pack_into(">i", good_records, 57, 77)
    struct.pack_into(">i", good_records, 23, 1)
    from crc32c import crc32c

    struct.pack_into(">I", good_records, 17, crc32c(bytes(good_records[21:])))
    log = ScriptedLog([batch(0, ["a", "b"]), (first, last, bytes(good_records)), batch(4, ["e"])], end=5)
    found = list(chunks(log, wanted(0, 5)))
    assert values(found) == {0: "a", 1: "b", 4: "e"}
    (unreadable,) = [letter for chunk in found for letter in chunk.unreadable]
    assert (unreadable.first_offset, unreadable.last_offset) == (2, 3)
    assert unreadable.content == bytes(good_records)


def test_batches_that_are_small_packed_and_huge_together_are_read_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.load.columns.RECORDS_SIZE_MAX", 25_000)
    sizes = [10_000, 10_000, 10_000, 40_000, 10_000]
    log = ScriptedLog([batch(first, ["x" * size], codec=4) for first, size in enumerate(sizes)], end=5)
    found = list(chunks(log, wanted(0, 5)))
    assert {offset: len(value) for offset, value in values(found).items()} == {
        offset: size for offset, size in enumerate(sizes) if offset != 3
    }
    assert all(len(records.data) < 26_000 for chunk in found for records in chunk.records)
    (unreadable,) = [letter for chunk in found for letter in chunk.unreadable]
    assert (unreadable.first_offset, unreadable.last_offset) == (3, 3)


def test_aborted_transactions_and_markers_have_no_records() -> None:
    def of(producer_id: int) -> dict[str, object]:
        return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}

    log = ScriptedLog(
        [
            batch(0, ["aborted"], **of(1)),
            batch(1, ["committed"], **of(2)),
            control(2, 1, 0),
            control(3, 2, 1),
            batch(4, ["later"], **of(1)),
            control(5, 1, 1),
            batch(6, ["plain"]),
        ],
        end=7,
        aborted=((1, 0),),
    )
    found = list(chunks(log, wanted(0, 7)))
    assert values(found) == {1: "committed", 4: "later", 6: "plain"}
    assert found[-1].next_offset == 7


def test_a_broker_that_gives_nothing_ends_the_range_early_without_loss() -> None:
    found = list(chunks(ScriptedLog([batch(0, ["a"])], end=9), wanted(0, 9)))
    assert [chunk.next_offset for chunk in found] == [1]


def test_headers_are_read_without_a_look_at_a_record() -> None:
    log = ScriptedLog([batch(0, ["a", "b", "c"]), batch(3, ["d", "e"], codec=4), batch(5, ["f"])], end=6)
    found = list(header_chunks(log, wanted(1, 4)))
    assert [(item.base_offset, item.record_count) for chunk in found for item in chunk.headers] == [
        (0, 3),
        (3, 2),
    ]
    assert found[-1].next_offset == 5


def test_headers_of_aborted_transactions_are_named() -> None:
    transaction = {"producer_id": 9, "transactional": True}
    batches = [batch(0, ["a"], **transaction), control(1, 9, 0), batch(2, ["b"], **transaction)]
    (chunk,) = header_chunks(ScriptedLog(batches, end=3, aborted=((9, 0),)), wanted(0, 3))
    assert (len(chunk.headers), chunk.aborted) == (3, frozenset({0}))


def test_headers_that_come_alone_are_those_of_whole_batches() -> None:
    batches = [batch(0, ["a", "b", "c"]), batch(3, ["d", "e"], codec=4), batch(5, ["f"])]
    alone = ScriptedLog(batches, end=6, parts_headers=True)
    for span in (wanted(0, 6), wanted(1, 4), wanted(4, 6)):
        whole = [list(chunk.headers) for chunk in header_chunks(ScriptedLog(batches, end=6), span)]
        assert [list(chunk.headers) for chunk in header_chunks(alone, span)] == whole
    assert alone.whole == []


def test_whole_batches_are_asked_for_where_transactions_were_aborted() -> None:
    transaction = {"producer_id": 9, "transactional": True}
    batches = [batch(0, ["a"], **transaction), control(1, 9, 0), batch(2, ["b"], **transaction)]
    log = ScriptedLog(batches, end=3, aborted=((9, 0),), parts_headers=True)
    (chunk,) = header_chunks(log, wanted(0, 3))
    assert (len(chunk.headers), chunk.aborted, log.whole) == (3, frozenset({0}), [0])


def test_headers_that_are_not_in_order_end_where_the_whole_batches_do() -> None:
    """A base offset and a length that rotted, which no checksum covers."""
    first, last, good = batch(2, ["c"])
    moved, broken = bytearray(good), bytearray(good)
    set_base_offset_and_epoch(moved, 0, 1, 0)
    struct.pack_into(">i", broken, 8, 3)
    for rotten in (moved, broken):
        batches = [batch(0, ["a", "b"]), (first, last, bytes(rotten)), batch(3, ["d"])]
        ends = []
        for parts_headers in (True, False):
            log = ScriptedLog(batches, end=4, parts_headers=parts_headers)
            with pytest.raises(StandstillError) as raised:
                list(header_chunks(log, wanted(0, 4)))
            ends.append(raised.value.finding)
        assert ends[0] == ends[1]


def test_headers_end_where_a_batch_is_not_what_its_checksum_says() -> None:
    first, last, rotten = batch(1, ["b"])
    log = ScriptedLog([batch(0, ["a"]), (first, last, rotten[:-1] + b"\1")], end=2)
    with pytest.raises(StandstillError) as raised:
        list(header_chunks(log, wanted(0, 2)))
    assert (raised.value.finding.kind, raised.value.finding.go_on_at) == ("corruption", 2)
