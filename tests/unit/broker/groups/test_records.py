"""Stored records of `__consumer_offsets` against bytes written out by hand from Kafka 3.9's message definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.config.sections import Groups
from headrace.broker.coordinators.records import Record, RecordFormatError
from headrace.broker.groups import records
from headrace.broker.groups.machine import Shard
from headrace.broker.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
)


def test_an_offset_is_stored_as_key_version_1_and_value_version_3() -> None:
    key = records.encode_offset_key("grp", "pageviews", 3)
    assert key == bytes.fromhex("0001 0003") + b"grp" + b"\x00\x09pageviews" + bytes.fromhex("00000003")
    value = OffsetValue(offset=42, leader_epoch=7, metadata="m", commit_timestamp_ms=1_700_000_000_000)
    expected = bytes.fromhex("0003 000000000000002a 00000007 0001") + b"m" + bytes.fromhex("0000018bcfe56800")
    assert records.encode_offset_value(value) == expected
    assert records.decode_offset_value(expected) == value
    assert records.decode_key(key) == OffsetKey("grp", "pageviews", 3)


def test_an_offset_with_an_expiry_is_stored_as_value_version_1() -> None:
    value = OffsetValue(offset=1, metadata="", commit_timestamp_ms=2, expire_timestamp_ms=3)
    expected = bytes.fromhex("0001 0000000000000001 0000 0000000000000002 0000000000000003")
    assert records.encode_offset_value(value) == expected
    assert records.decode_offset_value(expected) == value


def test_a_group_is_stored_as_key_version_2_and_value_version_3() -> None:
    member = MemberValue(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5,
        session_timeout_ms=6,
        subscription=b"\x01",
        assignment=b"\x02\x03",
    )
    value = GroupValue(
        protocol_type="consumer",
        generation=9,
        protocol="range",
        leader="m",
        state_timestamp_ms=1,
        members=(member,),
    )
    expected = (
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x09\x00\x05range\x00\x01m"
        + bytes.fromhex("0000000000000001 00000001")
        + b"\x00\x01m\xff\xff\x00\x01c\x00\x02/h"
        + bytes.fromhex("00000005 00000006 00000001 01 00000002 0203")
    )
    assert records.encode_group_value(value) == expected
    assert records.decode_group_value(expected) == value
    assert records.encode_group_key("g") == b"\x00\x02\x00\x01g"
    assert records.decode_key(b"\x00\x02\x00\x01g") == GroupKey("g")


def test_an_empty_group_has_neither_protocol_nor_leader() -> None:
    value = GroupValue(
        protocol_type="consumer", generation=2, protocol=None, leader=None, state_timestamp_ms=-1, members=()
    )
    data = records.encode_group_value(value)
    assert data.endswith(bytes.fromhex("ffff ffff ffffffffffffffff 00000000"))
    assert records.decode_group_value(data) == value


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            "0000 0000000000000005 0001 6d 0000000000000006",
            OffsetValue(offset=5, metadata="m", commit_timestamp_ms=6),
        ),
        (
            "0002 0000000000000005 0001 6d 0000000000000006",
            OffsetValue(offset=5, metadata="m", commit_timestamp_ms=6),
        ),
        (
            "0004 0000000000000005 00000001 02 6d 0000000000000006 00",
            OffsetValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp_ms=6),
        ),
    ],
)
def test_offsets_of_other_versions_are_read(data: str, expected: OffsetValue) -> None:
    assert records.decode_offset_value(bytes.fromhex(data)) == expected


def test_a_group_of_version_0_takes_its_session_time_out_for_rebalances() -> None:
    data = (
        b"\x00\x00\x00\x08consumer\x00\x00\x00\x01\x00\x05range\x00\x01m\x00\x00\x00\x01"
        + b"\x00\x01m\x00\x01c\x00\x01h"
        + bytes.fromhex("00002710 00000000 00000000")
    )
    (member,) = records.decode_group_value(data).members
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 10_000)


def test_a_group_of_the_flexible_version_4_is_read() -> None:
    data = (
        b"\x00\x04\x09consumer\x00\x00\x00\x01\x06range\x02m"
        + bytes.fromhex("0000000000000001 02")
        + b"\x02m\x02i\x02c\x02h"
        + bytes.fromhex("00000005 00000006 02 01 02 02 00 00")
    )
    value = records.decode_group_value(data)
    (member,) = value.members
    assert (value.protocol, member.instance_id, member.subscription, member.assignment) == (
        "range",
        "i",
        b"\x01",
        b"\x02",
    )


def test_records_of_later_kafkas_are_told_apart_from_rot() -> None:
    assert records.decode_key(b"\x00\x03\x00\x01g") is None
    with pytest.raises(RecordFormatError, match="unknown version 9"):
        records.decode_group_value(b"\x00\x09")


@given(st.binary(max_size=60))
def test_garbage_raises_only_format_errors(data: bytes) -> None:
    for decode in (records.decode_key, records.decode_offset_value, records.decode_group_value):
        try:
            decode(data)
        except (RecordFormatError, UnicodeDecodeError):
            continue


@given(st.text(max_size=5), st.text(max_size=5), st.integers(-(2**31), 2**31 - 1))
def test_a_commits_key_is_read_as_it_was_written(group_id: str, topic: str, partition: int) -> None:
    key = records.encode_offset_key(group_id, topic, partition)
    assert records.decode_key(key) == OffsetKey(group_id, topic, partition)
    for size in range(len(key)):
        with pytest.raises(RecordFormatError):
            records.decode_key(key[:size])


@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1), st.text(max_size=9), st.integers(0, 2**63 - 1))
def test_a_commits_value_is_read_as_it_was_written(offset: int, epoch: int, text: str, time_ms: int) -> None:
    value = OffsetValue(offset=offset, leader_epoch=epoch, metadata=text, commit_timestamp_ms=time_ms)
    data = records.encode_offset_value(value)
    assert records.decode_offset_value(data) == value
    for size in range(len(data)):
        with pytest.raises(RecordFormatError):
            records.decode_offset_value(data[:size])


def test_a_size_below_nothing_is_no_string() -> None:
    key = records.encode_offset_key("group", "topic", 1)
    value = records.encode_offset_value(OffsetValue(offset=1, metadata="m"))
    for data, read in ((key, records.decode_key), (value, records.decode_offset_value)):
        at = 2 if data is key else 14
        with pytest.raises(RecordFormatError):
            read(data[:at] + b"\xff\xfe" + data[at + 2 :])


def test_a_value_that_cannot_be_read_makes_no_group() -> None:
    shard = Shard(Groups())
    with pytest.raises(RecordFormatError):
        shard.apply(Record(records.encode_offset_key("g", "t", 0), b"\x00\x09"))
    assert shard.overviews() == []
