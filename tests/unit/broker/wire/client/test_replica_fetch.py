"""What followers write and read by hand, against the tables of `wire.api`."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from headrace.broker.errors import UnsupportedVersionError
from headrace.broker.wire.api.k01_fetch import API
from headrace.broker.wire.client.replica_fetch import (
    REPLICA_FETCH,
    DivergingEpoch,
    FetchedPartition,
    FetchQuestion,
    ReplicaFetchAnswer,
    ReplicaFetchRequest,
    WireKey,
)
from headrace.broker.wire.fields import MalformedError, Message
from headrace.broker.wire.special_values import READ_COMMITTED, READ_UNCOMMITTED

VERSIONS = range(12, 18)
EVENTS, CLICKS = UUID(int=7), UUID(int=2**100)


def key(version: int, topic: UUID, index: int) -> WireKey:
    return (topic.bytes if version >= 13 else f"t{topic.int % 9}".encode(), index)


def request(version: int) -> ReplicaFetchRequest:
    return ReplicaFetchRequest(
        replica_id=3,
        broker_epoch=2**40,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10_000_000,
        partition_max_bytes=1_000_000,
        session_id=77,
        session_epoch=5,
        asked=[
            (key(version, EVENTS, 0), FetchQuestion(4, 2**33, 3, 100)),
            (key(version, CLICKS, 1), FetchQuestion(0, 0, -1, 0)),
            (key(version, EVENTS, 2), FetchQuestion(9, 8, 7, 6)),
        ],
        forgotten=[(key(version, CLICKS, 8)), (key(version, CLICKS, 9))],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_what_the_table_of_fetch_reads(version: int) -> None:
    read = API.decode_request(version, REPLICA_FETCH.encode_request(version, request(version)))
    state = (
        read["replica_state"] if version >= 15 else {"replica_id": read["replica_id"], "replica_epoch": None}
    )
    assert state["replica_id"] == 3
    assert state["replica_epoch"] == (2**40 if version >= 15 else None)
    head = (read["max_wait_ms"], read["min_bytes"], read["max_bytes"], read["isolation_level"])
    assert head == (500, 1, 10_000_000, READ_UNCOMMITTED)
    committed = request(version)._replace(isolation_level=READ_COMMITTED)
    read_again = API.decode_request(version, REPLICA_FETCH.encode_request(version, committed))
    assert read_again == {**read, "isolation_level": READ_COMMITTED}
    assert (read["session_id"], read["session_epoch"], read["rack_id"]) == (77, 5, "")
    asked = [
        (
            _named(version, topic, p["partition"]),
            p["current_leader_epoch"],
            p["fetch_offset"],
            p["last_fetched_epoch"],
            p["log_start_offset"],
            p["partition_max_bytes"],
        )
        for topic in read["topics"]
        for p in topic["partitions"]
    ]
    expected = [(wire_key, *question, 1_000_000) for wire_key, question in request(version).asked]
    assert sorted(asked) == sorted(expected)
    forgotten = [
        _named(version, topic, p) for topic in read["forgotten_topics_data"] for p in topic["partitions"]
    ]
    assert forgotten == list(request(version).forgotten)


def _named(version: int, topic: Message, index: int) -> WireKey:
    return (topic["topic_id"].bytes if version >= 13 else topic["topic"].encode(), index)


def test_other_versions_than_followers_have_are_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="12 to 17, not 11"):
        REPLICA_FETCH.encode_request(11, request(12))


def answer(version: int) -> Message:
    def partition(index: int, **changed: object) -> Message:
        return {
            "partition_index": index,
            "error_code": 0,
            "high_watermark": 40 + index,
            "last_stable_offset": 40,
            "log_start_offset": index,
            "diverging_epoch": {"epoch": -1, "end_offset": -1},
            "current_leader": {"leader_id": -1, "leader_epoch": -1},
            "snapshot_id": {"end_offset": -1, "epoch": -1},
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": None,
        } | changed

    def topic(topic_id: UUID, *partitions: Message) -> Message:
        name = f"t{topic_id.int % 9}"
        named = {"topic_id": topic_id} if version >= 13 else {"topic": name}
        return {**named, "partitions": list(partitions)}

    return {
        "throttle_time_ms": 9,
        "error_code": 0,
        "session_id": 77,
        "responses": [
            topic(
                EVENTS,
                partition(0, records=b"r" * 300),
                partition(1, diverging_epoch={"epoch": 3, "end_offset": 11}, records=b""),
            ),
            topic(
                CLICKS,
                partition(5, error_code=6, current_leader={"leader_id": 2, "leader_epoch": 8}),
                partition(6, aborted_transactions=[{"producer_id": 1, "first_offset": 2}], records=b"xyz"),
            ),
        ],
        "node_endpoints": [{"node_id": 2, "host": "h", "port": 1, "rack": None}] if version >= 16 else [],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_the_table_of_fetch_wrote_is_read(version: int) -> None:
    written = API.encode_response(version, answer(version))
    read = REPLICA_FETCH.decode_response(version, memoryview(b"head" + written), 4)
    assert read == ReplicaFetchAnswer(
        0,
        77,
        [
            (key(version, EVENTS, 0), FetchedPartition(0, 40, 0, None, memoryview(b"r" * 300), 40)),
            (key(version, EVENTS, 1), FetchedPartition(0, 41, 1, DivergingEpoch(3, 11), memoryview(b""), 40)),
            (key(version, CLICKS, 5), FetchedPartition(6, 45, 5, None, None, 40)),
            (key(version, CLICKS, 6), FetchedPartition(0, 46, 6, None, memoryview(b"xyz"), 40)),
        ],
    )


@pytest.mark.parametrize("version", [12, 17])
def test_a_broken_answer_is_malformed_and_nothing_else(version: int) -> None:
    written = API.encode_response(version, answer(version))
    for size in range(len(written)):
        with pytest.raises(MalformedError):
            REPLICA_FETCH.decode_response(version, memoryview(written[:size]))
    source = random.Random(version)
    for _ in range(3_000):
        broken = bytearray(written)
        for _ in range(source.randint(1, 4)):
            broken[source.randrange(len(broken))] = source.randrange(256)
        try:
            read = REPLICA_FETCH.decode_response(version, memoryview(broken))
        except MalformedError:
            continue
        assert sum(len(found.records or b"") for _, found in read.partitions) <= len(broken)
