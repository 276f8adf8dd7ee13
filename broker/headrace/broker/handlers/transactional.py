"""What several keys of transactions answer alike."""

from __future__ import annotations

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.call import Call

FENCED_VERSION = 2


def for_version(error: ErrorCode, call: Call, fenced_version: int = FENCED_VERSION) -> ErrorCode:
    """The error as a client of that time knows it: below `fenced_version` a fenced producer has a bad epoch."""
    if error is ErrorCode.PRODUCER_FENCED and call.header.version < fenced_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
