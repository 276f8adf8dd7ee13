"""What tests of Avro schemas in a load share: records of fields, their values, and rows of a table of a given shape."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from headrace.load.avro_types import WriterSchema, writer_schema
from headrace.load.decode import Decoded, TableShape, decode


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Event", "namespace": "test", "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def encoded(schema: Any, rows: list[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    values = []
    for row in rows:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, parsed, row)
        values.append(sink.getvalue())
    return values


def mapped(schema: Any, schema_id: int = 7) -> WriterSchema:
    return writer_schema(schema_id, json.loads(json.dumps(schema)))


def shape_of(schema: WriterSchema) -> TableShape:
    return TableShape(columns=schema.table_fields, defaults=schema.defaults)


def decoded_in(shape: TableShape, schema: Any, rows: list[Any]) -> Decoded:
    return decode(encoded(schema, rows), mapped(schema).named(shape.columns), shape)
