"""What a producer is opened with: what is none of it is refused in a sentence that says what to give."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from headrace.events.avro_schemas import schema_text
from headrace.producer.arguments import (
    DELIVERY_KEY,
    checked_client_config,
    checked_datacenter,
    checked_schemas,
    checked_security,
    checked_window,
)
from headrace.producer.checks import EventError

SCHEMA = schema_text("rejected_line")


@pytest.mark.parametrize(
    ("schemas", "sentence"),
    [
        (None, "give a dict"),
        ({}, "at least one topic"),
        (["orders"], "give a dict"),
        ({3: SCHEMA}, "topic's name has"),
        ({"or ders": SCHEMA}, "topic's name has"),
        ({"..": SCHEMA}, "topic's name has"),
        ({"t" * 250: SCHEMA}, "topic's name has"),
        ({"headrace.monitoring": SCHEMA}, "the producer's own"),
        ({"orders": json.loads(SCHEMA)}, "is a dict: give its JSON as text"),
        ({"orders": Path("order.avsc")}, "is a PosixPath: give its JSON as text"),
    ],
)
def test_what_are_no_schemas_by_topic_is_refused(schemas: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        checked_schemas(schemas)


@pytest.mark.parametrize(
    "schema", ["{", '"string"', "[]", '{"type":"record","name":"R","fields":["a"]}', '{"fields":[]}']
)
def test_a_schema_without_an_envelope_is_refused(schema: str) -> None:
    with pytest.raises(EventError):
        checked_schemas({"orders": schema})


def test_schemas_with_an_envelope_are_taken() -> None:
    assert checked_schemas({"..a": SCHEMA, "b_c-1": SCHEMA}) == {"..a": SCHEMA, "b_c-1": SCHEMA}


@pytest.mark.parametrize("name", ["dc.east", "dc/east", "dc east", "-dc", "", None])
def test_a_datacenter_has_a_name_that_a_mirrors_source_may_have(name: Any) -> None:
    assert checked_datacenter("dc-east") == "dc-east"
    with pytest.raises(ValueError, match="datacenter is"):
        checked_datacenter(name)


@pytest.mark.parametrize("size_ms", [0, -1, 10.5, "10", True, None])
def test_a_window_has_whole_milliseconds(size_ms: Any) -> None:
    assert checked_window(1000) == 1000
    with pytest.raises(ValueError, match=r"window_size_ms is .*: give whole milliseconds"):
        checked_window(size_ms)


def test_a_clients_settings_have_the_time_out_under_one_name_and_nothing_that_is_said_elsewhere() -> None:
    assert checked_client_config(None) == {}
    assert checked_client_config({"message.timeout.ms": 5, "acks": 1}) == {DELIVERY_KEY: 5, "acks": 1}
    for wrong in ([("acks", 1)], {"transactional.id": "a"}, {"bootstrap.servers": "here:1"}):
        with pytest.raises(ValueError, match="client_config"):
            checked_client_config(wrong)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({3: 1}, r"names 3 \(int\): names of librdkafka's settings are text"),
        ({"linger.ms": [1]}, "has linger.ms as list: give text, a number, True or False"),
        ({"acks": b"1"}, "has acks as bytes: give text"),
        ({"error_cb": 3}, "has error_cb as int: give a function"),
        ({"on_delivery": "told"}, "has on_delivery as str: give a function"),
        ({"logger": 3}, "has logger as int: give a logging.Logger"),
        ({"default.topic.config": 3}, "has default.topic.config as int: give a dict"),
    ],
)
def test_a_setting_of_a_wrong_type_is_named(config: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^client_config {sentence}"):
        checked_client_config(config)
    right = {"error_cb": print, "logger": logging.getLogger(), "linger.ms": 0.5, "client.id": None}
    assert checked_client_config(right) == right


@pytest.mark.parametrize(
    ("security", "sentence"),
    [
        (3, "of the type int: give a dict"),
        (["sasl.mechanism=PLAIN"], "of the type list: give a dict"),
        (b"client.properties", "of the type bytes: give a dict"),
        ({3: "SSL"}, r"3 \(int\): names of Kafka's client settings are text"),
        ({"security.protocol": 3}, "security.protocol as int: give text"),
        ({"schema.registry.basic.auth.user.info": None}, "as NoneType: give text"),
    ],
)
def test_what_is_no_security_is_refused_and_never_shown(security: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^security .*{sentence}"):
        checked_security(security)
    for right in (None, "a.properties", Path("a.properties"), {"security.protocol": "SSL"}):
        assert checked_security(right) == right
