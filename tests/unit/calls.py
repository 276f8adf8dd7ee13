"""Calls as `handlers.table` makes them, for tests that ask a handler itself."""

from __future__ import annotations

from headrace.broker.handlers.call import Call, Client
from headrace.broker.wire.frames import RequestHeader, read_request_header


def call_of(frame: bytes | memoryview, *, listener: str = "INSIDE", began_s: float = 0.0) -> Call:
    """A call with the frame's header, from a client that came by that listener, whose turn came at that moment."""
    return Call(read_request_header(frame), Client("here", listener), began_s)


def call_in(version: int, key: int = 0, correlation_id: int = 1) -> Call:
    """A call of an ordinary handler, which looks at the version alone."""
    return Call(RequestHeader(key, version, correlation_id, None, 0), Client("here", "INSIDE"), 0.0)
