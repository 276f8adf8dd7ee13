"""The rules of versions, nulls, defaults and tags, and what the codec refuses."""

import struct as packing
from uuid import UUID as Uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Array,
    EncodeError,
    Field,
    MalformedError,
    Struct,
    new_message,
)
from headrace.broker.wire.schema import Api

_POINT = Struct(Field("x", INT32, default=-1), Field("y", INT32, "2+", ignorable=True))

API = Api(
    key=999,
    name="Sample",
    versions=(0, 4),
    flexible=3,
    request=(
        Field("name", STRING, nullable="1+"),
        Field("limit", INT16, "1+", default=7),
        Field("hint", STRING, "2+", ignorable=True),
        Field("points", Array(_POINT), nullable="2+"),
        Field("origin", _POINT, "2+", nullable="2+"),
        Field("note", STRING, "3+", nullable="3+", default=None, ignorable=True, tag=1),
        Field("corner", _POINT, "3+", ignorable=True, tag=0),
    ),
    response=(
        Field("flag", BOOL),
        Field("tiny", INT8),
        Field("port", UINT16),
        Field("crc", UINT32),
        Field("long", INT64),
        Field("ratio", FLOAT64),
        Field("id", UUID),
        Field("payload", BYTES, nullable="0+"),
        Field("ids", Array(UUID)),
        Field("ports", Array(UINT16)),
    ),
)

EVERYTHING = {
    "flag": True,
    "tiny": -5,
    "port": 65535,
    "crc": 0xFFFFFFFF,
    "long": -(2**63),
    "ratio": 0.5,
    "id": Uuid("00112233-4455-6677-8899-aabbccddeeff"),
    "payload": b"\x01\x02",
    "ids": [Uuid(int=1)],
    "ports": [1, 65535],
}


def test_every_type_has_kafkas_bytes() -> None:
    expected = (
        b"\x01\xfb\xff\xff\xff\xff\xff\xff"
        + packing.pack(">qd", -(2**63), 0.5)
        + bytes.fromhex("00112233445566778899aabbccddeeff")
    )
    plain = (
        b"\x00\x00\x00\x02\x01\x02"
        + b"\x00\x00\x00\x01"
        + bytes(15)
        + b"\x01"
        + b"\x00\x00\x00\x02\x00\x01\xff\xff"
    )
    compact = b"\x03\x01\x02" + b"\x02" + bytes(15) + b"\x01" + b"\x03\x00\x01\xff\xff" + b"\x00"
    assert API.encode_response(0, EVERYTHING) == expected + plain
    assert API.encode_response(3, EVERYTHING) == expected + compact
    assert API.decode_response(0, expected + plain) == EVERYTHING
    assert API.decode_response(3, expected + compact) == EVERYTHING


def test_a_missing_key_is_written_as_its_default() -> None:
    assert API.decode_request(1, API.encode_request(1, {"name": "a"})) == {
        "name": "a",
        "limit": 7,
        "hint": "",
        "points": [],
        "origin": {"x": -1, "y": 0},
        "note": None,
        "corner": {"x": -1, "y": 0},
    }


def test_defaults_are_made_anew_for_each_message() -> None:
    encoded = API.encode_request(0, {"name": "a"})
    first = API.decode_request(0, encoded)
    first["points"].append("x")
    first["origin"]["x"] = 5
    assert API.decode_request(0, encoded)["origin"] == {"x": -1, "y": 0}
    assert API.decode_request(0, encoded)["points"] == []


def test_null_is_refused_where_the_version_has_no_null() -> None:
    with pytest.raises(EncodeError, match="name is None"):
        API.encode_request(0, {"name": None})
    with pytest.raises(MalformedError, match="name is null"):
        API.decode_request(0, b"\xff\xff\x00\x00\x00\x00")
    assert API.decode_request(1, API.encode_request(1, {"name": None}))["name"] is None


def test_a_null_array_and_a_null_struct_have_bytes_of_their_own() -> None:
    body = {"name": "a", "points": None, "origin": None}
    assert API.encode_request(2, body).endswith(b"\xff\xff\xff\xff" + b"\xff")
    assert API.encode_request(3, body).endswith(b"\x00" + b"\xff" + b"\x00")
    for version in (2, 3):
        decoded = API.decode_request(version, API.encode_request(version, body))
        assert (decoded["points"], decoded["origin"]) == (None, None)


def test_a_value_that_the_version_cannot_carry_is_refused_unless_ignorable() -> None:
    with pytest.raises(EncodeError, match="version 0 has no field limit"):
        API.encode_request(0, {"name": "a", "limit": 8})
    assert API.encode_request(0, {"name": "a", "limit": 7}) == API.encode_request(0, {"name": "a"})
    assert API.encode_request(0, {"name": "a", "hint": "dropped"}) == API.encode_request(0, {"name": "a"})
    with pytest.raises(EncodeError, match="no field origin"):
        API.encode_request(1, {"name": "a", "origin": {"x": 1}})
    API.encode_request(1, {"name": "a", "origin": {"x": -1}})


def test_an_unknown_name_is_refused_at_every_depth() -> None:
    with pytest.raises(EncodeError, match="no such field: nmae"):
        API.encode_request(0, {"nmae": "a"})
    with pytest.raises(EncodeError, match="no such field: z"):
        API.encode_request(0, {"points": [{"z": 1}]})


