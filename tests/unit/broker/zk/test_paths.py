"""Znode contents byte for byte as Apache Kafka 3.9.2 wrote them (observed), and what older versions wrote."""

import json
from uuid import UUID

import pytest

from headrace.broker.auth.delegation_tokens import Token
from headrace.broker.auth.principal import Principal
from headrace.broker.replication.model import (
    RECOVERING,
    Broker,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from headrace.broker.zk import paths

PLAINTEXT = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="127.0.0.1", port=40887)
KAFKA_BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://127.0.0.1:40887"],"rack":"r1","jmx_port":-1,"port":40887,"host":"127.0.0.1",'
    b'"version":5,"timestamp":"1795261028322"}'
)
KAFKA_TOPIC = (
    b'{"partitions":{"0":[1001],"1":[1001],"2":[1001]},"topic_id":"3Jht6o43SfK5fTzYJ8tY9g",'
    b'"adding_replicas":{},"removing_replicas":{},"version":3}'
)
KAFKA_STATE = b'{"controller_epoch":1,"leader":1001,"version":1,"leader_epoch":0,"isr":[1001]}'


def test_a_registration_is_written_as_kafka_writes_it() -> None:
    broker = Broker(broker_id=1001, epoch=7, endpoints=(PLAINTEXT,), rack="r1")
    assert paths.encode_broker(broker, jmx_port=-1, now_ms=1795261028322) == KAFKA_BROKER
    assert paths.decode_broker(1001, KAFKA_BROKER, 7) == broker


def test_a_registration_without_rack_has_no_such_field() -> None:
    broker = Broker(broker_id=1, epoch=-1, endpoints=(PLAINTEXT,))
    data = paths.encode_broker(broker, jmx_port=-1, now_ms=5)
    assert b"rack" not in data
    assert paths.decode_broker(1, data, -1) == broker


def test_listeners_with_names_and_ipv6_hosts_survive_a_registration() -> None:
    endpoints = (
        Endpoint(listener="INTERNAL", security_protocol="SSL", host="::1", port=1),
        Endpoint(listener="OUT", security_protocol="PLAINTEXT", host="h.example", port=2),
    )
    broker = Broker(broker_id=1, epoch=3, endpoints=endpoints)
    data = paths.encode_broker(broker, jmx_port=-1, now_ms=5)
    assert b'"INTERNAL://[::1]:1"' in data
    assert b'"port":2,"host":"h.example"' in data, "the first plaintext endpoint is the old clients' one"
    assert paths.decode_broker(1, data, 3) == broker


def test_a_registration_of_version_2_names_its_protocols_as_listeners() -> None:
    data = b'{"version":2,"host":"h","port":1,"jmx_port":9,"timestamp":"2","endpoints":["PLAINTEXT://h:1"]}'
    (endpoint,) = paths.decode_broker(4, data, 1).endpoints
    assert endpoint == Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=1)


def test_a_topic_is_written_as_kafka_writes_it() -> None:
    assignment = TopicAssignment(
        topic="plain",
        topic_id=paths.decode_uuid("3Jht6o43SfK5fTzYJ8tY9g"),
        partitions={p: ReplicaAssignment(replicas=(1001,)) for p in range(3)},
    )
    assert paths.encode_topic(assignment) == KAFKA_TOPIC
    assert paths.decode_topic("plain", KAFKA_TOPIC) == assignment


def test_a_topic_under_reassignment_keeps_its_moving_replicas() -> None:
    assignment = TopicAssignment(
        topic="t",
        topic_id=UUID(int=1),
        partitions={0: ReplicaAssignment(replicas=(1, 2), adding=(2,), removing=(1,))},
    )
    assert paths.decode_topic("t", paths.encode_topic(assignment)) == assignment


def test_a_topic_of_version_1_has_no_id() -> None:
    found = paths.decode_topic("t", b'{"version":1,"partitions":{"1":[3,4],"0":[4]}}')
    assert found.topic_id == UUID(int=0)
    assert found.partitions[1] == ReplicaAssignment(replicas=(3, 4))


def test_a_partition_state_is_written_as_kafka_writes_it() -> None:
    state = PartitionState(leader=1001, leader_epoch=0, isr=(1001,), controller_epoch=1, zk_version=4)
    assert paths.encode_partition_state(state) == KAFKA_STATE
    assert paths.decode_partition_state("/x", KAFKA_STATE, 4) == state


def test_a_leader_with_something_to_recover_from_is_marked_in_the_state() -> None:
    state = PartitionState(
        leader=2, leader_epoch=5, isr=(2,), controller_epoch=1, leader_recovery_state=RECOVERING
    )
    marked = (
        b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":5,"isr":[2],"leader_recovery_state":1}'
    )
    assert paths.encode_partition_state(state) == marked
    assert paths.decode_partition_state("/x", marked, 0) == state
    with pytest.raises(paths.MalformedZnodeError, match="2 is no leader recovery state"):
        paths.decode_partition_state("/x", marked.replace(b'state":1', b'state":2'), 0)


