"""DeleteRecords: the answer waits until no live replica has the records any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from calls import call_in
from replicated_broker import ReplicatedBroker

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers import k21_delete_records
from headrace.broker.handlers.fetch.plan import Reading
from headrace.broker.handlers.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.broker.waiting.deferred import Deferred


@pytest.fixture
def broker(tmp_path: Path) -> ReplicatedBroker:
    broker = ReplicatedBroker(tmp_path, 5)
    broker.fetched(2, 5)
    broker.fetched(3, 5)
    return broker


def ask(broker: Any, offset: int, topic: str = "events") -> list[tuple[int, int]]:
    """What is answered, now or later: (error, low watermark)."""
    partitions = [{"partition_index": 0, "offset": offset}]
    request = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 1000}
    answers: list[tuple[int, int]] = []

    def told(message: dict[str, Any]) -> None:
        (found,) = message["topics"][0]["partitions"]
        answers.append((found["error_code"], found["low_watermark"]))

    answer = k21_delete_records.handle(broker, call_in(2, 21), request)
    if isinstance(answer, Deferred):
        answer.then(told)
    else:
        told(answer)
    return answers


def fetched(broker: ReplicatedBroker, replica: int, log_start_offset: int) -> None:
    """A follower tells with its fetch where its log begins."""
    wanted = FetchTopic("events", None, b"events", [FetchPartition(0, -1, 5, 100, -1, log_start_offset)])
    reading = Reading(broker)  # type: ignore[arg-type]
    reading.ask(FetchRequest(replica, 500, 1, 100, 0, 0, -1, [wanted]), 11, 100)
    reading.read()
    broker.loop.turn()


def test_the_records_are_gone_once_all_live_replicas_begin_behind_them(broker: ReplicatedBroker) -> None:
    answers = ask(broker, 3)
    assert broker.partition.log.log_start_offset == 3
    fetched(broker, 2, 3)
    assert answers == []
    fetched(broker, 3, 4)
    assert answers == [(ErrorCode.NONE, 3)]


def test_a_dead_replica_is_not_waited_for(broker: ReplicatedBroker) -> None:
    broker.host.dead.add(3)
    answers = ask(broker, -1)
    fetched(broker, 2, 5)
    assert answers == [(ErrorCode.NONE, 5)]


def test_the_time_that_was_granted_is_over(broker: ReplicatedBroker) -> None:
    answers = ask(broker, 3)
    broker.waiting.release()
    assert answers == [(ErrorCode.REQUEST_TIMED_OUT, 0)]


def test_who_leads_no_more_says_so(broker: ReplicatedBroker) -> None:
    answers = ask(broker, 3)
    broker.lead(2, 5)
    broker.waiting.wake_both("events", 0)
    broker.loop.turn()
    assert answers == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_what_is_gone_everywhere_or_refused_waits_for_nobody(broker: ReplicatedBroker) -> None:
    assert ask(broker, 0) == [(ErrorCode.NONE, 0)]
    assert ask(broker, 6) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
