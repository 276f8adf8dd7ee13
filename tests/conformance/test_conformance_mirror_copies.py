"""A mirror's copy refuses every client's messages at once, with an error that says why, and others' topics go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_oracle import run_tool
from processes import DevProcess

COPY, OWN = "dc-east.orders", "own"
VERIFIABLE = "org.apache.kafka.tools.VerifiableProducer"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster that mirrors one which is not there: what is marked as its copy is one all the same."""
    settings = {"mirror.sources": "dc-east", "mirror.dc-east.bootstrap.servers": "127.0.0.1:1"}
    cluster = DevProcess(tmp_path_factory.mktemp("copies"), set=settings)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = [NewTopic(COPY, 1, 1, config={"headrace.mirror.clusters": "EAST"}), NewTopic(OWN, 1, 1)]
    for made in admin.create_topics(topics).values():
        made.result(20)
    yield cluster.bootstrap
    cluster.end()


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_librdkafka_fails_the_message_and_goes_on(bootstrap: str, is_idempotent: bool) -> None:
    told: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": is_idempotent, "log_level": 0})
    for topic in (COPY, OWN):
        producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error and error.name()))
        assert producer.flush(30) == 0
    assert told == ["POLICY_VIOLATION", None]


def test_kafka_python_raises_the_brokers_sentence_and_goes_on(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=False)
    with pytest.raises(kafka.errors.PolicyViolationError, match="only the mirror writes to"):
        producer.send(COPY, b"x").get(30)
    assert producer.send(OWN, b"x").get(30).offset >= 0
    producer.close()


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_aiokafka_raises_and_goes_on(bootstrap: str, is_idempotent: bool) -> None:
    async def script() -> int:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=is_idempotent
        ) as producer:
            with pytest.raises(aiokafka.errors.PolicyViolationError):
                await producer.send_and_wait(COPY, b"x")
            return int((await producer.send_and_wait(OWN, b"x")).offset)

    assert asyncio.run(script()) >= 0


@pytest.mark.acceptance
def test_the_java_producer_says_why(bootstrap: str, kafka_jars: Path) -> None:
    arguments = ("--bootstrap-server", bootstrap, "--topic", COPY, "--max-messages", "1")
    ended = run_tool(kafka_jars, VERIFIABLE, *arguments)
    told = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    (error,) = [event for event in told if event["name"] == "producer_send_error"]
    assert error["exception"] == "class org.apache.kafka.common.errors.PolicyViolationException"
    assert "only the mirror writes to" in error["message"]
