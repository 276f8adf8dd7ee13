"""The one table of API keys, key → handler and version range, which ApiVersions tells; and the gate before all of them.

Every module `kNN_name` of this package is a handler and registers itself by being there, and so does the module
`handler` of each folder. An ordinary one says

    API = k16_list_groups.API
    VERSIONS = (0, 5)
    def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict | Deferred[dict] | Listed

and the table decodes and encodes around it (with `REPEATS = True` it keeps what was decoded, for requests that are the same each
time); a raw one (`RAW = True`) gets the frame and returns the parts of the whole
reply, length prefix included, or None for no reply; in its place it may have a `handle_run`, which is given the requests
that came with it, too.

`serve` is the one way from a connection to a handler: what holds for all requests is said there. A KafkaError that leaves
an ordinary handler is answered with its code when the response has an `error_code` of its own; anything else closes the
connection.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Collection
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from headrace.broker import handlers
from headrace.broker.errors import KafkaError
from headrace.broker.handlers.call import Call, Client
from headrace.broker.handlers.error_counts import count_errors
from headrace.broker.handlers.replies import CloseConnectionError, Parts, Reply
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed, encoded_list
from headrace.broker.handlers.throttle import throttled
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire import frames
from headrace.broker.wire.fields import MalformedError
from headrace.broker.wire.frames import RequestHeader, read_request_header
from headrace.broker.wire.schema import Api

API_VERSIONS_KEY = 18
# Bodies of requests that are kept decoded, of an API whose clients repeat them.
REPEATED_MAX, REPEATED_SIZE_MAX = 256, 1024

# Half the time of a call of the class: each request makes one.
_new_tuple = tuple.__new__


class Handler(NamedTuple):
    """One API key that this broker serves; a whole request is answered by `serve(broker, call, frame)` or `serve_run`.

    `serve_run(broker, call, frame, more)` may answer the first of the requests in `more`, too, and says how many.
    """

    key: int
    name: str
    version_min: int
    version_max: int
    api: Api
    serve: Callable[[Services, Call, memoryview], Reply] | None
    serve_run: Callable[[Services, Call, memoryview, Collection[memoryview]], tuple[Reply, int]] | None = None


def serve(
    broker: Services, client: Client, frame: memoryview, more: Collection[memoryview], began_s: float
) -> tuple[int, Reply, int]:
    """The gate that every request passes: (its key, its reply, how many of the requests in `more` that answers, too).

    Raises CloseConnectionError for what is malformed, not served in that version, or cannot be answered.
    """
    try:
        header = read_request_header(frame)
        key, version = header.key, header.version
        handler = HANDLERS.get(key)
        if handler is None or not handler.version_min <= version <= handler.version_max:
            if key != API_VERSIONS_KEY:
                raise CloseConnectionError(f"api key {key} version {version} is not served here")
            handler = HANDLERS[API_VERSIONS_KEY]
        broker.metrics.request(key, len(frame))
        call = _new_tuple(Call, (header, client, began_s))
        run = handler.serve_run
        if run is None:
            assert handler.serve is not None
            reply, more_count = handler.serve(broker, call, frame), 0
        else:
            reply, more_count = run(broker, call, frame, more)
        if broker.client_usage.is_limited:
            reply = throttled(broker, handler.api, call, len(frame), reply)
    except MalformedError as error:
        raise CloseConnectionError(str(error)) from error
    if more_count:
        count = broker.metrics.request
        for other in islice(more, more_count):
            count(key, len(other))
    return key, reply, more_count


def _ordinary(module: Any) -> Callable[[Services, Call, memoryview], Reply]:
    """Decode, handle, encode."""
    api: Api = module.API
    handle = module.handle
    decode = _decoded_once(api) if getattr(module, "REPEATS", False) else api.decode_request
    answers_errors = any(field.name == "error_code" for field in api.response)

    def serve(broker: Services, call: Call, frame: memoryview) -> Reply:
        header = call.header
        request = decode(header.version, frame, header.body_offset)
        try:
            response = handle(broker, call, request)
        except KafkaError as error:
            if not answers_errors:
                raise
            response = {"error_code": error.code}
        if isinstance(response, Listed):
            return encoded_list(broker, api, call, response)
        if isinstance(response, Deferred):
            return response.map(lambda message: _encode(broker, api, header, message))
        return _encode(broker, api, header, response)

    return serve


def _decoded_once(api: Api) -> Callable[[int, memoryview, int], dict[str, Any]]:
    """Decodes what clients say again and again, word for word, once; handlers leave it as it is."""

    @lru_cache(maxsize=REPEATED_MAX)
    def known(version: int, body: bytes) -> dict[str, Any]:
        return api.decode_request(version, body)

    def decode(version: int, frame: memoryview, offset: int) -> dict[str, Any]:
        if len(frame) - offset > REPEATED_SIZE_MAX:
            return api.decode_request(version, frame, offset)
        return known(version, bytes(frame[offset:]))

    return decode


def _encode(broker: Services, api: Api, header: RequestHeader, message: dict[str, Any]) -> Parts:
    count_errors(broker.metrics, api, message)
    return [
        frames.frame(
            frames.encode_response_header(header.key, header.version, header.correlation_id),
            api.encode_response(header.version, message),
        )
    ]


def _load() -> dict[int, Handler]:
    found: dict[int, Handler] = {}
    for place in pkgutil.iter_modules(handlers.__path__):
        if place.ispkg or re.fullmatch(r"k\d\d_\w+", place.name):
            name = f"{place.name}.handler" if place.ispkg else place.name
            handler = _handler(importlib.import_module(f"{handlers.__name__}.{name}"))
            found[handler.key] = handler
    return dict(sorted(found.items()))


def _handler(module: Any) -> Handler:
    api: Api = module.API
    version_min, version_max = module.VERSIONS
    serve = getattr(module, "handle", None) if getattr(module, "RAW", False) else _ordinary(module)
    return Handler(
        api.key, api.name, version_min, version_max, api, serve, getattr(module, "handle_run", None)
    )


HANDLERS: dict[int, Handler] = _load()
VERSIONS = {key: (handler.version_min, handler.version_max) for key, handler in HANDLERS.items()}
