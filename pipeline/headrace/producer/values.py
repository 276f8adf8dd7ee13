"""What a value has to be for its Avro type, at any depth: the first misfit is told with its path and the reason. Pure.

Owns which Python values an Avro type takes. fastavro's writer would cut 1.5 to 1, make a float of more than 32 bits
infinite, and write any text as a uuid, so values are checked before it. What a type takes is compiled once.
https://avro.apache.org/docs/1.11.1/specification/
"""

from __future__ import annotations

import datetime
import math
import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final, NamedTuple
from uuid import UUID

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
FLOAT_END: Final = (2 - 2**-24) * 2.0**127
"""The first number that is no 32-bit one, rounded."""

PRIMITIVES: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (Integral,),
    "long": (Integral,),
    "float": (Real,),
    "double": (Real,),
    "bytes": (bytes, bytearray, memoryview),
    "string": (str,),
}

LOGICAL: Final[Mapping[str, type]] = {
    "timestamp-millis": datetime.datetime,
    "timestamp-micros": datetime.datetime,
    "local-timestamp-millis": datetime.datetime,
    "local-timestamp-micros": datetime.datetime,
    "date": datetime.date,
    "time-millis": datetime.time,
    "time-micros": datetime.time,
    "uuid": UUID,
    "decimal": Decimal,
}

_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Misfit(NamedTuple):
    """Where in a value something does not fit, such as `[3].price`, and why."""

    path: str
    reason: str

    def below(self, step: str) -> Misfit:
        return Misfit(step + self.path, self.reason)


Check = Callable[[Any], Misfit | None]
"""Returns None for a value that fits."""


def shown(value: object) -> str:
    """Return a value and its type for a sentence, cut where it is long."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def described(kind: Any) -> str:
    """Return an Avro type for a sentence."""
    if isinstance(kind, list):
        return " or ".join(described(member) for member in kind)
    if isinstance(kind, str):
        return kind
    logical = kind.get("logicalType")
    return f"{kind['type']} ({logical})" if logical else str(kind["type"])


def is_taken(value: object, takes: tuple[type, ...]) -> bool:
    """Say whether a value is of one of these types; a bool is no number."""
    return bool in takes if isinstance(value, bool) else isinstance(value, takes)


class Checks:
    """Compiles the checks of one parsed schema's types; `named` has its named types, which may contain themselves."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._kinds = named
        self._named: dict[str, Check] = {}

    def of(self, kind: Any) -> Check:
        """Return the check of a type."""
        if isinstance(kind, list):
            return self._union(kind)
        if isinstance(kind, str):
            return _plain(kind, kind, None) if kind in PRIMITIVES else self._reference(kind)
        match kind["type"]:
            case "record" | "error":
                return self._record(kind)
            case "array":
                return self._array(kind)
            case "map":
                return self._map(kind)
            case "enum":
                return _enum(kind)
            case "fixed":
                return _fixed(kind)
            case str(name) if name in PRIMITIVES:
                return _plain(name, kind, kind.get("logicalType"))
            case nested:
                return self.of(nested)

    def _reference(self, name: str) -> Check:
        def check(value: Any) -> Misfit | None:
            if name not in self._named:
                self._named[name] = self.of(self._kinds[name])
            return self._named[name](value)

        return check

    def _record(self, kind: Mapping[str, Any]) -> Check:
        checks = [(field["name"], self.of(field["type"])) for field in kind["fields"]]
        names = frozenset(name for name, _ in checks)
        required = frozenset(field["name"] for field in kind["fields"] if "default" not in field)

        def check(value: Any) -> Misfit | None:
            if type(value) is not dict and not isinstance(value, Mapping):
                return Misfit("", f"is {shown(value)}, give a dict for record {kind['name']}")
            for name, check_field in checks:
                if name in value:
                    if found := check_field(value[name]):
                        return found.below(f".{name}")
                elif name in required:
                    return Misfit(f".{name}", "is missing and has no default")
            if names.issuperset(value):
                return None
            unknown = next(name for name in value if name not in names)
            return Misfit(f".{unknown}", f"is not in its schema, which has {', '.join(sorted(names))}")

        return check

    def _array(self, kind: Mapping[str, Any]) -> Check:
        check_item = self.of(kind["items"])

        def check(value: Any) -> Misfit | None:
            if type(value) is not list and not _is_array(value):
                return Misfit("", f"is {shown(value)}, give a list")
            for index, item in enumerate(value):
                if found := check_item(item):
                    return found.below(f"[{index}]")
            return None

        return check

    def _map(self, kind: Mapping[str, Any]) -> Check:
        check_item = self.of(kind["values"])

        def check(value: Any) -> Misfit | None:
            if type(value) is not dict and not isinstance(value, Mapping):
                return Misfit("", f"is {shown(value)}, give a dict")
            for key, item in value.items():
                if not isinstance(key, str):
                    return Misfit("", f"has the key {shown(key)}, give keys as str")
                if found := check_item(item):
                    return found.below(f"[{reprlib.repr(key)}]")
            return None

        return check

    def _union(self, kind: list[Any]) -> Check:
        has_null = "null" in kind
        checks = {_name(member): self.of(member) for member in kind if member != "null"}

        def check(value: Any) -> Misfit | None:
            if value is None and has_null:
                return None
            if isinstance(value, tuple) and len(value) == 2 and value[0] in checks:
                # A member's name and its value, as fastavro takes them.
                return checks[value[0]](value[1])
            found = []
            for each in checks.values():
                misfit = each(value)
                if misfit is None:
                    return None
                found.append(misfit)
            deeper = [misfit for misfit in found if misfit.path] if len(found) > 1 else found
            return deeper[0] if deeper else Misfit("", f"is {shown(value)}, give {described(kind)}")

        return check