def test_tagged_fields_are_written_by_tag_and_only_when_not_default() -> None:
    body = API.encode_request(3, {"name": "a", "note": "n", "corner": {"x": 1}})
    plain = API.encode_request(3, {"name": "a"})
    corner = b"\x00\x09\x00\x00\x00\x01\x00\x00\x00\x00\x00"
    note = b"\x01\x02\x02n"
    assert plain.endswith(b"\x00")
    assert body == plain[:-1] + b"\x02" + corner + note
    assert API.encode_request(3, {"name": "a", "note": None, "corner": {"x": -1, "y": 0}}) == plain


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = API.encode_request(3, {"name": "a"})
    extended = plain[:-1] + b"\x02" + b"\x01\x02\x02n" + b"\x63\x03abc"
    assert API.decode_request(3, extended) == API.decode_request(3, plain) | {"note": "n"}


@pytest.mark.parametrize(
    "tagged",
    [
        b"\x01\x01\x05\x02n",  # more bytes claimed than there are
        b"\x01\x01\x03\x02n\x00",  # the known field is shorter than its size
        b"\xff\xff\xff\xff\x0f",  # four thousand million tagged fields
        b"\x80\x80\x80\x80\x80\x00",  # an overlong count
        b"\x01",  # ends after the count
    ],
)
def test_a_broken_tagged_section_is_malformed(tagged: bytes) -> None:
    with pytest.raises(MalformedError):
        API.decode_request(3, API.encode_request(3, {"name": "a"})[:-1] + tagged)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, b""),
        (0, b"\x00"),
        (0, b"\x00\x05abc"),
        (0, b"\x00\x01a\x7f\xff\xff\xff"),  # an array of two thousand million
        (0, b"\x00\x01a\x00\x00\x00\x02\x00\x00\x00\x01"),  # the second element is missing
        (3, b"\xff\xff\xff\xff\x0f"),  # a compact string of four thousand million bytes
        (3, b"\xff\xff\xff\xff\xff\x01"),  # an overlong length
        (3, b"\xff\xff\xff\xff\x1f"),  # a length of 33 bits
        (3, b"\x02a\x00\x07\x01\xff\xff\xff\xff\x0f"),  # a compact array likewise
    ],
)
def test_a_broken_body_is_malformed(version: int, body: bytes) -> None:
    with pytest.raises(MalformedError):
        API.decode_request(version, body)


@pytest.mark.parametrize(
    ("version", "body", "reason"),
    [
        (0, b"\x00\x05abc", "a string of 5 bytes is too long or runs past"),
        (0, b"\x00\x01a\x7f\xff\xff\xff", "an array of 2147483647 elements does not fit the 0 bytes left"),
        (3, b"\x02a\x00\x07\x01\x04\x00\x00\x00\x01", "an array of 3 elements|cut short"),
    ],
)
def test_lengths_and_counts_are_checked_before_anything_is_read(
    version: int, body: bytes, reason: str
) -> None:
    with pytest.raises(MalformedError, match=reason):
        API.decode_request(version, body)


def test_a_string_above_int16_is_refused_both_ways() -> None:
    with pytest.raises(EncodeError, match="longer than"):
        API.encode_request(3, {"name": "a" * 32768})
    with pytest.raises(MalformedError, match="too long"):
        API.decode_request(3, b"\x81\x80\x02" + b"a" * 32768 + b"\x00\x07\x01\x01\x00")
    assert API.decode_request(3, API.encode_request(3, {"name": "a" * 32767}))["name"] == "a" * 32767


def test_bytes_that_are_no_utf8_become_the_replacement_character() -> None:
    assert API.decode_request(0, b"\x00\x02a\xff\x00\x00\x00\x00")["name"] == "a\ufffd"


@pytest.mark.parametrize(
    "message",
    [
        {"tiny": 128},
        {"port": -1},
        {"long": None},
        {"payload": 5},
        {"id": "x"},
        {"ports": [70000]},
        {"ports": 3},
    ],
)
def test_a_value_of_the_wrong_kind_is_an_encode_error(message: dict[str, object]) -> None:
    with pytest.raises(EncodeError):
        API.encode_response(0, message)


def test_a_version_outside_the_range_is_unsupported() -> None:
    for version in (-1, 5):
        with pytest.raises(UnsupportedVersionError, match="versions 0 to 4"):
            API.decode_request(version, b"")
        with pytest.raises(UnsupportedVersionError, match="versions 0 to 4"):
            API.encode_response(version, {})


def test_decoding_starts_at_the_offset_and_bytes_are_views_of_the_buffer() -> None:
    encoded = API.encode_response(0, EVERYTHING)
    buffer = bytearray(b"xyz" + encoded)
    payload = API.decode_response(0, buffer, 3)["payload"]
    assert payload == b"\x01\x02"
    buffer[buffer.index(b"\x01\x02")] = 9
    assert payload == b"\x09\x02"


SIDES = [(key, side) for key in APIS for side in ("request", "response")]


@pytest.mark.parametrize(("key", "side"), SIDES)
def test_every_version_of_every_key_writes_and_reads_its_defaults(key: int, side: str) -> None:
    api = APIS[key]
    for version in range(api.versions[0], api.versions[1] + 1):
        encoded = getattr(api, f"encode_{side}")(version, {})
        assert getattr(api, f"decode_{side}")(version, encoded) == new_message(Struct(*getattr(api, side)))


@pytest.mark.parametrize(("key", "side"), SIDES)
@settings(max_examples=25)
@given(data=st.data())
def test_any_bytes_are_a_message_or_malformed(key: int, side: str, data: st.DataObject) -> None:
    api = APIS[key]
    version = data.draw(st.integers(*api.versions))
    start = getattr(api, f"encode_{side}")(version, {})
    cut = data.draw(st.integers(0, len(start)))
    body = start[:cut] + data.draw(st.binary(max_size=40))
    try:
        message = getattr(api, f"decode_{side}")(version, body)
    except MalformedError:
        return
    encode, decode = getattr(api, f"encode_{side}"), getattr(api, f"decode_{side}")
    again = encode(version, message)
    assert encode(version, decode(version, again)) == again
