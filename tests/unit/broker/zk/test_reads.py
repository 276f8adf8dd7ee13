"""What others wrote into ZooKeeper is read as far as it makes sense."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.reads import read_brokers, read_states, read_topics, understood
from headrace.broker.zk.znodes import Znode

BROKER = b'{"version":5,"endpoints":["PLAINTEXT://h:9092"],"listener_security_protocol_map":{}}'
TOPIC = b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'


class ZooKeeper(ZooKeeperClient):
    """Only reads, of znodes in memory."""

    def __init__(self, **znodes: bytes) -> None:
        self.znodes = {path.replace("__", "/"): data for path, data in znodes.items()}

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        return [Znode(self.znodes[p], 4, 7, 0, 0) if p in self.znodes else None for p in paths]


def test_a_znode_that_nobody_understands_does_not_hide_the_others() -> None:
    topics = ZooKeeper(
        __brokers__topics__a=TOPIC, __brokers__topics__b=b"garbage", __brokers__topics__c=TOPIC
    )
    assert list(asyncio.run(read_topics(topics, ["a", "b", "c", "gone"]))) == ["a", "c"]
    brokers = ZooKeeper(__brokers__ids__1=b"", __brokers__ids__2=BROKER)
    found = asyncio.run(read_brokers(brokers, ["1", "2"]))
    assert {broker_id: broker.epoch for broker_id, broker in found.items()} == {2: 7}


NO_TOPICS = [
    b"[1,2]",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"partitions":[1]}',
    b'{"partitions":{"x":[1]}}',
    b'{"partitions":{"-1":[1]}}',
    b'{"partitions":{"99999999999":[1]}}',
    b'{"partitions":{"0":null}}',
    b'{"partitions":{"0":"1"}}',
    b'{"partitions":{"0":[true]}}',
    b'{"partitions":{"0":[1000000000000]}}',
    b'{"partitions":{"0":[1]},"adding_replicas":[1]}',
    b'{"partitions":{"0":[1]},"topic_id":7}',
    b'{"partitions":{"0":[1]},"topic_id":"zzz"}',
]
NO_BROKERS = [
    b'{"endpoints":5}',
    b'{"endpoints":[5]}',
    b'{"endpoints":["h:1"]}',
    b'{"endpoints":["A://h:99999"]}',
    b'{"endpoints":["A://h:1"],"listener_security_protocol_map":[1]}',
]
NO_STATES = [
    STATE.replace(b"[1]", b"5"),
    STATE.replace(b'"leader":1', b'"leader":"x"'),
    STATE.replace(b'"leader":1', b'"leader":null'),
    STATE.replace(b'"leader":1,', b""),
]


@pytest.mark.parametrize("data", NO_TOPICS)
def test_a_topic_of_nonsense_is_passed_over(data: bytes) -> None:
    assert asyncio.run(read_topics(ZooKeeper(__brokers__topics__a=data), ["a"])) == {}


@pytest.mark.parametrize("name", ["a b", "é", "l" * 250])
def test_a_topic_whose_name_no_kafka_allows_is_passed_over(name: str) -> None:
    zookeeper = ZooKeeper()
    zookeeper.znodes = {f"/brokers/topics/{name}": TOPIC}
    assert asyncio.run(read_topics(zookeeper, [name])) == {}


@pytest.mark.parametrize("data", NO_BROKERS)
def test_a_broker_of_nonsense_is_passed_over(data: bytes) -> None:
    assert asyncio.run(read_brokers(ZooKeeper(__brokers__ids__1=data), ["1"])) == {}


@pytest.mark.parametrize("name", ["abc", "-4", "01", "99999999999", "²"])
def test_a_broker_without_an_id_is_passed_over(name: str) -> None:
    zookeeper = ZooKeeper()
    zookeeper.znodes = {f"/brokers/ids/{name}": BROKER}
    assert asyncio.run(read_brokers(zookeeper, [name])) == {}


@pytest.mark.parametrize("data", NO_STATES)
def test_a_state_of_nonsense_is_none(data: bytes) -> None:
    zookeeper = ZooKeeper(__brokers__topics__a__partitions__0__state=data)
    assert asyncio.run(read_states(zookeeper, [("a", 0)])) == {("a", 0): None}


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (paths.decode_controller, b"{}"),
        (paths.decode_controller, b'{"brokerid":"x"}'),
        (paths.decode_controller_epoch, b""),
        (paths.decode_controller_epoch, b"-1"),
        (paths.decode_cluster_id, b"{}"),
        (paths.decode_config_change, b"[]"),
        (paths.decode_isr_change, b'{"partitions":[1]}'),
        (paths.decode_log_directory_event, b'{"broker":"a"}'),
        (paths.decode_producer_id_block, b'{"block_start":"1"}'),
    ],
)
def test_the_small_znodes_are_passed_over_too(decode: Callable[[bytes], object], data: bytes) -> None:
    assert understood([Znode(data, 0, 0, 0, 0)], decode) == []


def test_a_state_that_nobody_understands_is_none() -> None:
    znodes = {"/brokers/topics/a/partitions/0/state": STATE, "/brokers/topics/a/partitions/1/state": b"[]"}
    zookeeper = ZooKeeper()
    zookeeper.znodes = znodes
    states = asyncio.run(read_states(zookeeper, [("a", 0), ("a", 1), ("a", 2)]))
    assert {key: state and (state.leader, state.zk_version) for key, state in states.items()} == {
        ("a", 0): (1, 4),
        ("a", 1): None,
        ("a", 2): None,
    }
