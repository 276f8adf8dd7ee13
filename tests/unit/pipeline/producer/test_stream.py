"""Encoding with the envelope, and what a delivery callback's error means for the ledger."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError
from fastavro import schemaless_reader

from headrace.events.avro_schemas import parsed_schema, schema_text
from headrace.events.envelope import unframe
from headrace.events.monitoring import Acknowledgement, Undelivered, WindowLedger
from headrace.producer.checks import EventError
from headrace.producer.stream import Delivery, Encoder, Stream, interrupted

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
        stream.deliveries.append((sequence, NOW, -1, None))
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


@pytest.mark.parametrize(
    ("code", "partition", "outcome"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, None, (1, 0)),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, 3, (0, 1)),
        (KafkaError._UNKNOWN_TOPIC, None, (1, 0)),
    ],
)
def test_an_event_for_a_topic_that_is_not_there_failed_unless_it_was_under_way(
    code: int, partition: int | None, outcome: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    stream = new_stream()
    for sequence in range(2):
        stream.deliveries.append((sequence, NOW, -1, None))
        message = SimpleNamespace(partition=lambda: partition)
        stream.on_delivery(sequence, NOW)(KafkaError(code), message)
    stream.settle()
    counts = stream.counts
    assert (counts.failed, counts.unknown) == (2 * outcome[0], 2 * outcome[1])
    [reason] = counts.reasons
    assert reason.startswith("topic t does not exist: create it")
    assert [record.message for record in caplog.records] == [f"events are not delivered: {reason}"]


def test_what_was_taken_and_never_told_of_is_unknown_when_the_stream_closes() -> None:
    stream = new_stream()
    for sequence in (0, 2, 3):
        stream.deliveries.append((sequence, NOW, -1, None))
        stream.on_delivery(sequence, NOW)(None, None) if sequence < 3 else None
    stream.next_sequence = 6
    accounts = stream.closed(NOW + 2000)
    assert accounts[-1].kind == "closing"
    assert accounts[-1].next_sequence == 6
    acknowledged = [run[:2] for account in accounts for run in account.acknowledgements]
    undelivered = [
        (at, entry.outcome)
        for account in accounts
        for entry in account.undelivered
        for at in range(entry.first_sequence, entry.last_sequence + 1)
    ]
    assert acknowledged == [(0, 0), (2, 2)]
    assert sorted(undelivered) == [(1, "unknown"), (3, "unknown"), (4, "unknown"), (5, "unknown")]
    assert (stream.counts.acknowledged, stream.counts.unknown, stream.counts.total) == (2, 4, 6)


@pytest.mark.parametrize("first", ["acknowledged", "interrupted"])
def test_of_two_outcomes_the_first_one_counts(first: str) -> None:
    stream = new_stream()
    stream.deliveries.append((0, NOW, -1, None))
    outcomes: list[Delivery] = [(0, NOW, NOW + 5, None), (0, NOW, NOW + 5, interrupted())]
    stream.deliveries += outcomes if first == "acknowledged" else reversed(outcomes)
    [account, _] = stream.closed(NOW + 1000)
    assert (account.count, len(account.undelivered)) == ((1, 0) if first == "acknowledged" else (0, 1))
    assert stream.counts.total == 1


def test_a_sequence_may_be_told_of_after_the_one_that_overtook_it() -> None:
    stream = new_stream()
    for sequence in (1, 0):
        stream.deliveries.append((sequence, NOW, -1, None))
        stream.on_delivery(sequence, NOW)(None, None)
    [account, closing] = stream.closed(NOW + 1000)
    assert account.acknowledgements == (Acknowledgement(0, 1, NOW + 5),)
    assert closing.next_sequence == 2


def test_nested_fields_are_refused_when_they_are_misspelt() -> None:
    header = json.loads(schema_text("page_view"))["fields"][0]
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "long", "default": 0}]}
    own = json.dumps({"type": "record", "name": "Own", "fields": [header, {"name": "in", "type": inner}]})
    encoder = Encoder(own, 1)
    encoder.encode({"header": HEADER, "in": {}})
    with pytest.raises(EventError, match=r"field `in.y` is not in its schema, which has x"):
        encoder.encode({"header": HEADER, "in": {"y": 1}})
