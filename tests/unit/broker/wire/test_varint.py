"""Variable-length integers at the edges of their types."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial.readers import read_signed_varint, read_signed_varlong, read_unsigned_varint

from headrace.broker.wire.varint import (
    OverlongError,
    encode_uvarint,
    encode_varint,
    read_uvarint,
    read_varint,
    read_varlong,
)


@given(st.integers(0, 2**32 - 1))
def test_unsigned_values_are_kios(value: int) -> None:
    encoded = encode_uvarint(value)
    assert read_uvarint(b"x" + encoded + b"x", 1) == (value, 1 + len(encoded))
    assert read_unsigned_varint(encoded, 0) == (value, len(encoded))


@given(st.integers(-(2**31), 2**31 - 1))
def test_signed_32_bit_values_are_kios(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))
    assert read_signed_varint(encoded, 0) == (value, len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_signed_64_bit_values_are_kios(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))
    assert read_signed_varlong(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize("read", [read_uvarint, read_varint])
def test_more_than_32_bits_are_refused(read: Callable[[bytes, int], tuple[int, int]]) -> None:
    assert read(b"\xff\xff\xff\xff\x0f", 0)[1] == 5
    for overlong in (b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00"):
        with pytest.raises(OverlongError):
            read(overlong, 0)


def test_more_than_64_bits_are_refused() -> None:
    assert read_varlong(b"\xff" * 9 + b"\x01", 0) == (-(2**63), 10)
    for overlong in (b"\xff" * 9 + b"\x03", b"\x80" * 10 + b"\x00"):
        with pytest.raises(OverlongError):
            read_varlong(overlong, 0)


@pytest.mark.parametrize("read", [read_uvarint, read_varint, read_varlong])
def test_the_end_of_the_buffer_is_an_index_error(read: Callable[[bytes, int], tuple[int, int]]) -> None:
    for cut in (b"", b"\x80", b"\x80\x80"):
        with pytest.raises(IndexError):
            read(cut, 0)


def test_a_negative_unsigned_value_cannot_be_written() -> None:
    with pytest.raises(OverlongError, match="negative"):
        encode_uvarint(-1)
