"""Requests read by hand: the same as by the codec, and left to it where anything is odd."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.handlers.produce.read import HEAD_SIZE_MAX, ITEMS_MAX, Request, read, read_single
from headrace.broker.wire import frames
from headrace.broker.wire.api.k00_produce import API
from headrace.broker.wire.fields import MalformedError

VERSIONS = range(12)
names = st.text(max_size=200)
records = st.none() | st.binary(max_size=300)
partitions = st.fixed_dictionaries({"index": st.integers(-1, 70_000), "records": records})
topics = st.fixed_dictionaries({"name": names, "partition_data": st.lists(partitions, max_size=3)})
messages = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | st.just("t"),
        "acks": st.sampled_from((-1, 0, 1, 2)),
        "timeout_ms": st.integers(0, 100_000),
        "topic_data": st.lists(topics, max_size=3),
    }
)


def frame_of(version: int, message: dict[str, Any], client_id: str | None = "unit") -> memoryview:
    sent = dict(message) if version >= 3 else {**message, "transactional_id": None}
    header = frames.encode_request_header(0, version, 77, client_id)
    return memoryview(bytearray(header + API.encode_request(version, sent)))


def by_codec(version: int, frame: memoryview) -> Request | None:
    """None where the codec finds nothing to read."""
    try:
        message = API.decode_request(version, frame, frames.read_request_header(frame).body_offset)
    except MalformedError:
        return None
    items = [
        (topic["name"], partition["index"], partition["records"])
        for topic in message["topic_data"]
        for partition in topic["partition_data"]
    ]
    return Request(message["acks"], message["timeout_ms"], items, message.get("transactional_id"))


def by_hand(frame: memoryview) -> Request | None:
    try:
        return read(frames.read_request_header(frame), frame)
    except MalformedError:
        return None


@given(st.sampled_from(VERSIONS), messages, st.sampled_from(("unit", "", None, "ä" * 200)))
def test_any_request_is_read_as_by_the_codec(
    version: int, message: dict[str, Any], client_id: str | None
) -> None:
    frame = frame_of(version, message, client_id)
    assert by_hand(frame) == by_codec(version, frame)
    single = read_single(version, frame)
    if single is not None:
        correlation_id, head, found = single
        item = (head.topic, head.partition_index, found)
        assert correlation_id == 77
        assert Request(head.acks, head.timeout_ms, [item]) == by_codec(version, frame)


@given(st.sampled_from(VERSIONS), messages, st.data())
def test_a_damaged_request_is_read_as_by_the_codec(
    version: int, message: dict[str, Any], data: st.DataObject
) -> None:
    frame = frame_of(version, message)
    for _ in range(data.draw(st.integers(1, 2))):
        frame[data.draw(st.integers(14, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(15, len(frame)))] if data.draw(st.booleans()) else frame
    assert by_hand(frame) == by_codec(version, frame)
    single = read_single(version, frame)
    if single is not None:
        _, head, found = single
        item = (head.topic, head.partition_index, found)
        assert Request(head.acks, head.timeout_ms, [item]) == by_codec(version, frame)


@pytest.mark.parametrize("version", range(3, 12))
def test_an_ordinary_request_of_one_item_has_a_head_that_others_share(version: int) -> None:
    def head(index: int, data: bytes) -> Any:
        partition = {"index": index, "records": data}
        topic = {"name": "events", "partition_data": [partition]}
        message = {"acks": 1, "timeout_ms": 5, "topic_data": [topic]}
        single = read_single(version, frame_of(version, message))
        assert single is not None
        assert single[2] == data
        return single[1]

    assert head(3, b"one") is head(3, b"another" * 50)
    assert head(3, b"one") is not head(4, b"one")


@pytest.mark.parametrize("version", [8, 9])
def test_what_is_large_is_read_all_the_same(version: int) -> None:
    name = "n" * (HEAD_SIZE_MAX + 1)
    topic = {"name": name, "partition_data": [{"index": 1, "records": b"r"}]}
    frame = frame_of(version, {"acks": 1, "timeout_ms": 5, "topic_data": [topic]})
    assert by_hand(frame) == Request(1, 5, [(name, 1, memoryview(b"r"))])
    topic["partition_data"] = [{"index": n, "records": b""} for n in range(ITEMS_MAX + 1)]
    frame = frame_of(version, {"acks": 1, "timeout_ms": 5, "topic_data": [topic]})
    found = by_hand(frame)
    assert found == by_codec(version, frame)
    assert found is not None
    assert len(found.items) == ITEMS_MAX + 1
