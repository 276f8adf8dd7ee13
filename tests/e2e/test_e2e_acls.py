"""Real clients that log in, of which each may do this and not that: they see Kafka's errors, and their log line is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from commands import headrace
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from processes import eventually
from sasl_broker import SaslBroker
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.jaas import PLAIN_MODULE

ADMIN, PASSWORD = "admin", "admin-canary"
READER, WRITER = "reader", "writer"
LISTENER = "SASL_PLAINTEXT"
USERS = " ".join(f'user_{user}="{PASSWORD}"' for user in (ADMIN, READER, WRITER))
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {USERS};",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[SaslBroker]:
    home = tmp_path_factory.mktemp("acls")
    broker = SaslBroker(home, zookeeper.under_chroot(home), AUTHORIZER)
    admin = AdminClient(settings(broker, ADMIN))
    for future in admin.create_topics([NewTopic("orders", 1, 1), NewTopic("secret", 1, 1)]).values():
        future.result(30)
    yield broker
    broker.process.end()


@pytest.fixture(scope="module")
def command_config(broker: SaslBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What lets the `headrace` command in as the admin."""
    file = tmp_path_factory.mktemp("admin") / "admin.properties"
    module = f'{PLAIN_MODULE} required username="{ADMIN}" password="{PASSWORD}";'
    file.write_text(
        f"security.protocol={LISTENER}\nsasl.mechanism=PLAIN\nsasl.jaas.config={module}\n", encoding="utf-8"
    )
    return file


def settings(broker: SaslBroker, user: str, **more: Any) -> dict[str, Any]:
    return broker.librdkafka(LISTENER, "PLAIN", user=user, password=PASSWORD, **more)


def published(broker: SaslBroker, user: str, topic: str, **more: Any) -> KafkaError | None:
    """What became of one message."""
    outcome: list[KafkaError | None] = []
    producer = Producer(settings(broker, user, **more))
    producer.produce(topic, b"value", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(30)
    return outcome[0]


def consumed(broker: SaslBroker, user: str, group: str, topic: str) -> bytes | int | None:
    """The first message, or the code of the first error."""
    options = {"group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings(broker, user, **options))
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        error = message.error()
        return message.value() if error is None else int(error.code())
    except confluent_kafka.KafkaException as error:
        return int(error.args[0].code())
    finally:
        consumer.close()


def all_of(kind: ResourceType, name: str | None = None) -> AclBindingFilter:
    any_: Any = None
    anything = (any_, any_, AclOperation.ANY, AclPermissionType.ANY)
    return AclBindingFilter(kind, name or any_, ResourcePatternType.ANY, *anything)


def acls(broker: SaslBroker, command_config: Path, *arguments: str) -> list[dict[str, str]]:
    where = ("--bootstrap", broker.bootstrap(LISTENER), "--command-config", str(command_config), "--json")
    done = headrace("acls", *arguments, *where)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def test_who_has_no_rights_sees_nothing_and_the_log_says_so(broker: SaslBroker) -> None:
    assert not AdminClient(settings(broker, "reader")).list_topics(timeout=10).topics
    error = published(broker, READER, "orders")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    told = "Principal = User:reader is Denied Operation = Describe from host = 127.0.0.1"
    assert f"{told} on resource = Topic:LITERAL:orders for request = Metadata" in broker.log
    assert "logger=kafka.authorizer.logger" in broker.log
    admin = AdminClient(settings(broker, READER))
    future = admin.create_topics([NewTopic("mine", 1, 1)])["mine"]
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        future.result(30)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_producers_and_consumers_get_what_they_need_by_one_command(
    broker: SaslBroker, command_config: Path
) -> None:
    writer = ("--allow-principal", f"User:{WRITER}", "--producer", "--topic", "orders")
    reader = ("--allow-principal", f"User:{READER}", "--consumer", "--topic", "orders", "--group", "loads")
    assert len(acls(broker, command_config, "add", *writer, "--dry-run")) == 3
    assert acls(broker, command_config, "list") == []
    assert len(acls(broker, command_config, "add", *writer)) == 3
    assert len(acls(broker, command_config, "add", *reader)) == 3
    assert published(broker, WRITER, "orders", **{"enable.idempotence": True}) is None
    refused = published(broker, WRITER, "secret")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert consumed(broker, READER, "loads", "orders") == b"value"
    assert consumed(broker, READER, "others", "orders") == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert consumed(broker, READER, "loads", "secret") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert set(AdminClient(settings(broker, READER)).list_topics(timeout=10).topics) == {"orders"}
    listed = acls(broker, command_config, "list", "--principal", f"User:{WRITER}")
    assert {row["operation"] for row in listed} == {"Create", "Describe", "Write"}
    denied = ("--deny-principal", f"User:{WRITER}", "--operation", "Write", "--topic", "ord")
    acls(broker, command_config, "add", *denied, "--resource-pattern-type", "prefixed")
    refused = published(broker, WRITER, "orders")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    for options in (writer, reader, (*denied, "--resource-pattern-type", "prefixed")):
        assert acls(broker, command_config, "remove", *options)
    assert acls(broker, command_config, "list") == []


def test_who_may_not_change_lists_is_told_in_one_line(broker: SaslBroker, tmp_path: Path) -> None:
    file = tmp_path / "reader.properties"
    module = f'{PLAIN_MODULE} required username="{READER}" password="{PASSWORD}";'
    file.write_text(f"security.protocol={LISTENER}\nsasl.mechanism=PLAIN\nsasl.jaas.config={module}\n")
    where = ("--bootstrap", broker.bootstrap(LISTENER), "--command-config", str(file))
    done = headrace("acls", "list", *where)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "authoriz" in done.stderr.lower()


def test_librdkafkas_admin_makes_and_takes_away_lists(broker: SaslBroker) -> None:
    admin = AdminClient(settings(broker, ADMIN))
    binding = AclBinding(
        ResourceType.TRANSACTIONAL_ID,
        "ids-",
        ResourcePatternType.PREFIXED,
        f"User:{WRITER}",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    for future in admin.create_acls([binding]).values():
        future.result(30)
    wanted = all_of(ResourceType.ANY)
    assert admin.describe_acls(wanted).result(30) == [binding]
    producer = Producer(settings(broker, WRITER, **{"transactional.id": "ids-1"}))
    producer.init_transactions(30)
    (deleted,) = [future.result(30) for future in admin.delete_acls([wanted]).values()]
    assert deleted == [binding]
    other = Producer(settings(broker, WRITER, **{"transactional.id": "ids-2"}))
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        other.init_transactions(30)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_rights_that_are_taken_away_stop_a_consumer(broker: SaslBroker) -> None:
    admin = AdminClient(settings(broker, ADMIN))
    binding = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        f"User:{READER}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([binding])[binding].result(30)
    alone = {"group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
    consumer = Consumer(settings(broker, READER, **alone))
    errors: list[int] = []

    def is_refused() -> bool:
        message = consumer.poll(0.5)
        error = None if message is None else message.error()
        if error is not None:
            errors.append(error.code())
        return KafkaError.TOPIC_AUTHORIZATION_FAILED in errors

    try:
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        for _ in range(4):
            assert not is_refused()
        wanted = all_of(ResourceType.TOPIC, "orders")
        for future in admin.delete_acls([wanted]).values():
            future.result(30)
        eventually(is_refused, what="the refusal")
    finally:
        consumer.close()
