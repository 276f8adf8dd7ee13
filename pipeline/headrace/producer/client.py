"""The instrumented producer: publishes audited events with confluent-kafka and accounts for every one of them.

Each event gets an envelope (time, server, service, producer, sequence), is encoded with its registered schema and
sent asynchronously. A thread of its own serves the delivery callbacks and publishes monitoring events: per topic and
event-time window what was acknowledged, failed or is unknown, a heartbeat when idle, and a closing one on close. A
monitoring event that was not delivered is published again until the producer closes: without it the audit could never
call that window complete, and reading it twice changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from headrace.events.avro_schemas import MONITORING_TOPIC, schema_text, subject_of
from headrace.events.envelope import Header
from headrace.events.monitoring import Account, MonitoringEvent, WindowLedger
from headrace.producer.registration import register
from headrace.producer.stream import Counts, Delivery, Encoder, EventError, Stream

_log = logging.getLogger("headrace.producer")

DEFAULTS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "delivery.timeout.ms": 120_000,
    "log_level": 3,
}
"""What the caller's client configuration overrides; names are librdkafka's."""

DELIVERIES_MAX: Final = 200_000
"""Bound of the outcomes that wait for the accounting thread; senders wait beyond it."""

ACCOUNTING_DELAY_MS: Final = 1000
"""How long after a window's end it is accounted: longer than a sender takes from reading the clock to noting it."""

UNPUBLISHED_MAX: Final = 10_000
"""Bound of the accounts that wait to be published, again or for the first time; beyond it a failed one is given up."""

_POLL_SECONDS: Final = 0.1
_FULL_QUEUE_PAUSE_SECONDS: Final = 0.002


class ProducerClosedError(RuntimeError):
    """An event was sent after close()."""


