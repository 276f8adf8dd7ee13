"""What a client believes of a cluster after answers and failures."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.wire.client.exchange import ProtocolError
from headrace.broker.wire.client.view import ClusterView, is_lost, is_moved
from headrace.broker.wire.fields import ZERO_UUID

ID = UUID(int=7)


def metadata(topics: dict[str, list[int]], brokers: tuple[int, ...] = (1, 2), **more: Any) -> dict[str, Any]:
    """An answer in which the partitions of topics have these leaders, in epoch 3."""
    return {
        "brokers": [{"node_id": n, "host": f"host-{n}", "port": 9092} for n in brokers],
        "cluster_id": "here",
        "topics": [
            {
                "name": name,
                "topic_id": ID,
                "partitions": [
                    {"partition_index": number, "leader_id": leader, "leader_epoch": 3}
                    for number, leader in enumerate(leaders)
                ],
            }
            for name, leaders in topics.items()
        ],
        **more,
    }


def seen(*answers: tuple[dict[str, Any], bool]) -> ClusterView:
    view = ClusterView()
    for answer, is_whole in answers:
        view.take(answer, is_whole=is_whole)
    return view


def test_a_partitions_leader_is_known_by_its_address_and_epoch() -> None:
    view = seen((metadata({"a": [1, 2]}), True))
    assert view.leader_of(("a", 1)) == ("host-2", 9092)
    assert view.leader_epoch_of(("a", 1)) == 3
    assert (view.cluster_id, view.topic_ids) == ("here", {"a": ID})


def test_who_is_not_named_is_not_known() -> None:
    view = seen((metadata({"a": [-1, 9]}), True))
    assert [view.leader_of(("a", number)) for number in range(3)] == [None, None, None]
    assert view.leader_epoch_of(("b", 0)) == -1


def test_an_answer_about_some_topics_leaves_the_others_as_they_were() -> None:
    view = seen((metadata({"a": [1], "b": [1]}), True), (metadata({"b": [2]}), False))
    assert view.leaders == {("a", 0): 1, ("b", 0): 2}


def test_a_topic_that_an_answer_about_all_lacks_is_no_more() -> None:
    view = seen((metadata({"a": [1], "b": [1]}), True), (metadata({"b": [2]}), True))
    assert (view.leaders, view.topic_ids) == ({("b", 0): 2}, {"b": ID})
    assert view.leader_epoch_of(("a", 0)) == -1


def test_brokers_are_those_of_the_last_answer() -> None:
    view = seen((metadata({"a": [1]}), True), (metadata({}, brokers=(2,)), False))
    assert view.addresses == {2: ("host-2", 9092)}
    assert view.leader_of(("a", 0)) is None


def test_brokers_from_before_topic_ids_and_leader_epochs_tell_of_none() -> None:
    answer = metadata({"a": [1]})
    answer["topics"][0]["topic_id"] = ZERO_UUID
    del answer["topics"][0]["partitions"][0]["leader_epoch"], answer["cluster_id"]
    view = seen((answer, True))
    assert (view.topic_ids, view.cluster_id, view.leader_epoch_of(("a", 0))) == ({}, None, -1)


@pytest.mark.parametrize(("topic", "left"), [("a", {("b", 0): 2}), (None, {})])
def test_forgotten_leaders_are_those_of_a_topic_or_all(topic: str | None, left: dict[Any, int]) -> None:
    view = seen((metadata({"a": [1, 1], "b": [2]}), True))
    view.forget_leaders(topic)
    assert view.leaders == left
    assert view.addresses, "brokers are where they were"


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ProtocolError("closed"), (True, False)),
        (TimeoutError(), (True, False)),
        (ConnectionRefusedError(), (True, False)),
        (error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER), (False, True)),
        (error_of(ErrorCode.FENCED_LEADER_EPOCH), (False, True)),
        (error_of(ErrorCode.NOT_COORDINATOR), (False, True)),
        (error_of(ErrorCode.UNKNOWN_TOPIC_ID), (False, True)),
        (error_of(ErrorCode.OFFSET_OUT_OF_RANGE), (False, False)),
        (error_of(ErrorCode.CORRUPT_MESSAGE), (False, False)),
        (error_of(ErrorCode.UNSUPPORTED_VERSION), (False, False)),
        (ValueError("what"), (False, False)),
    ],
    ids=repr,
)
def test_what_a_failure_makes_stale(failure: Exception, expected: tuple[bool, bool]) -> None:
    assert (is_lost(failure), is_moved(failure)) == expected
