"""What fits an Avro type at any depth, and the sentence for what does not: the path of the value and the reason."""

from __future__ import annotations

import io
import json
from collections import deque
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from fastavro import schemaless_writer
from fastavro.schema import parse_schema

from headrace.events.avro_schemas import schema_text
from headrace.producer.checks import EventError, FieldCheck
from headrace.producer.stream import Encoder

HEADER = json.loads(schema_text("page_view"))["fields"][0]
ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "count", "type": "int", "default": 1},
        {"name": "price", "type": ["null", "float"], "default": None},
    ],
}
ITEMS = {"type": "array", "items": ITEM}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "n", "type": "int"}, {"name": "under", "type": {"type": "array", "items": "Tree"}}],
}
ID = {"type": "string", "logicalType": "uuid"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EMPTY = {"time": 0, "server": "", "service": "", "producer": "", "sequence": 0}
KNOWN = "0b5c64b0-3f0d-4b6c-9d0b-3a3f9e1e7a55"


def schema_of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Own", "fields": [HEADER, {"name": "a", "type": kind}]}


def encode(encoder: Encoder, fields: dict[str, Any]) -> None:
    encoder.body(fields)
    encoder.encode({"header": EMPTY, **fields})


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        ({"type": "array", "items": "int"}, [1, 1.5], "`a[1]` is 1.5 (float), give int"),
        ({"type": "array", "items": "int"}, [2**31], "`a[0]` is 2147483648, and an int has 32 bits"),
        ({"type": "array", "items": "int"}, [True], "`a[0]` is True (bool), give int"),
        ({"type": "array", "items": "long"}, [2**63], "and a long has 64 bits"),
        ({"type": "array", "items": "boolean"}, ["no"], "`a[0]` is 'no' (str), give boolean"),
        ({"type": "array", "items": "string"}, "abc", "`a` is 'abc' (str), give a list"),
        ({"type": "array", "items": "string"}, 5, "`a` is 5 (int), give a list"),
        ({"type": "array", "items": "string"}, ["\ud800"], "which UTF-8 cannot encode"),
        ({"type": "array", "items": TIME}, ["x"], "`a[0]` is 'x' (str), give long (timestamp-millis)"),
        ({"type": "map", "values": "float"}, {"EUR": 1e39}, "`a['EUR']` is 1e+39 (float), and a float has"),
        ({"type": "map", "values": "float"}, {5: 1.0}, "`a` has the key 5 (int), give keys as str"),
        ({"type": "map", "values": "float"}, [("k", 1.0)], "`a` is [('k', 1.0)] (list), give a dict"),
        (
            ITEMS,
            [{"sku": "x"}, {"sku": "y", "price": 1e39}],
            "`a[1].price` is 1e+39 (float), and a float has",
        ),
        (ITEMS, [{"sku": 5}], "`a[0].sku` is 5 (int), give string"),
        (ITEMS, [{"count": 5}], "`a[0].sku` is missing and has no default"),
        (ITEMS, [{"sku": "x", "cuont": 5}], "`a[0].cuont` is not in its schema, which has count, price, sku"),
        (ITEMS, ["x"], "`a[0]` is 'x' (str), give a dict for record Item"),
        (["null", ITEM], {"sku": "x", "count": "y"}, "`a.count` is 'y' (str), give int"),
        (["null", "string", ITEM], {"sku": "x", "count": "y"}, "`a.count` is 'y' (str), give int"),
        (["null", ITEMS, "long"], 1.5, "`a` is 1.5 (float), give null or array or long"),
        (
            TREE,
            {"n": 1, "under": [{"n": 2, "under": [{"n": "x", "under": []}]}]},
            "`a.under[0].under[0].n` is 'x'",
        ),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", "`a` is 'C' (str), give one of A, B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc", "`a` is b'abc' (bytes), give 2 bytes"),
        (ID, "not one", "`a` is 'not one' (str), give a uuid such as"),
        (["null", ID], KNOWN.replace("-", ""), "give a uuid"),
        ({"type": "map", "values": ID}, {"k": ""}, "`a['k']` is '' (str), give a uuid"),
        (PRICE, Decimal("123.4"), "`a` is 123.4, and its decimal has 4 digits, 2 of them behind the point"),
        (PRICE, Decimal("1.234"), "`a` is 1.234, and its decimal"),
        (["null", PRICE], Decimal("NaN"), "`a` is NaN, give a number"),
        ("long", 2**63, "`a` is 9223372036854775808, and a long has 64 bits"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_path_and_the_reason(
    kind: Any, value: Any, sentence: str
) -> None:
    encoder = Encoder(json.dumps(schema_of(kind)), 1)
    with pytest.raises(EventError) as caught:
        encode(encoder, {"a": value})
    assert str(caught.value).startswith("the event does not fit its schema: field `a")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "array", "items": "float"}, [1, 1.5, 3.4e38, float("inf"), float("-inf"), float("nan")]),
        ({"type": "array", "items": "int"}, (2**31 - 1, -(2**31))),
        ({"type": "array", "items": "int"}, deque([1])),
        ({"type": "array", "items": TIME}, [NOON, 5]),
        ({"type": "array", "items": {"type": "int", "logicalType": "date"}}, [date(2026, 1, 1), 5]),
        ({"type": "array", "items": {"type": "int", "logicalType": "time-millis"}}, [time(1), 5]),
        ({"type": "map", "values": ["double", "float"]}, {"k": 1e300}),
        ({"type": "map", "values": "bytes"}, {"k": bytearray(b"x")}),
        (ITEMS, [{"sku": "x"}, {"sku": "y", "count": 2, "price": 1.5}, {"sku": "z", "price": None}]),
        (["null", ITEM], None),
        (["null", ITEM, TREE], {"n": 1, "under": []}),
        ({"type": "array", "items": ["null", ITEM, TREE]}, [("Tree", {"n": 1, "under": []}), {"sku": "x"}]),
        ({"type": "array", "items": ["string", "long"]}, [("long", 5)]),
        (TREE, {"n": 1, "under": [{"n": 2, "under": []}]}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
        (PRICE | {"type": "fixed", "name": "F", "size": 4}, Decimal("12.34")),
        (ID, KNOWN.upper()),
        (["null", ID], UUID(KNOWN)),
        (["null", PRICE], Decimal("-99.99")),
        ({"type": "array", "items": {"type": "string"}}, ["x"]),
    ],
)
def test_what_the_writer_takes_fits(kind: Any, value: Any) -> None:
    schema: Any = parse_schema(schema_of(kind))
    FieldCheck(schema)({"a": value})
    schemaless_writer(io.BytesIO(), schema, {"header": EMPTY, "a": value}, strict_allow_default=True)
