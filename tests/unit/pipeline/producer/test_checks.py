"""What send() takes and refuses before a sequence is taken: times, keys and fields, each with one sentence."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from fastavro.schema import parse_schema

from headrace.events.avro_schemas import parsed_schema, schema_text
from headrace.producer.checks import EventError, FieldCheck, checked_key, checked_text, checked_time

NOW = 1_700_000_000_000
LINE: dict[Any, Any] = {"reason": "r", "line": b"x", "size": 1, "sha256": ""}


def check_of(*fields: dict[str, Any]) -> FieldCheck:
    header = json.loads(schema_text("page_view"))["fields"][0]
    schema: Any = parse_schema({"type": "record", "name": "Own", "fields": [header, *fields]})
    return FieldCheck(schema)


def test_a_time_in_milliseconds_is_taken() -> None:
    assert checked_time(NOW) == NOW


@pytest.mark.parametrize(
    ("time_ms", "sentence"),
    [
        (1.7e12, "whole milliseconds since 1970 as an int"),
        (True, "whole milliseconds"),
        ("1700000000000", "whole milliseconds"),
        (datetime.datetime(2026, 1, 1), "whole milliseconds"),
        (NOW // 1000, "looks like seconds"),
        (NOW * 1000, "looks like microseconds"),
        (NOW * 1_000_000, "looks like nanoseconds"),
        (0, "before March 1973"),
        (-NOW, "before March 1973"),
    ],
)
def test_a_time_of_another_type_or_unit_is_refused(time_ms: object, sentence: str) -> None:
    with pytest.raises(EventError, match=sentence):
        checked_time(time_ms)


def test_a_key_is_bytes_or_text() -> None:
    assert (checked_key(b"\xff"), checked_key("é")) == (b"\xff", "é".encode())
    for key in (5, True, bytearray(b"x"), ("a",)):
        with pytest.raises(EventError, match="give bytes or text"):
            checked_key(key)
    with pytest.raises(EventError, match="UTF-8"):
        checked_key("\ud800")


@pytest.mark.parametrize("value", [None, 5, "", "a\nb", "\ud800"])
def test_a_name_that_every_event_bears_is_printable_text(value: object) -> None:
    with pytest.raises(ValueError, match=r"server is .*give the name as text"):
        checked_text("server", value)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({**LINE, "header": {}}, "`header` is filled by the producer"),
        ({"reason": "r", "line": b"", "sise": 1, "sha256": ""}, "no field `sise`; did you mean `size`?"),
        ({**LINE, "zzz": 1}, "no field `zzz`; its fields are reason, line, size, sha256"),
        ({**LINE, 5: 1}, "no field `5`"),
        ({"reason": "r"}, "field `line` is missing"),
        ({**LINE, "size": "one"}, r"field `size` is 'one' \(str\), give long"),
        ({**LINE, "size": 1.5}, r"field `size` is 1.5 \(float\), give long"),
        ({**LINE, "size": True}, r"field `size` is True \(bool\), give long"),
        ({**LINE, "line": "text"}, r"field `line` is 'text' \(str\), give bytes"),
        ({**LINE, "reason": None}, r"field `reason` is None \(NoneType\), give string"),
        ([("reason", "r")], "give a dict of names and values"),
        (None, "give a dict of names and values"),
    ],
)
def test_fields_that_do_not_fit_are_named_each_time(fields: Any, sentence: str) -> None:
    check = FieldCheck(parsed_schema("rejected_line"))
    check(LINE)
    for _ in range(2):
        with pytest.raises(EventError, match=sentence):
            check(fields)
    check(LINE)


def test_an_int_has_32_bits_also_when_others_of_its_type_were_taken() -> None:
    check = check_of({"name": "n", "type": ["null", "int"], "default": None})
    for value in (2**31 - 1, -(2**31), None):
        check({"n": value})
    for value in (2**31, -(2**31) - 1):
        with pytest.raises(EventError, match="an int has 32 bits"):
            check({"n": value})


@pytest.mark.parametrize("kind", ["float", ["null", "float"]])
def test_a_float_has_32_bits_where_the_writer_would_make_it_infinite(kind: Any) -> None:
    check = FieldCheck({"fields": [{}, {"name": "f", "type": kind}]})
    for value in (1.5, 1, 3.4e38, float("inf"), float("-inf"), float("nan")):
        check({"f": value})
    for value in (1e300, -1e39, 10**39):
        with pytest.raises(EventError, match=r"`f` is .*, and a float has 32 bits"):
            check({"f": value})
    FieldCheck({"fields": [{}, {"name": "f", "type": ["float", "double"]}]})({"f": 1e300})


def test_each_avro_type_takes_its_python_types() -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    check = check_of(
        {"name": "ok", "type": "boolean"},
        {"name": "share", "type": "double"},
        {"name": "at", "type": ["null", millis], "default": None},
    )
    check({"ok": True, "share": 1})
    check({"ok": False, "share": 0.5, "at": datetime.datetime(2026, 1, 1)})
    check({"ok": False, "share": 0.5, "at": NOW})
    for wrong in ({"ok": 1, "share": 1}, {"ok": True, "share": "0.5"}, {"ok": True, "share": 1, "at": "x"}):
        with pytest.raises(EventError, match="does not fit its schema: field"):
            check(wrong)


def test_nested_fields_are_checked_each_time() -> None:
    check = check_of({"name": "tags", "type": {"type": "array", "items": "string"}})
    assert not check.is_whole
    check({"tags": ["a"]})
    with pytest.raises(EventError, match=r"field `tags\[0\]` is 5 \(int\), give string"):
        check({"tags": [5]})
    with pytest.raises(EventError, match="did you mean `tags`"):
        check({"tag": ["a"]})
    assert FieldCheck(parsed_schema("page_view")).is_whole
