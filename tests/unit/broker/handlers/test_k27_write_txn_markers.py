"""WriteTxnMarkers: a transaction ends once all replicas in sync have its marker, and readers of committed records go on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from calls import call_in
from log_kit import NOW_MS
from replicated_broker import ReplicatedBroker

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers import k27_write_txn_markers
from headrace.broker.log.transactions import AbortedTransaction
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.batches import Record, encode_batch

PRODUCER, EPOCH = 9, 2


@pytest.fixture
def broker(tmp_path: Path) -> ReplicatedBroker:
    """The log has two records of an open transaction, committed as the log has it."""
    broker = ReplicatedBroker(tmp_path)
    broker.config.network = SimpleNamespace(request_timeout_ms=30_000)
    broker.refused_writes = SimpleNamespace(outages={})
    broker.metrics = SimpleNamespace(produced=lambda *told: None)
    records = [Record(0, NOW_MS, None, value, []) for value in (b"a", b"b")]
    open_one = encode_batch(
        records, producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=0, transactional=True
    )
    broker.partition.appender.append_mirrored(memoryview(open_one), leader_epoch=4, now_ms=NOW_MS)
    for follower in (2, 3):
        broker.fetched(follower, 2)
    return broker


def marker(topic: str = "events", *, producer: int = PRODUCER, epoch: int = EPOCH) -> dict[str, Any]:
    return {
        "producer_id": producer,
        "producer_epoch": epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }


def ask(broker: Any, *markers: dict[str, Any]) -> list[list[tuple[int, str, int, int]]]:
    """What is answered, now or later: (producer, topic, partition, error) of each."""
    answers: list[list[tuple[int, str, int, int]]] = []

    def told(message: dict[str, Any]) -> None:
        answers.append(
            [
                (found["producer_id"], topic["name"], place["partition_index"], place["error_code"])
                for found in message["markers"]
                for topic in found["topics"]
                for place in topic["partitions"]
            ]
        )

    answer = k27_write_txn_markers.handle(broker, call_in(1, 27), {"markers": list(markers)})
    if isinstance(answer, Deferred):
        answer.then(told)
    else:
        told(answer)
    return answers


def test_the_transaction_is_over_once_all_replicas_in_sync_have_the_marker(broker: ReplicatedBroker) -> None:
    log = broker.partition.log
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    answers = ask(broker, marker())
    broker.fetched(2, 3)
    assert (answers, log.last_stable_offset) == ([], 0)
    broker.fetched(3, 3)
    broker.loop.turn()
    assert answers == [[(PRODUCER, "events", 0, ErrorCode.NONE)]]
    assert log.last_stable_offset == 3
    found = log.read(0, size_max=1000, upper_offset=3)
    assert log.aborted_transactions(0, found) == [AbortedTransaction(PRODUCER, 0, 2, 3)]


def test_each_marker_is_refused_for_itself(broker: ReplicatedBroker) -> None:
    broker.partitions.get = lambda topic, index: broker.partition if topic == "events" else None
    answers = ask(
        broker,
        marker(epoch=EPOCH - 1),
        marker("nowhere"),
        marker("__consumer_offsets"),
        marker(producer=-1),
    )
    assert answers == [
        [
            (PRODUCER, "events", 0, ErrorCode.INVALID_PRODUCER_EPOCH),
            (PRODUCER, "nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (PRODUCER, "__consumer_offsets", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (-1, "events", 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        ]
    ]
    assert broker.partition.log.log_end_offset == 2


def test_a_copy_takes_no_marker(broker: ReplicatedBroker) -> None:
    broker.partition.log.update_config(LogConfig(is_mirror_copy=True))
    assert ask(broker, marker()) == [[(PRODUCER, "events", 0, ErrorCode.POLICY_VIOLATION)]]
    assert broker.partition.log.log_end_offset == 2


def test_the_time_that_brokers_have_is_over(broker: ReplicatedBroker) -> None:
    answers = ask(broker, marker())
    broker.waiting.release()
    assert answers == [[(PRODUCER, "events", 0, ErrorCode.REQUEST_TIMED_OUT)]]


def test_who_leads_no_more_says_so(broker: ReplicatedBroker) -> None:
    answers = ask(broker, marker())
    broker.lead(2, 5)
    broker.waiting.wake_both("events", 0)
    broker.loop.turn()
    assert answers == [[(PRODUCER, "events", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]]


def test_nothing_asked_is_nothing_answered(broker: ReplicatedBroker) -> None:
    assert ask(broker) == [[]]