def test_the_small_znodes_are_written_as_kafka_writes_them() -> None:
    assert paths.encode_controller(1001, 1795261028384) == (
        b'{"version":2,"brokerid":1001,"timestamp":"1795261028384","kraftControllerEpoch":-1}'
    )
    assert (
        paths.encode_cluster_id("9NyLyGrFS9idBlJbO4ZPXw") == b'{"version":"1","id":"9NyLyGrFS9idBlJbO4ZPXw"}'
    )
    assert paths.encode_feature() == b'{"features":{},"version":2,"status":1}'
    assert paths.encode_config({"retention.ms": "1000000", "segment.bytes": "1048576"}) == (
        b'{"version":1,"config":{"retention.ms":"1000000","segment.bytes":"1048576"}}'
    )
    assert paths.encode_config_change("topics/t") == b'{"version":2,"entity_path":"topics/t"}'
    assert paths.encode_producer_id_block(1, 0, 999) == (
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    )


def test_small_znodes_are_read_back() -> None:
    assert paths.decode_controller(paths.encode_controller(3, 5)) == 3
    assert paths.decode_cluster_id(paths.encode_cluster_id("abc")) == "abc"
    assert paths.decode_producer_id_block(paths.encode_producer_id_block(1, 1000, 1999)) == (1000, 1999)
    assert paths.decode_config("/c", paths.encode_config({"a": "1"})) == {"a": "1"}
    assert paths.decode_config("/c", b"") == {}
    assert paths.decode_isr_change(b'{"version":1,"partitions":[{"topic":"t","partition":2}]}') == [("t", 2)]
    wish = b'{"version":1,"partitions":[{"topic":"t","partition":2},{"topic":"u","partition":0}]}'
    assert paths.encode_preferred_election([("t", 2), ("u", 0)]) == wish
    assert paths.decode_preferred_election(wish) == {("t", 2), ("u", 0)}


def test_wishes_for_other_replicas_are_read_as_tools_write_them() -> None:
    wish = b'{"version":1,"partitions":[{"topic":"t","partition":2,"replicas":[3,1]}]}'
    assert paths.encode_reassignment({("t", 2): (3, 1)}) == wish
    assert paths.decode_reassignment(wish) == {("t", 2): (3, 1)}
    with_log_dirs = wish.replace(b"}]}", b',"log_dirs":["any","any"]}]}')
    assert paths.decode_reassignment(with_log_dirs) == {("t", 2): (3, 1)}


@pytest.mark.parametrize(
    "data", [b"no JSON", b"{}", b'{"partitions":[{"topic":"t","partition":0}]}', b'{"partitions":7}']
)
def test_a_wish_for_other_replicas_that_no_tool_wrote_is_reported(data: bytes) -> None:
    with pytest.raises(paths.MalformedZnodeError):
        paths.decode_reassignment(data)


def test_config_changes_of_both_versions_name_their_entity() -> None:
    assert paths.decode_config_change(b'{"version":2,"entity_path":"topics/t"}') == "topics/t"
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert paths.decode_config_change(old) == "topics/t"
    assert paths.decode_config_change(b'{"version":9}') is None


LAST_EPOCH = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":2147483647,"isr":[1]}'


@pytest.mark.parametrize("data", [b"", b"no json", b"[1]", b'{"version":1}', LAST_EPOCH])
def test_a_znode_that_no_kafka_wrote_is_reported(data: bytes) -> None:
    with pytest.raises(paths.MalformedZnodeError):
        paths.decode_partition_state("/brokers/topics/t/partitions/0/state", data, 0)


def test_a_wrong_endpoint_is_reported_with_what_is_allowed() -> None:
    with pytest.raises(paths.MalformedZnodeError, match="LISTENER://host:port"):
        paths.decode_broker(1, b'{"version":5,"endpoints":["nonsense"]}', 0)


@pytest.mark.parametrize(
    "data", [b"", b"no JSON", b"[]", b"{}", b'{"partitions":7}', b'{"partitions":[{"topic":"t"}]}']
)
def test_a_wish_for_preferred_leaders_that_no_kafka_wrote_is_refused(data: bytes) -> None:
    with pytest.raises(paths.MalformedZnodeError):
        paths.decode_preferred_election(data)


def test_a_token_is_written_as_kafka_writes_it_and_older_ones_are_read() -> None:
    alice, bob = Principal("User", "alice=a,b"), Principal("User", "bob")
    token = Token(
        token_id="t1",
        owner=alice,
        requester=bob,
        renewers=(bob,),
        issued_at_ms=1,
        expires_at_ms=2,
        ends_at_ms=3,
    )
    data = paths.encode_token(token)
    assert json.loads(data) == {
        "version": 3,
        "owner": "User%3Aalice%3Da%2Cb",
        "tokenRequester": "User%3Abob",
        "renewers": ["User%3Abob"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "t1",
    }
    assert paths.decode_token(paths.token("t1"), data) == token
    older = json.loads(data) | {"version": 1}
    del older["tokenRequester"]
    assert paths.decode_token("/t", json.dumps(older).encode()).requester == alice
    for bad in (
        b"",
        b"[]",
        b"{}",
        b'{"version":4}',
        data.replace(b'"User%3Abob"]', b"7]"),
        data.replace(b":1,", b':"x",'),
    ):
        with pytest.raises(paths.MalformedZnodeError):
            paths.decode_token("/t", bad)


@pytest.mark.parametrize("data", [b"canary", b'["canary"]', b'{"version":1,"config":["canary"]}'])
def test_what_may_be_secret_is_not_in_the_sentence_about_it(data: bytes) -> None:
    for kind, is_hidden in (("users", True), ("brokers", True), ("topics", False)):
        with pytest.raises(paths.MalformedZnodeError) as error:
            paths.decode_config(paths.entity_config(kind, "x"), data)
        assert ("canary" in str(error.value)) != is_hidden
