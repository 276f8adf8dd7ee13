"""Configuration keys as data: how one key is named, parsed, bounded and described.

A configuration section is a frozen dataclass whose attributes are Kafka's property names with underscores for dots
(`log_segment_bytes` is `log.segment.bytes`); each attribute carries a `Key` that knows its type and bounds. Knows
nothing of any particular key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from decimal import Decimal
from typing import Any, ClassVar, Literal, Protocol

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

KeyType = Literal["BOOLEAN", "STRING", "INT", "LONG", "DOUBLE", "LIST", "PASSWORD"]


class ConfigurationError(ValueError):
    """A property of `server.properties` that a broker cannot start with."""

    def __init__(self, key: str, value: str, allowed: str) -> None:
        super().__init__(f"{key}={value} is not allowed: give {allowed}.")
        self.key, self.value, self.allowed = key, value, allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The definition of one property.

    `low` and `high` bound numbers (inclusive); `choices` bounds whole numbers, strings and each item of a list, `pattern`
    strings, which `form` words. A nullable key has no value unless one is given. `synonyms` are the broker properties that a
    topic's value falls back on, most specific first.
    """

    type: KeyType
    doc: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    form: str = ""
    nullable: bool = False
    synonyms: tuple[str, ...] = ()

    def allowed(self) -> str:
        """What a value may be, as words for a person."""
        if self.type == "BOOLEAN":
            return "true or false"
        if self.choices:
            one_of = f"one of {', '.join(self.choices)}"
            return f"a comma-separated list, each item {one_of}" if self.type == "LIST" else one_of
        if self.type in ("INT", "LONG"):
            return f"a whole number from {self.low} to {self.high}"
        if self.type == "DOUBLE":
            return f"a number from {self.low} to {self.high}"
        return "a comma-separated list" if self.type == "LIST" else self.form or "a text"

    def parse(self, name: str, text: str) -> Any:
        """The typed value of `text`; raises ConfigurationError."""
        text = text.strip()
        if self.nullable and text == "":
            return None
        try:
            value = _PARSERS[self.type](text)
        except ValueError:
            raise ConfigurationError(name, text, self.allowed()) from None
        if not self._within(value):
            raise ConfigurationError(name, text, self.allowed())
        return value

    def _within(self, value: Any) -> bool:
        if self.choices:
            return set(value if self.type == "LIST" else (str(value),)) <= set(self.choices)
        if self.type in ("INT", "LONG", "DOUBLE"):
            return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        return not self.pattern or re.fullmatch(self.pattern, value) is not None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _whole_number(text: str) -> int:
    if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit():
        raise ValueError(text)
    return int(text)


def _list(text: str) -> tuple[str, ...]:
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


_PARSERS: Mapping[KeyType, Any] = {
    "BOOLEAN": _boolean,
    "STRING": str,
    "PASSWORD": str,
    "INT": _whole_number,
    "LONG": _whole_number,
    "DOUBLE": float,
    "LIST": _list,
}


def _key(default: Any, key: Key) -> Any:
    return field(default=default, metadata={"key": key})


def integer(
    default: int | None,
    doc: str,
    *,
    low: int = -(2**31),
    high: int = INT_MAX,
    choices: tuple[int, ...] = (),
    synonyms: tuple[str, ...] = (),
) -> Any:
    """A 32-bit number, or one of `choices`."""
    key = Key(
        type="INT",
        doc=doc,
        low=low,
        high=high,
        choices=tuple(map(str, choices)),
        nullable=default is None,
        synonyms=synonyms,
    )
    return _key(default, key)


def long(
    default: int | None,
    doc: str,
    *,
    low: int = -(2**63),
    high: int = LONG_MAX,
    synonyms: tuple[str, ...] = (),
) -> Any:
    """A 64-bit number."""
    key = Key(type="LONG", doc=doc, low=low, high=high, nullable=default is None, synonyms=synonyms)
    return _key(default, key)


def double(default: float, doc: str, *, low: float, high: float, synonyms: tuple[str, ...] = ()) -> Any:
    """A number with a fraction."""
    return _key(default, Key(type="DOUBLE", doc=doc, low=low, high=high, synonyms=synonyms))


def boolean(default: bool, doc: str, *, synonyms: tuple[str, ...] = ()) -> Any:
    """True or false."""
    return _key(default, Key(type="BOOLEAN", doc=doc, synonyms=synonyms))


def string(
    default: str | None,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    pattern: str = "",
    form: str = "",
    synonyms: tuple[str, ...] = (),
) -> Any:
    """A text, one of `choices`, or what matches `pattern`, as `form` words it."""
    key = Key(
        type="STRING",
        doc=doc,
        choices=choices,
        pattern=pattern,
        form=form,
        nullable=default is None,
        synonyms=synonyms,
    )
    return _key(default, key)


def strings(
    default: tuple[str, ...] | None,
    doc: str,
    *,
    choices: tuple[str, ...] = (),
    synonyms: tuple[str, ...] = (),
) -> Any:
    """A comma-separated list."""
    nullable = default is None
    return _key(default, Key(type="LIST", doc=doc, choices=choices, nullable=nullable, synonyms=synonyms))


def password(doc: str) -> Any:
    """A secret without a default: never shown, nor part of an error."""
    return _key(None, Key(type="PASSWORD", doc=doc, nullable=True))


class Section(Protocol):
    """A dataclass whose fields carry keys."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def property_name(attribute: str) -> str:
    """`log_segment_bytes` → `log.segment.bytes`."""
    return attribute.replace("_", ".")


def keys_of(section: type[Section]) -> dict[str, Key]:
    """Property name → key of every attribute of a section, in the order they are declared."""
    return {property_name(f.name): f.metadata["key"] for f in fields(section) if "key" in f.metadata}


def default_of(section: type[Section], name: str) -> Any:
    """The default of a property of a section."""
    return section.__dataclass_fields__[name.replace(".", "_")].default


def parse_section(section: type[Section], properties: Mapping[str, str]) -> dict[str, Any]:
    """Attribute → typed value for the properties that a section knows and that are given; raises ConfigurationError."""
    return {
        name.replace(".", "_"): key.parse(name, properties[name])
        for name, key in keys_of(section).items()
        if name in properties
    }


def text_of(value: Any) -> str | None:
    """A typed value as Kafka prints it in DescribeConfigs; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _double_text(value) if isinstance(value, float) else str(value)


def _double_text(value: float) -> str:
    """As Java writes it: with an exponent of ten below a thousandth and from ten million on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    digits, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{digits if '.' in digits else f'{digits}.0'}E{int(exponent)}"


def without_aliases(given: Mapping[str, str], aliases: Mapping[str, tuple[str, ...]]) -> Mapping[str, str]:
    """The properties with what older names say under the names of today."""
    found = dict(given)
    for alias, names in aliases.items():
        if alias in found:
            value = found.pop(alias)
            for name in names:
                # Long.MAX_VALUE, the default, stands for no value of its own, as in Kafka.
                if found.get(name, str(LONG_MAX)) == str(LONG_MAX):
                    found[name] = value
    return found
