"""Fetch answers, as every version writes them and the codec reads them: errors, leaders, absent partitions."""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from calls import call_of
from log_kit import batch

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from headrace.broker.handlers import throttle
from headrace.broker.handlers.fetch import handler
from headrace.broker.handlers.fetch.batch_headers import HEADERS_COUNT_MAX
from headrace.broker.handlers.fetch_sessions import FetchSessions
from headrace.broker.log.files import storage_errors
from headrace.broker.log.results import NOTHING_YET, EpochEndOffset, LogSlice
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.quotas.usage import unlimited
from headrace.broker.waiting.parking import Waiting
from headrace.broker.wire import frames
from headrace.broker.wire.api.k01_fetch import API
from headrace.broker.wire.batches import HEADER_SIZE

VERSIONS = range(*(handler.VERSIONS[0], handler.VERSIONS[1] + 1))
TOPIC_ID = UUID(int=77)
LED, MOVED, ABSENT = 0, 1, 2


class FakeLog:
    high_watermark, last_stable_offset, log_start_offset, log_end_offset = 9, 8, 3, 10
    config = LogConfig()

    def read(self, offset: int, **_: Any) -> LogSlice:
        return NOTHING_YET

    def check_offset(self, offset: int) -> None: ...

    def aborted_transactions(self, offset: int, found: LogSlice) -> list[AbortedTransaction]:
        return []

    def storage_errors(self) -> AbstractContextManager[None]:
        return storage_errors(SimpleNamespace(failed=lambda path, error: None), "t-0")

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        return EpochEndOffset(4, 6)


def replica(topic: str, index: int) -> Any:
    if index == MOVED:
        raise NotLeaderOrFollowerError
    if index == ABSENT:
        raise UnknownTopicOrPartitionError
    return SimpleNamespace(log=FakeLog(), leader_epoch=5, topic_id=TOPIC_ID, is_leader=True)


def held(topic: str, index: int) -> Any:
    return SimpleNamespace(log=FakeLog()) if index == LED else None


def partition_of(topic: str, index: int) -> Any:
    return None if index == ABSENT else SimpleNamespace(leader=7, leader_epoch=6)


def endpoint_of(broker_id: int, listener: str) -> Any:
    return SimpleNamespace(host="seven", port=9092) if (broker_id, listener) == (7, "INSIDE") else None


@pytest.fixture
def broker() -> Any:
    return SimpleNamespace(
        partitions=SimpleNamespace(replica=replica, get=held),
        metadata=SimpleNamespace(
            partition=partition_of,
            endpoint=endpoint_of,
            topic_name=lambda topic_id: "t",
            brokers={7: SimpleNamespace(rack="r")},
        ),
        config=SimpleNamespace(
            replication=SimpleNamespace(fetch_max_bytes=1000, replica_selector_class=None)
        ),
        metrics=SimpleNamespace(
            fetched=lambda topic, size: None, failed=lambda *_: None, throttled=lambda *_: None
        ),
        client_usage=unlimited(),
        authorizer=None,
        now=lambda: 0.0,
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        fetch_sessions=FetchSessions(1, Waiting(SimpleNamespace())),
    )


def ask(broker: Any, version: int, *partitions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    key: dict[str, Any] = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "t"}
    message = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "topics": [
            {**key, "partitions": [{"fetch_offset": 3, "partition_max_bytes": 100, **p} for p in partitions]}
        ],
        **fields,
    }
    frame = frames.encode_request_header(1, version, 5, "c") + API.encode_request(version, message)
    parts = handler.handle(broker, call_of(frame), memoryview(frame))
    assert isinstance(parts, list)
    reply = b"".join(part.read() if isinstance(part, LogSlice) else part for part in parts)
    assert int.from_bytes(reply[:4], "big") == len(reply) - 4
    correlation_id, offset = frames.read_response_header(1, version, reply[4:])
    assert correlation_id == 5
    return API.decode_response(version, reply[4:], offset)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_answers_every_partition(broker: Any, version: int) -> None:
    answer = ask(broker, version, {"partition": ABSENT}, {"partition": LED}, {"partition": MOVED})
    (topic,) = answer["responses"]
    found = [(p["partition_index"], p["error_code"], p["high_watermark"]) for p in topic["partitions"]]
    assert found == [(LED, 0, 9), (MOVED, 6, -1), (ABSENT, 3, -1)]
    expected: list[object] = [None, None, []] if version >= 4 else [[], [], []]
    assert [p["aborted_transactions"] for p in topic["partitions"]] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_the_leader_is_named_from_version_16(broker: Any, version: int) -> None:
    answer = ask(broker, version, {"partition": MOVED}, {"partition": LED})
    moved, led = answer["responses"][0]["partitions"]
    unknown = {"leader_id": -1, "leader_epoch": -1}
    known = {"leader_id": 7, "leader_epoch": 6} if version >= 16 else unknown
    assert (moved["current_leader"], led["current_leader"]) == (known, unknown)
    nodes = [{"node_id": 7, "host": "seven", "port": 9092, "rack": "r"}] if version >= 16 else []
    assert answer["node_endpoints"] == nodes


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 12])
def test_a_log_of_another_topic_of_that_name_is_not_read(broker: Any, version: int) -> None:
    namesake = UUID(int=99)
    broker.partitions.replica = lambda topic, index: SimpleNamespace(
        log=FakeLog(), leader_epoch=5, topic_id=namesake, is_leader=True
    )
    (found,) = ask(broker, version, {"partition": LED})["responses"][0]["partitions"]
    expected = ErrorCode.INCONSISTENT_TOPIC_ID if version >= 13 else ErrorCode.NONE
    assert found["error_code"] == expected
    namesake = UUID(int=0)
    (found,) = ask(broker, version, {"partition": LED})["responses"][0]["partitions"]
    assert found["error_code"] == ErrorCode.NONE, "a topic without an id may have any"


