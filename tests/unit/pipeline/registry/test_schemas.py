"""Normal form, id, validity and compatibility of Avro schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.registry.schemas import InvalidSchemaError, incompatibilities, normal_form, parse, schema_id


def record(*fields: dict[str, Any], name: str = "R", **rest: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields), **rest})


def field(name: str, type_: Any, **rest: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **rest}


def compatible(new: Any, old: Any, level: str = "BACKWARD") -> bool:
    texts = [each if isinstance(each, str) else json.dumps(each) for each in (new, old)]
    return not incompatibilities(parse(texts[0]), parse(texts[1]), level)


INT = record(field("a", "int"))


def test_layout_and_key_order_do_not_change_the_id() -> None:
    spaced = '{"fields": [ {"type": {"type": "int"}, "name": "a"} ],\n "name": "R", "type": "record"}'
    assert normal_form(spaced, {}) == normal_form(INT, {})


@pytest.mark.parametrize(
    "other",
    [
        record(field("a", "long")),
        record(field("a", "int", default=1)),
        record(field("a", {"type": "int", "logicalType": "date"})),
        record(field("a", "int", aliases=["b"])),
        record(field("a", "int"), doc="says more"),
        record(field("a", "int"), name="S"),
    ],
)
def test_everything_that_means_something_changes_the_id(other: str) -> None:
    assert schema_id(normal_form(other, {})) != schema_id(normal_form(INT, {}))


def test_what_a_reference_means_changes_the_id() -> None:
    text = record(field("a", "Other"))
    ids = {schema_id(normal_form(text, {"Other": meaning})) for meaning in ('"x"', '"y"')}
    assert len(ids) == 2


def test_the_id_is_positive_and_fits_31_bits_and_is_stable() -> None:
    assert schema_id(normal_form('"string"', {})) == 1776665033
    assert all(0 < schema_id(str(number)) < 2**31 for number in range(1000))


def test_a_hash_without_bits_still_gives_a_positive_id(monkeypatch: pytest.MonkeyPatch) -> None:
    class Zeros:
        def __init__(self, _: bytes) -> None: ...

        def digest(self) -> bytes:
            return bytes(32)

    monkeypatch.setattr("hashlib.sha256", Zeros)
    assert schema_id("anything") == 1


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "",
        "nonsense",
        '{"type":"nope"}',
        '{"type":"record","name":"1A","fields":[]}',
        '{"type":"record","name":"A"}',
        '{"type":"enum","name":"E","symbols":["a","a"]}',
        record(field("a", "int", default="x")),
        record(field("a", "Unknown")),
        record(field("a", "int", default=float("nan"))),
        "[" * 20_000,
        "3",
        "null",
    ],
)
def test_what_is_no_avro_schema_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(InvalidSchemaError, match=r"\w"):
        parse(text)


def test_a_schema_may_use_the_types_it_refers_to() -> None:
    inner = record(field("x", "int"), name="Inner", namespace="n")
    outer = parse(record(field("i", "n.Inner")), (inner,))
    assert not incompatibilities(outer, parse(record(field("i", "n.Inner")), (inner,)), "FULL")


@pytest.mark.parametrize(
    ("new", "old", "backward", "full"),
    [
        (INT, INT, True, True),
        # A field with a default may come and go; one without may only go.
        (record(field("a", "int"), field("b", "int", default=0)), INT, True, True),
        (record(field("a", "int"), field("b", "int")), INT, False, False),
        (record(), INT, True, False),
        (record(field("a", ["null", "int"], default=None)), record(), True, True),
        # Promotions go one way.
        ('"long"', '"int"', True, False),
        ('"double"', '"float"', True, False),
        ('"int"', '"long"', False, False),
        ('"bytes"', '"string"', True, True),
        ('"string"', '"int"', False, False),
        # Unions: every branch that was written must be readable.
        (["null", "int"], '"int"', True, False),
        ('"int"', ["null", "int"], False, False),
        (["null", "long"], ["null", "int"], True, False),
        (["null", "int", "string"], ["null", "int"], True, False),
        # Enums: new symbols are unreadable for an old reader without a default.
        (
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
            {"type": "enum", "name": "E", "symbols": ["a"]},
            True,
            False,
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["a"]},
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
            False,
            False,
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["a"], "default": "a"},
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
            True,
            True,
        ),
        # Names, aliases, nesting.
        (record(field("a", "int"), name="S"), INT, False, False),
        (record(field("a", "int"), name="S", aliases=["R"]), INT, True, False),
        (
            record(field("a", "int"), name="S", namespace="n", aliases=["R"]),
            record(field("a", "int"), namespace="n"),
            True,
            False,
        ),
        (record(field("b", "int", aliases=["a"])), INT, True, False),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True, False),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, False, False),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 5}, False, False),
    ],
)
def test_resolution_rules(new: Any, old: Any, backward: bool, full: bool) -> None:
    assert compatible(new, old, "BACKWARD") is backward
    assert compatible(old, new, "FORWARD") is backward
    assert compatible(new, old, "FULL") is full
    assert compatible(new, old, "NONE")


def test_a_recursive_schema_is_compatible_with_itself() -> None:
    tree = record(field("next", ["null", "R"], default=None))
    assert compatible(tree, tree, "FULL")


def test_the_reason_names_the_place() -> None:
    [reason] = incompatibilities(parse(record(field("a", "int"), field("b", "int"))), parse(INT), "BACKWARD")
    assert reason == (
        "the new schema cannot read the old one's data: reader_field_missing_default_value at /fields/1 (b)"
    )
