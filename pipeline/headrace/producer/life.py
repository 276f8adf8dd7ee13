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
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer

from headrace.events.avro_schemas import MONITORING_TOPIC
from headrace.events.monitoring import Account, WindowLedger
from headrace.producer.author import Author, this_process
from headrace.producer.checks import EventError, checked_key, checked_time
from headrace.producer.spool import LeftBehind, boot_id, left_behind, new_spool, of_cluster
from headrace.producer.spool_layout import Head, Ring, cluster_number, slots_for
from headrace.producer.stream import MISSING_CODES, Encoder, Envelope, Stream, explained, interrupted

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
_REACH_SECONDS: Final = 0.5
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
    spool_folder: Path | None = None
    """Where what an account says is kept until it is delivered; None: nowhere."""

    def streams(self, producer_id: str, rings: Mapping[str, Ring]) -> dict[str, Stream]:
        return {
            topic: Stream(
                topic,
                encoder,
                WindowLedger(producer_id, window_size_ms=self.window_size_ms, now_ms=now_ms()),
                now_ms,
                rings.get(topic),
            )
            for topic, encoder in self.encoders.items()
        }

    def head(self, author: Author) -> Head:
        return Head(
            producer=author.producer,
            server=self.server,
            service=self.service,
            datacenter=self.datacenter,
            bootstrap=str(self.client_config.get("bootstrap.servers", "")),
            process=author.process,
            boot=boot_id(),
            window_size_ms=self.window_size_ms,
            topics=tuple(self.encoders),
            slots=slots_for(len(self.encoders)),
        )


class Outgoing(NamedTuple):
    """An account that is to be published; `left` is the spool that it is from, when its life is another one."""

    author: Author
    topic: str
    account: Account
    left: LeftBehind | None = None


