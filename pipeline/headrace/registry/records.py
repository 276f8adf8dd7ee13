"""Records of the `_schemas` topic in Confluent's own JSON: keys and values, both ways. Pure.

A value of None is a tombstone. Key types that this registry does not use (CONTEXT, CLEAR_SUBJECT) and others'
NOOP decode to None, so that a topic written by Confluent's registry can be read. A turn is a NOOP, which every
registry passes over whatever its value, all under one key, so that compaction keeps the last of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from headrace.registry.modes import STORED
from headrace.registry.schemas import LEVELS, Reference


class RecordError(ValueError):
    """A record that is not of the topic's format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """Version of a subject: its schema under its id. `text` is None for the tombstone of a hard delete."""

    subject: str
    version: int
    schema_id: int = 0
    text: str | None = None
    references: tuple[Reference, ...] = ()
    deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibilityLevel:
    """Level of a subject, or the global one (subject None); level None removes it."""

    subject: str | None
    level: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """Mode of a subject, or the global one (subject None); mode None removes it."""

    subject: str | None
    mode: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDeletion:
    """All versions of a subject up to this one are soft-deleted; version None is the tombstone."""

    subject: str
    version: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A process asks for its turn to write, or a turn is over (see `turns`)."""

    turn: str
    is_over: bool = False


Change = SchemaVersion | CompatibilityLevel | Mode | SubjectDeletion
"""What changes subjects, ids, levels or modes."""
Record = Change | Turn

TURN_HEADER: Final = "headrace-turn"
"""Header of a record that names the turn it was written in."""
TURN_KEY: Final = b'{"keytype":"NOOP","magic":0}'


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Return key and value as they stand in the topic."""
    match record:
        case SchemaVersion():
            key = {"keytype": "SCHEMA", "subject": record.subject, "version": record.version, "magic": 1}
            return _dump(key), None if record.text is None else _dump(_schema_value(record))
        case CompatibilityLevel():
            key = {"keytype": "CONFIG", "subject": record.subject, "magic": 0}
            return _dump(key), None if record.level is None else _dump({"compatibilityLevel": record.level})
        case Mode():
            key = {"keytype": "MODE", "subject": record.subject, "magic": 0}
            return _dump(key), None if record.mode is None else _dump(_mode_value(record))
        case SubjectDeletion():
            key = {"keytype": "DELETE_SUBJECT", "subject": record.subject, "magic": 0}
            value = {"subject": record.subject, "version": record.version}
            return _dump(key), None if record.version is None else _dump(value)
        case Turn():
            return TURN_KEY, _dump({"turn": record.turn, "over": record.is_over})


def decode(key: bytes | None, value: bytes | None) -> Record | None:
    """Return the record, or None for one that changes nothing here; raises RecordError."""
    try:
        return _decode(json.loads(key or b"null"), None if value is None else json.loads(value))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"key {key!r:.200}: {type(error).__name__}: {error}") from error


def _schema_value(record: SchemaVersion) -> dict[str, Any]:
    value: dict[str, Any] = {"subject": record.subject, "version": record.version, "id": record.schema_id}
    if record.references:
        value["references"] = [reference.as_json() for reference in record.references]
    return {**value, "schema": record.text, "deleted": record.deleted}


def _mode_value(record: Mode) -> dict[str, Any]:
    return {"subject": record.subject, "mode": record.mode}


def _decode(key: dict[str, Any], value: dict[str, Any] | None) -> Record | None:
    match key["keytype"]:
        case "SCHEMA":
            subject, version = str(key["subject"]), int(key["version"])
            if value is None:
                return SchemaVersion(subject=subject, version=version)
            if value.get("schemaType", "AVRO") != "AVRO":
                return None
            return SchemaVersion(
                subject=subject,
                version=version,
                schema_id=int(value["id"]),
                text=str(value["schema"]),
                references=tuple(
                    Reference(name=each["name"], subject=each["subject"], version=int(each["version"]))
                    for each in value.get("references") or ()
                ),
                deleted=bool(value.get("deleted", False)),
            )
        case "CONFIG":
            # Confluent's registry leaves the subject out of the global settings' keys since it writes no nulls.
            level = None if value is None else _level(value)
            return CompatibilityLevel(subject=key.get("subject"), level=level)
        case "MODE":
            return Mode(subject=key.get("subject"), mode=None if value is None else _mode(value))
        case "DELETE_SUBJECT":
            return SubjectDeletion(
                subject=str(key["subject"]), version=None if value is None else int(value["version"])
            )
        case "NOOP" if isinstance(value, dict) and isinstance(value.get("turn"), str):
            return Turn(turn=value["turn"], is_over=value.get("over") is True)
        case _:
            return None


def _level(value: dict[str, Any]) -> str | None:
    level: str | None = value.get("compatibilityLevel")
    if level is not None and level not in LEVELS:
        raise ValueError(f"{level!r} is no compatibility level")
    return level


def _mode(value: dict[str, Any]) -> str:
    mode: str = value["mode"]
    if mode not in STORED:
        raise ValueError(f"{mode!r} is no mode")
    return mode


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
