"""One connection of a client as a script of bytes: versions, correlation, bounds, and what is no answer."""

from __future__ import annotations

import pytest

from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire import frames
from headrace.broker.wire.api import k01_fetch, k03_metadata, k04_leader_and_isr, k18_api_versions
from headrace.broker.wire.client.exchange import (
    ANSWER_SIZE_MAX,
    BUFFER_SIZE_KEPT,
    BUFFER_SIZE_MIN,
    Exchange,
    ProtocolError,
)
from headrace.broker.wire.fields import EncodeError, MalformedError, Message
from headrace.broker.wire.schema import Api

FETCH = {"topics": [], "forgotten_topics_data": [], "rack_id": "", "max_wait_ms": 0, "min_bytes": 0}


def fixed() -> Exchange:
    return Exchange("test", negotiates=False)


def agreed(*served: tuple[Api, int, int]) -> Exchange:
    """An exchange with a broker that serves the given versions, from the first to the last."""
    exchange = Exchange("test")
    header, _ = asked(exchange.versions_request(), k18_api_versions.API)
    assert header.version == 0
    keys = [{"api_key": api.key, "min_version": low, "max_version": high} for api, low, high in served]
    answer = answer_to(header, k18_api_versions.API, {"error_code": 0, "api_keys": keys})
    assert feed(exchange, answer) is not None
    return exchange


def asked(request: bytes, api: Api) -> tuple[frames.RequestHeader, Message]:
    """What a broker reads of a request's bytes."""
    assert int.from_bytes(request[:4], "big") == len(request) - 4
    header = frames.read_request_header(request[4:])
    assert header.key == api.key
    return header, api.decode_request(header.version, request[4:], header.body_offset)


def answer_to(
    header: frames.RequestHeader, api: Api, message: Message, *, number: int | None = None
) -> bytes:
    number = header.correlation_id if number is None else number
    encoded = frames.encode_response_header(api.key, header.version, number)
    return frames.frame(encoded, api.encode_response(header.version, message))


def feed(exchange: Exchange, stream: bytes, piece: int = 1 << 30) -> Message | None:
    """Receive a stream as a socket would, at most `piece` bytes a time, all of it and no more than the exchange takes."""
    answer, position = None, 0
    while position < len(stream):
        assert answer is None, "bytes are left after the answer"
        writable = exchange.writable()
        assert len(writable) > 0
        some = stream[position : position + min(piece, len(writable))]
        writable[: len(some)] = some
        position += len(some)
        answer = exchange.received(len(some))
    return answer


def fetched(size: int) -> Message:
    records = {"partition_index": 0, "error_code": 0, "high_watermark": 7, "records": bytes(size)}
    return {"responses": [{"topic": "t", "partitions": [records]}]}


def records_of(answer: Message | None) -> memoryview:
    assert answer is not None
    found = answer["responses"][0]["partitions"][0]["records"]
    assert isinstance(found, memoryview)
    return found


# -- versions


def test_the_highest_version_that_both_sides_have_is_used() -> None:
    exchange = agreed((k01_fetch.API, 4, 11), (k03_metadata.API, 0, 12))
    assert exchange.version(k01_fetch.API, 13) == 11
    assert exchange.version(k01_fetch.API, 5) == 5
    header, _ = asked(exchange.request(k01_fetch.API, 13, FETCH), k01_fetch.API)
    assert header.version == 11


@pytest.mark.parametrize("api", [k01_fetch.API, k04_leader_and_isr.API])
def test_what_the_other_side_does_not_serve_is_not_sent(api: Api) -> None:
    exchange = agreed((k01_fetch.API, 14, 17), (k03_metadata.API, 0, 12))
    assert exchange.version(api, 13) == -1
    with pytest.raises(UnsupportedVersionError, match=f"does not serve {api.name} up to version 13"):
        exchange.request(api, 13, FETCH)
    exchange.request(k03_metadata.API, 12, {"topics": None})


def test_with_fixed_versions_nobody_is_asked_for_them() -> None:
    exchange = fixed()
    assert exchange.version(k03_metadata.API, 12) == 12
    header, message = asked(exchange.request(k03_metadata.API, 12, {"topics": []}), k03_metadata.API)
    assert (header.version, header.client_id, message["topics"]) == (12, "test", [])


# -- correlation


def test_every_request_has_a_number_of_its_own_that_its_answer_repeats() -> None:
    exchange, numbers = fixed(), []
    for _ in range(3):
        header, _ = asked(exchange.request(k01_fetch.API, 11, FETCH), k01_fetch.API)
        numbers.append(header.correlation_id)
        assert feed(exchange, answer_to(header, k01_fetch.API, fetched(10))) is not None
    assert len(set(numbers)) == 3


