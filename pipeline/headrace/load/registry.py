"""Schemas by topic and id from the registry, each asked for once a process.

Owns what a load asks registries for, how often and how long. Invariants: an id is asked for in the name of the topic
that it was met in, since each datacenter's registry gives ids of its own; one that the registry does not know is
`UnknownSchemaError` and is asked for again later, since a mirror may bring data before its schema; a registry that does
not answer is `RegistryUnreachableError` and never a verdict on a record; a schema that no table can hold is remembered
as such. Must not know records, tables or how a registry is spoken to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.events.registry_address import RegistryAddress
from headrace.events.registry_client import NoAnswerError, RegistryClient, StatusError
from headrace.load.avro_types import EventSchema, UnsupportedSchemaError, event_schema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaReference

ATTEMPTS_MAX: Final = 3
RETRY_WAIT_SECONDS: Final = 0.3
REFERENCES_MAX: Final = 100
UNKNOWN_AGAIN_AFTER_SECONDS: Final = 1.0
LAST_ID: Final = (1 << 31) - 1
"""Ids are Java's ints; a registry says of a larger number, as junk may begin with, that it has no such path."""
UNKNOWN_MAX: Final = 10_000
"""Ids remembered as unknown; the one asked for longest ago is forgotten when there are more."""

Answer = TypeVar("Answer")


class UnknownSchemaError(Exception):
    """The registry has no schema with this id."""


class RegistryUnreachableError(Exception):
    """No registry of the list answered; nothing can be said about a schema."""


class RefusedError(Exception):
    """The registry says, with its sentence, why it will never answer this."""


class SchemaRegistry:
    """Asks one of several registries, the first that answers."""

    def __init__(self, address: RegistryAddress, *, timeout_seconds: float = 5.0) -> None:
        self._clients = [RegistryClient(each, timeout_seconds=timeout_seconds) for each in address.each()]
        self._known: dict[tuple[str, int], EventSchema | UnsupportedSchemaError] = {}
        self._unknown_since: dict[tuple[str, int], float] = {}

    def schema(self, topic: str, schema_id: int) -> EventSchema:
        """Return the schema that this id means in a topic.

        Raises:
            UnknownSchemaError, UnsupportedSchemaError, RegistryUnreachableError
        """
        found = self._known.get((topic, schema_id))
        if found is None:
            found = self._known[topic, schema_id] = self._load(topic, schema_id)
        if isinstance(found, UnsupportedSchemaError):
            raise found
        return found

    def _load(self, topic: str, schema_id: int) -> EventSchema | UnsupportedSchemaError:
        asked = self._unknown_since.get((topic, schema_id), -1e9)
        if schema_id > LAST_ID or time.monotonic() - asked < UNKNOWN_AGAIN_AFTER_SECONDS:
            raise UnknownSchemaError(f"the registry has no schema {schema_id}")
        self._unknown_since.pop((topic, schema_id), None)
        subject = f"{topic}-value"
        try:
            answer = self._ask(
                f"/schemas/ids/{schema_id}?subject={subject}",
                lambda client: client.schema(schema_id, subject),
            )
        except RefusedError as error:
            return UnsupportedSchemaError(f"the registry refuses schema {schema_id}: {error}")
        if answer is None:
            self._unknown_since[topic, schema_id] = time.monotonic()
            if len(self._unknown_since) > UNKNOWN_MAX:
                del self._unknown_since[next(iter(self._unknown_since))]
            raise UnknownSchemaError(f"the registry has no schema {schema_id}")
        return self._writer_schema(schema_id, answer)

    def latest(self, topic: str) -> EventSchema | None:
        """Return the latest version of a topic's subject; None without one, or when no table can hold it.

        Raises:
            RegistryUnreachableError
        """
        subject = f"{topic}-value"
        try:
            answer = self._ask(f"/subjects/{subject}/versions/latest", lambda client: client.latest(subject))
            found = None if answer is None else self._writer_schema(answer.schema_id or 0, answer.schema)
        except (RefusedError, UnknownSchemaError):
            return None
        return None if isinstance(found, UnsupportedSchemaError) else found

    def _writer_schema(self, schema_id: int, answer: Schema) -> EventSchema | UnsupportedSchemaError:
        if answer.schema_type != "AVRO":
            return UnsupportedSchemaError(f"schema {schema_id} is {answer.schema_type}, the load reads Avro")
        try:
            return event_schema(schema_id, self._whole(answer))
        except UnsupportedSchemaError as error:
            return error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return UnsupportedSchemaError(f"schema {schema_id} is no valid Avro schema: {error!r}")

    def _whole(self, answer: Schema) -> Any:
        """Return the parsed schema with the schemas that it refers to put in place of their names."""
        referred: dict[str, Any] = {}
        self._collect(answer.references or (), referred)
        return _inline(_parsed(answer), referred, set())

    def _collect(self, references: Iterable[SchemaReference], referred: dict[str, Any]) -> None:
        for reference in references:
            name, subject, version = reference.name, reference.subject, reference.version
            if name is None or subject is None or version is None:
                raise ValueError("a reference lacks its name, subject or version")
            if name in referred:
                continue
            if len(referred) >= REFERENCES_MAX:
                raise ValueError(f"more than {REFERENCES_MAX} references")
            answer = self._version(subject, version)
            if answer is None:
                raise UnknownSchemaError(f"the registry has no version {version} of {subject}")
            referred[name] = _parsed(answer)
            self._collect(answer.references or (), referred)

    def _version(self, subject: str, version: int) -> Schema | None:
        answer = self._ask(
            f"/subjects/{subject}/versions/{version}", lambda client: client.version(subject, version)
        )
        return None if answer is None else answer.schema

    def _ask(self, path: str, ask: Callable[[RegistryClient], Answer]) -> Answer | None:
        """Return the answer of the first registry that has one, None where it says that there is no such thing.

        Raises:
            RegistryUnreachableError, RefusedError
        """
        failure: Exception | None = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                time.sleep(RETRY_WAIT_SECONDS)
            for client in self._clients:
                try:
                    return ask(client)
                except StatusError as error:
                    if error.is_missing:
                        return None
                    if error.status == 422:
                        raise RefusedError(str(error)) from error
                    failure = error
                except NoAnswerError as error:
                    failure = error
        urls = ", ".join(client.url for client in self._clients)
        raise RegistryUnreachableError(f"no registry of {urls} answers {path}: {failure}")


def _parsed(schema: Schema) -> Any:
    return json.loads(schema.schema_str or "")


def _inline(avro: Any, referred: dict[str, Any], done: set[str]) -> Any:
    """Put a referred schema in place of the first mention of its name; later mentions stay names."""
    if isinstance(avro, str):
        if avro in referred and avro not in done:
            done.add(avro)
            return _inline(referred[avro], referred, done)
        return avro
    if isinstance(avro, list):
        return [_inline(branch, referred, done) for branch in avro]
    if isinstance(avro, dict):
        inlined = dict(avro)
        for key in ("type", "items", "values"):
            if key in inlined:
                inlined[key] = _inline(inlined[key], referred, done)
        if isinstance(inlined.get("fields"), list):
            inlined["fields"] = [
                {**item, "type": _inline(item["type"], referred, done)} for item in inlined["fields"]
            ]
        return inlined
    return avro
