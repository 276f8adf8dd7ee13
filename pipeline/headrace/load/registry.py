"""Schemas by topic and id from the registry, each asked for once a process.

Owns the HTTP calls of a load (of Confluent's REST API) and their bounds. Invariants: an
id is asked for in the name of the topic that it was met in, since each datacenter's registry gives ids of its own; one
that the registry does not know is `UnknownSchemaError` and is asked for again later, since a mirror may bring data
before its schema; a registry that does not answer is `RegistryUnreachableError` and never a verdict on a record; a
schema that no table can hold is remembered as such. Must not know records or tables.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any, Final

from headrace.load.avro_types import UnsupportedSchemaError, WriterSchema, writer_schema

ANSWER_SIZE_MAX: Final = 16 * 1024 * 1024
ATTEMPTS_MAX: Final = 3
RETRY_WAIT_SECONDS: Final = 0.3
REFERENCES_MAX: Final = 100
UNKNOWN_AGAIN_AFTER_SECONDS: Final = 1.0
UNKNOWN_MAX: Final = 10_000
"""Ids remembered as unknown; the one asked for longest ago is forgotten when there are more."""


class UnknownSchemaError(Exception):
    """The registry has no schema with this id."""


class RegistryUnreachableError(Exception):
    """No registry of the list answered; nothing can be said about a schema."""


class RefusedError(Exception):
    """The registry says, with its sentence, why it will never answer this."""


class SchemaRegistry:
    """Asks one of the registries of a comma-separated list of URLs, the first that answers."""

    def __init__(self, urls: str, *, timeout_seconds: float = 5.0) -> None:
        self._urls = [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]
        self._timeout_seconds = timeout_seconds
        self._known: dict[tuple[str, int], WriterSchema | UnsupportedSchemaError] = {}
        self._unknown_since: dict[tuple[str, int], float] = {}

    def schema(self, topic: str, schema_id: int) -> WriterSchema:
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

    def _load(self, topic: str, schema_id: int) -> WriterSchema | UnsupportedSchemaError:
        asked = self._unknown_since.get((topic, schema_id), -1e9)
        if time.monotonic() - asked < UNKNOWN_AGAIN_AFTER_SECONDS:
            raise UnknownSchemaError(f"the registry has no schema {schema_id}")
        self._unknown_since.pop((topic, schema_id), None)
        subject = urllib.parse.quote(f"{topic}-value", safe="")
        try:
            answer = self._get(f"/schemas/ids/{schema_id}?subject={subject}")
        except RefusedError as error:
            return UnsupportedSchemaError(f"the registry refuses schema {schema_id}: {error}")
        if answer is None:
            self._unknown_since[topic, schema_id] = time.monotonic()
            if len(self._unknown_since) > UNKNOWN_MAX:
                del self._unknown_since[next(iter(self._unknown_since))]
            raise UnknownSchemaError(f"the registry has no schema {schema_id}")
        return self._writer_schema(schema_id, answer)

    def latest(self, topic: str) -> WriterSchema | None:
        """Return the latest version of a topic's subject; None without one, or when no table can hold it.

        Raises:
            RegistryUnreachableError
        """
        subject = urllib.parse.quote(f"{topic}-value", safe="")
        try:
            answer = self._get(f"/subjects/{subject}/versions/latest")
            found = None if answer is None else self._writer_schema(int(answer["id"]), answer)
        except (RefusedError, UnknownSchemaError):
            return None
        return None if isinstance(found, UnsupportedSchemaError) else found

    def _writer_schema(self, schema_id: int, answer: dict[str, Any]) -> WriterSchema | UnsupportedSchemaError:
        if answer.get("schemaType", "AVRO") != "AVRO":
            return UnsupportedSchemaError(
                f"schema {schema_id} is {answer['schemaType']}, the load reads Avro"
            )
        try:
            return writer_schema(schema_id, self._whole(answer))
        except UnsupportedSchemaError as error:
            return error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return UnsupportedSchemaError(f"schema {schema_id} is no valid Avro schema: {error!r}")

    def _whole(self, answer: dict[str, Any]) -> Any:
        """Return the parsed schema with the schemas that it refers to put in place of their names."""
        referred: dict[str, Any] = {}
        self._collect(answer.get("references", ()), referred)
        return _inline(json.loads(answer["schema"]), referred, set())

    def _collect(self, references: Iterable[dict[str, Any]], referred: dict[str, Any]) -> None:
        for reference in references:
            if reference["name"] in referred:
                continue
            if len(referred) >= REFERENCES_MAX:
                raise ValueError(f"more than {REFERENCES_MAX} references")
            subject = urllib.parse.quote(reference["subject"], safe="")
            answer = self._get(f"/subjects/{subject}/versions/{int(reference['version'])}")
            if answer is None:
                raise UnknownSchemaError(f"the registry has no version {reference['version']} of {subject}")
            referred[reference["name"]] = json.loads(answer["schema"])
            self._collect(answer.get("references", ()), referred)

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the JSON answer, None for 404.

        Raises:
            RegistryUnreachableError, RefusedError
        """
        failure: Exception | None = None
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                time.sleep(RETRY_WAIT_SECONDS)
            for url in self._urls:
                try:
                    with urllib.request.urlopen(url + path, timeout=self._timeout_seconds) as response:
                        answer: dict[str, Any] = json.loads(response.read(ANSWER_SIZE_MAX))
                        return answer
                except urllib.error.HTTPError as error:
                    if error.code == 404:
                        return None
                    if error.code == 422:
                        raise RefusedError(_message(error)) from error
                    failure = error
                except (OSError, ValueError) as error:
                    failure = error
        raise RegistryUnreachableError(f"no registry of {', '.join(self._urls)} answers {path}: {failure}")


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(ANSWER_SIZE_MAX))["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"HTTP status {error.code}"


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
