"""Questions about offsets as a broker reads them, and its answers as a client does: there and back through the codec."""

from __future__ import annotations

import pytest

from headrace.broker.errors import ErrorCode
from headrace.broker.wire.api import k02_list_offsets, k23_offset_for_leader_epoch
from headrace.broker.wire.client.offsets import (
    EPOCH_ENDS_VERSION,
    LIST_OFFSETS_VERSION,
    epoch_ends,
    list_offsets,
    listed_offsets,
    told_epoch_ends,
)
from headrace.broker.wire.fields import Message
from headrace.broker.wire.schema import Api
from headrace.broker.wire.special_values import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    READ_COMMITTED,
)

PLACES = (("a", 0), ("b", 0), ("a", 3))


def read(api: Api, version: int, request: Message) -> Message:
    return api.decode_request(version, api.encode_request(version, request))


def answered(api: Api, version: int, answer: Message) -> Message:
    return api.decode_response(version, api.encode_response(version, answer))


def test_offsets_are_asked_for_by_topic_with_the_epoch_of_each_partition() -> None:
    epochs = dict(zip(PLACES, (5, 6, NO_EPOCH), strict=True))
    asked = read(k02_list_offsets.API, LIST_OFFSETS_VERSION, list_offsets(epochs, LATEST_TIMESTAMP))
    assert (asked["replica_id"], asked["isolation_level"]) == (CONSUMER_REPLICA_ID, 0)
    found = [
        (topic["name"], wanted["partition_index"], wanted["current_leader_epoch"], wanted["timestamp"])
        for topic in asked["topics"]
        for wanted in topic["partitions"]
    ]
    assert found == [("a", 0, 5, -1), ("a", 3, -1, -1), ("b", 0, 6, -1)]
    assert len(asked["topics"]) == 2


def test_who_asks_and_what_it_may_see_is_told() -> None:
    request = list_offsets({}, -2, replica_id=DEBUGGING_REPLICA_ID, isolation_level=READ_COMMITTED)
    asked = read(k02_list_offsets.API, LIST_OFFSETS_VERSION, request)
    assert (asked["replica_id"], asked["isolation_level"]) == (DEBUGGING_REPLICA_ID, READ_COMMITTED)


def test_listed_offsets_come_with_their_error_codes() -> None:
    moved = {
        "partition_index": 3,
        "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "offset": -1,
    }
    partitions = [{"partition_index": 0, "error_code": 0, "offset": 70}, moved]
    answer = {"topics": [{"name": "a", "partitions": partitions}]}
    assert listed_offsets(answered(k02_list_offsets.API, LIST_OFFSETS_VERSION, answer)) == {
        ("a", 0): (0, 70),
        ("a", 3): (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
    }


def test_ends_of_epochs_are_asked_for_by_topic() -> None:
    request = epoch_ends({place: (9, number) for number, place in enumerate(PLACES)})
    asked = read(k23_offset_for_leader_epoch.API, EPOCH_ENDS_VERSION, request)
    found = [
        (topic["topic"], wanted["partition"], wanted["current_leader_epoch"], wanted["leader_epoch"])
        for topic in asked["topics"]
        for wanted in topic["partitions"]
    ]
    assert asked["replica_id"] == CONSUMER_REPLICA_ID
    assert found == [("a", 0, 9, 0), ("a", 3, 9, 2), ("b", 0, 9, 1)]


@pytest.mark.parametrize(("version", "epoch"), [(0, NO_EPOCH), (EPOCH_ENDS_VERSION, 4)])
def test_a_broker_of_an_old_version_tells_no_epoch(version: int, epoch: int) -> None:
    end = {"partition": 3, "error_code": 0, "end_offset": 70}
    answer = {"topics": [{"topic": "a", "partitions": [end if version == 0 else end | {"leader_epoch": 4}]}]}
    told = told_epoch_ends(answered(k23_offset_for_leader_epoch.API, version, answer))
    assert told == {("a", 3): (0, epoch, 70)}
