"""A request may not unfold to many times its size: the elements of its arrays are counted, nested ones too."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.broker.handlers.fetch import read
from headrace.broker.wire import schema
from headrace.broker.wire.api import APIS
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.frames import encode_request_header, read_request_header

METADATA, OFFSET_FETCH, FETCH, UPDATE_METADATA = 3, 9, 1, 6


@pytest.fixture(autouse=True)
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "REQUEST_ELEMENTS_COUNT_MAX", 10)


def offsets_of(topics: Sequence[int]) -> bytes:
    """An OffsetFetch of as many topics, each with so many partitions."""
    wanted = [{"name": "t", "partition_indexes": list(range(count))} for count in topics]
    return APIS[OFFSET_FETCH].encode_request(5, {"group_id": "g", "topics": wanted})


@pytest.mark.parametrize("topics", [[4, 4], [9], [0] * 10])
def test_as_many_elements_as_allowed_are_read(topics: list[int]) -> None:
    found = APIS[OFFSET_FETCH].decode_request(5, offsets_of(topics))
    assert [len(topic["partition_indexes"]) for topic in found["topics"]] == topics


@pytest.mark.parametrize("topics", [[4, 5], [10], [0] * 11])
def test_one_more_is_malformed(topics: list[int]) -> None:
    with pytest.raises(MalformedError, match="too many elements"):
        APIS[OFFSET_FETCH].decode_request(5, offsets_of(topics))


def test_the_controller_may_tell_of_more_at_once() -> None:
    topics = [{"topic_name": f"t{number}", "partition_states": []} for number in range(20)]
    data = APIS[UPDATE_METADATA].encode_request(6, {"topic_states": topics, "live_brokers": []})
    assert len(APIS[UPDATE_METADATA].decode_request(6, data)["topic_states"]) == 20


def test_every_request_begins_anew() -> None:
    for _ in range(3):
        APIS[OFFSET_FETCH].decode_request(5, offsets_of([9]))


def test_answers_of_others_are_not_bounded() -> None:
    brokers = [{"node_id": n, "host": "h", "port": 1} for n in range(20)]
    data = APIS[METADATA].encode_response(0, {"brokers": brokers, "topics": []})
    assert len(APIS[METADATA].decode_response(0, data)["brokers"]) == 20


@pytest.mark.parametrize("version", [9, 12])
def test_a_large_fetch_is_counted_like_the_others(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1} for n in range(20)]
    message = {"max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": "t", "partitions": partitions}]}
    frame = memoryview(APIS[FETCH].encode_request(version, message))
    assert len(read.read_fetch(version, frame, 0).topics[0].partitions) == 20
    monkeypatch.setattr(read, "BY_HAND_SIZE_MAX", len(frame) - 1)
    with pytest.raises(MalformedError, match="too many elements"):
        read.read_fetch(version, frame, 0)


@pytest.mark.parametrize("count", [10, 11])
def test_tagged_fields_count_as_elements_do(count: int) -> None:
    body = bytes([1, 1, 0, count]) + bytes([99, 0]) * count
    if count <= 10:
        assert APIS[METADATA].decode_request(12, body)["topics"] == []
    else:
        with pytest.raises(MalformedError, match="too many"):
            APIS[METADATA].decode_request(12, body)


@pytest.mark.parametrize("count", [100, 101])
def test_tagged_fields_of_a_header_are_few(count: int) -> None:
    header = encode_request_header(METADATA, 12, 7, "c")[:-1] + bytes([count]) + bytes([99, 0]) * count
    if count <= 100:
        assert read_request_header(header).body_offset == len(header)
    else:
        with pytest.raises(MalformedError, match="too many"):
            read_request_header(header)
