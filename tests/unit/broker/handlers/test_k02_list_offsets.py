"""ListOffsets: what a new leader does not know yet, and who may ask a follower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from calls import call_in
from replicated_broker import ReplicatedBroker

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers import k02_list_offsets
from headrace.broker.wire.special_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, READ_COMMITTED

CONSUMER, DEBUGGER, FOLLOWER = -1, -2, 2
MAX, TIERED, NEVER_MS = -3, -5, 2**60


def ask(
    broker: Any, timestamp: int, *, replica: int = CONSUMER, version: int = 9, epoch: int = -1, level: int = 0
) -> tuple[int, int]:
    """(error, offset)."""
    wanted = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": epoch}
    request = {
        "replica_id": replica,
        "isolation_level": level,
        "topics": [{"name": "events", "partitions": [wanted]}],
    }
    answer = k02_list_offsets.handle(broker, call_in(version, 2), request)
    (found,) = answer["topics"][0]["partitions"]
    return found["error_code"], found.get("offset", -1)


@pytest.fixture
def broker(tmp_path: Path) -> ReplicatedBroker:
    return ReplicatedBroker(tmp_path, 5)


@pytest.mark.parametrize("level", [0, READ_COMMITTED])
def test_a_consumer_is_told_the_end_once_the_new_leader_knows_it(
    broker: ReplicatedBroker, level: int
) -> None:
    for follower_offset in (0, 4):
        broker.fetched(2, follower_offset)
        broker.fetched(3, follower_offset)
        assert ask(broker, LATEST_TIMESTAMP, level=level) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    broker.fetched(2, 5)
    broker.fetched(3, 5)
    assert ask(broker, LATEST_TIMESTAMP, level=level) == (ErrorCode.NONE, 5)


def test_what_lies_above_the_watermark_is_not_available_yet_and_all_below_is(
    broker: ReplicatedBroker,
) -> None:
    broker.fetched(2, 3)
    broker.fetched(3, 3)
    assert ask(broker, NEVER_MS) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert ask(broker, MAX) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert ask(broker, 1) == ask(broker, EARLIEST_TIMESTAMP) == (ErrorCode.NONE, 0)
    assert ask(broker, TIERED) == (ErrorCode.NONE, -1)


def test_who_does_not_know_that_error_is_told_that_there_is_no_leader(broker: ReplicatedBroker) -> None:
    assert ask(broker, LATEST_TIMESTAMP, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert ask(broker, LATEST_TIMESTAMP, version=5) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)


def test_followers_are_told_the_end_whatever_is_committed(broker: ReplicatedBroker) -> None:
    assert ask(broker, LATEST_TIMESTAMP, replica=FOLLOWER, epoch=4) == (ErrorCode.NONE, 5)


def test_a_follower_answers_who_debugs_only_and_an_epoch_comes_before_who_leads(tmp_path: Path) -> None:
    broker = ReplicatedBroker(tmp_path, 5, leader=2)
    assert ask(broker, LATEST_TIMESTAMP, replica=DEBUGGER) == (ErrorCode.NONE, 5)
    assert ask(broker, LATEST_TIMESTAMP)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(broker, LATEST_TIMESTAMP, epoch=3)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(broker, LATEST_TIMESTAMP, epoch=5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