@pytest.mark.parametrize("version", [v for v in VERSIONS if v < 4])
def test_a_disk_that_fails_under_a_conversion_is_told_as_such(
    broker: Any, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_at(size: int, position: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    broken = LogSlice(SimpleNamespace(read_at=read_at), 0, 100)
    monkeypatch.setattr(FakeLog, "read", lambda *_, **__: broken)
    (found,) = ask(broker, version, {"partition": LED})["responses"][0]["partitions"]
    assert found["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 12])
def test_a_diverging_epoch_is_told(broker: Any, version: int) -> None:
    answer = ask(broker, version, {"partition": LED, "fetch_offset": 7, "last_fetched_epoch": 5})
    found = answer["responses"][0]["partitions"][0]
    assert found["diverging_epoch"] == {"epoch": 4, "end_offset": 6}
    assert found["error_code"] == 0


@pytest.mark.parametrize(("records", "expected"), [(NOTHING_YET, []), (LogSlice(None, 0, 0), None)])
def test_read_committed_names_no_aborted_transactions_where_the_first_batch_does_not_fit(
    broker: Any, monkeypatch: pytest.MonkeyPatch, records: LogSlice, expected: list[Any] | None
) -> None:
    monkeypatch.setattr(FakeLog, "read", lambda self, offset, **_: records)
    answer = ask(broker, 11, {"partition": LED}, isolation_level=1)
    assert answer["responses"][0]["partitions"][0]["aborted_transactions"] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_does_not_convert_refuses_old_versions(
    broker: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(FakeLog, "config", LogConfig(message_downconversion_enable=False))
    found = ask(broker, version, {"partition": LED})["responses"][0]["partitions"][0]
    if version < 4:
        assert (found["error_code"], found["high_watermark"], found["records"]) == (35, -1, None)
    else:
        assert (found["error_code"], found["high_watermark"]) == (0, 9)


def test_a_topic_that_does_not_convert_refuses_old_versions_after_the_wait(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = []

    def park(keys: Any, timeout_ms: int, attempt: Any, *, for_end: bool) -> Any:
        waits.append(timeout_ms)
        assert attempt({("t", LED)}) is None
        return attempt(None)

    broker.waiting = SimpleNamespace(park=park)
    monkeypatch.setattr(FakeLog, "config", LogConfig(message_downconversion_enable=False))
    found = ask(broker, 3, {"partition": LED}, max_wait_ms=70)["responses"][0]["partitions"][0]
    assert (waits, found["error_code"]) == ([70], ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("count", [1, 2, 130])
@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 4])
def test_aborted_transactions_come_with_their_producers(
    broker: Any, monkeypatch: pytest.MonkeyPatch, version: int, count: int
) -> None:
    aborted = [AbortedTransaction(10 + n, 3 + n, 9 + n, 4) for n in range(count)]
    records = LogSlice(SimpleNamespace(read_at=lambda size, position: b"records"), 0, 7)
    monkeypatch.setattr(FakeLog, "read", lambda self, offset, **_: records)
    monkeypatch.setattr(FakeLog, "aborted_transactions", lambda self, offset, found: aborted)
    told = {"partition": LED}
    for isolation_level, expected in ((0, None), (1, aborted)):
        answer = ask(broker, version, told, isolation_level=isolation_level)
        found = answer["responses"][0]["partitions"][0]
        assert bytes(found["records"]) == b"records"
        assert (found["last_stable_offset"], found["log_start_offset"]) == (8, 3 if version >= 5 else -1)
        told_of = found["aborted_transactions"]
        assert (told_of is None) is (expected is None)
        if expected is not None:
            assert [(a["producer_id"], a["first_offset"]) for a in told_of] == [a[:2] for a in expected]


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 11])
@pytest.mark.parametrize("is_batch", [True, False])
def test_headers_alone_come_from_version_12_where_there_are_batches(
    broker: Any, monkeypatch: pytest.MonkeyPatch, version: int, is_batch: bool
) -> None:
    content = bytes(batch(2)) if is_batch else bytes(70)
    aborted = AbortedTransaction(10, 3, 9, 4)
    file = SimpleNamespace(read_at=lambda size, position: content[position : position + size])
    monkeypatch.setattr(FakeLog, "read", lambda *_, **__: LogSlice(file, 0, len(content)))
    monkeypatch.setattr(FakeLog, "aborted_transactions", lambda *_: [aborted])
    wanted = {"wants_batch_headers": True} if version >= 12 else {}
    answer = ask(broker, version, {"partition": LED}, {"partition": LED}, isolation_level=1, **wanted)
    is_headers = is_batch and version >= 12
    for found in answer["responses"][0]["partitions"]:
        assert found["is_batch_headers"] is is_headers
        assert bytes(found["records"]) == (content[:HEADER_SIZE] if is_headers else content)
        assert [item["first_offset"] for item in found["aborted_transactions"]] == [3]


def test_headers_of_all_partitions_together_have_a_bound(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(batch(1)) * HEADERS_COUNT_MAX
    file = SimpleNamespace(read_at=lambda size, position: content[position : position + size])
    monkeypatch.setattr(FakeLog, "read", lambda *_, **__: LogSlice(file, 0, len(content)))
    broker.config.replication.fetch_max_bytes = len(content) * 3
    asked = [
        {"partition": LED, "partition_max_bytes": size} for size in (HEADER_SIZE * 700, 1 << 20, 1 << 20)
    ]
    answer = ask(broker, 12, *asked, max_bytes=1 << 30, wants_batch_headers=True)
    counts = [len(found["records"]) / HEADER_SIZE for found in answer["responses"][0]["partitions"]]
    assert counts == [700, HEADERS_COUNT_MAX - 700, 0]


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 7])
def test_a_session_is_granted_and_its_errors_are_told(broker: Any, version: int) -> None:
    answer = ask(broker, version, {"partition": LED}, session_id=0, session_epoch=0)
    number = answer["session_id"]
    assert number > 0
    quiet = ask(broker, version, session_id=number, session_epoch=1, topics=[])
    assert (quiet["error_code"], quiet["session_id"], quiet["responses"]) == (0, number, [])
    late = ask(broker, version, session_id=number, session_epoch=1, topics=[])
    assert (late["error_code"], late["session_id"], late["responses"]) == (71, 0, [])


def limit(broker: Any, bytes_a_second: float | None) -> None:
    broker.client_usage.set_limits(
        ("ANONYMOUS", ""), produced=None, fetched=bytes_a_second, requests=None, mutations=None
    )


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 7])
def test_above_its_quota_a_client_is_sent_nothing_and_loses_nothing(
    broker: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    records = LogSlice(SimpleNamespace(read_at=lambda size, position: bytes(2000)), 0, 2000)
    monkeypatch.setattr(FakeLog, "read", lambda self, offset, **_: records)
    asked = {"partition": LED, "partition_max_bytes": 10_000}
    number = ask(broker, version, asked, session_id=0, session_epoch=0)["session_id"]
    limit(broker, 100)
    held_back = ask(broker, version, asked, session_id=number, session_epoch=1)
    assert (held_back["error_code"], held_back["session_id"], held_back["responses"]) == (0, number, [])
    assert held_back["throttle_time_ms"] > 10_000
    limit(broker, None)
    let_go = ask(broker, version, session_id=number, session_epoch=2, topics=[])
    assert let_go["throttle_time_ms"] == 0
    assert len(let_go["responses"][0]["partitions"][0]["records"]) == 2000


def test_what_was_not_sent_counts_no_more_and_a_session_that_is_held_back_is_none(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = LogSlice(SimpleNamespace(read_at=lambda size, position: bytes(2000)), 0, 2000)
    monkeypatch.setattr(FakeLog, "read", lambda self, offset, **_: records)
    limit(broker, 100)
    told = [ask(broker, 12, {"partition": LED}, session_id=0, session_epoch=0) for _ in range(2)]
    assert [answer["session_id"] for answer in told] == [0, 0]
    assert told[0]["throttle_time_ms"] == told[1]["throttle_time_ms"] > 0


def test_a_follower_is_not_held_back(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(broker, 1)
    seen = []
    monkeypatch.setattr(throttle, "fetch_throttle_ms", lambda *_: seen.append(1))
    monkeypatch.setattr(throttle, "fetch_size_max", lambda *_: seen.append(1))
    monkeypatch.setattr(handler, "_count_replicated", lambda *_: None)
    ask(broker, 12, {"partition": ABSENT}, replica_id=1)
    assert not seen


def test_a_client_under_a_quota_is_read_for_no_more_than_it_may_fetch_at_once(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def read(self: Any, offset: int, *, size_max: int, **_: Any) -> LogSlice:
        sizes.append(size_max)
        return NOTHING_YET

    monkeypatch.setattr(FakeLog, "read", read)
    monkeypatch.setattr(throttle, "fetch_throttle_ms", lambda *_: 0)
    limit(broker, 5)
    ask(broker, 12, {"partition": LED, "partition_max_bytes": 1000})
    assert sizes == [50]