class Life:
    """Everything that one producer's uuid stands for, in the process that opened it."""

    def __init__(self, producer_id: str, settings: Settings) -> None:
        self._author = Author(producer_id, *settings[:3], this_process())
        self._envelope = Envelope(settings.server, settings.service, producer_id)
        self._monitoring_encoder = settings.monitoring_encoder
        self._client = _opened_client(settings.client_config)
        self._head = settings.head(self._author)
        self._spool_folder = settings.spool_folder
        self._spool = new_spool(settings.spool_folder, self._head)
        self._left: Iterator[LeftBehind] = iter(())
        self._left_over: Counter[LeftBehind] = Counter()
        """How many accounts of lives that were left behind are not delivered yet."""
        self.streams = settings.streams(producer_id, self._spool.rings if self._spool else {})
        # librdkafka's 0 is without end.
        self._wait_seconds_max = float(settings.client_config["delivery.timeout.ms"]) / 1000 or math.inf
        self._opening_deadline = time.monotonic() + self._wait_seconds_max
        self._is_reached = False
        """Whether the client has said which cluster it is connected to."""
        self._unpublished: deque[Outgoing] = deque()
        self.monitoring_failures = 0
        self._refusal = ""
        """Why the last account that was not delivered was not."""
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
                stream.on_sent(sequence, happened_ms)
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
                on_delivery(_overdue(stream, self._refusal), None)
                return
            time.sleep(_PAUSE_SECONDS)

    def _patience(self, stream: Stream) -> float:
        """Return until when a sender waits: for the opening heartbeat from when the life began, else from now."""
        return time.monotonic() + self._wait_seconds_max if stream.is_announced else self._opening_deadline

    def abandon(self) -> None:
        """Leave the life to the process that this one was forked off: that one alone keeps what it has locked."""
        self.is_closed = True
        if self._spool is not None:
            self._spool.leave()
        for left in self._left_over:
            left.leave()

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
        for stream in self.streams.values():
            self._put(stream, [stream.opened(now_ms())])
        while not self.is_closed:
            if self._reach(_REACH_SECONDS):
                self._publish()
            self._client.poll(_POLL_SECONDS)
            due_ms = now_ms() - ACCOUNTING_DELAY_MS
            for stream in self.streams.values():
                stream.settle()
                self._put(stream, stream.finished(due_ms))
            if self.is_opened:
                self._put_left(next(self._left, None))

    def _reach(self, seconds: float) -> bool:
        """Ask which cluster this is, once: the spool has to say so before anything leaves, and so do those left behind."""
        if not self._is_reached:
            try:
                cluster_id = self._client.list_topics(MONITORING_TOPIC, timeout=seconds).cluster_id
            except KafkaException:
                return False
            cluster = cluster_number(cluster_id or "")
            if self._spool is not None:
                self._spool.note_cluster(cluster)
            found = left_behind(self._spool_folder, partial(_is_before, self._head), now_ms)
            self._left = of_cluster(found, cluster, self._head.bootstrap)
            self._is_reached = True
        return True

    def _finish(self) -> None:
        """Wait for the outcomes, give up those that do not come in time, and publish the last accounts."""
        begin = time.monotonic()
        deadline = self._deadline or begin
        reserve = min((deadline - begin) * ACCOUNTS_SHARE, ACCOUNTS_SECONDS_MAX)
        self._reach(min(_REACH_SECONDS, reserve))
        self._await_senders(min(begin + SENDERS_SECONDS_MAX, deadline - reserve))
        self._flush(deadline - reserve)
        if len(self._client):
            self._client.purge()
            self._flush(time.monotonic() + reserve / 2)
        for stream in self.streams.values():
            self._put(stream, stream.closed(now_ms()))
        for left in self._left:
            self._put_left(left)
            if time.monotonic() > deadline - reserve:
                break
        self._publish_all(deadline)
        for left in self._left_over:
            left.leave()
        if self._spool is not None:
            if self.monitoring_failures:
                self._spool.leave()
            else:
                self._spool.forget()

    def _put(self, stream: Stream, accounts: Iterable[Account]) -> None:
        self._unpublished += [Outgoing(self._author, stream.topic, account) for account in accounts]

    def _put_left(self, left: LeftBehind | None) -> None:
        """Take a life that was left behind: its last accounts are published here."""
        if left is None:
            return
        _log.warning(
            "server %s, service %s (producer %s, process %d) ended without closing: its last accounts are published now, "
            "with %d events acknowledged and %d of which nobody knows whether they arrived",
            left.head.server,
            left.head.service,
            left.head.producer,
            left.head.process.pid,
            left.acknowledged,
            left.unknown,
        )
        author = Author.of(left.head, left.sequence)
        self._left_over[left] = len(left.accounts)
        self._unpublished += [Outgoing(author, topic, account, left) for topic, account in left.accounts]

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
        """Publish accounts in order until the client's queue is full, or their topic turns out not to exist."""
        while self._unpublished:
            outgoing = self._unpublished[0]
            author = outgoing.author
            message = author.message(self._monitoring_encoder, outgoing.topic, outgoing.account, now_ms())
            try:
                self._client.produce(
                    MONITORING_TOPIC, **message, on_delivery=partial(self._on_monitoring_delivery, outgoing)
                )
            except BufferError:
                return
            except KafkaException as error:
                if self._is_waiting(error.args[0]):
                    self._note_waiting(error.args[0])
                    return
                self._give_up(outgoing, error.args[0])
            author.sequence += 1
            if outgoing.left is None and self._spool is not None:
                self._spool.note_monitoring(author.sequence)
            self._unpublished.popleft()

    def _is_waiting(self, error: KafkaError) -> bool:
        """Whether accounts wait after this error: somebody may still create their topic."""
        is_missing = error.code() in MISSING_CODES
        return is_missing and not self.is_closed and len(self._unpublished) <= UNPUBLISHED_MAX

    def _note_waiting(self, error: KafkaError) -> None:
        refusal = explained(error, MONITORING_TOPIC).str()
        if refusal != self._refusal:
            self._refusal = refusal
            _log.warning("accounts wait to be published: %s", refusal)

    def _publish_all(self, deadline: float) -> None:
        under_way = 0
        while (self._unpublished or under_way) and (rest := deadline - time.monotonic()) > 0:
            if self._reach(min(_REACH_SECONDS, rest)):
                self._publish()
            under_way = self._client.flush(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        self._is_over = True
        if len(self._client):
            # Messages that it kept would keep the client, which asks for brokers as long as it lives.
            self._client.purge()
            self._client.flush(_POLL_SECONDS)
        self.monitoring_failures += len(self._client) + sum(
            outgoing.left is None for outgoing in self._unpublished
        )

    def _on_monitoring_delivery(self, outgoing: Outgoing, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self._note_delivered(outgoing)
        elif (
            self._is_over
            or error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            or len(self._unpublished) >= UNPUBLISHED_MAX
        ):
            self._give_up(outgoing, error)
        else:
            kind, self._refusal = outgoing.account.kind, explained(error, MONITORING_TOPIC).str()
            _log.warning("a %s account was not delivered and is published again: %s", kind, self._refusal)
            self._unpublished.append(outgoing)

    def _note_delivered(self, outgoing: Outgoing) -> None:
        left = outgoing.left
        if left is None:
            stream = self.streams[outgoing.topic]
            stream.is_announced = True
            stream.on_accounted(outgoing.account)
            return
        self._left_over[left] -= 1
        if not self._left_over[left]:
            del self._left_over[left]
            left.forget()

    def _give_up(self, outgoing: Outgoing, error: KafkaError) -> None:
        """An account of a life that was left behind stays in its spool, for the next one."""
        if outgoing.left is None:
            self.monitoring_failures += 1
        self._refusal = explained(error, MONITORING_TOPIC).str()
        _log.error("a monitoring event was not delivered: %s", self._refusal)


def _opened_client(config: Mapping[str, Any]) -> KafkaProducer:
    try:
        return KafkaProducer(dict(config))
    except KafkaException as error:
        raise ValueError(f"client_config or security: {error.args[0].str()}") from error


def _is_before(head: Head, other: Head) -> bool:
    """Whether a life is of the same service as another one, so that the later one publishes what is left of it."""
    return _place_of(head) == _place_of(other)


def _place_of(head: Head) -> tuple[str, ...]:
    return head.datacenter, head.server, head.service, head.bootstrap


def _overdue(stream: Stream, refusal: str) -> KafkaError:
    """Return what becomes of an event that waited too long; `refusal` is why accounts were not delivered."""
    reason = "the client's queue stayed full"
    if not stream.is_announced:
        reason = f"the opening heartbeat in {MONITORING_TOPIC} was not acknowledged"
        reason += f": {refusal}" if refusal else ""
    return KafkaError(KafkaError._QUEUE_FULL, reason)


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