@pytest.mark.parametrize("shift", [-1, 1, 100])
def test_an_answer_to_another_request_is_none(shift: int) -> None:
    exchange = fixed()
    header, _ = asked(exchange.request(k01_fetch.API, 11, FETCH), k01_fetch.API)
    number = header.correlation_id
    with pytest.raises(ProtocolError, match=f"request {number + shift} instead of {number}"):
        feed(exchange, answer_to(header, k01_fetch.API, fetched(10), number=number + shift))


def test_one_request_is_outstanding_at_a_time() -> None:
    exchange = fixed()
    exchange.request(k01_fetch.API, 11, FETCH)
    with pytest.raises(ProtocolError, match="has not answered the request before"):
        exchange.request(k01_fetch.API, 11, FETCH)


def test_a_request_that_cannot_be_written_is_not_outstanding() -> None:
    exchange = fixed()
    with pytest.raises(EncodeError):
        exchange.request(k01_fetch.API, 11, {**FETCH, "max_wait_ms": "soon"})
    exchange.request(k01_fetch.API, 11, FETCH)


# -- how answers arrive


@pytest.mark.parametrize("piece", [1, 3, 5, 1000, 1 << 30])
@pytest.mark.parametrize("size", [0, 100, BUFFER_SIZE_MIN, 3 * BUFFER_SIZE_MIN])
def test_an_answer_may_arrive_in_any_pieces(piece: int, size: int) -> None:
    if piece < 1000:
        size = min(size, 100)
    exchange = fixed()
    header, _ = asked(exchange.request(k01_fetch.API, 11, FETCH), k01_fetch.API)
    assert records_of(feed(exchange, answer_to(header, k01_fetch.API, fetched(size)), piece)) == bytes(size)


def test_what_is_missing_is_the_answers_size_and_then_the_rest_of_it() -> None:
    exchange = fixed()
    header, _ = asked(exchange.request(k01_fetch.API, 11, FETCH), k01_fetch.API)
    stream = answer_to(header, k01_fetch.API, fetched(1000))
    assert exchange.missing == 4
    assert feed(exchange, stream[:3]) is None
    assert exchange.missing == 1
    assert feed(exchange, stream[3:100]) is None
    assert exchange.missing == len(exchange.writable()) == len(stream) - 100


def test_answers_of_about_one_size_are_received_into_one_buffer() -> None:
    exchange, buffers = fixed(), set()
    for size in (200_000, 150_000, 250_000, 10):
        header, _ = asked(exchange.request(k01_fetch.API, 11, FETCH), k01_fetch.API)
        found = records_of(feed(exchange, answer_to(header, k01_fetch.API, fetched(size)), 5000))
        buffers.add(id(found.obj))
    assert len(buffers) == 1


def test_the_buffer_of_a_large_answer_is_not_kept() -> None:
    exchange = fixed()
    for size, kept in ((BUFFER_SIZE_KEPT + 1, 2 * BUFFER_SIZE_KEPT), (10, BUFFER_SIZE_MIN)):
        header, _ = asked(exchange.request(k01_fetch.API, 11, FETCH), k01_fetch.API)
        found = records_of(feed(exchange, answer_to(header, k01_fetch.API, fetched(size))))
        assert isinstance(found.obj, bytearray)
        assert len(found.obj) == kept


# -- what is no answer


@pytest.mark.parametrize("size", [-1, 0, ANSWER_SIZE_MAX + 1, 2**31 - 1])
def test_an_answer_of_an_impossible_size_is_refused_before_it_is_received(size: int) -> None:
    exchange = fixed()
    exchange.request(k01_fetch.API, 11, FETCH)
    with pytest.raises(ProtocolError, match=f"announced an answer of {size} bytes"):
        feed(exchange, size.to_bytes(4, "big", signed=True))
    assert exchange.missing <= 4


@pytest.mark.parametrize("size", [0, 2, 4, 50])
def test_a_connection_that_ends_within_an_answer_is_lost(size: int) -> None:
    exchange = fixed()
    header, _ = asked(exchange.request(k01_fetch.API, 11, FETCH), k01_fetch.API)
    stream = answer_to(header, k01_fetch.API, fetched(100))
    feed(exchange, stream[:size])
    with pytest.raises(ProtocolError, match="closed the connection"):
        exchange.received(0)


def test_bytes_that_answer_nothing_are_refused() -> None:
    exchange = fixed()
    header, _ = asked(exchange.request(k01_fetch.API, 11, FETCH), k01_fetch.API)
    with pytest.raises(ProtocolError, match="3 bytes that answer nothing"):
        feed(exchange, answer_to(header, k01_fetch.API, fetched(100)) + b"any")


@pytest.mark.parametrize("size", [3, 4, 30])
def test_an_answer_that_is_cut_short_cannot_be_read(size: int) -> None:
    exchange = fixed()
    header, _ = asked(exchange.request(k01_fetch.API, 11, FETCH), k01_fetch.API)
    stream = answer_to(header, k01_fetch.API, fetched(100))
    with pytest.raises(MalformedError):
        feed(exchange, frames.frame(stream[4 : 4 + size]))
