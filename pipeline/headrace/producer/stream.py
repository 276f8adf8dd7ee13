"""One topic of a producer: encodes events, hands out sequences, and keeps the ledger of their outcomes.

Two threads meet here in one deque. Senders append that an event was handed out, the delivery callback what became of
it; only the accounting thread takes from it and touches the ledger, so that no callback ever waits for a lock.
"""

from __future__ import annotations

import io
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError
from fastavro import schemaless_writer
from fastavro.schema import parse_schema

from headrace.events.envelope import frame_prefix
from headrace.events.monitoring import Account, Outcome, WindowLedger
from headrace.producer.checks import EventError, FieldCheck
from headrace.producer.plain_fields import LONGS, UNUSUAL, fields_writer, text
from headrace.producer.spool_layout import NoRing, Ring

_log = logging.getLogger("headrace.producer")

FAILED_CODES: Final = frozenset(
    (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._PURGE_QUEUE,
        KafkaError._QUEUE_FULL,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._FATAL,
    )
)
"""Errors after which an event is surely not in the log; after any other one it may be."""

MISSING_CODES: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
"""Errors of a topic that does not exist."""

_HEADER_FIELDS: Final = ["time", "server", "service", "producer", "sequence"]


Delivery = tuple[int, int, int, KafkaError | None]
"""A sequence, its event's time, and what became of it when: handed out (-1), acknowledged (no error) or not delivered."""


Span = tuple[int, int]
"""Sequences first to last (inclusive)."""


class Envelope:
    """What the headers of all events of a producer's life share, and its encoding."""

    def __init__(self, server: str, service: str, producer: str) -> None:
        self._names = {"server": server, "service": service, "producer": producer}
        self._encoded = b"".join(map(text, self._names.values()))
        self._begin = (-1, b"")

    def encoded(self, time_ms: int) -> bytes:
        """Return the encoding of all fields but the sequence; many events in a row have the same time."""
        known_ms, found = self._begin
        if known_ms != time_ms:
            found = LONGS[time_ms] + self._encoded
            self._begin = (time_ms, found)
        return found

    def header(self, time_ms: int, sequence: int) -> dict[str, Any]:
        return {"time": time_ms, **self._names, "sequence": sequence}


@dataclass(slots=True)
class Counts:
    """Outcomes of one topic's events so far, and how many failed for which reason."""

    acknowledged: int
    failed: int
    unknown: int
    reasons: dict[str, int]

    @property
    def total(self) -> int:
        """How many events have an outcome."""
        return self.acknowledged + self.failed + self.unknown


class Encoder:
    """Frames and encodes events of one schema: byte 0, schema id, Avro binary."""

    def __init__(self, schema: str, schema_id: int) -> None:
        parsed = json.loads(schema)
        check_header(parsed)
        ready: Any = parse_schema(parsed)
        self.schema = ready
        self._prefix = frame_prefix(schema_id)
        self._check = FieldCheck(ready)
        self._is_strict = not self._check.is_whole
        self._write = fields_writer(ready["fields"][1:]) if _has_plain_header(ready) else None

    def body(self, fields: Mapping[str, Any]) -> bytes | None:
        """Return an event's fields without its header, encoded; None: they fit, and are `event`'s to encode.

        Raises EventError when they do not fit the schema.
        """
        if self._write is not None:
            try:
                return self._write(fields)
            except UNUSUAL:
                pass
        self._check(fields)
        return None

    def event(
        self,
        envelope: Envelope,
        time_ms: int,
        sequence: int,
        fields: Mapping[str, Any],
        body: bytes | None,
    ) -> bytes:
        """Return the message value of an event whose fields have this body."""
        if body is None:
            return self.encode({"header": envelope.header(time_ms, sequence), **fields})
        return self._prefix + envelope.encoded(time_ms) + LONGS[sequence] + body

    def encode(self, record: Mapping[str, Any]) -> bytes:
        """Return the message value; raises EventError when the record does not fit the schema."""
        buffer = io.BytesIO()
        buffer.write(self._prefix)
        try:
            schemaless_writer(buffer, self.schema, record, strict_allow_default=self._is_strict)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            self._check.refuse_values(record)
            raise EventError(f"the event does not fit its schema: {type(error).__name__}: {error}") from error
        return buffer.getvalue()


