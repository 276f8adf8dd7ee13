"""Confluent's REST API on Starlette: paths and parameters in, the machine's answers out as JSON.

Every answer of the API, also to an unknown path, is JSON of the registry's media type; an error bears Confluent's
`error_code`. https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.broker.structured_log import get_logger
from headrace.registry import errors
from headrace.registry.errors import RegistryError
from headrace.registry.machine import ID_MAX, Submitted
from headrace.registry.pages import Pages
from headrace.registry.schemas import Reference
from headrace.registry.service import Registry

logger = get_logger(__name__)

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
BODY_SIZE_MAX: Final = 900_000
"""A schema must fit into one message of 1 MiB, the brokers' default."""

T = TypeVar("T")
Endpoint = Callable[[Registry, Request], Awaitable[Any]]


def build_app(
    registry: Registry, certificate_expires_s: Callable[[], float | None] = lambda: None
) -> ASGIApp:
    """Return the ASGI application over a registry that its caller starts and stops; see `Pages`."""
    pages = Pages(registry, certificate_expires_s)
    routes = [
        Route(path, _answering(registry, endpoint), methods=[method]) for method, path, endpoint in ROUTES
    ]
    app = Starlette(
        routes=[*pages.routes(), *routes],
        exception_handlers={HTTPException: _http_error, Exception: _unexpected_error},
    )
    return pages.counting(_by_raw_path(app))


def _by_raw_path(app: Starlette) -> ASGIApp:
    """The application, with paths as they were sent: a subject may have a slash in it, and a path one at its end."""

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sent = (scope.get("raw_path") or quote(scope["path"]).encode()).decode("ascii", "replace")
            scope = {**scope, "path": sent.rstrip("/") or "/"}
        await app(scope, receive, send)

    return routed


def _json(content: Any, status: int = 200) -> Response:
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return Response(body, status_code=status, media_type=MEDIA_TYPE)


def _error(error: RegistryError) -> Response:
    return _json({"error_code": error.code, "message": error.message}, error.status)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json(
        {"error_code": error.status_code, "message": f"HTTP {error.status_code} {error.detail}"},
        error.status_code,
    )


async def _unexpected_error(request: Request, error: Exception) -> Response:
    logger.failure("request failed", error, method=request.method, path=request.url.path)
    return _json({"error_code": 50001, "message": f"Internal error: {type(error).__name__}"}, 500)


