"""The Avro schemas of headrace's own events, as text and parsed, read once from the package's `.avsc` files.

An event's subject in the registry is its topic's name with `-value` (Confluent's TopicNameStrategy).
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

SchemaName = Literal["page_view", "rejected_line", "monitoring_event"]

MONITORING_TOPIC: Final = "headrace.monitoring"
REJECTED_SUFFIX: Final = ".rejected"


@cache
def schema_text(name: SchemaName) -> str:
    """Return a schema as compact JSON, the form that is registered."""
    source = files("headrace.events").joinpath(f"schemas/{name}.avsc").read_text(encoding="utf-8")
    return json.dumps(json.loads(source), separators=(",", ":"), ensure_ascii=False)


@cache
def parsed_schema(name: SchemaName) -> Any:
    """Return a schema as fastavro's readers and writers want it."""
    from fastavro.schema import parse_schema

    return parse_schema(json.loads(schema_text(name)))


def subject_of(topic: str) -> str:
    return f"{topic}-value"
