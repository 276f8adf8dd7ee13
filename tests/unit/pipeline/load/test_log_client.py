"""What is asked of a cluster's logs, and what is made of the answers: through a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from scripted_broker import API_VERSIONS, Answer, ScriptedBroker, scripted_broker, versions

from headrace.broker.client import blocking_cluster
from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import ErrorCode, OffsetOutOfRangeError, UnsupportedVersionError
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.wire.special_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from headrace.load.log_client import LogClient
from headrace.load.ranges import LogOffsets

FETCH, LIST_OFFSETS, METADATA, LIST_GROUPS, EPOCH_END, DESCRIBE_CONFIGS = 1, 2, 3, 16, 23, 32
PLACE = TopicPartition("a", 0)
OTHER = TopicPartition("a", 1)
ID = str(UUID(int=7))


@dataclass
class Cluster:
    """One broker that leads both partitions of topic `a`; `codes` are the error codes of its answers, in their order."""

    served: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {FETCH: (4, 17), LIST_OFFSETS: (1, 9), METADATA: (0, 12), EPOCH_END: (2, 4)}
    )
    codes: list[int] = field(default_factory=list)
    brokers: list[ScriptedBroker] = field(default_factory=list)

    def answer(self, key: int, message: dict[str, Any]) -> Answer:
        if key == API_VERSIONS:
            return versions(self.served)
        if key == METADATA:
            return self.metadata()
        code = self.codes.pop(0) if self.codes else 0
        if key == FETCH:
            partition = {"partition_index": 0, "error_code": code, "high_watermark": 9, "records": b"batches"}
            partition |= {"last_stable_offset": 8, "log_start_offset": 3}
            return {"responses": [{"topic": "a", "topic_id": UUID(ID), "partitions": [partition]}]}
        if key == LIST_GROUPS:
            return {"error_code": code, "groups": [{"group_id": "billing", "protocol_type": "consumer"}]}
        if key == EPOCH_END:
            end = {"partition": 0, "error_code": code, "leader_epoch": 4, "end_offset": 6}
            return {"topics": [{"topic": "a", "partitions": [end]}]}
        assert key == LIST_OFFSETS
        ((topic,),) = (message["topics"],)
        partitions = [
            {
                "partition_index": wanted["partition_index"],
                "error_code": code,
                "offset": 3 if wanted["timestamp"] == EARLIEST_TIMESTAMP else 8,
            }
            for wanted in topic["partitions"]
        ]
        return {"topics": [{"name": topic["name"], "partitions": partitions}]}

    def metadata(self) -> dict[str, Any]:
        host, port = self.brokers[0].address
        partitions = [{"partition_index": number, "leader_id": 1, "leader_epoch": 5} for number in range(2)]
        return {
            "brokers": [{"node_id": 1, "host": host, "port": port}],
            "cluster_id": "here",
            "topics": [{"name": "a", "topic_id": UUID(ID), "partitions": partitions}],
        }


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_cluster, "RETRY_WAIT_SECONDS", 0.0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    with scripted_broker(made.answer) as broker:
        made.brokers.append(broker)
        yield made


def opened(cluster: Cluster) -> LogClient:
    host, port = cluster.brokers[0].address
    return LogClient(Bootstrap(f"{host}:{port}"), timeout_seconds=5)


def test_partitions_and_ids_are_those_of_the_metadata(cluster: Cluster) -> None:
    client = opened(cluster)
    assert client.partitions("a".__eq__) == [PLACE, OTHER]
    assert client.partitions("b".__eq__) == []
    assert (client.topic_ids(), client.cluster_id()) == ({"a": ID}, "here")
    assert (client.leader_host(PLACE), client.leader_host(TopicPartition("b", 0))) == ("127.0.0.1", "")
    client.close()


def test_a_client_that_asked_nothing_yet_hears_of_all_groups(cluster: Cluster) -> None:
    cluster.served[LIST_GROUPS] = (0, 4)
    client = opened(cluster)
    assert client.groups() == ["billing"]
    client.close()


@pytest.mark.parametrize(("served", "wants"), [((4, 17), True), ((4, 11), False)])
def test_headers_alone_are_asked_for_where_a_version_can_say_so(
    cluster: Cluster, served: tuple[int, int], wants: bool
) -> None:
    cluster.served[FETCH] = served
    client = opened(cluster)
    assert not client.fetch(PLACE, 3, wants_headers=True).is_headers, "it gives whole batches all the same"
    client.fetch(PLACE, 3)
    client.close()
    asked = [message for key, message in cluster.brokers[0].asked if key == FETCH]
    assert [message["wants_batch_headers"] for message in asked] == [wants, False]


@pytest.mark.parametrize("topic_id", [None, ID])
def test_a_fetch_names_what_it_believes_in_and_tells_who_answered(
    cluster: Cluster, topic_id: str | None
) -> None:
    client = opened(cluster)
    first = client.fetch(PLACE, 3, topic_id=topic_id)
    assert (bytes(first.records), first.high_watermark, first.last_stable_offset) == (b"batches", 9, 8)
    again = client.fetch(PLACE, 3, topic_id=topic_id)
    assert first.origin == again.origin
    client.close()
    other = client.fetch(PLACE, 3, topic_id=topic_id)
    assert other.origin is not None
    assert other.origin != first.origin
    assert other.origin.leader_epoch == 5
    client.close()
    topics = [message["topics"][0] for key, message in cluster.brokers[0].asked if key == FETCH]
    assert {topic["partitions"][0]["current_leader_epoch"] for topic in topics} == {5}
    named = {(topic["topic"], str(topic["topic_id"])) for topic in topics}
    assert named == ({("a", str(UUID(int=0)))} if topic_id is None else {("", ID)})


def test_a_leader_that_moved_is_looked_up_and_asked_again(cluster: Cluster) -> None:
    cluster.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH]
    client = opened(cluster)
    assert client.epoch_end(PLACE, 4) == (4, 6)
    client.close()
    assert cluster.brokers[0].keys == [API_VERSIONS, *[METADATA, EPOCH_END] * 3]


def test_what_a_broker_refuses_for_good_is_raised_at_once(cluster: Cluster) -> None:
    cluster.codes = [ErrorCode.OFFSET_OUT_OF_RANGE]
    client = opened(cluster)
    with pytest.raises(OffsetOutOfRangeError, match="fetch from a-0 at offset 3"):
        client.fetch(PLACE, 3)
    client.close()
    assert cluster.brokers[0].keys.count(FETCH) == 1


def test_what_a_broker_does_not_serve_is_said_and_not_sent(cluster: Cluster) -> None:
    del cluster.served[EPOCH_END]
    client = opened(cluster)
    with pytest.raises(UnsupportedVersionError, match="does not serve OffsetForLeaderEpoch up to version 3"):
        client.epoch_end(PLACE, 4)
    client.close()
    assert EPOCH_END not in cluster.brokers[0].keys


def test_offsets_are_asked_once_a_broker_and_again_only_where_they_are_missing(cluster: Cluster) -> None:
    client = opened(cluster)
    places = client.partitions("a".__eq__)
    assert client.log_offsets(places) == dict.fromkeys(places, LogOffsets(3, 8))
    assert cluster.brokers[0].keys.count(LIST_OFFSETS) == 2
    cluster.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert client.reachable_log_offsets(places) == dict.fromkeys(places, LogOffsets(3, 8))
    assert cluster.brokers[0].keys.count(LIST_OFFSETS) == 5
    client.close()


def test_ends_are_told_before_those_of_others_are_asked_for(cluster: Cluster) -> None:
    client = opened(cluster)
    client.partitions("a".__eq__)
    assert client.reachable_ends_and_offsets([OTHER], [PLACE]) == ({OTHER: 8}, {PLACE: LogOffsets(3, 8)})
    asked = [
        [(wanted["partition_index"], wanted["timestamp"]) for wanted in message["topics"][0]["partitions"]]
        for key, message in cluster.brokers[0].asked
        if key == LIST_OFFSETS
    ]
    assert asked == [[(0, EARLIEST_TIMESTAMP), (1, LATEST_TIMESTAMP)], [(0, LATEST_TIMESTAMP)]]
    both = client.reachable_ends_and_offsets([OTHER], [OTHER])
    assert both == ({OTHER: 8}, {OTHER: LogOffsets(3, 8)})
    client.close()


def test_partitions_without_a_leader_are_named(cluster: Cluster) -> None:
    client = opened(cluster)
    nowhere = TopicPartition("nowhere", 0)
    assert client.reachable_log_offsets([nowhere]) == {}
    with pytest.raises(ConnectionFailedError, match=r"no leader answers for nowhere-0 \(after 6 attempts\)"):
        client.log_offsets([nowhere])
    client.close()
