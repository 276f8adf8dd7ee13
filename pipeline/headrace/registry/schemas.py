"""Avro schemas as the registry sees them: normal form, id, validity and compatibility. Pure.

The normal form is JSON with sorted keys that keeps defaults, logical types, aliases and references, which
Avro's own canonical form drops. The id is 31 bits of its SHA-256, so that registries that never talk to
each other give a schema the same id. The resolution rules are those of the `avro` package.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass
from typing import Any, Final

import avro.errors
import avro.name
import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from fastavro.schema import SchemaParseException, UnknownType, parse_schema

TRANSITIVE: Final = "_TRANSITIVE"
LEVELS: Final = (
    "NONE",
    "BACKWARD",
    f"BACKWARD{TRANSITIVE}",
    "FORWARD",
    f"FORWARD{TRANSITIVE}",
    "FULL",
    f"FULL{TRANSITIVE}",
)
PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class InvalidSchemaError(ValueError):
    """Text that is no valid Avro schema, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A named type of this schema that another subject's version defines."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


def normal_form(text: str, referenced: dict[str, str]) -> str:
    """Return the text that decides whether two schemas are one; raises InvalidSchemaError.

    `referenced` holds the normal form of each referenced schema by the name it is referred to: what a
    reference means counts, not the subject and version it has in one registry.
    """
    schema = _reduced(_load(text))
    whole = {"schema": schema, "references": referenced} if referenced else schema
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def schema_id(normal: str) -> int:
    """Return the id of a schema in normal form: 31 bits, 1 <= id < 2**31."""
    digest = hashlib.sha256(normal.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF or 1


def parse(text: str, referenced: tuple[str, ...] = ()) -> avro.schema.Schema:
    """Parse a schema after the texts that it refers to; raises InvalidSchemaError with the reason."""
    names = avro.name.Names()
    known: dict[str, Any] = {}
    schema = None
    try:
        for source in (*referenced, text):
            loaded = _with_full_aliases(_load(source), "")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", avro.errors.IgnoredLogicalType)
                schema = avro.schema.make_avsc_object(loaded, names)
            # fastavro checks the defaults, which the avro package does not.
            parse_schema(loaded, named_schemas=known, _write_hint=False)
    except (avro.errors.AvroException, SchemaParseException, UnknownType) as error:
        raise InvalidSchemaError(str(error) or type(error).__name__) from error
    except (RecursionError, TypeError, AttributeError, KeyError, ValueError) as error:
        raise InvalidSchemaError(f"not an Avro schema ({type(error).__name__}: {error})") from error
    assert schema is not None
    return schema


def incompatibilities(new: avro.schema.Schema, old: avro.schema.Schema, level: str) -> list[str]:
    """Return why `new` may not follow `old` at this level; empty when it may.

    BACKWARD: a reader with the new schema reads what the old one wrote. FORWARD: the other way round. FULL: both.
    """
    direction = level.removesuffix(TRANSITIVE)
    reasons: list[str] = []
    if direction in ("BACKWARD", "FULL"):
        reasons += _unreadable(
            reader=new, writer=old, direction="the new schema cannot read the old one's data"
        )
    if direction in ("FORWARD", "FULL"):
        reasons += _unreadable(
            reader=old, writer=new, direction="the old schema cannot read the new one's data"
        )
    return reasons


def _unreadable(*, reader: avro.schema.Schema, writer: avro.schema.Schema, direction: str) -> list[str]:
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    result = checker.get_compatibility(reader, writer)
    if result.compatibility is SchemaCompatibilityType.compatible:
        return []
    kinds = sorted({kind.value for kind in result.incompatibilities})
    places = sorted(result.locations)
    details = sorted(message for message in result.messages if message)
    return [f"{direction}: {', '.join(kinds)} at {', '.join(places)} ({', '.join(details)})"]


def _load(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"not JSON ({error})") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _reduced(schema: Any) -> Any:
    """Write `{"type": "string"}` as `"string"`, wherever a schema may stand."""
    if isinstance(schema, list):
        return [_reduced(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if len(schema) == 1 and isinstance(schema.get("type"), str) and schema["type"] in PRIMITIVES:
        return schema["type"]
    return {
        key: _reduced(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
    }


def _with_full_aliases(schema: Any, namespace: str) -> Any:
    """Qualify the aliases of named types, which the avro package compares with full names only."""
    if isinstance(schema, list):
        return [_with_full_aliases(branch, namespace) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in ("record", "error", "enum", "fixed"):
        name = schema.get("name", "")
        inner = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
        aliases = [
            alias if "." in alias or not inner else f"{inner}.{alias}" for alias in schema.get("aliases", ())
        ]
        schema = {**schema, "aliases": aliases} if aliases else schema
        namespace = inner
    nested = ("type", "items", "values", "fields")
    return {
        key: _with_full_aliases(value, namespace) if key in nested else value for key, value in schema.items()
    }
