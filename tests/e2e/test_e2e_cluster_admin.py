"""Topics as an administrator's client creates, grows, configures and deletes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from processes import DevCluster, eventually
from raw_client import RawClient

CREATE_TOPICS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 19, 32, 44
SET, DELETE = 0, 1
TOPIC, BROKER = 2, 4
DYNAMIC_DEFAULT_BROKER, DEFAULT = 3, 5


@pytest.fixture(scope="module")
def admin(broker: DevCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4()}"


def create(admin: AdminClient, topic: NewTopic, **options: object) -> None:
    admin.create_topics([topic], **options)[topic.topic].result(30)


def partitions(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(timeout=10).topics[topic].partitions)


def config(admin: AdminClient, topic: str) -> dict[str, str]:
    (entries,) = [f.result(30) for f in admin.describe_configs([ConfigResource("topic", topic)]).values()]
    return {name: entry.value for name, entry in entries.items()}


def refused(work: Callable[[], object]) -> str:
    with pytest.raises(KafkaException) as caught:
        work()
    return str(caught.value.args[0].name())


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        (NewTopic("bad name", 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic("x" * 250, 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic("none", 0, 1), "INVALID_PARTITIONS"),
        (NewTopic("three", 1, 3), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("conf", 1, 1, config={"no.such.key": "1"}), "INVALID_CONFIG"),
        (NewTopic("conf", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
        (NewTopic("manual", 1, replica_assignment=[[77]]), "INVALID_REPLICA_ASSIGNMENT"),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code(admin: AdminClient, wish: NewTopic, code: str) -> None:
    assert refused(lambda: create(admin, wish)) == code
    assert wish.topic not in admin.list_topics(timeout=10).topics


def test_a_topic_that_exists_or_collides_is_refused(admin: AdminClient) -> None:
    create(admin, NewTopic("a.b", 1, 1))
    assert refused(lambda: create(admin, NewTopic("a.b", 1, 1))) == "TOPIC_ALREADY_EXISTS"
    assert refused(lambda: create(admin, NewTopic("a_b", 1, 1))) == "TOPIC_EXCEPTION"


def test_validation_alone_creates_nothing(admin: AdminClient, topic: str) -> None:
    create(admin, NewTopic(topic, 2, 1), validate_only=True)
    assert topic not in admin.list_topics(timeout=10).topics


def test_a_manual_assignment_is_kept(admin: AdminClient, topic: str) -> None:
    create(admin, NewTopic(topic, 2, replica_assignment=[[1], [1]]))
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    assert {p: m.replicas for p, m in found.items()} == {0: [1], 1: [1]}


def test_a_topic_grows_and_never_shrinks(admin: AdminClient, topic: str) -> None:
    create(admin, NewTopic(topic, 2, 1))
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    assert partitions(admin, topic) == 5
    for count in (5, 3):
        grown = admin.create_partitions([NewPartitions(topic, count)])[topic]
        assert refused(partial(grown.result, 30)) == "INVALID_PARTITIONS"
    assert partitions(admin, topic) == 5


def test_single_values_are_set_appended_and_deleted(admin: AdminClient, topic: str) -> None:
    create(admin, NewTopic(topic, 1, 1, config={"retention.ms": "1000"}))

    def alter(name: str, operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    alter("segment.bytes", AlterConfigOpType.SET, "1048576")
    alter("cleanup.policy", AlterConfigOpType.APPEND, "compact")
    eventually(lambda: config(admin, topic)["cleanup.policy"] == "delete,compact", what="the appended policy")
    assert config(admin, topic)["segment.bytes"] == "1048576"
    assert config(admin, topic)["retention.ms"] == "1000"
    alter("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete")
    alter("retention.ms", AlterConfigOpType.DELETE, None)
    eventually(lambda: config(admin, topic)["retention.ms"] == "604800000", what="the default again")
    assert config(admin, topic)["cleanup.policy"] == "compact"
    assert refused(lambda: alter("retention.ms", AlterConfigOpType.SET, "soon")) == "INVALID_CONFIG"
    assert refused(lambda: alter("segment.bytes", AlterConfigOpType.APPEND, "1")) == "INVALID_CONFIG"


def test_all_values_are_replaced_at_once(admin: AdminClient, topic: str) -> None:
    create(admin, NewTopic(topic, 1, 1, config={"retention.ms": "1000"}))
    resource = ConfigResource("topic", topic, set_config={"segment.bytes": "2097152"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        admin.alter_configs([resource])[resource].result(30)
    eventually(lambda: config(admin, topic)["segment.bytes"] == "2097152", what="the new value")
    assert config(admin, topic)["retention.ms"] == "604800000"


def test_a_new_topic_goes_by_what_is_set_for_all_brokers(broker: DevCluster, topic: str) -> None:
    def set_for_all(operation: int, value: str | None) -> None:
        change = {"name": "log.index.interval.bytes", "config_operation": operation, "value": value}
        resource = {"resource_type": BROKER, "resource_name": "", "configs": [change]}
        message = {"resources": [resource], "validate_only": False}
        assert client.ask(INCREMENTAL_ALTER_CONFIGS, 1, message)["responses"][0]["error_code"] == 0

    def shown(name: str) -> tuple[object, object]:
        """(value, source) of the topic's entry, which CreateTopics and DescribeConfigs show alike."""
        wish = {"name": name, "num_partitions": 1, "replication_factor": 1}
        made = client.ask(CREATE_TOPICS, 7, {"topics": [wish], "timeout_ms": 20_000, "validate_only": False})
        resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
        described = client.ask(DESCRIBE_CONFIGS, 4, {"resources": [resource]})
        (one,), (other,) = (
            [(c["value"], c["config_source"]) for c in configs if c["name"] == "index.interval.bytes"]
            for configs in (made["topics"][0]["configs"], described["results"][0]["configs"])
        )
        assert one == other
        return one

    client = RawClient(broker)
    assert shown(f"{topic}-before") == ("4096", DEFAULT)
    set_for_all(SET, "8192")
    try:
        eventually(
            lambda: shown(f"topic-{uuid4()}") == ("8192", DYNAMIC_DEFAULT_BROKER), what="the new default"
        )
    finally:
        set_for_all(DELETE, None)


