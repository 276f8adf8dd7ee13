"""Batches whose coordinator is asked first: what waits, what does not, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from calls import call_of
from log_kit import NOW_MS, batch, offsets
from produce_world import World, codes

from headrace.broker.config.sections import Transactions
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.produce import handler
from headrace.broker.handlers.replies import CloseConnectionError
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire import frames
from headrace.broker.wire.api.k00_produce import API
from headrace.broker.wire.batches import Record, encode_batch
from headrace.broker.wire.partitions import TopicPartition

PLACE = TopicPartition("events", 0)


class Asking(World):
    """A world whose coordinators answer when the test has them."""

    def __init__(self, folder: Path, *, enabled: bool = True) -> None:
        super().__init__(folder)
        section = Transactions(transaction_partition_verification_enable=enabled)
        self.config = SimpleNamespace(transactions=section)
        self.questions: list[Deferred[Any]] = []
        self.asked: list[Any] = []
        # What the coordinator, which is this broker then, says at once.
        self.known: set[tuple[Any, ...]] = set()
        self.verifier = SimpleNamespace(verify=self.verify, is_in=lambda *asked: asked in self.known)

    def verify(self, *asked: Any) -> Deferred[Any]:
        self.asked.append(asked)
        self.questions.append(Deferred())
        return self.questions[-1]

    def send(self, *items: tuple[str, int, bytes], version: int = 9, acks: int = 1) -> Any:
        data = [{"name": t, "partition_data": [{"index": n, "records": records}]} for t, n, records in items]
        body = {"acks": acks, "timeout_ms": 1000, "topic_data": data, "transactional_id": "tx"}
        header = frames.encode_request_header(0, version, 5, "unit")
        frame = memoryview(bytearray(header + API.encode_request(version, body)))
        reply, _ = handler.handle_run(self, call_of(frame), frame, ())  # type: ignore[arg-type]
        # The next request takes the place of this one.
        frame[:] = bytes(len(frame))
        return reply


def of(sequence: int, producer_id: int = 9) -> bytes:
    record = Record(0, NOW_MS, None, b"v", [])
    options = {"producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    return bytes(encode_batch([record], producer_id=producer_id, **options))  # type: ignore[arg-type]


def told(reply: Any, version: int = 9) -> list[int]:
    parts: list[Any] = []
    reply.then(parts.extend)
    return codes(version, b"".join(parts))


def test_the_first_batch_waits_for_the_coordinator_and_the_next_one_does_not(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    first = world.send(("events", 0, of(0)))
    ((name, producer, partitions, size),) = world.asked
    assert (name, producer, list(partitions), size) == ("tx", (9, 0), [PLACE], len(of(0)))
    assert offsets(world.partition.log) == []
    world.questions[0].complete({PLACE: ErrorCode.NONE})
    assert told(first) == [0]
    assert isinstance(world.send(("events", 0, of(1))), list)
    assert offsets(world.partition.log) == [0, 1]


def test_what_the_coordinator_says_at_once_is_not_waited_for(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    world.known.add(("tx", (9, 0), PLACE))
    assert isinstance(world.send(("events", 0, of(0))), list)
    assert world.asked == []
    assert offsets(world.partition.log) == [0]


def test_a_word_that_comes_at_once_lets_nothing_overtake_what_waits(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    first = world.send(("events", 0, of(0)))
    world.known.add(("tx", (9, 0), PLACE))
    second = world.send(("events", 0, of(1)))
    assert offsets(world.partition.log) == []
    for question in world.questions:
        question.complete({PLACE: ErrorCode.NONE})
    assert told(first) == told(second) == [0]
    assert offsets(world.partition.log) == [0, 1]


def test_a_batch_that_waits_is_not_overtaken(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    replies = [world.send(("events", 0, of(sequence))) for sequence in (0, 1)]
    world.questions[0].complete({PLACE: ErrorCode.CONCURRENT_TRANSACTIONS})
    world.questions[1].complete({PLACE: ErrorCode.NONE})
    assert [told(reply) for reply in replies] == [
        [ErrorCode.NOT_ENOUGH_REPLICAS],
        [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER],
    ]
    assert offsets(world.partition.log) == []


def test_a_batch_that_waits_is_not_overtaken_once_one_before_it_has_begun(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    replies = [world.send(("events", 0, of(sequence))) for sequence in (0, 1)]
    world.questions[0].complete({PLACE: ErrorCode.NONE})
    replies.append(world.send(("events", 0, of(2))))
    assert len(world.questions) == 3
    for question in world.questions[1:]:
        question.complete({PLACE: ErrorCode.NONE})
    assert [told(reply) for reply in replies] == [[0], [0], [0]]
    assert isinstance(world.send(("events", 0, of(3))), list)
    assert offsets(world.partition.log) == [0, 1, 2, 3]


def test_who_goes_away_holds_nobody_up(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    first, second = (world.send(("events", 0, of(sequence))) for sequence in (0, 1))
    world.questions[0].complete({PLACE: ErrorCode.NONE})
    assert told(first) == [0]
    second.cancel()
    assert isinstance(world.send(("events", 0, of(1))), list)
    assert offsets(world.partition.log) == [0, 1]


def test_what_need_not_wait_does_not(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    reply = world.send(("events", 0, bytes(batch())), ("more", 1, of(0)))
    assert offsets(world.partition.log) == [0]
    world.questions[0].complete({TopicPartition("more", 1): ErrorCode.NONE})
    assert isinstance(reply, Deferred)
    assert offsets(world.more[1].log) == [0]


def test_a_marker_that_comes_first_keeps_the_batch_out(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    late = world.send(("events", 0, of(0)))
    world.partition.log.producers.verifications.forget(9)
    world.questions[0].complete({PLACE: ErrorCode.NONE})
    assert told(late) == [ErrorCode.INVALID_TXN_STATE]
    assert offsets(world.partition.log) == []


@pytest.mark.parametrize(
    ("said", "version", "code"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, 11, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 9, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 9, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NETWORK_EXCEPTION, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_producers_are_told(tmp_path: Path, said: ErrorCode, version: int, code: ErrorCode) -> None:
    world = Asking(tmp_path)
    reply = world.send(("events", 0, of(0)), version=version)
    world.questions[0].complete({PLACE: said})
    assert told(reply, version) == [code]
    assert offsets(world.partition.log) == []


def test_batches_of_several_producers_are_refused(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    reply = world.send(("events", 0, of(0)), ("more", 1, of(0, producer_id=8)))
    assert codes(9, b"".join(reply)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert (world.asked, offsets(world.partition.log), offsets(world.more[1].log)) == ([], [], [])


def test_a_partition_that_is_led_elsewhere_is_not_asked_about(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    assert codes(9, b"".join(world.send(("followed", 0, of(0))))) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert world.asked == []


def test_without_acknowledgement_a_refusal_closes_the_connection(tmp_path: Path) -> None:
    world = Asking(tmp_path)
    replies = [world.send(("events", 0, of(sequence)), acks=0) for sequence in (0, 1)]
    world.questions[0].complete({PLACE: ErrorCode.NONE})
    assert told(replies[0]) == []
    world.questions[1].complete({PLACE: ErrorCode.TRANSACTION_ABORTABLE})
    failures: list[BaseException] = []
    replies[1].then(lambda _: None, failures.append)
    assert [type(failure) for failure in failures] == [CloseConnectionError]


def test_a_broker_that_is_told_not_to_verify_asks_nobody(tmp_path: Path) -> None:
    world = Asking(tmp_path, enabled=False)
    assert codes(9, b"".join(world.send(("events", 0, of(0))))) == [0]
    assert (world.asked, offsets(world.partition.log)) == ([], [0])
