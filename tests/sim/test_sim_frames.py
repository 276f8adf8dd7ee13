"""Frames of every kind to one broker's handlers: each is answered in its form or closes its connection, nothing else."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from frame_broker import FrameBroker
from frame_corpus import corpus
from frame_fuzzer import Frame, FrameFuzzer
from frame_rights import CONTROL_KEYS, Epochs, closes
from frame_values import GROUPS, NEW_TOPICS, TOPICS
from long_runs import first_of

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.table import HANDLERS
from headrace.broker.wire import batches, frames
from headrace.broker.wire.api import APIS

SEEDS = [f"{os.environ.get('FUZZ_SEED', 'headrace')}-{number}" for number in range(4)]
FRAMES_COUNT = 12_000
API_VERSIONS = 18
KNOWN = [
    (key, version)
    for key, handler in sorted(HANDLERS.items())
    for version in range(handler.version_min, handler.version_max + 1)
]
# What frames among brokers are answered with at least, by key.
CODES = {
    1: {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID},
    4: {ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.INVALID_TOPIC_EXCEPTION},
    5: {ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH},
    6: {ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR},
    7: {ErrorCode.BROKER_NOT_AVAILABLE},
    23: {ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER},
    43: {ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_SERVER_ERROR},
    45: {
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    },
    46: {ErrorCode.NONE},
    56: {ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID},
    57: {ErrorCode.NONE, ErrorCode.INVALID_REQUEST},
    67: {ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH},
}


@pytest.fixture
def broker() -> Iterator[FrameBroker]:
    """A broker with the fuzzer's topics and that of an ordinary client."""
    broker = FrameBroker([*TOPICS, "witness"])
    yield broker
    broker.close()


def decoded(frame: memoryview | bytes, reply: bytes) -> dict[str, object]:
    """The answer, which must be one to this very request."""
    header = frames.read_request_header(frame)
    handler = HANDLERS[header.key]
    is_known = handler.version_min <= header.version <= handler.version_max
    version = header.version if is_known else 0
    correlation_id, offset = frames.read_response_header(header.key, version, reply)
    assert correlation_id == header.correlation_id
    return APIS[header.key].decode_response(version, reply, offset)


def codes_in(answer: Any) -> set[int]:
    """All error codes of an answer."""
    if isinstance(answer, dict):
        own = {answer["error_code"]} if "error_code" in answer else set()
        return own.union(*map(codes_in, answer.values()))
    return set().union(*map(codes_in, answer)) if isinstance(answer, list) else set()


def examine(
    broker: FrameBroker, fuzzer: FrameFuzzer, frame: Frame, outcomes: Counter[str], codes: dict[int, set[int]]
) -> None:
    """Serve what the bytes hold and check what comes out."""
    received, is_over = broker.receive(broker.stream(), frame.data)
    outcomes["no frame"] += is_over
    for request in received:
        reply = broker.serve(request)
        if bytes(request) == frame.data[4:] and frame.is_last:
            assert reply == b"", "a frame that is no request was served"
        if reply:
            answer = decoded(request, reply)
            fuzzer.learn(answer)
            codes.setdefault(frames.read_request_header(request).key, set()).update(codes_in(answer))
        outcomes["answered" if reply else "closed" if reply == b"" else "waits, or has no answer"] += 1


def session(broker: FrameBroker, offset: int) -> None:
    """What an ordinary client does: it publishes one record, reads it back and commits an offset."""
    batch = batches.encode_batch([batches.Record(0, broker.clock.now_ms(), b"k", b"a good one", [])])
    partition = {"index": 1, "records": bytes(batch)}
    request: dict[str, Any] = {
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "witness", "partition_data": [partition]}],
    }
    (topic,) = broker.ask(0, 9, request)["responses"]
    (appended,) = topic["partition_responses"]
    assert (appended["error_code"], appended["base_offset"]) == (0, offset)
    wanted = {"partition": 1, "fetch_offset": offset, "partition_max_bytes": 1000}
    topics = [{"topic": "witness", "partitions": [wanted]}]
    (topic,) = broker.ask(1, 11, {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1000, "topics": topics})[
        "responses"
    ]
    records = topic["partitions"][0]["records"]
    assert batches.decode_records(records, 0, batches.read_header(records))[0].value == b"a good one"
    committed = {"partition_index": 1, "committed_offset": offset, "committed_metadata": ""}
    request = {"group_id": "witness", "topics": [{"name": "witness", "partitions": [committed]}]}
    assert broker.ask(8, 5, request)["topics"][0]["partitions"][0]["error_code"] == 0


