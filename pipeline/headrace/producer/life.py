"""One producer's life: a uuid, its streams, its client, and the thread that accounts for them from first to last.

Senders hand events to the client; all else happens on the accounting thread: it serves delivery callbacks, publishes
monitoring events, and at the end flushes, settles and publishes the closing accounts. So an exception that a signal's
handler raises in a sender or in close() interrupts no accounting. What stays true:
- the sequence after the last one is stored before anything else is told of it, and whatever happens to the sender then,
  the sequence has an outcome in the accounts at the latest when the life closes;
- no event leaves before its topic's opening heartbeat was acknowledged, so the audit knows of the producer;
- a sender and close() may be interrupted by a handler that calls either of them again on the same thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from headrace.events.avro_schemas import MONITORING_TOPIC
from headrace.events.envelope import Header
from headrace.events.monitoring import Account, MonitoringEvent, WindowLedger
from headrace.producer.checks import EventError, checked_key, checked_time
from headrace.producer.stream import Encoder, Envelope, Stream, interrupted

_log = logging.getLogger("headrace.producer")

DELIVERIES_MAX: Final = 200_000
"""Bound of the outcomes that wait for the accounting thread; senders wait beyond it."""

ACCOUNTING_DELAY_MS: Final = 1000
"""How long after a window's end it is accounted: longer than a sender takes from reading the clock to noting it."""

UNPUBLISHED_MAX: Final = 10_000
"""Bound of the accounts that wait to be published, again or for the first time; beyond it a failed one is given up."""

SENDERS_SECONDS_MAX: Final = 0.5
"""How long the end waits for a send() that has begun; one that a signal's handler interrupted cannot go on before."""

ACCOUNTS_SHARE: Final = 0.25
"""The part of close()'s time that is kept for the last accounts."""

ACCOUNTS_SECONDS_MAX: Final = 30.0
"""Bound of that part."""

_POLL_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 0.002


class ProducerClosedError(RuntimeError):
    """An event was sent after close()."""

    def __init__(self) -> None:
        super().__init__("the producer is closed; open a new one")


class Settings(NamedTuple):
    """What all lives of one `Producer` share: `client_config` is librdkafka's, `encoders` are by topic."""

    server: str
    service: str
    datacenter: str
    window_size_ms: int
    client_config: Mapping[str, Any]
    encoders: Mapping[str, Encoder]
    monitoring_encoder: Encoder

    def streams(self, producer_id: str) -> dict[str, Stream]:
        return {
            topic: Stream(
                topic,
                encoder,
                WindowLedger(producer_id, window_size_ms=self.window_size_ms, now_ms=now_ms()),
                now_ms,
            )
            for topic, encoder in self.encoders.items()
        }


