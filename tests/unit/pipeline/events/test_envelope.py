"""The registry's frame around an event's bytes, and the shipped schemas."""

from __future__ import annotations

import io
import json

import pytest
from fastavro import schemaless_reader, schemaless_writer

from headrace.events.access_log import parse
from headrace.events.avro_schemas import SchemaName, parsed_schema, schema_text
from headrace.events.envelope import FrameError, Header, frame_prefix, unframe

HEADER_FIELDS = ["time", "server", "service", "producer", "sequence"]


def test_the_frame_is_byte_zero_and_the_id_in_big_endian() -> None:
    assert frame_prefix(0x01020304) == b"\x00\x01\x02\x03\x04"
    assert unframe(frame_prefix(7) + b"avro") == (7, b"avro")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "the message has no value"),
        (b"\x00\x00", "the value has 2 bytes, fewer than the 5 of the registry's frame"),
        (b'{"a":1}', "the value begins with byte 123, the registry's frame with byte 0"),
    ],
)
def test_a_value_without_the_frame_is_refused_in_a_sentence(value: bytes | None, sentence: str) -> None:
    with pytest.raises(FrameError, match=sentence):
        unframe(value)


@pytest.mark.parametrize("name", ["page_view", "rejected_line", "monitoring_event"])
def test_the_first_field_of_every_event_is_the_header(name: SchemaName) -> None:
    first = json.loads(schema_text(name))["fields"][0]
    assert first["name"] == "header"
    assert [field["name"] for field in first["type"]["fields"]] == HEADER_FIELDS == list(Header._fields)
    types = {field["name"]: field["type"] for field in first["type"]["fields"]}
    assert types["producer"] == "string"
    assert types["time"] == {"type": "long", "logicalType": "timestamp-millis"}


def test_a_page_view_survives_avro() -> None:
    view = parse(b'::1 - - [17/May/2015:10:05:03 +0000] "GET /caf\xc3\xa9 HTTP/1.1" 200 - "-" "x"')
    record = {"header": Header(1, "s", "v", "p", 0)._asdict(), **view._asdict()}
    buffer = io.BytesIO()
    schemaless_writer(buffer, parsed_schema("page_view"), record)
    buffer.seek(0)
    decoded = schemaless_reader(buffer, parsed_schema("page_view"), None)
    assert isinstance(decoded, dict)
    assert decoded["path"] == "/café"
    assert decoded["logged_at"].timestamp() == 1431857103
