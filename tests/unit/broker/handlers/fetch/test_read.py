"""The hand-written reading of Fetch requests agrees with the codec, whatever the request."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.broker.handlers.fetch.read import _from_message, read_fetch
from headrace.broker.handlers.fetch_request import FetchPartition, FetchTopic
from headrace.broker.wire.api.k01_fetch import API
from headrace.broker.wire.fields import MalformedError

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
versions = st.integers(4, 17)


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    version = draw(versions)

    def partition() -> dict[str, Any]:
        fields: dict[str, Any] = {
            "partition": draw(int32),
            "fetch_offset": draw(int64),
            "partition_max_bytes": draw(int32),
        }
        if version >= 5:
            fields["log_start_offset"] = draw(int64)
        if version >= 12:
            fields["last_fetched_epoch"] = draw(int32)
        if version >= 9:
            fields["current_leader_epoch"] = draw(int32)
        if version >= 17 and draw(st.booleans()):
            fields["replica_directory_id"] = draw(st.uuids())
        return fields

    def topic() -> dict[str, Any]:
        partitions = [partition() for _ in range(draw(st.integers(0, 3)))]
        if version >= 13:
            return {"topic_id": UUID(int=draw(st.integers(1, 2**128 - 1))), "partitions": partitions}
        return {"topic": draw(st.text(min_size=1, max_size=300)), "partitions": partitions}

    message: dict[str, Any] = {
        "max_wait_ms": draw(int32),
        "min_bytes": draw(int32),
        "max_bytes": draw(int32),
        "isolation_level": draw(st.integers(0, 1)),
        "topics": [topic() for _ in range(draw(st.integers(0, 3)))],
    }
    if version >= 7:
        message |= {"session_id": draw(int32), "session_epoch": draw(int32)}
    if version < 15:
        message["replica_id"] = draw(st.integers(-1, 5))
    elif draw(st.booleans()):
        message["replica_state"] = {"replica_id": draw(st.integers(0, 5)), "replica_epoch": draw(int64)}
    if version >= 11:
        message["rack_id"] = draw(st.text(max_size=5))
    return version, message


@given(requests())
def test_both_readings_agree(request: tuple[int, dict[str, Any]]) -> None:
    version, message = request
    data = bytes(7) + API.encode_request(version, message)
    assert read_fetch(version, memoryview(data), 7) == _from_message(
        version, API.decode_request(version, data, 7)
    )


@given(requests(), st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), min_size=1, max_size=3))
def test_damaged_requests_are_malformed_or_read_as_the_codec_reads_them(
    request: tuple[int, dict[str, Any]], flips: list[tuple[int, int]]
) -> None:
    version, message = request
    data = bytearray(API.encode_request(version, message))
    for place, bits in flips:
        data[place % len(data)] ^= bits
    try:
        expected = _from_message(version, API.decode_request(version, data))
    except MalformedError:
        expected = None
    try:
        found = read_fetch(version, memoryview(data), 0)
    except MalformedError:
        found = None
    # What only the tail that has no meaning here makes malformed may be read all the same.
    if expected is not None:
        event("the codec reads it")
        assert found is not None
        # Below zero is no broker, whatever the number.
        assert found._replace(replica_id=max(found.replica_id, -1)) == expected


@pytest.mark.parametrize("version", range(12, 18))
def test_a_consumer_may_want_headers_alone_and_a_follower_may_not(version: int) -> None:
    for replica_id in (-1, 2):
        replica = (
            {"replica_id": replica_id} if version < 15 else {"replica_state": {"replica_id": replica_id}}
        )
        for wants in (False, True):
            message: dict[str, Any] = {
                "topics": [],
                "forgotten_topics_data": [],
                "rack_id": "",
                "wants_batch_headers": wants,
            }
            data = API.encode_request(version, {"max_wait_ms": 1, "min_bytes": 1, **message, **replica})
            assert read_fetch(version, memoryview(data), 0).wants_headers is (wants and replica_id < 0)


@pytest.mark.parametrize("version", range(12, 18))
def test_a_followers_request_is_read_by_hand_whole(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = {
        "partition": 3,
        "current_leader_epoch": 6,
        "fetch_offset": 10,
        "last_fetched_epoch": 5,
        "log_start_offset": 4,
        "partition_max_bytes": 1000,
    }
    name: dict[str, Any] = {"topic": "pageviews"} if version < 13 else {"topic_id": UUID(int=9)}
    replica = {"replica_id": 2} if version < 15 else {"replica_state": {"replica_id": 2, "replica_epoch": 77}}
    message = {"max_wait_ms": 1, "min_bytes": 1, "topics": [{**name, "partitions": [partition]}], **replica}
    data = API.encode_request(version, message)
    monkeypatch.setattr("headrace.broker.handlers.fetch.read._from_message", None)
    request = read_fetch(version, memoryview(data), 0)
    assert (request.is_follower, request.replica_id) == (True, 2)
    assert request.replica_epoch == (77 if version >= 15 else -1)
    assert request.topics[0].partitions == [FetchPartition(3, 6, 10, 1000, 5, 4)]


@pytest.mark.parametrize("version", [9, 11, 12, 16])
def test_a_request_cut_anywhere_is_never_read_past_its_end(version: int) -> None:
    partition = {"partition": 3, "fetch_offset": 10, "partition_max_bytes": 1000}
    name: dict[str, Any] = {"topic": "pageviews"} if version < 13 else {"topic_id": UUID(int=9)}
    message = {"max_wait_ms": 1, "min_bytes": 1, "topics": [{**name, "partitions": [partition]}]}
    data = API.encode_request(version, message)
    whole = read_fetch(version, memoryview(data), 0)
    key = b"pageviews" if version < 13 else UUID(int=9).bytes
    assert whole.topics == [
        FetchTopic(
            name.get("topic"),
            name.get("topic_id"),
            key,
            [FetchPartition(3, -1, 10, 1000, -1, -1)],
        )
    ]
    for size in range(len(data) - 12):
        with pytest.raises(MalformedError):
            read_fetch(version, memoryview(data)[:size], 0)