def _answering(registry: Registry, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    @wraps(endpoint)
    async def answer(request: Request) -> Response:
        try:
            return _json(await endpoint(registry, request))
        except RegistryError as error:
            return _error(error)

    return answer


async def _root(_: Registry, __: Request) -> Any:
    return {}


async def _types(_: Registry, __: Request) -> Any:
    return ["AVRO"]


async def _schema_by_id(registry: Registry, request: Request) -> Any:
    return registry.read().schema(_id(request), request.query_params.get("subject", ""))


async def _schema_text_by_id(registry: Registry, request: Request) -> Any:
    return json.loads((await _schema_by_id(registry, request))["schema"])


async def _subjects_of_id(registry: Registry, request: Request) -> Any:
    usages = registry.read().usages(_id(request), deleted=_flag(request, "deleted"))
    return sorted({usage["subject"] for usage in usages})


async def _versions_of_id(registry: Registry, request: Request) -> Any:
    return registry.read().usages(_id(request), deleted=_flag(request, "deleted"))


async def _schemas(registry: Registry, request: Request) -> Any:
    if request.query_params.get("ruleType"):
        return []  # No schema has rules here.
    deleted, latest_only = _flag(request, "deleted"), _flag(request, "latestOnly")
    found = registry.read().schemas(deleted=deleted, prefix=_prefix(request), latest_only=latest_only)
    return _page(request, found)


async def _subjects(registry: Registry, request: Request) -> Any:
    deleted, deleted_only = _flag(request, "deleted"), _flag(request, "deletedOnly")
    found = registry.read().subjects(deleted=deleted, deleted_only=deleted_only, prefix=_prefix(request))
    return _page(request, found)


async def _versions(registry: Registry, request: Request) -> Any:
    deleted, deleted_only = _flag(request, "deleted"), _flag(request, "deletedOnly")
    found = registry.read().versions(_subject(request), deleted=deleted, deleted_only=deleted_only)
    return _page(request, found)


async def _version(registry: Registry, request: Request) -> Any:
    return registry.read().version(
        _subject(request), _version_text(request), deleted=_flag(request, "deleted")
    )


async def _version_schema(registry: Registry, request: Request) -> Any:
    return json.loads((await _version(registry, request))["schema"])


async def _referenced_by(registry: Registry, request: Request) -> Any:
    return registry.read().referenced_by(_subject(request), _version_text(request))


async def _register(registry: Registry, request: Request) -> Any:
    body = await _body(request)
    subject, submitted = _subject(request), _submitted(body)
    schema_id, version = _given(body, "id"), _given(body, "version")
    if schema_id is not None:
        return await registry.write(
            lambda machine: machine.decide_import(subject, submitted, schema_id=schema_id, version=version)
        )
    if version is not None:
        raise errors.not_permitted(
            "Versions are given by this registry: leave out version, or import with an id"
        )
    return await registry.write(lambda machine: machine.decide_register(subject, submitted))


async def _lookup(registry: Registry, request: Request) -> Any:
    submitted = _submitted(await _body(request))
    return registry.read().lookup(_subject(request), submitted, deleted=_flag(request, "deleted"))


async def _delete_subject(registry: Registry, request: Request) -> Any:
    permanent = _flag(request, "permanent")
    return await registry.write(
        lambda machine: machine.decide_delete_subject(_subject(request), permanent=permanent)
    )


async def _delete_version(registry: Registry, request: Request) -> Any:
    subject, version, permanent = _subject(request), _version_text(request), _flag(request, "permanent")
    return await registry.write(
        lambda machine: machine.decide_delete_version(subject, version, permanent=permanent)
    )


async def _get_level(registry: Registry, request: Request) -> Any:
    subject = _subject_or_none(request)
    level = registry.read().level(subject, default_to_global=_flag(request, "defaultToGlobal"))
    return {"compatibilityLevel": level}


async def _set_level(registry: Registry, request: Request) -> Any:
    body = await _body(request)
    level = body.pop("compatibility", None)
    if unknown := [name for name, value in body.items() if value]:
        raise errors.not_permitted(f"Only compatibility can be set here: leave out {', '.join(unknown)}")
    return await registry.write(lambda machine: machine.decide_set_level(_subject_or_none(request), level))


async def _delete_level(registry: Registry, request: Request) -> Any:
    return await registry.write(lambda machine: machine.decide_delete_level(_subject_or_none(request)))


async def _get_mode(registry: Registry, request: Request) -> Any:
    subject = _subject_or_none(request)
    return {"mode": registry.read().mode(subject, default_to_global=_flag(request, "defaultToGlobal"))}


async def _set_mode(registry: Registry, request: Request) -> Any:
    mode, force = (await _body(request)).get("mode"), _flag(request, "force")
    subject = _subject_or_none(request)
    return await registry.write(lambda machine: machine.decide_set_mode(subject, mode, force=force))


async def _delete_mode(registry: Registry, request: Request) -> Any:
    return await registry.write(lambda machine: machine.decide_delete_mode(_subject_or_none(request)))


async def _contexts(_: Registry, __: Request) -> Any:
    return ["."]


async def _compatibility(registry: Registry, request: Request) -> Any:
    submitted = _submitted(await _body(request))
    version = request.path_params.get("version")
    reasons = registry.read().compatibility(_subject(request), version, submitted)
    verbose = {"messages": reasons} if _flag(request, "verbose") else {}
    return {"is_compatible": not reasons, **verbose}


ROUTES: Final[tuple[tuple[str, str, Endpoint], ...]] = (
    ("GET", "/", _root),
    ("GET", "/schemas", _schemas),
    ("GET", "/schemas/types", _types),
    ("GET", "/schemas/ids/{id}", _schema_by_id),
    ("GET", "/schemas/ids/{id}/schema", _schema_text_by_id),
    ("GET", "/schemas/ids/{id}/subjects", _subjects_of_id),
    ("GET", "/schemas/ids/{id}/versions", _versions_of_id),
    ("GET", "/subjects", _subjects),
    ("POST", "/subjects/{subject}", _lookup),
    ("DELETE", "/subjects/{subject}", _delete_subject),
    ("GET", "/subjects/{subject}/versions", _versions),
    ("POST", "/subjects/{subject}/versions", _register),
    ("GET", "/subjects/{subject}/versions/{version}", _version),
    ("DELETE", "/subjects/{subject}/versions/{version}", _delete_version),
    ("GET", "/subjects/{subject}/versions/{version}/schema", _version_schema),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", _referenced_by),
    ("POST", "/compatibility/subjects/{subject}/versions", _compatibility),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", _compatibility),
    ("GET", "/config", _get_level),
    ("PUT", "/config", _set_level),
    ("DELETE", "/config", _delete_level),
    ("GET", "/config/{subject}", _get_level),
    ("PUT", "/config/{subject}", _set_level),
    ("DELETE", "/config/{subject}", _delete_level),
    ("GET", "/mode", _get_mode),
    ("PUT", "/mode", _set_mode),
    ("DELETE", "/mode", _delete_mode),
    ("GET", "/mode/{subject}", _get_mode),
    ("PUT", "/mode/{subject}", _set_mode),
    ("DELETE", "/mode/{subject}", _delete_mode),
    ("GET", "/contexts", _contexts),
)


def _subject(request: Request) -> str:
    return unquote(request.path_params["subject"])


def _subject_or_none(request: Request) -> str | None:
    """Return None where the path is about the global setting."""
    return _subject(request) if "subject" in request.path_params else None


def _version_text(request: Request) -> str:
    return unquote(request.path_params["version"])


def _id(request: Request) -> int:
    text = request.path_params["id"]
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise RegistryError(404, 404, "HTTP 404 Not Found")
    return int(text)


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "false").lower() == "true"


