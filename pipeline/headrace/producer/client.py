"""The instrumented producer: publishes audited events with confluent-kafka and accounts for every one of them.

Each event is checked, gets an envelope (time, server, service, producer, sequence), is encoded with its registered
schema and sent asynchronously. A thread of its own serves the delivery callbacks and publishes monitoring events: an
opening heartbeat, then per topic and event-time window what was acknowledged, failed or is unknown, a heartbeat when
idle, and a closing one. A monitoring event that was not delivered is published again until the producer closes: without
it the audit could never call that window complete, and reading it twice changes nothing.

A process that is forked off one with a producer has a producer of its own: another uuid, sequences from 0, a client of
its own from the first `send()` on. What was handed out before the fork is the parent's.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.librdkafka import settings_of
from headrace.broker.client.security import ClientSecurity
from headrace.broker.client.settings_file import client_settings
from headrace.events.avro_schemas import MONITORING_TOPIC, schema_text, subject_of
from headrace.events.registry_address import RegistryAddress
from headrace.producer import open_producers
from headrace.producer.arguments import (
    DELIVERY_KEY,
    checked_client_config,
    checked_datacenter,
    checked_schemas,
    checked_security,
    checked_window,
)
from headrace.producer.checks import checked_text
from headrace.producer.life import Life, ProducerClosedError, Settings
from headrace.producer.registration import register
from headrace.producer.spool import folder_of
from headrace.producer.stream import Counts, Encoder
from headrace.producer.values import shown

DEFAULTS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    DELIVERY_KEY: 120_000,
    # Asking which cluster this is makes a client try again that often, and each try that fails is a line of its log.
    "reconnect.backoff.ms": 1000,
    "log_level": 3,
}
"""What the caller's client configuration overrides; names are librdkafka's."""

CLOSE_SECONDS_MAX: Final = 130.0
"""How long close() and flush() wait by default: longer than a client tries to deliver by default."""

_GRACE_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.002


class Producer:
    """Publishes events of the topics that it was opened for; safe to use from several threads and signal handlers.

    `schemas` maps each topic to its Avro schema (text), whose first field is the envelope `header`. `client_config`
    holds librdkafka's settings (linger.ms, batch.size, acks, enable.idempotence, delivery.timeout.ms, …), `security` how
    brokers and registry let in: Kafka's client settings (security.protocol, ssl.…, sasl.…) and schema.registry.…, or the
    path of a properties file with them; what is wrong with them is a ConfigurationError. Opening
    registers the schemas and raises RegistrationError when that fails, EventError when a schema has no envelope; it does
    not wait for the brokers, which the first `send()` of a topic does. One that is left open is closed when the process
    exits, within 20 s; when it is killed, the next producer of its server and service does so from its file in the folder
    `spool`: by default that of the environment's HEADRACE_SPOOL, or else one in /dev/shm; empty for none. After a fork
    parent and child each have a producer of their own.
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
        security: Mapping[str, str] | str | os.PathLike[str] | None = None,
        spool: str | os.PathLike[str] | None = None,
    ) -> None:
        names = {
            "server": checked_text("server", server),
            "service": checked_text("service", service),
            "datacenter": checked_datacenter(datacenter),
        }
        texts = {**checked_schemas(schemas), MONITORING_TOPIC: schema_text("monitoring_event")}
        window_size_ms = checked_window(window_size_ms)
        config = checked_client_config(client_config)
        said = client_settings(checked_security(security))
        brokers, registry = _places(bootstrap, registry_url, said)
        encoders = {
            topic: Encoder(
                text, register(registry, subject_of(topic), text, seconds_max=registry_seconds_max)
            )
            for topic, text in texts.items()
        }
        self._settings = Settings(
            **names,
            window_size_ms=window_size_ms,
            client_config={**DEFAULTS, **config, **settings_of(brokers)},
            monitoring_encoder=encoders.pop(MONITORING_TOPIC),
            encoders=encoders,
            spool_folder=folder_of(spool),
        )
        self.producer_id = str(uuid.uuid4())
        self._is_closed = False
        self._beginning = threading.RLock()
        self._life: Life | None = None
        self._begin()

    @property
    def monitoring_failures(self) -> int:
        """How many monitoring events were given up; complete only after close()."""
        return self._life.monitoring_failures if self._life else 0

    def send(
        self,
        topic: str,
        fields: Mapping[str, Any],
        *,
        key: bytes | str | None = None,
        time_ms: int | None = None,
    ) -> int:
        """Publish an event without waiting for its delivery; return its sequence.

        `fields` are the record's without `header`: every one that has no default in the schema, and no others. `key` is
        bytes, or text as UTF-8. `time_ms` is when it happened (whole milliseconds since 1970, from March 1973 on), now
        by default; one that is sent when its window was promised already, about a second after its end, is late for the
        audit. Raises EventError, which uses no sequence, when any of these does not fit, and ProducerClosedError after
        close().

        Waits until the opening heartbeat of the topic is acknowledged, which is once and as long as one request takes,
        and while the client's queue is full; at most its delivery time-out. An event that could not be delivered is
        counted in `counts()` with its reason; so is one whose send() an exception of a signal's handler ended, as
        unknown.
        """
        return (self._life or self._begin()).send(topic, fields, key, time_ms)

    def counts(self) -> dict[str, Counts]:
        """Return the outcomes so far by topic; complete only after close()."""
        if self._life is None:
            return {topic: Counts(0, 0, 0, {}) for topic in self._settings.encoders}
        return {topic: stream.counts for topic, stream in self._life.streams.items()}

    def wait_until_opened(self, *, seconds_max: float) -> bool:
        """Wait until the first `send()` of no topic has to wait any more; False when that took too long."""
        deadline = time.monotonic() + seconds_max
        life = self._life or self._begin()
        while not life.is_opened and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        return life.is_opened

    def flush(self, *, seconds_max: float = CLOSE_SECONDS_MAX) -> int:
        """Wait until every event handed out so far has its outcome; return how many have none after that time."""
        deadline = time.monotonic() + seconds_max
        while (left := self._life.under_way if self._life else 0) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        return left

    def close(self, *, seconds_max: float = CLOSE_SECONDS_MAX) -> dict[str, Counts]:
        """Wait for all deliveries, publish the last accounts and return the outcomes by topic.

        What is not delivered in time is given up and counted as failed, or as unknown when it was under way; a quarter
        of the time, at most 30 s, is kept for the last accounts. A signal's handler may call it, and interrupt it: a
        second call waits for what the first one began.
        """
        self._is_closed = True
        deadline = time.monotonic() + seconds_max
        life = self._life
        if life is not None:
            life.start_closing(deadline)
            if life.wait_until_finished(deadline + _GRACE_SECONDS):
                open_producers.note_closed(self)
        return self.counts()

    def begin_anew(self) -> None:
        """Leave the life to the process that this one was forked off; the next `send()` begins one of its own."""
        self._beginning = threading.RLock()
        life = self._life
        if life is None:
            return
        # Its threads are the parent's: destroying the client here would wait for them for ever.
        open_producers.keep_for_good(life)
        life.abandon()
        if not self._is_closed:
            self._life = None
            self.producer_id = str(uuid.uuid4())

    def _begin(self) -> Life:
        with self._beginning:
            if self._is_closed:
                raise ProducerClosedError
            if self._life is None:
                self._life = Life(self.producer_id, self._settings)
                open_producers.note_open(self)
            return self._life

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _places(
    bootstrap: object, registry_url: object, said: Mapping[str, str]
) -> tuple[Bootstrap, RegistryAddress]:
    """Return where brokers and registry are; raises ValueError with a sentence where these are no addresses."""
    for name, value in (("bootstrap", bootstrap), ("registry_url", registry_url)):
        if not isinstance(value, str):
            raise ValueError(f"{name} is {shown(value)}: give it as text, several separated by commas")
    brokers = Bootstrap(str(bootstrap), ClientSecurity.of(said))
    registry = RegistryAddress.of(str(registry_url), said)
    brokers.check()
    registry.check()
    return brokers, registry
