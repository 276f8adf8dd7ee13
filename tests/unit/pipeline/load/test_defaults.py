"""Which defaults of a table still belong to its columns."""

from __future__ import annotations

import pyarrow as pa

from headrace.load.defaults import fitting

PLACE = pa.struct([("city", pa.string()), ("zone", pa.string())])
COLUMNS = pa.schema(
    [
        ("count", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        ("place", PLACE),
        ("places", pa.list_(PLACE)),
        ("by_name", pa.map_(pa.string(), PLACE)),
    ]
)
ULM = {"city": "Ulm", "zone": "eu"}


def test_defaults_of_columns_that_are_as_they_were_or_wider_stay() -> None:
    defaults = {
        "count": pa.array([1], pa.int32()),
        "amount": pa.array([None], pa.decimal128(5, 2)),
        "place": pa.array([{"city": "Ulm"}]),
        "place.zone": pa.array(["eu"]),
        "places": pa.array([[ULM]], pa.list_(PLACE)),
        "places[].zone": pa.array(["eu"]),
        "by_name": pa.array([[("a", ULM)]], pa.map_(pa.string(), PLACE)),
        "by_name{}.zone": pa.array(["eu"]),
    }
    assert fitting(defaults, COLUMNS) == defaults


def test_defaults_of_columns_that_are_gone_or_of_another_type_go() -> None:
    zone = [("city", pa.string()), ("zone", pa.int64())]
    defaults = {
        "renamed": pa.array(["r"]),
        "place.renamed": pa.array(["r"]),
        "count": pa.array(["one"]),
        "place": pa.array([{"city": "Ulm", "zone": 1}], pa.struct(zone)),
        "places": pa.array([[{"zone": 1}]], pa.list_(pa.struct(zone))),
        "by_name": pa.array([[("a", {"zone": 1})]], pa.map_(pa.string(), pa.struct(zone))),
        "amount": pa.array([[1]]),
    }
    assert fitting(defaults, COLUMNS) == {}


def test_a_records_default_outlives_a_part_that_is_gone() -> None:
    defaults = {"place": pa.array([{"city": "Ulm", "renamed": 1}])}
    assert fitting(defaults, COLUMNS) == defaults
