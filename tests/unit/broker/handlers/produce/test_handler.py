"""Produce: the short road (struct) and the long one (codec) give the same answers in every version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from calls import call_of

from headrace.broker.config.sections import Transactions
from headrace.broker.errors import NotLeaderOrFollowerError, StorageError, UnknownTopicOrPartitionError
from headrace.broker.handlers.produce import handler
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.log.results import AppendResult
from headrace.broker.outage import REPEAT_MS
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.round import Round
from headrace.broker.wire import frames
from headrace.broker.wire.api.k00_produce import API

VERSIONS = range(12)


def whole(letter: bytes, size: int) -> bytes:
    """As much of a message or batch as the handler looks at: an offset, a size, and that many bytes."""
    return bytes(8) + size.to_bytes(4, "big") + letter * size


RECORDS, A, B = whole(b"R", 500), whole(b"A", 20), whole(b"B", 20)


class FakePartition:
    """Appends anything at offset 100 and commits it when `commits` says so."""

    def __init__(self, *, commits: bool = True) -> None:
        self.is_leader = True
        self.appended: list[bytes] = []
        self.is_disk_full = False
        self.partition = 3
        self.leadership: object = object()
        self.has_enough_in_sync = True
        self.commits = commits
        self.log = SimpleNamespace(
            high_watermark=0,
            directory="/data/pageviews-0",
            log_start_offset=7,
            awaits_sync=False,
            has_failed=False,
        )

    def append(self, records: memoryview, *, required_acks: int, now_ms: int) -> AppendResult:
        if self.is_disk_full:
            raise StorageError("/data/pageviews-0: No space left on device. Free or repair the disk.")
        self.appended.append(bytes(records))
        if self.commits:
            self.log.high_watermark += 200
        return AppendResult(100, 104, -1, 7, 1)


class FakeWaiting:
    """Keeps what is parked for the test to attempt."""

    def __init__(self) -> None:
        self.woken: list[tuple[str, int]] = []
        self.ends_woken: list[tuple[str, int]] = []
        self.attempt: Any = None
        self.timeout_ms = 0

    def wake(self, topic: str, partition: int) -> None:
        self.woken.append((topic, partition))

    def wake_end(self, topic: str, partition: int) -> None:
        self.ends_woken.append((topic, partition))

    def park(self, keys: Any, timeout_ms: int, attempt: Any) -> Deferred[Any]:
        self.attempt, self.timeout_ms = attempt, timeout_ms
        return Deferred()


class FakeBroker(SimpleNamespace):
    def __init__(self, partition: FakePartition) -> None:
        def leader_of(topic: str, index: int) -> FakePartition:
            if topic != "pageviews":
                raise UnknownTopicOrPartitionError("no such topic")
            if index == 9:
                raise NotLeaderOrFollowerError("led elsewhere")
            return partition

        super().__init__(
            partition=partition,
            partitions=SimpleNamespace(leader_of=leader_of),
            waiting=FakeWaiting(),
            authorizer=None,
            clock=SimpleNamespace(now_ms=lambda: 1, monotonic_ms=lambda: self.ms),
            config=SimpleNamespace(transactions=Transactions()),
            ms=0,
            errors=[],
            metrics=SimpleNamespace(
                produced=lambda topic, batch_count, size: None,
                failed=lambda *failed: self.errors.append(failed),
            ),
            refused_writes=RefusedWrites(),
            together=Round(),
            metadata=SimpleNamespace(
                partition=lambda topic, index: SimpleNamespace(leader=7, leader_epoch=6),
                endpoint=lambda broker_id, listener: SimpleNamespace(host="seven", port=9092),
                brokers={7: SimpleNamespace(rack=None)},
            ),
        )


def request_of(version: int, acks: int, topics: list[dict[str, Any]], **fields: Any) -> memoryview:
    body = {"acks": acks, "timeout_ms": 1234, "topic_data": topics, **fields}
    header = frames.encode_request_header(0, version, 77, "unit")
    return memoryview(bytearray(header + API.encode_request(version, body)))


def single(topic: str = "pageviews", index: int = 3, records: bytes | None = RECORDS) -> list[dict[str, Any]]:
    return [{"name": topic, "partition_data": [{"index": index, "records": records}]}]


def ask(broker: Any, frame: memoryview, began_s: float = 0.0) -> Any:
    return handler.handle_run(broker, call_of(frame, began_s=began_s), frame, ())[0]


def message_of(version: int, parts: Any) -> dict[str, Any]:
    (data,) = parts
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    correlation_id, offset = frames.read_response_header(0, version, data[4:])
    assert correlation_id == 77
    message = API.decode_response(version, data[4:], offset)
    # Nothing may be left over: the message written again is as long as what came.
    assert len(API.encode_response(version, message)) == len(data) - 4 - offset
    return message


@pytest.mark.parametrize("version", VERSIONS)
def test_the_common_shape_is_answered_as_the_codec_would(version: int) -> None:
    broker = FakeBroker(FakePartition())
    message = message_of(version, ask(broker, request_of(version, 1, single())))
    (topic,) = message["responses"]
    (partition,) = topic["partition_responses"]
    assert (topic["name"], partition["index"], partition["error_code"]) == ("pageviews", 3, 0)
    assert partition["base_offset"] == 100
    assert partition["log_start_offset"] == (7 if version >= 5 else -1)
    assert broker.partition.appended == [RECORDS]
    assert broker.waiting.woken == [("pageviews", 3)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("topic", "index", "records", "acks", "code"),
    [
        ("unknown", 0, b"R", 1, 3),
        ("pageviews", 9, b"R", 1, 6),
        ("pageviews", 0, None, 1, 87),
        ("pageviews", 0, b"R", 2, 21),
    ],
)
def test_errors_are_answered_in_every_version(
    version: int, topic: str, index: int, records: bytes | None, acks: int, code: int
) -> None:
    broker = FakeBroker(FakePartition())
    message = message_of(version, ask(broker, request_of(version, acks, single(topic, index, records))))
    partition = message["responses"][0]["partition_responses"][0]
    assert (partition["error_code"], partition["base_offset"]) == (code, -1)
    assert broker.waiting.woken == []


@pytest.mark.parametrize("version", VERSIONS)
def test_several_partitions_are_answered_one_by_one(version: int) -> None:
    broker = FakeBroker(FakePartition())
    topics = [
        {
            "name": "pageviews",
            "partition_data": [{"index": 1, "records": A}, {"index": 9, "records": B}],
        },
        *single("unknown"),
    ]
    message = message_of(version, ask(broker, request_of(version, 1, topics)))
    outcomes = [
        (topic["name"], partition["index"], partition["error_code"])
        for topic in message["responses"]
        for partition in topic["partition_responses"]
    ]
    assert outcomes == [("pageviews", 1, 0), ("pageviews", 9, 6), ("unknown", 3, 3)]


@pytest.mark.parametrize(("ms_before", "taken"), [(0, 2), (500, 1)])
def test_partitions_that_a_request_takes_too_long_for_are_left_for_another(
    monkeypatch: pytest.MonkeyPatch, ms_before: int, taken: int
) -> None:
    partition = FakePartition()
    broker = FakeBroker(partition)
    broker.ms = 5000 + ms_before
    append = partition.append

    def slowly(*args: Any, **kwargs: Any) -> AppendResult:
        broker.ms += 600
        return append(*args, **kwargs)

    monkeypatch.setattr(partition, "append", slowly)
    partitions = [{"index": index, "records": A} for index in range(4)]
    topics = [{"name": "pageviews", "partition_data": partitions}]
    (topic,) = message_of(9, ask(broker, request_of(9, 1, topics), began_s=5.0))["responses"]
    errors = [answer["error_code"] for answer in topic["partition_responses"]]
    assert errors == [0] * taken + [7] * (4 - taken)
    assert len(partition.appended) == taken


@pytest.mark.parametrize("version", VERSIONS)
def test_the_new_leader_is_named_from_version_10(version: int) -> None:
    frame = request_of(version, 1, single(index=9))
    message = message_of(version, ask(FakeBroker(FakePartition()), frame))
    leader = message["responses"][0]["partition_responses"][0]["current_leader"]
    nodes = [node["node_id"] for node in message["node_endpoints"]]
    assert (leader["leader_id"], leader["leader_epoch"], nodes) == (
        (7, 6, [7]) if version >= 10 else (-1, -1, [])
    )


@pytest.mark.parametrize("version", [3, 8, 9, 11])
def test_a_transactional_id_takes_the_long_road(version: int) -> None:
    broker = FakeBroker(FakePartition())
    message = message_of(version, ask(broker, request_of(version, 1, single(), transactional_id="t")))
    assert message["responses"][0]["partition_responses"][0]["base_offset"] == 100


@pytest.mark.parametrize("version", [3, 9])
def test_without_acknowledgement_there_is_no_answer_but_an_error_closes(version: int) -> None:
    broker = FakeBroker(FakePartition())
    assert ask(broker, request_of(version, 0, single())) is None
    assert len(broker.partition.appended) == 1
    with pytest.raises(CloseConnectionError):
        ask(broker, request_of(version, 0, single("unknown")))


@pytest.mark.parametrize("version", [3, 9])
def test_acks_all_waits_until_the_batch_is_committed(version: int) -> None:
    broker = FakeBroker(FakePartition(commits=False))
    assert isinstance(ask(broker, request_of(version, -1, single())), Deferred)
    # What was appended is for followers alone so far.
    assert (broker.waiting.ends_woken, broker.waiting.woken) == ([("pageviews", 3)], [])
    attempt = broker.waiting.attempt
    assert broker.waiting.timeout_ms == 1234
    broker.partition.log.high_watermark = 104
    assert attempt({("t", 0)}) is None
    broker.partition.log.high_watermark = 105
    message = message_of(version, attempt({("t", 0)}))
    assert message["responses"][0]["partition_responses"][0]["base_offset"] == 100


def test_acks_all_times_out_or_learns_that_leadership_moved() -> None:
    broker = FakeBroker(FakePartition(commits=False))
    ask(broker, request_of(8, -1, single()))
    late = message_of(8, broker.waiting.attempt(None))
    assert late["responses"][0]["partition_responses"][0]["error_code"] == 7
    broker.partition.leadership = None
    moved = message_of(8, broker.waiting.attempt({("t", 0)}))
    assert moved["responses"][0]["partition_responses"][0]["error_code"] == 6


def test_what_was_appended_by_a_leadership_that_was_lost_is_not_acknowledged_by_the_next_one() -> None:
    broker = FakeBroker(FakePartition(commits=False))
    ask(broker, request_of(8, -1, single()))
    # Led again, with something else at those offsets.
    broker.partition.leadership = object()
    broker.partition.log.high_watermark = 500
    moved = message_of(8, broker.waiting.attempt({("t", 0)}))
    assert moved["responses"][0]["partition_responses"][0]["error_code"] == 6


def test_what_is_committed_with_too_few_in_sync_is_told_as_appended_only() -> None:
    broker = FakeBroker(FakePartition(commits=False))
    ask(broker, request_of(8, -1, single()))
    broker.partition.has_enough_in_sync = False
    assert broker.waiting.attempt({("t", 0)}) is None
    broker.partition.log.high_watermark = 105
    told = message_of(8, broker.waiting.attempt({("t", 0)}))
    assert told["responses"][0]["partition_responses"][0]["error_code"] == 20


def test_a_name_of_127_and_more_bytes_is_answered_right() -> None:
    for size in (126, 127, 128, 249):
        broker = FakeBroker(FakePartition())
        broker.partitions.leader_of = lambda topic, index, broker=broker: broker.partition
        message = message_of(9, ask(broker, request_of(9, 1, single("x" * size))))
        assert message["responses"][0]["name"] == "x" * size
        assert message["responses"][0]["partition_responses"][0]["error_code"] == 0


def test_a_full_disk_is_logged_once_a_minute_while_it_lasts_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "headrace")
    broker = FakeBroker(FakePartition())
    codes = []
    for now_ms, is_disk_full in (
        (1, True),
        (2, True),
        (1 + REPEAT_MS, True),
        (2 + REPEAT_MS, False),
        (3 + REPEAT_MS, True),
        (3 + 2 * REPEAT_MS, False),
        (4 + 2 * REPEAT_MS, False),
    ):
        broker.clock = SimpleNamespace(now_ms=lambda: 1, monotonic_ms=lambda now_ms=now_ms: now_ms)
        broker.partition.is_disk_full = is_disk_full
        (topic,) = message_of(9, ask(broker, request_of(9, 1, single())))["responses"]
        codes.append(topic["partition_responses"][0]["error_code"])
    assert codes == [56, 56, 56, 0, 56, 0, 0]
    refusal = "log directory refuses writes, its replicas take no messages"
    assert caplog.messages == [refusal, refusal, "log directory takes writes again"]
    facts = vars(caplog.records[0])["facts"]
    assert facts["directory"] == "/data"
    assert "No space left on device" in str(facts["reason"])
    over = vars(caplog.records[-1])["facts"]
    assert (over["refused"], over["seconds"]) == (4, REPEAT_MS // 1000)
    assert broker.refused_writes.counts == {"/data": 4}
    assert not broker.refused_writes.directories
    assert broker.errors == [(0, 56)] * 4