class Stream:
    """Sequences, encoder, deliveries and ledger of one topic."""

    def __init__(
        self,
        topic: str,
        encoder: Encoder,
        ledger: WindowLedger,
        clock_ms: Callable[[], int],
        ring: Ring | NoRing | None = None,
    ) -> None:
        self.topic = topic
        self.lock = threading.RLock()
        self.is_announced = False
        """Whether an account of the topic was acknowledged, so that the audit knows of the producer."""
        self.next_sequence = 0
        self.encoder = encoder
        self.counts = Counts(0, 0, 0, {})
        self.deliveries: deque[Delivery] = deque()
        self.ring = ring or NoRing()
        self._accounted: list[Span] = []
        """Sequences in delivered accounts, in ascending runs; the first one begins with 0, or there is none of it."""
        self._ledger = ledger
        self._clock_ms = clock_ms

    def on_delivery(self, sequence: int, time_ms: int) -> Callable[[KafkaError | None, Any], None]:
        """Return the callback for one event; it runs on whichever thread polls the client."""
        return partial(self._delivered, sequence, time_ms)

    def _delivered(self, sequence: int, time_ms: int, error: KafkaError | None, message: Any) -> None:
        now_ms = self._clock_ms()
        if error is None:
            self.ring.on_acknowledged(sequence, now_ms)
        else:
            has_partition = message is not None and message.partition() is not None
            error = explained(error, self.topic, has_partition=has_partition)
            self.ring.on_failed(sequence, _outcome(error))
        self.deliveries.append((sequence, time_ms, now_ms, error))

    def on_sent(self, sequence: int, time_ms: int) -> None:
        """Note a sequence that is about to be handed to the client. For the sender that took it."""
        self.ring.on_sent(sequence, time_ms)
        self.deliveries.append((sequence, time_ms, -1, None))

    def on_accounted(self, account: Account) -> None:
        """Note that an account was delivered. For the accounting thread only."""
        found = [(run.first_sequence, run.last_sequence) for run in account.acknowledgements]
        found += [(entry.first_sequence, entry.last_sequence) for entry in account.undelivered]
        if found:
            self._accounted = _joined([*self._accounted, *found])

    def settle(self) -> None:
        """Take all deliveries into the ledger. For the accounting thread only."""
        first = self._accounted[0] if self._accounted else (0, -1)
        self.ring.note(self.next_sequence, first[1] + 1 if first[0] == 0 else 0)
        deliveries, ledger, counts = self.deliveries, self._ledger, self.counts
        for _ in range(len(deliveries)):
            sequence, time_ms, now_ms, error = deliveries.popleft()
            if now_ms < 0:
                ledger.on_sent(sequence, time_ms)
            elif error is None:
                counts.acknowledged += ledger.on_acknowledged(sequence, time_ms, now_ms)
            else:
                self._settle_failure(sequence, time_ms, error)

    def _settle_failure(self, sequence: int, time_ms: int, error: KafkaError) -> None:
        outcome = _outcome(error)
        reason = error.str()
        if not self._ledger.on_failed(sequence, time_ms, outcome=outcome, reason=reason):
            return
        if error.code() in MISSING_CODES and reason not in self.counts.reasons:
            _log.error("events are not delivered: %s", reason)
        if outcome == "failed":
            self.counts.failed += 1
        else:
            self.counts.unknown += 1
        self.counts.reasons[reason] = self.counts.reasons.get(reason, 0) + 1

    def opened(self, now_ms: int) -> Account:
        return self._ledger.opened(now_ms)

    def finished(self, now_ms: int) -> list[Account]:
        """Return the accounts that are due. For the accounting thread only."""
        return self._ledger.finished(now_ms)

    def closed(self, now_ms: int) -> list[Account]:
        """Return the last accounts; what was taken and has no outcome is unknown. For the accounting thread only."""
        self.settle()
        for sequence, time_ms in self._ledger.unsettled(self.next_sequence, now_ms):
            self._settle_failure(sequence, time_ms, interrupted())
        return self._ledger.closed(now_ms)


def explained(error: KafkaError, topic: str, *, has_partition: bool = False) -> KafkaError:
    """Return the error of a topic that does not exist with what to do; without a partition nothing was ever sent."""
    if error.code() not in MISSING_CODES:
        return error
    code = error.code() if has_partition else KafkaError._UNKNOWN_TOPIC
    advice = "create it, or have the brokers do so with auto.create.topics.enable=true"
    return KafkaError(code, f"topic {topic} does not exist: {advice}")


def _outcome(error: KafkaError) -> Outcome:
    return "failed" if error.code() in FAILED_CODES else "unknown"


def _joined(spans: list[Span]) -> list[Span]:
    """Return the same sequences in as few ascending runs as there can be."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def interrupted() -> KafkaError:
    """Return what becomes of a sequence whose send() was ended by a signal's handler: nobody knows."""
    return KafkaError(KafkaError._INTR, "send() was interrupted before the outcome was known")


def _has_plain_header(schema: Mapping[str, Any]) -> bool:
    """Whether the header's fields are the texts and longs that `Encoder.event` writes."""
    types = [field["type"] for field in schema["fields"][0]["type"]["fields"]]
    longs = [kind["type"] if isinstance(kind, dict) else kind for kind in (types[0], types[4])]
    return longs == ["long", "long"] and types[1:4] == ["string"] * 3


def check_header(schema: Any) -> None:
    """Raises EventError for a schema without the envelope."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    first = fields[0] if fields else {}
    header = first.get("type") if isinstance(first, dict) and first.get("name") == "header" else None
    names = [field.get("name") for field in header.get("fields", [])] if isinstance(header, dict) else []
    if names != _HEADER_FIELDS:
        raise EventError(
            "an audited event's schema must be a record whose first field `header` is a record of "
            f"{', '.join(_HEADER_FIELDS)}; see page_view.avsc"
        )
