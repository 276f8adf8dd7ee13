"""Ordinary Kafka clients against one broker: they notice no difference."""

from __future__ import annotations

import time
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from processes import DevCluster


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4()}"


def consume_all(bootstrap: str, topic: str, count: int, **settings: object) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": str(uuid4()),
            "auto.offset.reset": "earliest",
            **settings,
        }
    )
    consumer.subscribe([topic])
    messages: list[confluent_kafka.Message] = []
    deadline = time.monotonic() + 30
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(count - len(messages), timeout=1)
    consumer.close()
    assert [message.error() for message in messages if message.error()] == []
    return [message.value() or b"" for message in messages]


def produce(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> None:
    errors: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(20) == 0
    assert errors == []


@pytest.mark.parametrize(
    "settings", [{"acks": 0}, {"acks": 1}, {"acks": "all"}, {"enable.idempotence": True}]
)
def test_every_kind_of_acknowledgement_stores_the_messages(
    broker: DevCluster, topic: str, settings: dict[str, object]
) -> None:
    values = [str(i).encode() for i in range(200)]
    produce(broker.bootstrap, topic, [b"first"])
    produce(broker.bootstrap, topic, values, **settings)
    assert len(consume_all(broker.bootstrap, topic, 201)) == 201


def test_topic_configuration_says_where_each_value_comes_from(broker: DevCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "12345"})])[topic].result()
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result()
    assert (entries["retention.ms"].value, entries["retention.ms"].is_default) == ("12345", False)
    assert (entries["segment.bytes"].value, entries["segment.bytes"].is_default) == ("1073741824", True)
    broker_resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    values = admin.describe_configs([broker_resource])[broker_resource].result()
    assert values["broker.id"].value == "1"


def test_the_cluster_is_described(broker: DevCluster) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    description = admin.describe_cluster().result()
    assert [node.id for node in description.nodes] == [1]
    assert description.controller.id == 1
    assert description.cluster_id


def test_a_message_larger_than_allowed_is_refused_and_the_next_one_taken(
    broker: DevCluster, topic: str
) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "message.max.bytes": 3_000_000}
    )
    outcomes: list[tuple[str, object]] = []

    def record(error: object, message: confluent_kafka.Message) -> None:
        code = error.code() if isinstance(error, confluent_kafka.KafkaError) else None
        outcomes.append(("small" if len(message.value() or b"") < 100 else "large", code))

    producer.produce(topic, b"x" * 2_000_000, on_delivery=record)
    assert producer.flush(20) == 0
    producer.produce(topic, b"small", on_delivery=record)
    assert producer.flush(20) == 0
    assert outcomes == [("large", confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE), ("small", None)]
