"""Which error codes a response holds, found by its schema, so that all answers with errors are counted by API and code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from headrace.broker.handlers.services import Metrics
from headrace.broker.wire.fields import Array, Field, Struct
from headrace.broker.wire.schema import Api

ERROR_CODE = "error_code"
Path = tuple[str, ...]
_paths_by_key: dict[int, list[Path]] = {}


def count_errors(metrics: Metrics, api: Api, message: dict[str, Any]) -> None:
    """Count each error of a response before it is encoded."""
    paths = _paths_by_key.get(api.key)
    if paths is None:
        paths = _paths_by_key[api.key] = _paths(api.response)
    for path in paths:
        for code in _codes(message, path):
            metrics.failed(api.key, code)


def _paths(fields: tuple[Field, ...]) -> list[Path]:
    """Through which arrays and structs the fields named `error_code` are reached."""
    found: list[Path] = []
    for field in fields:
        inner = field.type.of if isinstance(field.type, Array) else field.type
        if field.name == ERROR_CODE:
            found.append((ERROR_CODE,))
        elif isinstance(inner, Struct):
            found += [(field.name, *path) for path in _paths(inner.fields)]
    return found


def _codes(message: dict[str, Any], path: Path) -> Iterator[int]:
    """The codes at the path's end that are errors; what a message leaves out is none."""
    value = message.get(path[0])
    if not value:
        return
    if len(path) == 1:
        yield value
        return
    elements: Iterable[dict[str, Any]] = (value,) if isinstance(value, dict) else value
    for element in elements:
        yield from _codes(element, path[1:])