def test_a_topic_is_deleted_once(admin: AdminClient, topic: str) -> None:
    create(admin, NewTopic(topic, 3, 1))
    admin.delete_topics([topic])[topic].result(30)
    assert topic not in admin.list_topics(timeout=10).topics
    assert refused(lambda: admin.delete_topics([topic])[topic].result(30)) == "UNKNOWN_TOPIC_OR_PART"


def test_the_name_of_a_deleted_topic_is_free_at_once(admin: AdminClient, topic: str) -> None:
    for partition_count in range(1, 21):
        create(admin, NewTopic(topic, partition_count, 1))
        admin.delete_topics([topic])[topic].result(30)
    create(admin, NewTopic(topic, 2, 1))
    assert partitions(admin, topic) == 2


def test_a_new_topic_waits_for_the_end_of_its_namesake(
    broker: DevCluster, admin: AdminClient, topic: str
) -> None:
    other = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    create(admin, NewTopic(topic, 200, 1))
    deletion = admin.delete_topics([topic])[topic]
    while topic in other.list_topics(timeout=10).topics:
        pass
    create(other, NewTopic(topic, 3, 1))
    deletion.result(30)
    assert partitions(other, topic) == 3


def test_500_partitions_are_created_and_led_in_one_request(admin: AdminClient, topic: str) -> None:
    create(admin, NewTopic(topic, 500, 1))
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    assert {m.leader for m in found.values()} == {1}
    assert len(found) == 500


def test_deletion_that_is_switched_off_is_refused(dev_cluster: Callable[..., DevCluster]) -> None:
    one = dev_cluster(set={"delete.topic.enable": "false"})
    admin = AdminClient({"bootstrap.servers": one.bootstrap, "log_level": 0})
    create(admin, NewTopic("kept", 1, 1))
    assert refused(lambda: admin.delete_topics(["kept"])["kept"].result(30)) == "TOPIC_DELETION_DISABLED"
    assert "kept" in admin.list_topics(timeout=10).topics


def test_topics_outlive_a_restart_of_everything(dev_cluster: Callable[..., DevCluster]) -> None:
    first = dev_cluster(brokers=2)
    admin = AdminClient({"bootstrap.servers": first.bootstrap, "log_level": 0})
    create(admin, NewTopic("kept", 4, 1, config={"retention.ms": "12345678"}))
    assert first.stop() == 0
    second = dev_cluster(brokers=2, data=first.data)
    admin = AdminClient({"bootstrap.servers": second.bootstrap, "log_level": 0})
    deadline = time.monotonic() + 20
    while {m.leader for m in admin.list_topics(timeout=10).topics["kept"].partitions.values()} != {1, 2}:
        assert time.monotonic() < deadline, "the partitions are not led again"
        time.sleep(0.05)
    assert config(admin, "kept")["retention.ms"] == "12345678"
