"""How answers of `headrace query` look, and which times a DataFrame could not be collected with."""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal
from typing import Any

import click
import pyarrow as pa
import pytest

from headrace.load import answers
from headrace.load.python_times import odd_rows, reason

TIME = pa.timestamp("us", "UTC")
YEAR_50000_MS = 1_515_731_616_000_000
ODD = YEAR_50000_MS * 1000


def odd_times() -> pa.Table:
    header = pa.struct([("time", TIME), ("n", pa.int64())])
    return pa.table(
        {
            "header": pa.array([{"time": ODD, "n": 1}, {"time": 5, "n": 2}, None, None], header),
            "list": pa.array([[1], [ODD, None], None, []], pa.list_(TIME)),
            "map": pa.array([None, [("k", 5)], [("a", ODD), ("b", None)], []], pa.map_(pa.string(), TIME)),
            "day": pa.array([1, None, 3, 2_932_897], pa.int32()).cast(pa.date32()),
        }
    )


def test_json_has_numbers_for_times_that_python_lacks_and_objects_for_maps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers.print_json(odd_times())
    shown = json.loads(capsys.readouterr().out)
    assert shown[0]["header"] == {"time": YEAR_50000_MS, "n": 1}
    assert shown[1] == {
        "header": {"time": "1970-01-01T00:00:00.000005+00:00", "n": 2},
        "list": [YEAR_50000_MS, None],
        "map": {"k": "1970-01-01T00:00:00.000005+00:00"},
        "day": None,
    }
    assert shown[2] == {
        "header": None,
        "list": None,
        "map": {"a": YEAR_50000_MS, "b": None},
        "day": "1970-01-04",
    }
    assert shown[3]["day"] == 2_932_897


def test_bytes_are_text_that_tells_them_apart(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["né".encode(), b"\xff", rb"\xff", rb"\\xff", b"\x00"]
    answers.print_json(pa.table({"key": pa.array(keys, pa.binary())}))
    shown = [row["key"] for row in json.loads(capsys.readouterr().out)]
    assert shown == ["né", r"\xff", r"\\xff", r"\\\\xff", "\x00"]


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (pa.timestamp("s"), 10**14, 10**17),
        (pa.timestamp("ms", "UTC"), YEAR_50000_MS, YEAR_50000_MS),
        (pa.timestamp("us", "Europe/Berlin"), -(10**17) - 1, -(10**14) - 1),
        (pa.timestamp("us"), 2**63 - 1, (2**63 - 1) // 1000),
    ],
)
def test_a_time_of_any_unit_becomes_milliseconds(kind: pa.DataType, value: int, shown: int) -> None:
    assert answers.value_of(pa.scalar(value, pa.int64()).cast(kind)) == shown


def test_nothing_is_cut_in_a_pipe_and_nothing_taken_for_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = pa.table({"[b]name": ["x" * 500, "[red]y[/red]"] * 600})
    answers.print_table(long)
    lines = capsys.readouterr().out.splitlines()
    assert sum("x" * 500 in line for line in lines) == 600
    assert sum("[red]y[/red]" in line for line in lines) == 600
    assert "[b]name" in lines[1]


def test_a_terminal_folds_what_is_wide_and_shows_the_first_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    answers.print_table(pa.table({"a": ["x" * 50, *["y"] * answers.ROWS_SHOWN_MAX]}))
    shown = capsys.readouterr().out
    assert (shown.count("x"), shown.count("│ y ")) == (50, answers.ROWS_SHOWN_MAX - 1)
    assert "1001" in shown


def test_columns_of_one_name_stay_apart_in_csv(capsys: pytest.CaptureFixture[str]) -> None:
    answers.print_csv(pa.table([pa.array([1]), pa.array([None], pa.int64())], ["a", "a"]))
    assert capsys.readouterr().out.splitlines() == ["a,a", "1,"]


def test_rows_with_times_outside_are_found_at_any_depth() -> None:
    rows = odd_times()
    assert odd_rows(rows).tolist() == [True, True, True, True]
    assert odd_rows(rows.slice(1).drop(["list"])).tolist() == [False, True, True]
    assert odd_rows(rows.slice(0, 0)).tolist() == []
    outside = "outside of the years 1 to 9999 that Python has"
    assert [reason(rows, index) for index in range(4)] == [
        f"header.time is {YEAR_50000_MS} milliseconds since 1970, {outside}",
        f"list has a time {outside}",
        f"map has a time {outside}",
        f"day is 2932897 days since 1970, {outside}",
    ]


def test_rows_with_times_that_python_has_are_not_found() -> None:
    usual: dict[str, Any] = {
        "time": pa.array([0, None, 253_402_000_000_000_000], TIME),
        "text": ["a", "b", None],
    }
    assert odd_rows(pa.table(usual)).tolist() == [False, False, False]


def test_json_has_sums_as_numbers_and_a_text_for_what_it_has_no_number_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sums = pa.array([Decimal(2**70), None, Decimal(-1)], pa.decimal128(38, 0))
    answers.print_json(pa.table({"sum": sums, "f": [math.nan, math.inf, -math.inf]}))
    shown = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [tuple(row.values()) for row in shown] == [(2**70, "NaN"), (None, "Infinity"), (-1, "-Infinity")]


def test_json_refuses_two_columns_of_one_name() -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(click.ClickException, match="two columns are called id"):
        answers.print_json(twice)


def test_a_table_escapes_what_would_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    answers.print_table(pa.table({"x": ["\x1b[31mred\x07", "größe"]}))
    shown = capsys.readouterr().out
    assert "\\x1b[31mred\\x07" in shown
    assert "größe" in shown
    assert "\x1b" not in shown
