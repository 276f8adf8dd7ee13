"""The `_schemas` topic: appends that wait until they are read back, and readers that replay whole topics.

One thread reads each topic and hands what it read to the event loop, where alone the machine is touched. A
reader that cannot reach its brokers says so, waits and goes on for ever; the registry meanwhile answers
from memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.entrance import refusal
from headrace.broker.client.librdkafka import settings_of
from headrace.broker.structured_log import get_logger
from headrace.registry import errors
from headrace.registry.records import TURN_HEADER

logger = get_logger(__name__)

APPEND_TIMEOUT_MS: Final = 10_000
RETRY_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.5
BATCH_COUNT_MAX: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMessage:
    """One message of a replayed topic."""

    topic: str
    offset: int
    key: bytes | None
    value: bytes | None
    turn: str | None
    """The turn that it was written in, from its header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """Everything that the topic held when its reader began has been read."""

    topic: str


ReadEvent = ReadMessage | CaughtUp


def client_config(bootstrap: Bootstrap) -> dict[str, Any]:
    """Return what every client of the registry shares."""
    return {**settings_of(bootstrap), "client.id": "headrace-registry", "log_level": 2}


class TopicReader:
    """Replays partition 0 of a topic from the beginning in a thread of its own, then follows it."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        topic: str,
        deliver: Callable[[list[ReadEvent]], None],
        *,
        create: NewTopic | None,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._deliver = deliver
        self._create = create
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"read {topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the thread, at most 5 seconds."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._wait_for_topic():
                    self._read()
            except KafkaException as error:
                logger.warning(
                    "reading the topic failed, trying again", topic=self._topic, reason=error.args[0]
                )
                self._stop.wait(RETRY_SECONDS)

    def _wait_for_topic(self) -> bool:
        admin = AdminClient(client_config(self._bootstrap))
        said = ""
        while not self._stop.is_set():
            reason = self._missing(admin)
            if not reason:
                return True
            if reason != said:
                logger.warning(
                    "waiting for the topic", topic=self._topic, bootstrap=str(self._bootstrap), reason=reason
                )
                said = reason
            self._stop.wait(RETRY_SECONDS)
        return False

    def _missing(self, admin: AdminClient) -> str:
        """Return why the topic cannot be read yet, after trying to create it; empty when it can."""
        try:
            topics = admin.list_topics(timeout=5).topics
            if self._topic in topics and topics[self._topic].error is None:
                return ""
            if self._create is None:
                return "it does not exist yet"
            admin.create_topics([self._create], request_timeout=10)[self._topic].result()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return ""
            return refusal(self._bootstrap) or reason.str()
        return "it was just created"

    def _read(self) -> None:
        config = {
            **client_config(self._bootstrap),
            "group.id": "headrace-registry-unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        consumer = Consumer(config)
        try:
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            while not self._stop.is_set():
                # consume() waits for a full batch, so poll() does the waiting. A tombstone is false as a boolean.
                first = consumer.poll(POLL_SECONDS)
                messages = [first, *consumer.consume(BATCH_COUNT_MAX, 0)] if first is not None else []
                events = [event for message in messages if (event := self._event(message))]
                if events:
                    self._deliver(events)
        finally:
            consumer.close()

    def _event(self, message: Any) -> ReadEvent | None:
        error = message.error()
        if error is None:
            return ReadMessage(
                topic=self._topic,
                offset=message.offset(),
                key=message.key(),
                value=message.value(),
                turn=_turn_of(message),
            )
        if error.code() == KafkaError._PARTITION_EOF:
            return CaughtUp(topic=self._topic)
        if not error.retriable() and error.code() not in (
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
        ):
            raise KafkaException(error)
        logger.warning("the topic cannot be read for now", topic=self._topic, reason=error.str())
        return None


def _turn_of(message: Any) -> str | None:
    values = [value for name, value in message.headers() or () if name == TURN_HEADER and value is not None]
    return values[0].decode("utf-8", "replace") if values else None


class TopicAppender:
    """Appends records to partition 0, all acknowledged by all in-sync replicas or an error."""

    def __init__(self, bootstrap: Bootstrap, topic: str) -> None:
        self._topic = topic
        config = {
            **client_config(bootstrap),
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "delivery.timeout.ms": APPEND_TIMEOUT_MS,
        }
        self._producer = Producer(config)

    async def append(self, records: list[tuple[bytes, bytes | None]], turn: str | None) -> None:
        """Append keys and values in order, with the name of their turn. Raises RegistryError."""
        await asyncio.to_thread(self._append, records, turn)

    def _append(self, records: list[tuple[bytes, bytes | None]], turn: str | None) -> None:
        outcomes: list[KafkaError | None] = []
        headers: dict[str, str | bytes | None] = {} if turn is None else {TURN_HEADER: turn.encode()}

        def on_delivery(error: KafkaError | None, _: Any) -> None:
            outcomes.append(error)

        try:
            for key, value in records:
                self._producer.produce(
                    self._topic, key=key, value=value, partition=0, headers=headers, on_delivery=on_delivery
                )
        except (KafkaException, BufferError) as error:
            raise errors.store_failed(str(error)) from error
        self._producer.flush(APPEND_TIMEOUT_MS / 1000 + 2)
        for failure in outcomes:
            if failure is not None and failure.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT):
                raise errors.store_timed_out(failure.str())
            if failure is not None:
                raise errors.store_failed(failure.str())
        if len(outcomes) < len(records):
            raise errors.store_timed_out(f"no acknowledgement within {APPEND_TIMEOUT_MS} ms")
