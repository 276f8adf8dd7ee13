"""An answer in Arrow as people read it: a table, comma-separated values, or JSON.

Owns what a value looks like: times as ISO 8601, those before the year 1 or after 9999, where Python's `datetime` ends, as
their milliseconds since 1970 (a date as its days); maps as objects; bytes as the text that they are in UTF-8, others than that
as \\xNN and a backslash doubled, so that two values never look alike. In JSON a sum of integers is a number, and
what JSON has no number for (NaN, Infinity) a text; what would move a terminal's cursor is escaped. Nothing is cut: a table is
as wide as a terminal allows, where long values go on in the next line, and in a pipe or a file as wide as its values, with all
rows.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from typing import Any, Final

import click
import pyarrow as pa
from rich.table import Table
from rich.text import Text

from headrace.broker.console import console

ROWS_SHOWN_MAX: Final = 1000
"""On a terminal."""
NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}


def print_json(answer: pa.Table) -> None:
    """Print an array of objects; raises ClickException where two columns have one name, since an object holds one of them."""
    names = answer.column_names
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise click.ClickException(
            f"two columns are called {doubled}, and a JSON object has one: name them with AS"
        )
    objects = [dict(zip(names, row, strict=True)) for row in rows(answer)]
    click.echo(json.dumps(objects, default=_plain, indent=2, ensure_ascii=False))


def print_csv(answer: pa.Table) -> None:
    writer = csv.writer(sys.stdout)
    writer.writerow(answer.column_names)
    writer.writerows([_text(value) for value in row] for row in rows(answer))


def print_table(answer: pa.Table) -> None:
    is_terminal = sys.stdout.isatty()
    shown = Table()
    for name in answer.column_names:
        shown.add_column(Text(name), overflow="fold")
    for row in rows(answer.slice(0, ROWS_SHOWN_MAX) if is_terminal else answer):
        shown.add_row(*(Text(_shown(value)) for value in row))
    console().print(shown)
    if is_terminal and len(answer) > ROWS_SHOWN_MAX:
        console().print(
            f"{len(answer)} rows, the first {ROWS_SHOWN_MAX} are shown; use --csv or --json for all."
        )


def rows(answer: pa.Table) -> list[tuple[Any, ...]]:
    """Return the values of each row, as Python and JSON have them."""
    return list(zip(*([value_of(item) for item in column] for column in answer.columns), strict=True))


def value_of(scalar: pa.Scalar) -> Any:
    """Return one value; a time that Python lacks becomes a number, at any depth."""
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_struct(kind):
        return {name: value_of(part) for name, part in scalar.items()}
    if pa.types.is_map(kind):
        keys, items = (scalar.values.field(index) for index in range(2))
        return {_text(value_of(key)): value_of(item) for key, item in zip(keys, items, strict=True)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [value_of(item) for item in scalar.values]
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return value_of(scalar.cast(pa.timestamp("us", kind.tz), safe=False))
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return int(scalar.as_py())
    if pa.types.is_floating(kind) and not math.isfinite(scalar.as_py()):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(scalar.as_py(), "NaN")
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return milliseconds(scalar) if pa.types.is_timestamp(kind) else scalar.value


def milliseconds(time: pa.Scalar) -> int:
    """Return a time's milliseconds since 1970, rounded down."""
    return int(time.value * NANOSECONDS[time.type.unit] // 1_000_000)


def _shown(value: Any) -> str:
    """A value on a terminal: control characters, which could move its cursor or change its colours, as Python escapes them."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in _text(value))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(_plain(value))
