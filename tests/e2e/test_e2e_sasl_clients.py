"""Real clients log in by every mechanism, over plain text and TLS; and who does not is not served."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import pytest
from commands import headrace
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.net.sasl.oauth import AbstractTokenProvider
from processes import eventually
from raw_client import METADATA, RawClient
from sasl_broker import MECHANISMS, PASSWORD, SASL_NAMES, USER, SaslBroker
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.sasl.exchange import Identity
from headrace.broker.wire.client.login import LoginError, log_in

SCRAM = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[SaslBroker]:
    home = tmp_path_factory.mktemp("sasl")
    broker = SaslBroker(home, zookeeper.under_chroot(home))
    admin = AdminClient(broker.librdkafka("PLAINTEXT"))
    upsertions = [
        UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode())
        for kind in SCRAM.values()
    ]
    for mechanism, upsertion in zip(SCRAM, upsertions, strict=True):
        for future in admin.alter_user_scram_credentials([upsertion]).values():
            future.result(30)
        eventually(partial(can_list, broker, mechanism), what="the credential")
    yield broker
    broker.process.end()


def can_list(broker: SaslBroker, mechanism: str, **identity: str) -> bool:
    """Whether a client that logs in so is told of the cluster; without librdkafka's patience."""
    who = Identity(mechanism, identity.get("user", USER), identity.get("password", PASSWORD))
    client = RawClient(broker.address("SASL_PLAINTEXT"))
    steps = log_in(who, secrets.token_hex(8))
    try:
        api, version, message = next(steps)
        while True:
            api, version, message = steps.send(client.ask(api.key, version, message))
    except StopIteration:
        return bool(client.ask(METADATA, 1, {"topics": []})["brokers"])
    except LoginError:
        return False
    finally:
        client.socket.close()


@pytest.mark.parametrize("listener", SASL_NAMES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_consumes(broker: SaslBroker, listener: str, mechanism: str) -> None:
    topic = f"librdkafka-{listener}-{mechanism}"
    settings = broker.librdkafka(listener, mechanism)
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"value"
    finally:
        consumer.close()


@pytest.mark.parametrize("listener", SASL_NAMES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces_and_consumes(broker: SaslBroker, listener: str, mechanism: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap(listener),
        "security_protocol": listener,
        "sasl_mechanism": mechanism,
    }
    if listener == "SASL_SSL":
        settings["ssl_cafile"] = str(broker.authority_file)
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = KafkaPythonTokens(broker)
    else:
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    topic = f"kafka-python-{listener}-{mechanism}"
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"value").get(20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings
    )
    try:
        assert next(consumer).value == b"value"
    finally:
        consumer.close()


class KafkaPythonTokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, broker: SaslBroker) -> None:
        self.broker = broker

    def token(self) -> str:
        return self.broker.issuer.token()

    def extensions(self) -> dict[str, str]:
        return {}


class AiokafkaTokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, broker: SaslBroker) -> None:
        self.broker = broker

    async def token(self) -> str:
        return self.broker.issuer.token()


@pytest.mark.parametrize("listener", SASL_NAMES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_produces_and_consumes(broker: SaslBroker, listener: str, mechanism: str) -> None:
    topic = f"aiokafka-{listener}-{mechanism}"
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap(listener),
        "security_protocol": listener,
        "sasl_mechanism": mechanism,
    }
    if listener == "SASL_SSL":
        settings["ssl_context"] = ssl.create_default_context(cafile=str(broker.authority_file))
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = AiokafkaTokens(broker)
    else:
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}

    async def run() -> bytes:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            message = await asyncio.wait_for(consumer.getone(), 20)
            value: bytes = message.value
            return value

    assert asyncio.run(run()) == b"value"


def test_who_does_not_log_in_is_not_served(broker: SaslBroker) -> None:
    for mechanism in MECHANISMS[:3]:
        assert can_list(broker, mechanism)
        assert not can_list(broker, mechanism, password="wrong")
        assert not can_list(broker, mechanism, user="nobody")
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient({"bootstrap.servers": broker.bootstrap("SASL_PLAINTEXT")}).list_topics(timeout=1)


def test_users_come_change_and_go_by_the_command(broker: SaslBroker) -> None:
    at = ("--bootstrap", broker.bootstrap("PLAINTEXT"))

    def users(*arguments: str, password: str = "", code: int = 0) -> str:
        done = headrace("users", *arguments, *at, stdin=password)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "may log in" in users("add", "carol, the=first", password="first-canary\n")
    assert "has a password" in users("add", "carol, the=first", password="other\n", code=1)
    carol = {"user": "carol, the=first", "password": "first-canary"}
    for mechanism in SCRAM:
        eventually(partial(can_list, broker, mechanism, **carol), what="the new user")
    shown = json.loads(users("list", "--json"))["users"]
    assert {"user": carol["user"], "mechanism": "SCRAM-SHA-512", "iterations": 4096} in shown
    users("password", carol["user"], "--iterations", "8192", password="second-canary\n")
    eventually(lambda: not can_list(broker, "SCRAM-SHA-512", **carol), what="the old password's end")
    carol["password"] = "second-canary"
    assert can_list(broker, "SCRAM-SHA-512", **carol)
    users("remove", carol["user"], "--mechanism", "SCRAM-SHA-512")
    eventually(lambda: not can_list(broker, "SCRAM-SHA-512", **carol), what="the credential's end")
    assert can_list(broker, "SCRAM-SHA-256", **carol)
    users("remove", carol["user"])
    assert "There is no user" in users("remove", carol["user"], code=1)
    assert "There is no user" in users("password", "nobody", password="x\n", code=1)
    assert "empty password" in users("add", "dave", password="\n", code=2)


def test_no_secret_is_anywhere(broker: SaslBroker) -> None:
    """After all that the others did: not in the log, in metrics, in answers, nor in the list of processes."""
    can_list(broker, "PLAIN", password="wrong-canary")
    can_list(broker, "SCRAM-SHA-256", user="canary-user", password="wrong-canary")
    admin = AdminClient(broker.librdkafka("PLAINTEXT"))
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    configs = admin.describe_configs([resource])[resource].result(20)
    told = " ".join(f"{name}={entry.value}" for name, entry in configs.items())
    assert configs["delegation.token.secret.key"].is_sensitive
    assert configs["delegation.token.secret.key"].value is None
    with urlopen(f"http://{broker.metrics_address}/metrics") as answer:
        metrics = answer.read().decode()
    assert (
        'headrace_authentications_total{listener="SASL_SSL",mechanism="PLAIN",result="successful"}' in metrics
    )
    processes = Path(f"/proc/{broker.process.process.pid}/cmdline").read_text()
    for where in (broker.log, told, metrics, processes):
        for secret in ("canary", "BEGIN PRIVATE KEY", "stored_key="):
            assert secret not in where
