"""The keys and versions that kio lacks (requests between brokers, the oldest client versions) against
Apache Kafka.

`wire_vectors.jsonl` holds one message a line as Apache Kafka 3.9.1's own generated classes wrote it: its
bytes, and its fields as Kafka's JsonConverter names and shows them (uuids and bytes in base64, default
tagged fields left out).
"""

import base64
import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID as Uuid

import pytest

from headrace.broker.wire import fields as f
from headrace.broker.wire.api import APIS

VECTORS = [
    json.loads(line) for line in Path(__file__).with_name("wire_vectors.jsonl").read_text().splitlines()
]


def named(vector: dict[str, Any]) -> str:
    return f"{vector['key']}-{vector['side']}-{vector['version']}"


def snake(name: str) -> str:
    split = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name.replace("KRaft", "Kraft"))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", split).lower()


def shown(value: Any, kind: f.FieldType, version: int) -> Any:
    """A decoded value in the notation of Kafka's JsonConverter."""
    if value is None:
        return None
    if isinstance(kind, f.Array):
        return [shown(item, kind.of, version) for item in value]
    if isinstance(kind, f.Struct):
        return {
            field.name: shown(value[field.name], field.type, version)
            for field in kind.fields
            if field.present_in(version) and field.type is not f.RECORDS
        }
    if isinstance(value, Uuid):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return base64.b64encode(value).decode() if kind is f.BYTES else value


def as_shown(value: Any) -> Any:
    if isinstance(value, list):
        return [as_shown(item) for item in value]
    if isinstance(value, dict):
        return {snake(name): as_shown(item) for name, item in value.items() if not name.startswith("records")}
    return value


def test_the_vectors_cover_every_version_of_the_requests_between_brokers() -> None:
    covered = {(vector["key"], vector["side"], vector["version"]) for vector in VECTORS}
    for key in (4, 5, 6, 7):
        first, last = APIS[key].versions
        for version in range(first, last + 1):
            assert {(key, "request", version), (key, "response", version)} <= covered


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_kafkas_bytes_are_read_to_its_values_and_written_back(vector: dict[str, Any]) -> None:
    api, side, version = APIS[vector["key"]], vector["side"], vector["version"]
    encoded = bytes.fromhex(vector["bytes"])
    message = getattr(api, f"decode_{side}")(version, encoded)
    struct = f.Struct(*getattr(api, side))
    absent_tags = {field.name for field in struct.fields if field.tag is not None} - as_shown(
        vector["json"]
    ).keys()
    decoded = {
        name: value for name, value in shown(message, struct, version).items() if name not in absent_tags
    }
    assert decoded == as_shown(vector["json"])
    sendable = {field.name: message[field.name] for field in struct.fields if field.present_in(version)}
    assert getattr(api, f"encode_{side}")(version, sendable) == encoded
