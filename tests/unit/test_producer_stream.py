"""Encoding with the envelope, and what a delivery callback's error means for the ledger."""

from __future__ import annotations

import io
import json

import pytest
from confluent_kafka import KafkaError
from fastavro import schemaless_reader

from headrace.events.avro_schemas import parsed_schema, schema_text
from headrace.events.envelope import unframe
from headrace.events.monitoring import Acknowledgement, Undelivered, WindowLedger
from headrace.producer.stream import Delivery, Encoder, EventError, Stream

NOW = 1_700_000_000_000
HEADER = {"time": NOW, "server": "s", "service": "v", "producer": "p", "sequence": 0}
LINE = {"reason": "r", "line": b"\xff", "size": 1, "sha256": ""}


def new_stream() -> Stream:
    encoder = Encoder(schema_text("rejected_line"), 7)
    return Stream("t", encoder, WindowLedger("p", window_size_ms=1000, now_ms=NOW), lambda: NOW + 5)


def test_an_event_is_framed_and_encoded() -> None:
    encoder = Encoder(schema_text("rejected_line"), 7)
    schema_id, payload = unframe(encoder.encode({"header": HEADER, **LINE}))
    assert schema_id == 7
    decoded = schemaless_reader(io.BytesIO(payload), parsed_schema("rejected_line"), None)
    assert isinstance(decoded, dict)
    assert (decoded["line"], decoded["header"]["sequence"]) == (b"\xff", 0)


def test_nothing_of_the_event_before_is_left_behind_a_shorter_one() -> None:
    encoder = Encoder(schema_text("rejected_line"), 7)
    whole = encoder.encode({"header": HEADER, **LINE})
    encoder.encode({"header": HEADER, **LINE, "reason": "a much longer reason than the next one's"})
    assert encoder.encode({"header": HEADER, **LINE}) == whole


@pytest.mark.parametrize(
    "record", [{}, {**LINE, "size": "one"}, {**LINE, "reason": None}, {**LINE, "size": 2**63}]
)
def test_an_event_that_does_not_fit_is_refused_and_the_next_one_is_whole(record: dict[str, object]) -> None:
    encoder = Encoder(schema_text("rejected_line"), 7)
    whole = encoder.encode({"header": HEADER, **LINE})
    with pytest.raises(EventError, match="does not fit its schema"):
        encoder.encode({"header": HEADER, **record})
    assert encoder.encode({"header": HEADER, **LINE}) == whole


@pytest.mark.parametrize(
    "schema",
    [
        '"string"',
        '{"type":"record","name":"R","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"header","type":"string"}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
    ],
)
def test_a_schema_without_the_envelope_is_refused(schema: str) -> None:
    with pytest.raises(EventError, match="header"):
        Encoder(schema, 1)


def test_a_schema_of_ones_own_with_the_envelope_is_taken() -> None:
    header = json.loads(schema_text("page_view"))["fields"][0]
    own = json.dumps({"type": "record", "name": "Own", "fields": [header, {"name": "n", "type": "int"}]})
    assert unframe(Encoder(own, 1).encode({"header": HEADER, "n": 1}))[0] == 1


def test_outcomes_go_to_the_ledger_in_the_order_of_the_callbacks() -> None:
    stream = new_stream()
    callbacks = []
    for sequence in range(4):
        stream.deliveries.append(Delivery(sequence, NOW, -1, None))
        callbacks.append(stream.on_delivery(sequence, NOW))
    callbacks[1](None, None)
    callbacks[0](None, None)
    callbacks[2](KafkaError(KafkaError._MSG_TIMED_OUT), None)
    callbacks[3](KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
    stream.settle()
    [account] = stream.finished(NOW + 1000)
    assert account.acknowledgements == (Acknowledgement(0, 1, NOW + 5),)
    outcomes = [(entry.first_sequence, entry.outcome) for entry in account.undelivered]
    assert outcomes == [(2, "unknown"), (3, "failed")]
    assert isinstance(account.undelivered[0], Undelivered)
    counts = stream.counts
    assert (counts.acknowledged, counts.failed, counts.unknown) == (2, 1, 1)
    assert sum(counts.reasons.values()) == 2
