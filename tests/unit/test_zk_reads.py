"""What others wrote into ZooKeeper is read as far as it makes sense."""

import asyncio

from headrace.broker.zk.client import Znode
from headrace.broker.zk.reads import read_brokers, read_states, read_topics

BROKER = b'{"version":5,"endpoints":["PLAINTEXT://h:9092"],"listener_security_protocol_map":{}}'
TOPIC = b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'


class ZooKeeper:
    def __init__(self, **znodes):
        self.znodes = {path.replace("__", "/"): data for path, data in znodes.items()}

    async def get_many(self, paths):
        return [Znode(self.znodes[p], 4, 7, 0, 0) if p in self.znodes else None for p in paths]


def test_a_znode_that_nobody_understands_does_not_hide_the_others():
    topics = ZooKeeper(
        __brokers__topics__a=TOPIC, __brokers__topics__b=b"garbage", __brokers__topics__c=TOPIC
    )
    assert list(asyncio.run(read_topics(topics, ["a", "b", "c", "gone"]))) == ["a", "c"]
    brokers = ZooKeeper(__brokers__ids__1=b"", __brokers__ids__2=BROKER)
    found = asyncio.run(read_brokers(brokers, ["1", "2"]))
    assert {broker_id: broker.epoch for broker_id, broker in found.items()} == {2: 7}


def test_a_state_that_nobody_understands_is_none():
    znodes = {"/brokers/topics/a/partitions/0/state": STATE, "/brokers/topics/a/partitions/1/state": b"[]"}
    zookeeper = ZooKeeper()
    zookeeper.znodes = znodes
    states = asyncio.run(read_states(zookeeper, [("a", 0), ("a", 1), ("a", 2)]))
    assert {key: state and (state.leader, state.zk_version) for key, state in states.items()} == {
        ("a", 0): (1, 4),
        ("a", 1): None,
        ("a", 2): None,
    }