def _is_array(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray | Mapping)


def _name(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    return str(kind.get("name", kind["type"]))


def _plain(name: str, kind: Any, logical: str | None) -> Check:
    own = LOGICAL.get(str(logical))
    takes = (*PRIMITIVES[name], own) if own else PRIMITIVES[name]
    check_more = _MORE.get(str(logical)) or _MORE.get(name)
    is_usual = _never if str(logical) in _MORE else _USUAL[name]

    def check(value: Any) -> Misfit | None:
        if is_usual(value):
            return None
        if not is_taken(value, takes):
            return Misfit("", f"is {shown(value)}, give {described(kind)}")
        reason = check_more(value, kind) if check_more else None
        return Misfit("", reason) if reason else None

    return check


def _never(_: Any) -> bool:
    return False


_USUAL: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "int": lambda value: type(value) is int and INT_MIN <= value <= INT_MAX,
    "long": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "float": lambda value: type(value) is float and -FLOAT_END < value < FLOAT_END,
    "double": lambda value: type(value) is float,
    "bytes": lambda value: type(value) is bytes,
    "string": lambda value: type(value) is str and value.isascii(),
}
"""Says of nearly every value that it fits, several times as fast as the whole check."""


def _int(value: Any, _: Any) -> str | None:
    is_wide = isinstance(value, Integral) and not INT_MIN <= int(value) <= INT_MAX
    return f"is {value}, and an int has 32 bits" if is_wide else None


def _long(value: Any, _: Any) -> str | None:
    is_wide = isinstance(value, Integral) and not -(2**63) <= int(value) < 2**63
    return f"is {value}, and a long has 64 bits" if is_wide else None


def _float(value: Any, _: Any) -> str | None:
    is_wide = FLOAT_END <= abs(value) < math.inf
    return f"is {shown(value)}, and a float has 32 bits" if is_wide else None


def _double(value: Any, _: Any) -> str | None:
    is_wide = isinstance(value, Integral) and abs(int(value)) >= 2**1024
    return f"is {shown(value)}, and a double has 64 bits" if is_wide else None


def _string(value: Any, _: Any) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"is {shown(value)}, which UTF-8 cannot encode"
    return None


def _uuid(value: Any, _: Any) -> str | None:
    if isinstance(value, UUID) or not isinstance(value, str) or _UUID.fullmatch(value):
        return None
    return f"is {shown(value)}, give a uuid such as str(uuid.uuid4())"


def _decimal(value: Any, kind: Mapping[str, Any]) -> str | None:
    if not isinstance(value, Decimal):
        return None
    precision, scale = kind["precision"], kind.get("scale", 0)
    if not value.is_finite():
        return f"is {value}, give a number"
    if -int(value.as_tuple().exponent) > scale or (value and value.adjusted() >= precision - scale):
        return f"is {value}, and its decimal has {precision} digits, {scale} of them behind the point"
    return None


_MORE: Final[Mapping[str, Callable[[Any, Any], str | None]]] = {
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "string": _string,
    "uuid": _uuid,
    "decimal": _decimal,
}
"""Returns why a value of a plain or logical type that is taken does not fit all the same."""


def _enum(kind: Mapping[str, Any]) -> Check:
    symbols = frozenset(kind["symbols"])

    def check(value: Any) -> Misfit | None:
        if isinstance(value, str) and value in symbols:
            return None
        return Misfit("", f"is {shown(value)}, give one of {', '.join(kind['symbols'])}")

    return check


def _fixed(kind: Mapping[str, Any]) -> Check:
    size, logical = kind["size"], str(kind.get("logicalType"))
    own, check_more = LOGICAL.get(logical), _MORE.get(logical)

    def check(value: Any) -> Misfit | None:
        if own and isinstance(value, own):
            reason = check_more(value, kind) if check_more else None
            return Misfit("", reason) if reason else None
        if isinstance(value, bytes | bytearray | memoryview) and len(value) == size:
            return None
        return Misfit("", f"is {shown(value)}, give {size} bytes")

    return check
