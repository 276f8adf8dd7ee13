"""ApiVersions (key 18), versions 0-4.

The only key that is answered in a version we do not know: as version 0, with UNSUPPORTED_VERSION (KIP-511).

Deviations: the answer to a version we do not know lists all keys, where Apache Kafka lists only this one.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.replies import Parts
from headrace.broker.handlers.services import Services
from headrace.broker.wire import frames
from headrace.broker.wire.api import k18_api_versions

API = k18_api_versions.API
VERSIONS = (0, 4)
RAW = True

# The version of the znode /feature, which stays as the first controller makes it: there are no features to finalize.
FEATURES_EPOCH = 0
# A version has three answers at most, and a process serves what one broker does.
BODIES_KEPT_MAX = 32
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")


def handle(broker: Services, call: Call, frame: memoryview) -> Parts:
    version, error = call.header.version, ErrorCode.NONE
    if not VERSIONS[0] <= version <= VERSIONS[1]:
        version, error = 0, ErrorCode.UNSUPPORTED_VERSION
    elif not _names_software(API.decode_request(version, frame, call.header.body_offset), version):
        error = ErrorCode.INVALID_REQUEST
    if error:
        broker.metrics.failed(API.key, error)
    body = _body(version, error, tuple(broker.api_versions.items()))
    return [
        frames.frame(
            frames.encode_response_header(call.header.key, version, call.header.correlation_id), body
        )
    ]


def _names_software(request: dict[str, Any], version: int) -> bool:
    """From version 3 on a client says what it is, in characters that are fit for a metric's name."""
    names = (request["client_software_name"], request["client_software_version"])
    return version < 3 or all(SOFTWARE_NAME.match(name) for name in names)


@functools.lru_cache(maxsize=BODIES_KEPT_MAX)
def _body(version: int, error: ErrorCode, served: tuple[tuple[int, tuple[int, int]], ...]) -> bytes:
    """Encoded once: every connection begins with it, and to write some sixty keys anew was a third of what a log-in costs."""
    answer: dict[str, Any] = {"error_code": error}
    if error != ErrorCode.INVALID_REQUEST:
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in served]
        answer |= {"api_keys": keys, "finalized_features_epoch": FEATURES_EPOCH}
    return API.encode_response(version, answer)
