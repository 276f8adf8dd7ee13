"""Answers that ordinary clients depend on without showing it: limits, waiting, epochs, sessions, topic ids."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from processes import DevCluster
from raw_client import FETCH, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH, RawClient, make_topic, produce

from headrace.broker.wire import batches


@pytest.fixture
def client(broker: DevCluster) -> Iterator[RawClient]:
    raw = RawClient(broker)
    yield raw
    raw.socket.close()


@pytest.fixture
def topic(client: RawClient) -> str:
    """A topic with ten batches of some 300 bytes each."""
    name = f"topic-{uuid4()}"
    make_topic(client, name)
    for i in range(10):
        assert produce(client, name, bytes([i]) * 230)["error_code"] == 0
    return name


def fetch(client: RawClient, topic: str, offset: int = 0, **fields: Any) -> dict[str, Any]:
    """One partition's answer, or the whole one when it has no partition; version 11."""
    partition = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": fields.pop("partition_max_bytes", 1_000_000),
        "current_leader_epoch": fields.pop("current_leader_epoch", -1),
    }
    message = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "topics": [{"topic": topic, "partitions": [partition]}],
        **fields,
    }
    answer = client.ask(FETCH, 11, message)
    return answer["responses"][0]["partitions"][0] if answer["responses"] else answer


def batch_count(records: memoryview) -> int:
    return sum(1 for _ in batches.iter_batches(records))


def test_a_fetch_ends_at_the_partitions_and_the_requests_bytes(client: RawClient, topic: str) -> None:
    size = len(fetch(client, topic)["records"]) // 10
    assert len(fetch(client, topic, partition_max_bytes=3 * size)["records"]) <= 3 * size
    assert batch_count(fetch(client, topic, partition_max_bytes=3 * size)["records"]) == 3
    assert batch_count(fetch(client, topic, max_bytes=2 * size)["records"]) == 2


def test_the_first_batch_comes_whole_even_when_it_is_larger_than_asked(client: RawClient, topic: str) -> None:
    assert batch_count(fetch(client, topic, partition_max_bytes=1)["records"]) == 1
    assert batch_count(fetch(client, topic, max_bytes=1)["records"]) == 1


def test_a_fetch_begins_at_the_batch_that_holds_its_offset(client: RawClient, topic: str) -> None:
    records = fetch(client, topic, offset=7)["records"]
    assert batches.read_header(records).base_offset == 7


@pytest.mark.parametrize("offset", [-1, 11, 10**15])
def test_an_offset_outside_the_log_is_an_error_at_once(client: RawClient, topic: str, offset: int) -> None:
    assert fetch(client, topic, offset=offset, max_wait_ms=60_000)["error_code"] == 1


def test_a_fetch_waits_for_its_minimum_no_longer_than_asked(client: RawClient, topic: str) -> None:
    began = time.monotonic()
    answer = fetch(client, topic, offset=8, min_bytes=100_000, max_wait_ms=300)
    assert time.monotonic() - began >= 0.3
    assert batch_count(answer["records"]) == 2


def test_a_fetch_that_waits_is_answered_once_its_minimum_is_there(
    broker: DevCluster, client: RawClient, topic: str
) -> None:
    size = len(fetch(client, topic, offset=9)["records"])
    producer = RawClient(broker)
    partition = {"partition": 0, "fetch_offset": 10, "partition_max_bytes": 1_000_000}
    message = {
        "max_wait_ms": 60_000,
        "min_bytes": 3 * size,
        "max_bytes": 1_000_000,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }
    client.send(client.request(FETCH, 11, message))
    for _ in range(3):
        assert produce(producer, topic, b"x" * 230)["error_code"] == 0
    producer.socket.close()
    _, answer = client.answer(FETCH, 11)
    assert batch_count(answer["responses"][0]["partitions"][0]["records"]) == 3


@pytest.mark.parametrize(("epoch", "code"), [(0, 0), (1, 75)])
def test_a_fetch_of_another_leader_epoch_is_refused(
    client: RawClient, topic: str, epoch: int, code: int
) -> None:
    assert fetch(client, topic, current_leader_epoch=epoch)["error_code"] == code


def test_a_fetch_session_answers_only_what_changed(client: RawClient, topic: str) -> None:
    partition = {"partition": 0, "fetch_offset": 10, "partition_max_bytes": 1000}
    message = {"max_wait_ms": 0, "min_bytes": 1, "topics": [{"topic": topic, "partitions": [partition]}]}
    full = client.ask(FETCH, 11, {**message, "session_id": 0, "session_epoch": 0})
    session = full["session_id"]
    assert (full["error_code"], session > 0, len(full["responses"])) == (0, True, 1)
    incremental = {"max_wait_ms": 0, "min_bytes": 1, "topics": [], "session_id": session}
    assert client.ask(FETCH, 11, {**incremental, "session_epoch": 1})["responses"] == []
    assert produce(client, topic, b"new")["error_code"] == 0
    changed = client.ask(FETCH, 11, {**incremental, "session_epoch": 2})
    assert (changed["error_code"], changed["session_id"]) == (0, session)
    assert batch_count(changed["responses"][0]["partitions"][0]["records"]) == 1
    late = client.ask(FETCH, 11, {**incremental, "session_epoch": 2})
    assert (late["error_code"], late["session_id"], late["responses"]) == (71, 0, [])
    forgotten = [{"topic": topic, "partitions": [0]}]
    ended = client.ask(FETCH, 11, {**incremental, "session_epoch": 3, "forgotten_topics_data": forgotten})
    assert (ended["error_code"], ended["session_id"]) == (0, 0)
    gone = client.ask(FETCH, 11, {**incremental, "session_epoch": 4})
    assert (gone["error_code"], gone["responses"]) == (70, [])


