"""Finding a leader, and patience with one that moves: through real sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scripted_broker import API_VERSIONS, Answer, ScriptedBroker, scripted_broker, versions

from headrace.broker.client import blocking_cluster
from headrace.broker.client.blocking_cluster import BlockingCluster, ConnectionFailedError
from headrace.broker.errors import ErrorCode, KafkaError, OffsetOutOfRangeError, error_of

METADATA = 3
PLACE = ("a", 0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_cluster, "RETRY_WAIT_SECONDS", 0.0)


def metadata_of(brokers: list[ScriptedBroker], leader: int) -> dict[str, Any]:
    """An answer in which partition 0 of topic `a` is led by one of the brokers; their ids are their places."""
    partition = {"partition_index": 0, "leader_id": leader, "leader_epoch": 5}
    return {
        "brokers": [
            {"node_id": number, "host": broker.address[0], "port": broker.address[1]}
            for number, broker in enumerate(brokers)
        ],
        "topics": [{"name": "a", "partitions": [partition]}],
    }


def serving(metadata: Callable[[], Answer]) -> Callable[[int, dict[str, Any]], Answer]:
    def script(key: int, message: dict[str, Any]) -> Answer:
        return versions({METADATA: (0, 12)}) if key == API_VERSIONS else metadata()

    return script


def opened(*brokers: ScriptedBroker) -> BlockingCluster:
    return BlockingCluster([broker.address for broker in brokers], "test", 5)


def test_a_leader_is_looked_up_once_and_its_link_is_kept() -> None:
    brokers: list[ScriptedBroker] = []
    script = serving(lambda: metadata_of(brokers, 1))
    with scripted_broker(script) as first, scripted_broker(script) as second:
        brokers += [first, second]
        cluster = opened(first)
        link = cluster.to_leader(PLACE)
        assert cluster.to_leader(PLACE) is link is cluster.to(second.address)
        cluster.close()
    assert first.keys == [API_VERSIONS, METADATA]
    assert first.asked[1][1]["allow_auto_topic_creation"] is False
    assert second.keys == [API_VERSIONS]


def test_a_partition_without_a_leader_is_looked_up_again_and_then_refused() -> None:
    brokers: list[ScriptedBroker] = []
    with scripted_broker(serving(lambda: metadata_of(brokers, -1))) as broker:
        brokers.append(broker)
        cluster = opened(broker)
        with pytest.raises(ConnectionFailedError, match=r"a-0 has no leader \(after 3 attempts\)"):
            cluster.retried(lambda: cluster.to_leader(PLACE), "a", 3)
        cluster.close()
    assert broker.keys == [API_VERSIONS, METADATA, METADATA, METADATA]


def test_what_moved_is_looked_up_again_over_the_same_link() -> None:
    brokers: list[ScriptedBroker] = []
    with scripted_broker(serving(lambda: metadata_of(brokers, 0))) as broker:
        brokers.append(broker)
        cluster, refusals = opened(broker), [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH]

        def attempt() -> int:
            link = cluster.to_leader(PLACE)
            if refusals:
                raise error_of(refusals.pop())
            return link.number

        assert cluster.retried(attempt, "a") == cluster.to(broker.address).number
        cluster.close()
    assert broker.keys == [API_VERSIONS, METADATA, METADATA, METADATA]


def test_a_lost_connection_is_opened_again() -> None:
    brokers: list[ScriptedBroker] = []
    answers: list[Answer] = [b"", b"\x7f\xff\xff\xff"]
    with scripted_broker(serving(lambda: answers.pop() if answers else metadata_of(brokers, 0))) as broker:
        brokers.append(broker)
        cluster = opened(broker)
        assert cluster.retried(lambda: cluster.to_leader(PLACE), "a").number >= 0
        cluster.close()
    assert broker.keys == [API_VERSIONS, METADATA] * 3


@pytest.mark.parametrize("error", [OffsetOutOfRangeError("what"), error_of(ErrorCode.UNSUPPORTED_VERSION)])
def test_what_no_other_broker_would_answer_otherwise_is_raised_at_once(error: KafkaError) -> None:
    asked = []

    def attempt() -> None:
        asked.append(1)
        raise error

    with pytest.raises(type(error)):
        BlockingCluster([], "test", 5).retried(attempt, "a")
    assert asked == [1]


def test_any_broker_that_accepts_a_connection_will_do() -> None:
    brokers: list[ScriptedBroker] = []
    script = serving(lambda: metadata_of(brokers, 0))
    with scripted_broker(script) as gone:
        pass
    with scripted_broker(script) as broker:
        brokers.append(broker)
        cluster = BlockingCluster([("127.0.0.1", 1), broker.address], "test", 5)
        assert cluster.any() is cluster.to(broker.address)
        cluster.close()
    with pytest.raises(ConnectionError, match=r"no broker of .* accepts a connection"):
        BlockingCluster([("127.0.0.1", 1)], "test", 5).any()
    assert gone.keys == []


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (b"", "closed the connection"),
        (b"\x7f\xff\xff\xff", "announced an answer"),
        (b"\xff\xff\xff\xff", "announced an answer"),
    ],
)
def test_a_peer_that_is_no_broker_is_given_up(reply: bytes, sentence: str) -> None:
    with scripted_broker(lambda key, message: reply) as broker:
        cluster = opened(broker)
        with pytest.raises(ConnectionFailedError, match=sentence):
            cluster.retried(lambda: cluster.refresh(None), None)
    assert len(broker.asked) == blocking_cluster.ATTEMPTS_MAX


def test_where_no_broker_answers_a_refresh_that_may_fail_leaves_the_view_as_it_is() -> None:
    brokers: list[ScriptedBroker] = []
    with scripted_broker(serving(lambda: metadata_of(brokers, 0))) as broker:
        brokers.append(broker)
        cluster = opened(broker)
        cluster.refresh(["a"])
        cluster.close()
    cluster.refresh_if_possible(["a"])
    assert cluster.view.leader_of(PLACE) == broker.address