class Life:
    """Everything that one producer's uuid stands for, in the process that opened it."""

    def __init__(self, producer_id: str, settings: Settings) -> None:
        self._producer_id = producer_id
        self._server, self._service, self._datacenter = settings[:3]
        self._envelope = Envelope(self._server, self._service, producer_id)
        self._monitoring_encoder = settings.monitoring_encoder
        self.streams = settings.streams(producer_id)
        self._wait_seconds_max = float(settings.client_config["delivery.timeout.ms"]) / 1000
        self._opening_deadline = time.monotonic() + self._wait_seconds_max
        self._client = KafkaProducer(dict(settings.client_config))
        self._monitoring_sequence = 0
        self._unpublished: deque[tuple[str, Account]] = deque()
        self.monitoring_failures = 0
        self.is_closed = False
        """No event is taken any more."""
        self._is_over = False
        """Accounts that are not delivered are given up."""
        self._is_finished = False
        self._deadline: float | None = None
        threading.Thread(target=self._run, name="headrace-producer", daemon=True).start()

    @property
    def is_opened(self) -> bool:
        """Whether all topics' opening heartbeats were acknowledged."""
        return all(stream.is_announced for stream in self.streams.values())

    @property
    def under_way(self) -> int:
        """How many events have no outcome yet."""
        streams = self.streams.values()
        return sum(stream.next_sequence - stream.counts.total for stream in streams)

    def send(
        self, topic: str, fields: Mapping[str, Any], key: bytes | str | None, time_ms: int | None
    ) -> int:
        """Check, encode and hand out one event; see `Producer.send`."""
        try:
            stream = self.streams[topic]
        except (KeyError, TypeError):
            raise EventError(
                f"topic {topic} was not opened: name it in `schemas`; open are {', '.join(self.streams)}"
            ) from None
        happened_ms = now_ms() if time_ms is None else checked_time(time_ms)
        if key is not None:
            key = checked_key(key)
        encoder = stream.encoder
        body = encoder.body(fields)
        with stream.lock:
            while True:
                if self.is_closed:
                    raise ProducerClosedError
                sequence = stream.next_sequence
                value = encoder.event(self._envelope, happened_ms, sequence, fields, body)
                # A signal's handler may have sent an event meanwhile, on this thread and so past the lock.
                if stream.next_sequence == sequence:
                    stream.next_sequence = sequence + 1
                    break
            try:
                stream.deliveries.append((sequence, happened_ms, -1, None))
                self._produce(stream, sequence, happened_ms, value, key)
            except BaseException:
                stream.deliveries.append((sequence, happened_ms, now_ms(), interrupted()))
                raise
        return sequence

    def _produce(self, stream: Stream, sequence: int, time_ms: int, value: bytes, key: bytes | None) -> None:
        on_delivery = stream.on_delivery(sequence, time_ms)
        deadline = 0.0
        while True:
            if self.is_closed:
                raise ProducerClosedError
            try:
                if stream.is_announced and len(stream.deliveries) <= DELIVERIES_MAX:
                    self._client.produce(
                        stream.topic, value=value, key=key, timestamp=time_ms, on_delivery=on_delivery
                    )
                    return
            except BufferError:
                pass
            except KafkaException as error:
                on_delivery(error.args[0], None)
                return
            deadline = deadline or self._patience(stream)
            if time.monotonic() > deadline:
                on_delivery(_overdue(stream), None)
                return
            time.sleep(_PAUSE_SECONDS)

    def _patience(self, stream: Stream) -> float:
        """Return until when a sender waits: for the opening heartbeat from when the life began, else from now."""
        return time.monotonic() + self._wait_seconds_max if stream.is_announced else self._opening_deadline

    def start_closing(self, deadline: float) -> None:
        """Take no more events and let the accounting thread end; again, it changes nothing. Waits for nobody."""
        if self._deadline is None:
            self._deadline = deadline
        self.is_closed = True

    def wait_until_finished(self, deadline: float) -> bool:
        """Wait for the closing accounts; False when they were not done in time.

        It sleeps in small pieces and holds no lock, so that a handler may interrupt it, raise, or call it again.
        """
        while not self._is_finished:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        return True

    def _run(self) -> None:
        """Account until the life ends. The accounting thread's body."""
        try:
            self._account()
            self._finish()
        finally:
            self._is_finished = True

    def _account(self) -> None:
        self._unpublished += [(stream.topic, stream.opened(now_ms())) for stream in self.streams.values()]
        while not self.is_closed:
            self._publish()
            self._client.poll(_POLL_SECONDS)
            due_ms = now_ms() - ACCOUNTING_DELAY_MS
            for stream in self.streams.values():
                stream.settle()
                self._unpublished += [(stream.topic, account) for account in stream.finished(due_ms)]

    def _finish(self) -> None:
        """Wait for the outcomes, give up those that do not come in time, and publish the last accounts."""
        begin = time.monotonic()
        deadline = self._deadline or begin
        reserve = min((deadline - begin) * ACCOUNTS_SHARE, ACCOUNTS_SECONDS_MAX)
        self._await_senders(min(begin + SENDERS_SECONDS_MAX, deadline - reserve))
        self._flush(deadline - reserve)
        if len(self._client):
            self._client.purge()
            self._flush(time.monotonic() + reserve / 2)
        for stream in self.streams.values():
            self._unpublished += [(stream.topic, account) for account in stream.closed(now_ms())]
        self._publish_all(deadline)

    def _await_senders(self, deadline: float) -> None:
        for stream in self.streams.values():
            if stream.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                stream.lock.release()

    def _flush(self, deadline: float) -> None:
        """Serve callbacks until every message has its outcome, or until the deadline."""
        while self._client.flush(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic()))):
            for stream in self.streams.values():
                stream.settle()
            if time.monotonic() >= deadline:
                return

    def _publish(self) -> None:
        """Publish accounts in order until the client's queue is full."""
        while self._unpublished:
            topic, account = self._unpublished[0]
            header = Header(
                now_ms(), self._server, self._service, self._producer_id, self._monitoring_sequence
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

    def _publish_all(self, deadline: float) -> None:
        under_way = 0
        while (self._unpublished or under_way) and time.monotonic() < deadline:
            self._publish()
            under_way = self._client.flush(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        self._is_over = True
        if len(self._client):
            # Messages that it kept would keep the client, which asks for brokers as long as it lives.
            self._client.purge()
            self._client.flush(_POLL_SECONDS)
        self.monitoring_failures += len(self._client) + len(self._unpublished)

    def _on_monitoring_delivery(self, topic: str, account: Account, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self.streams[topic].is_announced = True
        elif (
            self._is_over
            or error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            or len(self._unpublished) >= UNPUBLISHED_MAX
        ):
            self._give_up(error)
        else:
            _log.warning(
                "a %s account was not delivered and is published again: %s", account.kind, error.str()
            )
            self._unpublished.append((topic, account))

    def _give_up(self, error: KafkaError) -> None:
        self.monitoring_failures += 1
        _log.error("a monitoring event was not delivered: %s", error.str())


def _overdue(stream: Stream) -> KafkaError:
    reason = (
        "the client's queue stayed full"
        if stream.is_announced
        else f"the opening heartbeat in {MONITORING_TOPIC} was not acknowledged"
    )
    return KafkaError(KafkaError._QUEUE_FULL, reason)


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
