"""Which replica a consumer is sent to (KIP-392), and what each kind of client gets from one that follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from replicated_broker import ReplicatedBroker

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.fetch.found import Found
from headrace.broker.handlers.fetch.plan import Reading
from headrace.broker.handlers.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.broker.handlers.read_replicas import preferred_replica


@pytest.fixture
def broker(tmp_path: Path) -> ReplicatedBroker:
    broker = ReplicatedBroker(tmp_path, 5)
    broker.fetched(2, 5)
    broker.fetched(3, 4)
    return broker


def preferred(broker: ReplicatedBroker, rack: str, offset: int = 0) -> int | None:
    return preferred_replica(broker, broker.partition, rack, offset)  # type: ignore[arg-type]


def fetch(
    broker: ReplicatedBroker, offset: int, *, rack: str = "", replica: int = -1, is_from_leader: bool = False
) -> tuple[Found, bool]:
    """What is found at the offset, and whether it is answered at once."""
    wanted = FetchTopic("events", None, b"events", [FetchPartition(0, -1, offset, 10_000)])
    request = FetchRequest(
        replica, 500, 1, 10_000, 0, 0, -1, [wanted], rack=rack, is_from_leader=is_from_leader
    )
    reading = Reading(broker)  # type: ignore[arg-type]
    reading.ask(request, 11, 10_000)
    answer, _, is_urgent = reading.read()
    return answer[0][1][0], is_urgent


def test_the_most_advanced_replica_of_the_rack_is_chosen(broker: ReplicatedBroker) -> None:
    assert preferred(broker, "b") == 2
    broker.fetched(2, 3)
    assert preferred(broker, "b") == 3


def test_the_leader_stays_in_its_own_rack_and_where_there_is_no_other(broker: ReplicatedBroker) -> None:
    assert [preferred(broker, rack) for rack in ("a", "c")] == [None, None]


def test_only_replicas_in_sync_that_have_the_offset_are_chosen(broker: ReplicatedBroker) -> None:
    broker.fetched(2, 5, log_start_offset=2)
    assert [preferred(broker, "b", offset) for offset in (1, 2, 5, 6)] == [3, 2, 2, None]
    broker.lead(1, 5, (1, 3))
    assert preferred(broker, "b", 2) == 3


def test_a_consumer_is_sent_there_at_once_and_gets_no_records_here(broker: ReplicatedBroker) -> None:
    found, is_urgent = fetch(broker, 0, rack="b")
    assert (found.preferred_read_replica, found.records, found.high_watermark, is_urgent) == (
        2,
        None,
        4,
        True,
    )
    found, _ = fetch(broker, 0, rack="a")
    assert found.preferred_read_replica == -1
    assert found.records is not None


def test_nobody_is_sent_anywhere_without_the_selector(broker: ReplicatedBroker) -> None:
    broker.config.replication.replica_selector_class = None
    assert preferred(broker, "b") is None


def test_a_follower_serves_what_is_committed_to_consumers_that_know_of_it(tmp_path: Path) -> None:
    broker = ReplicatedBroker(tmp_path, 5, leader=2)
    broker.partition.log.advance_high_watermark(3)
    found, is_urgent = fetch(broker, 2, rack="b")
    assert (found.error_code, found.high_watermark, found.preferred_read_replica) == (0, 3, -1)
    found, is_urgent = fetch(broker, 4)
    assert (found.error_code, found.records and found.records.size, is_urgent) == (0, 0, False)
    assert fetch(broker, 6)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(broker, 2, is_from_leader=True)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch(broker, 2, replica=3, is_from_leader=True)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
