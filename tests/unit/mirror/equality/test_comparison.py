"""Whether two sides hold the same, however their answers are cut."""

from __future__ import annotations

import pytest

from headrace.broker.errors import MessageTooLargeError
from headrace.broker.wire.batches import (
    Record,
    decode_records,
    encode_batch,
    iter_batches,
    rewrite_batch,
)
from headrace.mirror.equality import difference
from headrace.mirror.equality.comparison import Comparison, Offsets, Side


def batch(first: int, count: int, *, epoch: int = 0, value: bytes = b"v", codec: int = 0) -> bytes:
    records = [
        Record(first + at, 1_700_000_000_000 + at, b"%d" % (first + at), value, []) for at in range(count)
    ]
    return bytes(encode_batch(records, base_offset=first, leader_epoch=epoch, codec=codec))


def compared(
    source: list[bytes],
    copy: list[bytes],
    first: int = 0,
    end: int = 30,
    *,
    passed: list[Offsets] | None = None,
    is_compacted: bool = False,
    size_max: int = 1 << 20,
) -> Comparison:
    """Feed both sides with what a broker would answer: the batch with the offset or the next, and what fits behind it."""
    logs = {Side.SOURCE: source, Side.COPY: copy}
    found = Comparison(first, end, passed=passed or [], is_compacted=is_compacted)
    for _ in range(1000):
        wanted = found.wants()
        if not wanted:
            return found
        for side, offset in wanted.items():
            found.served(side, memoryview(bytearray(answer(logs[side], offset, size_max))))
    raise AssertionError(f"it goes on for ever: {wanted}")


def answer(log: list[bytes], offset: int, size_max: int) -> bytes:
    at = next((n for n, data in enumerate(log) if next_offset(data) > offset), len(log))
    behind = b"".join(log[at:])
    return behind[: max(size_max, len(log[at]) if at < len(log) else 0)]


def next_offset(data: bytes) -> int:
    found = next(iter_batches(data), None)
    return 1 << 40 if found is None else found[1].next_offset


LOG = [batch(0, 10), batch(10, 5), batch(15, 15)]


@pytest.mark.parametrize("size_max", [1, 200, 700, 1 << 20])
def test_equal_logs_are_equal_however_they_are_cut_and_whatever_the_leader_epochs(size_max: int) -> None:
    copy = [batch(0, 10, epoch=7), batch(10, 5, epoch=7), batch(15, 15, epoch=8)]
    found = compared(LOG, copy, size_max=size_max)
    assert (found.difference, found.position) == (None, 30)
    assert found.bytes_compared == sum(map(len, LOG))


def test_only_what_both_have_is_compared() -> None:
    other = batch(30, 5, value=b"other")
    found = compared([*LOG, other], [*LOG, batch(30, 5)], first=12, end=30)
    assert (found.difference, found.position, found.bytes_compared) == (None, 30, len(LOG[1]) + len(LOG[2]))
    assert compared([], [], 30, 30).wants() == {}


@pytest.mark.parametrize("size_max", [1, 1 << 20])
def test_one_record_that_differs_is_named_though_its_checksum_is_right(size_max: int) -> None:
    records = [Record(15 + at, 1_700_000_000_000 + at, b"%d" % (15 + at), b"v", []) for at in range(15)]
    records[7] = records[7]._replace(value=b"other")
    copy = [*LOG[:2], bytes(encode_batch(records, base_offset=15))]
    told = compared(LOG, copy, size_max=size_max).difference
    assert told is not None
    assert told.offset == 22
    assert told.source.startswith("a message of 2023-11-14T22:13:20.007+00:00, key of 2 bytes (crc32c ")
    assert "value of 1 bytes" in told.source
    assert "value of 5 bytes" in told.copy


def test_a_flipped_bit_is_found_in_the_batch_whose_checksum_is_wrong() -> None:
    rotten = bytearray(LOG[1])
    rotten[-3] ^= 1
    told = compared(LOG, [LOG[0], bytes(rotten), LOG[2]]).difference
    assert told is not None
    assert 10 <= told.offset < 15
    assert "checksum is wrong" in told.copy
    assert "checksum" not in told.source.replace("crc32c", "")


@pytest.mark.parametrize(
    ("position", "flip", "words"),
    [
        (7, 1, "before offset 11"),
        (7, 0x30, "before offset 30"),
        (10, 0x30, "no batch"),
        (16, 0x30, "no batch"),
    ],
)
def test_a_header_that_rotted_is_no_batch_or_lies_elsewhere(position: int, flip: int, words: str) -> None:
    rotten = bytearray(LOG[1])
    rotten[position] ^= flip
    told = compared(LOG, [LOG[0], bytes(rotten), LOG[2]]).difference
    assert told is not None
    assert told.offset == 10
    assert words in told.copy