def replicas_of_all(broker: FrameBroker) -> dict[tuple[str, int], Any]:
    """What the znodes say of all partitions that are not made by frames."""
    return {(topic, number): broker.replicas(topic, number) for topic in broker.topics for number in (0, 1)}


@pytest.mark.parametrize("seed", first_of(1, SEEDS))
def test_frames_before_and_after_a_valid_session(broker: FrameBroker, seed: str) -> None:
    fuzzer, outcomes = FrameFuzzer(seed), Counter[str]()
    fuzzer.know(broker.epochs)
    made, codes = set(), dict[int, set[int]]()
    replicas = replicas_of_all(broker)
    for number in range(FRAMES_COUNT):
        if number % (FRAMES_COUNT // 4) == 0:
            session(broker, number * 4 // FRAMES_COUNT)
        frame = fuzzer.next()
        try:
            examine(broker, fuzzer, frame, outcomes, codes)
        except Exception as error:
            error.add_note(f"seed {seed}, frame {number}, {APIS[frame.key].name}: {frame.data[:4000].hex()}")
            raise
        if number % 100 == 0:
            broker.rest(100)
            made |= {broker.services.metadata.topic_id(name) for name in NEW_TOPICS}
        if number % 500 == 0:
            broker.configure()
    session(broker, 4)
    # The frames are worth something only when a good part passes the first checks, and a good part does not.
    assert min(outcomes["answered"], outcomes["closed"]) > FRAMES_COUNT // 4, outcomes
    assert outcomes["no frame"] > 0
    assert outcomes["waits, or has no answer"] > 0
    assert len(made) > 2, "hardly a topic was made and deleted"
    missing = {key: wanted - codes[key] for key, wanted in CODES.items() if not codes[key] >= wanted}
    assert not missing, missing
    assert replicas_of_all(broker) == replicas, "no broker but this one lives: nothing can move or change"


@pytest.mark.parametrize(
    ("outcome", "data"), [entry[1:] for entry in corpus()], ids=[entry.name for entry in corpus()]
)
def test_a_frame_that_once_broke_something(broker: FrameBroker, outcome: str, data: bytes) -> None:
    frame = memoryview(bytearray(data))
    reply = broker.serve(frame)
    assert closes(data) is (outcome == "closed")
    if outcome == "closed":
        assert reply == b""
    else:
        assert reply
        decoded(frame, reply)


@pytest.mark.parametrize(("key", "version"), KNOWN, ids=[f"{APIS[k].name}-{v}" for k, v in KNOWN])
def test_undamaged_frames_are_valid_requests(key: int, version: int) -> None:
    fuzzer = FrameFuzzer(f"{key}-{version}")
    for _ in range(20):
        data = fuzzer.valid(key, version)
        header = frames.read_request_header(data)
        assert (header.key, header.version) == (key, version)
        APIS[key].decode_request(version, data, header.body_offset)
        assert not closes(data)


def test_a_controllers_frames_come_from_the_present_one_and_never_from_a_later_one() -> None:
    fuzzer = FrameFuzzer("office", CONTROL_KEYS)
    fuzzer.know(Epochs(controller=5, broker=900))
    told = Counter[tuple[int, bool]]()
    for data in (fuzzer.next().data[4:] for _ in range(2_000)):
        if not closes(data) and (header := frames.read_request_header(data)).key in (4, 5, 6):
            request = APIS[header.key].decode_request(header.version, data, header.body_offset)
            assert request["controller_epoch"] <= 5
            told[header.key, request["controller_epoch"] == 5] += 1
    assert all(told[key, is_present] > 30 for key in (4, 5, 6) for is_present in (True, False)), told


def test_the_same_seed_gives_the_same_frames() -> None:
    first, second, other = FrameFuzzer(1), FrameFuzzer(1), FrameFuzzer(2)
    made = [first.next().data for _ in range(200)]
    assert made == [second.next().data for _ in range(200)]
    assert made != [other.next().data for _ in range(200)]
    assert any(GROUPS[0].encode() in data for data in made)
