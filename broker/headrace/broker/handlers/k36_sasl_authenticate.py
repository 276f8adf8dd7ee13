"""SaslAuthenticate (key 36), versions 0-2: a message of a log-in, which `handlers.log_in` takes.

What comes here is out of place: at a listener where nobody logs in, or of a client that has.

Deviations: in the middle of a log-in a request that does not begin one closes the connection, where Apache Kafka answers it with
an error first; a log-in that takes longer than 30 s is closed, where Apache Kafka waits for `connections.max.idle.ms`.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k36_sasl_authenticate

API = k36_sasl_authenticate.API
VERSIONS = (0, 2)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.ILLEGAL_SASL_STATE,
        "error_message": "SaslAuthenticate request received after successful authentication",
        "auth_bytes": b"",
    }
