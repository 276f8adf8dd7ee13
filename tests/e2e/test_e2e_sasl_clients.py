"""Real clients log in by every mechanism, over plain text and TLS; and who does not is not served."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from processes import eventually
from sasl_broker import MECHANISMS, PASSWORD, SASL_NAMES, USER, SaslBroker
from zookeeper_process import ZooKeeperProcess

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
    errors: list[Any] = []
    settings = broker.librdkafka("SASL_PLAINTEXT", mechanism, error_cb=errors.append, **identity)
    try:
        return bool(AdminClient(settings).list_topics(timeout=2).brokers)
    except confluent_kafka.KafkaException:
        return False


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
