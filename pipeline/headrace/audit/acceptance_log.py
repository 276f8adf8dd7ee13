"""Writes acceptances to `headrace.acceptances` of the offline cluster, a compacted topic that it makes when it is missing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError as DeliveryError
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.audit.acceptances import ACCEPTANCES_TOPIC, Acceptance, encode
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.librdkafka import settings_of

TIMEOUT_S: Final = 20


class NotKeptError(Exception):
    """What was said is not, or may not be, in the topic; the message is a sentence without a full stop."""


class AcceptanceLog:
    """Appends to partition 0 of one cluster's topic."""

    def __init__(self, bootstrap: Bootstrap) -> None:
        self._settings: dict[str, Any] = {
            **settings_of(bootstrap),
            "client.id": "headrace-audit",
            "log_level": 0,
        }

    def append(self, items: Iterable[Acceptance]) -> None:
        """Return once all are acknowledged by all replicas; raises NotKeptError."""
        failures: list[str] = []

        def delivered(error: DeliveryError | None, _: Message) -> None:
            if error is not None:
                failures.append(error.str())

        try:
            self._make_topic()
            producer = Producer(
                {
                    **self._settings,
                    "enable.idempotence": True,
                    "delivery.timeout.ms": TIMEOUT_S * 1000,
                }
            )
            for item in items:
                producer.produce(
                    ACCEPTANCES_TOPIC, encode(item), key=item.id, partition=0, on_delivery=delivered
                )
            left = producer.flush(TIMEOUT_S + 5)
        except KafkaException as error:
            failures.append(error.args[0].str())
            left = 0
        if left or failures:
            raise NotKeptError(
                f"the offline cluster did not take it: {failures[0] if failures else 'no answer'}"
            )

    def _make_topic(self) -> None:
        admin = AdminClient(self._settings)
        if ACCEPTANCES_TOPIC in admin.list_topics(timeout=TIMEOUT_S).topics:
            return
        topic = NewTopic(
            ACCEPTANCES_TOPIC, num_partitions=1, replication_factor=-1, config={"cleanup.policy": "compact"}
        )
        with suppress(KafkaException):  # Somebody else has made it, or the append says why it is not there.
            admin.create_topics([topic], operation_timeout=TIMEOUT_S)[ACCEPTANCES_TOPIC].result()