def _prefix(request: Request) -> str:
    """What subjects begin with. Confluent's tools ask for those of all contexts with :*: before it; here is only one."""
    return request.query_params.get("subjectPrefix", "").removeprefix(":*:")


def _page(request: Request, found: list[T]) -> list[T]:
    """What offset and limit leave of a list; a limit below 1 is none."""
    offset, limit = _number(request, "offset", 0), _number(request, "limit", -1)
    if offset < 0:
        raise RegistryError(400, 400, f"offset is {offset}: write 0 or more")
    return found[offset : offset + limit if limit > 0 else None]


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not re.fullmatch("-?[0-9]{1,10}", text):
        raise RegistryError(400, 400, f"{name} is {text!r}: write a whole number")
    return int(text)


async def _body(request: Request) -> dict[str, Any]:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_SIZE_MAX:
            raise RegistryError(413, 413, f"The request is longer than {BODY_SIZE_MAX} bytes")
        chunks.append(chunk)
    try:
        body = json.loads(b"".join(chunks))
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, 400, f"The request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RegistryError(400, 400, "The request is not a JSON object")
    return body


def _given(body: dict[str, Any], name: str) -> int | None:
    """Return the id or version that a schema comes with; clients write 0 or less for none."""
    number = body.get(name)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or number > ID_MAX:
        raise RegistryError(400, 400, f"{name} is {number!r:.50}: write a whole number up to {ID_MAX}")
    return number if number > 0 else None


def _submitted(body: dict[str, Any]) -> Submitted:
    if body.get("schemaType", "AVRO") not in ("AVRO", None):
        raise errors.invalid_schema(f"schema type {body['schemaType']!r} is not supported, only AVRO is")
    for name in ("metadata", "ruleSet"):
        if body.get(name):
            raise errors.invalid_schema(f"{name} is not kept here, and nobody would follow it: leave it out")
    text = body.get("schema")
    if isinstance(text, dict | list):
        raise errors.invalid_schema("schema must be text: give the schema's JSON as a JSON string")
    if not isinstance(text, str) or not text.strip():
        raise errors.invalid_schema('the request has no schema text: send {"schema": "..."}')
    try:
        references = tuple(
            Reference(name=str(each["name"]), subject=str(each["subject"]), version=int(each["version"]))
            for each in body.get("references") or ()
        )
    except (TypeError, KeyError, ValueError) as error:
        raise errors.invalid_schema("a reference needs name, subject and version") from error
    return Submitted(text=text, references=references)