def test_what_one_side_lacks_is_a_difference() -> None:
    for source, copy, which in ((LOG, [LOG[0], LOG[2]], 1), ([LOG[0], LOG[2]], LOG, 0)):
        told = compared(source, copy).difference
        assert told is not None
        words = told.source, told.copy
        assert (told.offset, words[which], words[1 - which]) == (
            10,
            "nothing before offset 15",
            "a batch of offsets 10 to 14",
        )
    told = compared(LOG[:2], [*LOG[:1], batch(10, 4)], end=15).difference
    assert told is not None
    assert (told.offset, told.copy) == (14, "no message")


def test_batches_of_the_same_messages_that_are_not_the_same_bytes_differ() -> None:
    packed = batch(10, 5, codec=1)
    told = compared(LOG, [LOG[0], packed, LOG[2]]).difference
    assert told is not None
    assert told.offset == 10
    assert "attributes 0" in told.source
    assert "attributes 1" in told.copy


def test_what_findings_say_was_passed_over_is_no_difference_and_what_lies_beside_it_is() -> None:
    skipped = compared(LOG, [LOG[0], LOG[2]], passed=[(10, 14)])
    assert (skipped.difference, skipped.position, skipped.passed_count) == (None, 30, 5)
    other = compared(LOG, [LOG[0], batch(10, 3, value=b"old"), batch(13, 2), LOG[2]], passed=[(10, 14)])
    assert (other.difference, other.passed_count) == (None, 5)
    assert compared(LOG, LOG, passed=[(10, 14)]).passed_count == 0
    beside = compared(LOG, [LOG[0], LOG[2][:-2] + b"x\0"], passed=[(10, 14)]).difference
    assert beside is not None
    assert beside.offset == 29


def test_bytes_at_the_source_that_are_no_batch_are_passed_over_where_they_were_skipped() -> None:
    rotten = bytearray(LOG[1])
    rotten[16] = 9

    found = Comparison(0, 30, passed=[(10, 14)])
    logs = {Side.SOURCE: [LOG[0], bytes(rotten), LOG[2]], Side.COPY: [LOG[0], LOG[2]]}
    while wanted := found.wants():
        for side, offset in wanted.items():
            at = {0: 0, 10: 1, 15: 2}[offset] if side is Side.SOURCE else {0: 0, 10: 1, 15: 1}[offset]
            found.served(side, memoryview(b"".join(logs[side][at:])))
    assert (found.difference, found.position, found.passed_count) == (None, 30, 5)


def test_what_retention_takes_meanwhile_is_told_and_not_compared() -> None:
    found = Comparison(0, 30)
    found.served(Side.SOURCE, memoryview(LOG[0]))
    found.served(Side.COPY, memoryview(LOG[0]))
    found.deleted_below(15)
    assert (found.position, found.deleted_count) == (15, 5)
    for side in Side:
        found.served(side, memoryview(LOG[2]))
    assert (found.difference, found.wants(), found.position) == (None, {}, 30)
    gone = Comparison(0, 30)
    gone.deleted_below(90)
    assert (gone.wants(), gone.deleted_count, gone.position) == ({}, 30, 30)


def cleaned(data: bytes, *kept: int) -> bytes:
    """The batch with only these of its offsets, as a cleaner writes it."""
    ((position, header),) = iter_batches(data)
    records = [record for record in decode_records(data, position, header) if record.offset in kept]
    return bytes(rewrite_batch(header, records))


def test_of_compacted_topics_the_offsets_that_both_have_must_be_the_same() -> None:
    source = [cleaned(LOG[0], 3, 9), LOG[2]]
    copy = [cleaned(LOG[0], 1, 9), LOG[1], LOG[2]]
    found = compared(source, copy, is_compacted=True)
    assert (found.difference, found.position) == (None, 30)
    assert found.only_at == {Side.SOURCE: 1, Side.COPY: 1 + 5}
    assert compared(source, copy).difference is not None
    changed = [cleaned(batch(0, 10, value=b"w"), 1, 9), *copy[1:]]
    told = compared(source, changed, is_compacted=True).difference
    assert told is not None
    assert told.offset == 9
    rotten = bytearray(copy[0])
    rotten[-3] ^= 1
    assert compared(source, [bytes(rotten), *copy[1:]], is_compacted=True).difference is not None


def test_a_compacted_batch_that_unpacks_to_too_much_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "PUBLISHED_SIZE_MAX", 20)
    with pytest.raises(MessageTooLargeError):
        compared([batch(0, 10, codec=1)], [batch(0, 9, codec=1)], end=10, is_compacted=True)
    told = compared([batch(0, 10, codec=1)], [batch(0, 9, codec=1)], end=10).difference
    assert told is not None
    assert (told.offset, "length" in told.source) == (0, True)
