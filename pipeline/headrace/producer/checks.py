"""What `send()` takes: time, key and fields, checked before a sequence is taken, each refused in one sentence. Pure.

fastavro's writer would cut 1.5 to 1, write True as 1 and leave a misspelt field out, so fields of plain types are checked
here: once for each combination of names and types, since events of one topic have few. Fields of other types, whose values
have more to them than their type, are checked each time.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any, Final

from headrace.producer.values import (
    FLOAT_END,
    INT_MAX,
    INT_MIN,
    LOGICAL,
    PRIMITIVES,
    Check,
    Checks,
    described,
    is_taken,
    shown,
)

TIME_MS_MIN: Final = 100_000_000_000
"""March 1973 in milliseconds, and the year 5138 in seconds."""

TIME_MS_MAX: Final = 100_000_000_000_000
"""The year 5138 in milliseconds, and March 1973 in microseconds."""

SHAPES_MAX: Final = 1000
"""Bound of the combinations of names and types that are known to fit; one beyond it is checked each time."""


class EventError(ValueError):
    """An event or schema that cannot be published, with the reason; no sequence was used for it."""


def checked_time(time_ms: object) -> int:
    """Return the time as whole milliseconds since 1970; raises EventError for other types and other units."""
    if isinstance(time_ms, bool) or not isinstance(time_ms, Integral):
        raise EventError(
            f"time_ms is {shown(time_ms)}: give whole milliseconds since 1970 as an int, "
            "such as time.time_ns() // 1_000_000"
        )
    found = int(time_ms)
    if not TIME_MS_MIN <= found < TIME_MS_MAX:
        raise EventError(f"time_ms is {found}: {_unit(found)}")
    return found


def _unit(found: int) -> str:
    if 0 < found < TIME_MS_MIN // 10:
        return "that looks like seconds, give milliseconds since 1970 (times 1000)"
    if TIME_MS_MAX <= found < TIME_MS_MAX * 1000:
        return "that looks like microseconds, give milliseconds since 1970 (divided by 1000)"
    if found >= TIME_MS_MAX * 1000:
        return "that looks like nanoseconds, give milliseconds since 1970 (divided by 1,000,000)"
    return "that is before March 1973, give the milliseconds since 1970 at which the event happened"


def checked_key(key: object) -> bytes:
    """Return the key's bytes, text as UTF-8; raises EventError for anything else."""
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise EventError(f"key is {shown(key)}: give bytes or text, such as str(key)")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise EventError("key is text that UTF-8 cannot encode: give bytes") from error


def checked_text(name: str, value: object) -> str:
    """Return one of the names that every event bears; raises ValueError when it is no text or empty."""
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise ValueError(f"{name} is {shown(value)}: give the name as text")
    return value


class FieldCheck:
    """Checks events' fields, without `header`, against one parsed Avro schema of a record."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        fields = schema["fields"][1:]
        self._types = {field["name"]: field["type"] for field in fields}
        self._takes = {field["name"]: _taken(field["type"]) for field in fields}
        self._required = [field["name"] for field in fields if "default" not in field]
        self._ints = tuple(name for name, kind in self._types.items() if _is_int(kind))
        self._floats = tuple(name for name, kind in self._types.items() if _is_float(kind))
        checks = Checks(schema.get("__named_schemas", {}))
        self._values = {name: checks.of(kind) for name, kind in self._types.items()}
        self._deep = {
            name: self._values[name]
            for name, kind in self._types.items()
            if self._takes[name] is None or _has_rules(kind)
        }
        self._shapes: set[tuple[object, ...]] = set()

    @property
    def is_whole(self) -> bool:
        """Whether all fields are of plain types, so that nothing is left to the writer."""
        return None not in self._takes.values()

    def __call__(self, fields: Mapping[str, Any]) -> None:
        """Return when they fit; raises EventError with a sentence that names the field."""
        try:
            shape = (*fields, *map(type, fields.values()))
        except (TypeError, AttributeError) as error:
            raise EventError(f"fields are {shown(fields)}: give a dict of names and values") from error
        if shape not in self._shapes:
            self._check(fields)
            if len(self._shapes) < SHAPES_MAX:
                self._shapes.add(shape)
        for name in self._ints:
            value = fields.get(name)
            if type(value) is int and not INT_MIN <= value <= INT_MAX:
                raise _misfit(f"field `{name}` is {value}, and an int has 32 bits")
        for name in self._floats:
            value = fields.get(name)
            if isinstance(value, int | float) and FLOAT_END <= abs(value) < math.inf:
                raise _misfit(f"field `{name}` is {shown(value)}, and a float has 32 bits")
        if self._deep:
            _refuse(self._deep, fields)

    def refuse_values(self, fields: Mapping[str, Any]) -> None:
        """Raise EventError for the first value that does not fit; for fields that the writer refused."""
        _refuse(self._values, fields)

    def _check(self, fields: Mapping[str, Any]) -> None:
        if "header" in fields:
            raise _misfit("`header` is filled by the producer, leave it out of the fields")
        for name in fields:
            if name not in self._types:
                raise _misfit(f"it has no field `{name}`; {self._advice(name)}")
        for name in self._required:
            if name not in fields:
                raise _misfit(f"field `{name}` is missing and has no default")
        for name, value in fields.items():
            takes = self._takes[name]
            if takes is not None and not is_taken(value, takes):
                raise _misfit(f"field `{name}` is {shown(value)}, give {described(self._types[name])}")

    def _advice(self, name: object) -> str:
        close = difflib.get_close_matches(str(name), self._types, n=1)
        return f"did you mean `{close[0]}`?" if close else f"its fields are {', '.join(self._types)}"


def _refuse(checks: Mapping[str, Check], fields: Mapping[str, Any]) -> None:
    for name, check in checks.items():
        if name in fields and (found := check(fields[name])):
            raise _misfit(f"field `{name}{found.path}` {found.reason}")


def _taken(kind: Any) -> tuple[type, ...] | None:
    """Return the Python types that a field of this Avro type takes; None: more than the type counts."""
    if isinstance(kind, list):
        members = [_taken(member) for member in kind]
        return None if None in members else tuple(each for member in members if member for each in member)
    if isinstance(kind, str):
        return PRIMITIVES.get(kind)
    plain = PRIMITIVES.get(kind["type"]) if isinstance(kind["type"], str) else None
    if plain is None:
        return None
    logical = LOGICAL.get(kind.get("logicalType"))
    return (*plain, logical) if logical else plain


def _is_int(kind: Any) -> bool:
    members = kind if isinstance(kind, list) else [kind]
    return "int" in members and not {"long", "float", "double"} & {
        each for each in members if isinstance(each, str)
    }


def _is_float(kind: Any) -> bool:
    members = kind if isinstance(kind, list) else [kind]
    return "float" in members and "double" not in members


def _has_rules(kind: Any) -> bool:
    """Whether not every value of the types that are taken fits."""
    members = kind if isinstance(kind, list) else [kind]
    return any(isinstance(each, dict) and each.get("logicalType") in ("uuid", "decimal") for each in members)


def _misfit(reason: str) -> EventError:
    return EventError(f"the event does not fit its schema: {reason}")