def test_an_incremental_fetch_waits_for_news(broker: DevCluster, client: RawClient, topic: str) -> None:
    partition = {"partition": 0, "fetch_offset": 10, "partition_max_bytes": 1000}
    message = {"max_wait_ms": 60_000, "min_bytes": 1, "topics": [{"topic": topic, "partitions": [partition]}]}
    session = client.ask(FETCH, 11, {**message, "max_wait_ms": 0, "session_id": 0, "session_epoch": 0})
    waiting = {**message, "topics": [], "session_id": session["session_id"], "session_epoch": 1}
    client.send(client.request(FETCH, 11, waiting))
    producer = RawClient(broker)
    assert produce(producer, topic, b"new")["error_code"] == 0
    producer.socket.close()
    _, answer = client.answer(FETCH, 11)
    assert batch_count(answer["responses"][0]["partitions"][0]["records"]) == 1


def test_partitions_that_do_not_exist_neither_hold_up_nor_hasten_a_fetch(
    client: RawClient, topic: str
) -> None:
    partitions = [{"partition": p, "fetch_offset": 10, "partition_max_bytes": 1000} for p in (77, 0)]
    message = {"min_bytes": 1, "topics": [{"topic": topic, "partitions": partitions}], "max_wait_ms": 300}
    began = time.monotonic()
    found = client.ask(FETCH, 11, message)["responses"]
    assert time.monotonic() - began >= 0.3
    answered = [(p["partition_index"], p["error_code"]) for t in found for p in t["partitions"]]
    assert answered == [(0, 0), (77, 3)]
    message["topics"] = [{"topic": topic, "partitions": partitions[:1]}]
    alone = client.ask(FETCH, 11, {**message, "max_wait_ms": 60_000})["responses"]
    assert alone[0]["partitions"][0]["error_code"] == 3


def test_a_client_that_read_another_log_is_told_where_they_part(client: RawClient, topic: str) -> None:
    topic_id = client.ask(METADATA, 12, {"topics": [{"name": topic}]})["topics"][0]["topic_id"]

    def ask(offset: int, epoch: int) -> dict[str, Any]:
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
        topics = [{"topic_id": topic_id, "partitions": [{**partition, "last_fetched_epoch": epoch}]}]
        answer = client.ask(FETCH, 16, {"max_wait_ms": 60_000, "min_bytes": 1, "topics": topics})
        found: dict[str, Any] = answer["responses"][0]["partitions"][0]
        return found

    assert len(ask(3, 0)["records"]) > 0
    beyond = ask(1000, 0)
    assert (beyond["error_code"], beyond["diverging_epoch"]) == (0, {"epoch": 0, "end_offset": 10})
    assert ask(3, 5)["error_code"] == 1


def test_more_bytes_asked_than_allowed_do_not_hold_up_a_fetch(client: RawClient, topic: str) -> None:
    answer = fetch(client, topic, max_bytes=500, min_bytes=1_000_000, max_wait_ms=60_000)
    assert batch_count(answer["records"]) == 1


def test_an_unknown_topic_id_is_named_so(client: RawClient) -> None:
    topic_id = UUID(int=12345)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic_id": topic_id, "partitions": [partition]}]
    answer = client.ask(FETCH, 13, {"max_wait_ms": 60_000, "min_bytes": 1, "topics": topics})
    assert answer["responses"][0]["partitions"][0]["error_code"] == 100
    metadata = client.ask(METADATA, 12, {"topics": [{"topic_id": topic_id, "name": None}]})
    assert metadata["topics"][0]["error_code"] == 100


def test_topic_ids_lead_to_names_and_back(client: RawClient, topic: str) -> None:
    by_name = client.ask(METADATA, 12, {"topics": [{"name": topic}]})["topics"][0]
    by_id = client.ask(METADATA, 12, {"topics": [{"topic_id": by_name["topic_id"], "name": None}]})["topics"][
        0
    ]
    assert by_id["name"] == topic
    assert by_id == by_name


def test_an_illegal_topic_name_is_refused_and_an_unknown_one_not_created_unasked(client: RawClient) -> None:
    asked = [{"name": "no spaces allowed"}, {"name": "not.created"}]
    for _ in range(3):
        topics = client.ask(METADATA, 12, {"topics": asked, "allow_auto_topic_creation": False})["topics"]
        assert [topic["error_code"] for topic in topics] == [17, 3]


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 10), (-2, 0), (-3, 0), (-4, 0), (10**15, -1)])
def test_offsets_are_listed_by_every_special_time(
    client: RawClient, topic: str, timestamp: int, offset: int
) -> None:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    message = {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]}
    found = client.ask(LIST_OFFSETS, 9, message)["topics"][0]["partitions"][0]
    assert (found["error_code"], found["offset"]) == (0, offset)


def test_a_leader_epoch_ends_where_the_log_ends(client: RawClient, topic: str) -> None:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    message = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
    found = client.ask(OFFSET_FOR_LEADER_EPOCH, 4, message)["topics"][0]["partitions"][0]
    assert (found["error_code"], found["leader_epoch"], found["end_offset"]) == (0, 0, 10)
