"""The one table of API keys: key → handler and version range; feeds ApiVersions.

Every module `kNN_name` of this package is a handler and registers itself by being there. An ordinary one says

    API = k03_metadata.API
    VERSIONS = (0, 12)
    def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> dict | Deferred[dict] | Listed

and the table decodes and encodes around it; a raw one (`RAW = True`: produce and fetch) gets the frame and returns the
parts of the whole reply, length prefix included, or None for no reply; it may have a `handle_run` for requests that
came together. A KafkaError that leaves an ordinary handler is
answered with its code when the response has an `error_code` of its own; anything else closes the connection.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headrace.broker import handlers
from headrace.broker.errors import KafkaError
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.handlers.error_counts import count_errors
from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.handlers.slices import Listed, encoded_list
from headrace.broker.wire import frames
from headrace.broker.wire.frames import RequestHeader
from headrace.broker.wire.schema import Api


class Handler(NamedTuple):
    """One API key that this broker serves: `serve(context, header, frame)` answers a whole request.

    `serve_run(context, header, frame, more)` may answer the first of the requests in `more`, too, and says how many.
    """

    key: int
    name: str
    version_min: int
    version_max: int
    serve: Callable[[Context, RequestHeader, memoryview], Reply]
    serve_run: (
        Callable[[Context, RequestHeader, memoryview, Iterable[memoryview]], tuple[Reply, int]] | None
    ) = None


def _ordinary(module: Any) -> Callable[[Context, RequestHeader, memoryview], Reply]:
    """Decode, handle, encode."""
    api: Api = module.API
    handle = module.handle
    answers_errors = any(field.name == "error_code" for field in api.response)

    def serve(context: Context, header: RequestHeader, frame: memoryview) -> Reply:
        request = api.decode_request(header.version, frame, header.body_offset)
        try:
            response = handle(context, header, request)
        except KafkaError as error:
            if not answers_errors:
                raise
            response = {"error_code": error.code}
        if isinstance(response, Listed):
            return encoded_list(context, api, header, response)
        if isinstance(response, Deferred):
            return response.map(lambda message: _encode(context, api, header, message))
        return _encode(context, api, header, response)

    return serve


def _encode(context: Context, api: Api, header: RequestHeader, message: dict[str, Any]) -> Parts:
    count_errors(context.metrics, api, message)
    return [
        frames.frame(
            frames.encode_response_header(header.key, header.version, header.correlation_id),
            api.encode_response(header.version, message),
        )
    ]


def _load() -> dict[int, Handler]:
    found: dict[int, Handler] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(handlers.__path__)):
        if re.fullmatch(r"k\d\d_\w+", name):
            module: Any = importlib.import_module(f"{handlers.__name__}.{name}")
            api: Api = module.API
            serve = module.handle if getattr(module, "RAW", False) else _ordinary(module)
            version_min, version_max = module.VERSIONS
            found[api.key] = Handler(
                api.key, api.name, version_min, version_max, serve, getattr(module, "handle_run", None)
            )
    return found


HANDLERS: dict[int, Handler] = _load()