class Producer:
    """Publishes events of the topics that it was opened for; safe to use from several threads.

    `schemas` maps each topic to its Avro schema (text), whose first field is the envelope `header`. `client_config`
    holds librdkafka's settings (linger.ms, batch.size, acks, enable.idempotence, delivery.timeout.ms, …). Opening
    registers the schemas and raises RegistrationError when that fails, EventError when a schema has no envelope.
    """

    def __init__(
        self,
        *,
        bootstrap: str,
        registry_url: str,
        schemas: Mapping[str, str],
        server: str,
        service: str,
        datacenter: str,
        window_size_ms: int = 10_000,
        registry_seconds_max: float = 30.0,
        client_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.producer_id = str(uuid.uuid4())
        self._server, self._service, self._datacenter = server, service, datacenter
        texts = {**schemas, MONITORING_TOPIC: schema_text("monitoring_event")}
        encoders = {
            topic: Encoder(
                text, register(registry_url, subject_of(topic), text, seconds_max=registry_seconds_max)
            )
            for topic, text in texts.items()
        }
        self._monitoring_encoder = encoders.pop(MONITORING_TOPIC)
        self._streams = {
            topic: Stream(topic, encoder, self._new_ledger(window_size_ms), now_ms)
            for topic, encoder in encoders.items()
        }
        config = {**DEFAULTS, **(client_config or {}), "bootstrap.servers": bootstrap}
        self._full_queue_seconds_max = float(config["delivery.timeout.ms"]) / 1000
        self._client = KafkaProducer(config)
        self._monitoring_sequence = 0
        self._unpublished: deque[tuple[str, Account]] = deque()
        self.monitoring_failures = 0
        self._closing = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._account, name="headrace-producer", daemon=True)
        self._thread.start()

    def _new_ledger(self, window_size_ms: int) -> WindowLedger:
        return WindowLedger(self.producer_id, window_size_ms=window_size_ms, now_ms=now_ms())

    def send(
        self, topic: str, fields: Mapping[str, Any], *, key: bytes | None = None, time_ms: int | None = None
    ) -> int:
        """Publish an event without waiting for its delivery; return its sequence.

        `fields` are the record's without `header`; `time_ms` is when it happened (milliseconds since the epoch), now
        by default; one that is sent when its window was promised already, about a second after its end, is late for the
        audit. Waits while the client's queue is full, at most its delivery time-out. An event that could not be
        delivered is counted in `counts()` with its reason. Raises EventError when the event does not fit its schema.
        """
        stream = self._streams.get(topic)
        if stream is None:
            raise EventError(
                f"topic {topic} was not opened: name it in `schemas`; open are {', '.join(self._streams)}"
            )
        with stream.lock:
            if self._closed:
                raise ProducerClosedError("the producer is closed; open a new one")
            happened_ms = now_ms() if time_ms is None else time_ms
            sequence = stream.next_sequence
            header = {
                "time": happened_ms,
                "server": self._server,
                "service": self._service,
                "producer": self.producer_id,
                "sequence": sequence,
            }
            value = stream.encoder.encode({"header": header, **fields})
            stream.next_sequence = sequence + 1
            stream.deliveries.append(Delivery(sequence, happened_ms, -1, None))
            self._produce(stream, sequence, happened_ms, value, key)
        return sequence

    def counts(self) -> dict[str, Counts]:
        """Return the outcomes so far by topic; complete only after close()."""
        return {topic: stream.counts for topic, stream in self._streams.items()}

    def close(self, *, seconds_max: float = 130.0) -> dict[str, Counts]:
        """Wait for all deliveries, publish the last accounts and return the outcomes by topic.

        What is not delivered in time is given up and counted as failed, or as unknown when it was under way.
        """
        if self._closed:
            return self.counts()
        self._closed = True
        for stream in self._streams.values():
            stream.lock.acquire()
        try:
            if self._client.flush(seconds_max):
                self._client.purge()
                self._client.flush(5)
        finally:
            for stream in self._streams.values():
                stream.lock.release()
        self._closing.set()
        self._thread.join()
        for stream in self._streams.values():
            stream.settle()
            self._unpublished += [(stream.topic, account) for account in stream.closed(now_ms())]
        self._publish_all(seconds_max=min(seconds_max, 30.0))
        return self.counts()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _produce(self, stream: Stream, sequence: int, time_ms: int, value: bytes, key: bytes | None) -> None:
        on_delivery = stream.on_delivery(sequence, time_ms)
        deadline = 0.0
        while True:
            try:
                if len(stream.deliveries) <= DELIVERIES_MAX:
                    self._client.produce(
                        stream.topic, value=value, key=key, timestamp=time_ms, on_delivery=on_delivery
                    )
                    return
            except BufferError:
                pass
            except KafkaException as error:
                on_delivery(error.args[0], None)
                return
            deadline = deadline or time.monotonic() + self._full_queue_seconds_max
            if time.monotonic() > deadline:
                on_delivery(KafkaError(KafkaError._QUEUE_FULL, "the client's queue stayed full"), None)
                return
            time.sleep(_FULL_QUEUE_PAUSE_SECONDS)

    def _account(self) -> None:
        """Serve callbacks and publish what is due until the producer closes. The accounting thread's body."""
        self._unpublished += [(stream.topic, stream.opened(now_ms())) for stream in self._streams.values()]
        while not self._closing.is_set():
            self._publish()
            self._client.poll(_POLL_SECONDS)
            due_ms = now_ms() - ACCOUNTING_DELAY_MS
            for stream in self._streams.values():
                stream.settle()
                self._unpublished += [(stream.topic, account) for account in stream.finished(due_ms)]

    def _publish(self) -> None:
        """Publish accounts in order until the client's queue is full."""
        while self._unpublished:
            topic, account = self._unpublished[0]
            header = Header(
                now_ms(), self._server, self._service, self.producer_id, self._monitoring_sequence
            )
            event = MonitoringEvent(header=header, topic=topic, datacenter=self._datacenter, account=account)
            value = self._monitoring_encoder.encode(event.as_record())
            try:
                self._client.produce(
                    MONITORING_TOPIC,
                    value=value,
                    timestamp=header.time,
                    on_delivery=partial(self._on_monitoring_delivery, topic, account),
                )
            except BufferError:
                return
            except KafkaException as error:
                self._give_up(error.args[0])
            self._monitoring_sequence += 1
            self._unpublished.popleft()

    def _publish_all(self, *, seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        under_way = 0
        while (self._unpublished or under_way) and time.monotonic() < deadline:
            self._publish()
            under_way = self._client.flush(_POLL_SECONDS)
        self.monitoring_failures += under_way + len(self._unpublished)

    def _on_monitoring_delivery(self, topic: str, account: Account, error: KafkaError | None, _: Any) -> None:
        if error is None:
            return
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE or len(self._unpublished) >= UNPUBLISHED_MAX:
            self._give_up(error)
        else:
            _log.warning(
                "a %s account was not delivered and is published again: %s", account.kind, error.str()
            )
            self._unpublished.append((topic, account))

    def _give_up(self, error: KafkaError) -> None:
        self.monitoring_failures += 1
        _log.error("a monitoring event was not delivered: %s", error.str())


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
