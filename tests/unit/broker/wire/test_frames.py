"""Frames are cut from any stream in any pieces, within bounds; headers have the version their key wants."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import EncodeError, MalformedError
from headrace.broker.wire.frames import (
    FrameDecoder,
    FrameError,
    RequestHeader,
    encode_request_header,
    encode_response_header,
    frame,
    read_request_header,
    read_response_header,
    response_header_size,
)


def feed(decoder: FrameDecoder, data: bytes, piece: int) -> list[bytes]:
    frames = []
    position = 0
    while position < len(data):
        space = decoder.writable()
        count = min(len(space), piece, len(data) - position)
        assert count > 0, "writable() must never be empty"
        space[:count] = data[position : position + count]
        position += count
        frames += [bytes(view) for view in decoder.received(count)]
    return frames


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 40) | st.integers(60_000, 300_000), max_size=8),
    piece=st.integers(1, 50) | st.integers(1000, 500_000),
)
def test_frames_come_out_whole_and_in_order_whatever_the_pieces(sizes: list[int], piece: int) -> None:
    if sum(sizes) > 100 * piece * 100:
        piece = 4096
    bodies = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    assert feed(FrameDecoder(), b"".join(map(frame, bodies)), piece) == bodies


def test_frames_of_one_wake_up_are_writable_views_that_do_not_disturb_each_other() -> None:
    decoder = FrameDecoder()
    data = frame(b"first") + frame(b"second") + b"\x00\x00"
    decoder.writable()[: len(data)] = data
    first, second = decoder.received(len(data))
    first[:] = b"FIRST"
    assert (bytes(first), bytes(second)) == (b"FIRST", b"second")


def test_an_announced_size_costs_nothing_before_its_bytes_come() -> None:
    decoder = FrameDecoder()
    prefix = (100 * 1024 * 1024).to_bytes(4, "big")
    assert feed(decoder, prefix + b"x" * 1000, 4096) == []
    assert len(decoder.writable()) <= 128 * 1024
    assert feed(decoder, b"x" * 60_000, 4096) == []
    assert len(decoder.writable()) <= 128 * 1024


def test_space_grows_with_what_came_and_is_given_back_after_a_huge_frame() -> None:
    decoder = FrameDecoder()
    size = 5_000_000
    data = frame(b"x" * size)
    position = largest = 0
    while position < len(data):
        space = decoder.writable()
        largest = max(largest, len(space))
        count = min(len(space), 65536, len(data) - position)
        space[:count] = data[position : position + count]
        position += count
        frames = decoder.received(count)
    assert [len(view) for view in frames] == [size]
    assert largest <= size + 4
    assert len(decoder.writable()) == 64 * 1024


def test_space_grows_for_a_sender_that_fills_it_up_to_a_bound() -> None:
    decoder = FrameDecoder()
    data = frame(b"x" * 999) * 3000
    offered, position, count = [], 0, 0
    while position < len(data):
        space = decoder.writable()
        offered.append(len(space))
        size = min(len(space), len(data) - position)
        space[:size] = data[position : position + size]
        position += size
        frames = decoder.received(size)
        assert all(bytes(view) == b"x" * 999 for view in frames)
        count += len(frames)
    assert count == 3000
    assert offered[0] == 64 * 1024
    assert 255 * 1024 < max(offered) <= 256 * 1024


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused_at_once_and_hands_over_the_frames_before_it(size: int) -> None:
    decoder = FrameDecoder(size_max=1000)
    data = frame(b"good") + size.to_bytes(4, "big", signed=True)
    decoder.writable()[: len(data)] = data
    with pytest.raises(FrameError, match=f"{size} bytes") as raised:
        decoder.received(len(data))
    assert [bytes(view) for view in raised.value.frames] == [b"good"]


@pytest.mark.parametrize("hello", [b"\x16\x03\x01\x02", b"\x16\x03\x03\x00"])
def test_a_client_that_speaks_tls_is_told_of_as_such(hello: bytes) -> None:
    decoder = FrameDecoder(size_max=104857600)
    decoder.writable()[:4] = hello
    with pytest.raises(FrameError, match="it speaks TLS, which this listener does not"):
        decoder.received(4)


def test_a_frame_of_exactly_the_largest_size_passes() -> None:
    assert feed(FrameDecoder(size_max=1000), frame(b"x" * 1000), 100) == [b"x" * 1000]


KIO_VERSIONS = [
    (key, version)
    for key, api in APIS.items()
    for version in range(api.versions[0], api.versions[1] + 1)
    if EntityType.request in schema_name_map.get(api_key_map.get(key, ""), {}).get(version, {})
]


@pytest.mark.parametrize("client_id", ["rdkafka", "", "é", None])
def test_headers_are_kios_for_every_key_and_version(client_id: str | None) -> None:
    for key, version in KIO_VERSIONS:
        request_header = load_payload_module(key, version, EntityType.request).RequestHeader
        expected = io.BytesIO()
        kio_header = request_header(
            request_api_key=key, request_api_version=version, correlation_id=77, client_id=client_id
        )
        entity_writer(request_header)(expected, kio_header)
        encoded = encode_request_header(key, version, 77, client_id)
        assert encoded == expected.getvalue(), (key, version)
        assert read_request_header(encoded + b"body") == (key, version, 77, client_id, len(encoded))

        response_header = load_payload_module(key, version, EntityType.response).ResponseHeader
        answer = encode_response_header(key, version, 77)
        read, size = entity_reader(response_header)(answer, 0)
        assert (read.correlation_id, size) == (77, len(answer))
        assert read_response_header(key, version, answer) == (77, len(answer))
        assert response_header_size(key, version) == len(answer)


def test_the_two_exceptions_among_headers() -> None:
    assert encode_request_header(7, 0, 5, "ignored") == b"\x00\x07\x00\x00\x00\x00\x00\x05"
    assert read_request_header(b"\x00\x07\x00\x00\x00\x00\x00\x05\x00\x00\x00\x01") == RequestHeader(
        7, 0, 5, None, 8
    )
    assert encode_request_header(7, 1, 5, "c").endswith(b"\x00\x01c")
    assert encode_response_header(18, 3, 5) == b"\x00\x00\x00\x05"
    assert encode_response_header(3, 9, 5) == b"\x00\x00\x00\x05\x00"


def test_an_api_versions_request_of_a_version_to_come_still_has_a_header() -> None:
    encoded = b"\x00\x12\x00\x63\x00\x00\x00\x01\x00\x01c\x00rest"
    assert read_request_header(encoded) == (18, 99, 1, "c", 12)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    encoded = b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\x01\x05\x02ab" + b"body"
    assert read_request_header(encoded) == (3, 9, 1, None, len(encoded) - 4)
    assert read_response_header(3, 9, b"\x00\x00\x00\x01\x01\x05\x02abbody") == (1, 9)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"", "cut short"),
        (b"\x00\x03\x00\x09\x00\x00\x00\x01", "cut short"),
        (b"\x00\x03\x00\x09\x00\x00\x00\x01\x00\x05abc", "runs past"),
        (b"\x00\x03\x00\x09\x00\x00\x00\x01\x00\x01a", "cut short"),
        (b"\x00\x03\x00\x09\x00\x00\x00\x01\x00\x01a\x01\x00\x7f", "runs past"),
        (b"\x03\xe7\x00\x00\x00\x00\x00\x01\x00\x01a", "API key 999 is not known"),
        (b"\xff\xff\x00\x00\x00\x00\x00\x01\x00\x01a", "API key -1 is not known"),
    ],
)
def test_a_broken_request_header_is_malformed(broken: bytes, reason: str) -> None:
    with pytest.raises(MalformedError, match=reason):
        read_request_header(broken)


@settings(max_examples=300)
@given(data=st.binary(max_size=40), key=st.sampled_from(sorted(APIS)), version=st.integers(-1, 20))
def test_any_bytes_are_a_header_or_malformed(data: bytes, key: int, version: int) -> None:
    encoded = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + data
    try:
        header = read_request_header(encoded)
    except MalformedError:
        pass
    else:
        assert (header.key, header.version) == (key, version)
        assert 8 <= header.body_offset <= len(encoded)
    try:
        _, offset = read_response_header(key, max(version, 0), data)
    except MalformedError:
        return
    assert 4 <= offset <= len(data)


def test_a_client_id_that_is_too_long_cannot_be_written() -> None:
    with pytest.raises(EncodeError):
        encode_request_header(3, 1, 1, "x" * 40_000)
