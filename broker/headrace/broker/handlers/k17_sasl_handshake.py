"""SaslHandshake (key 17), versions 0-1: begins a log-in, which `handlers.log_in` takes.

What comes here is out of place: at a listener where nobody logs in, of a client that has, or to renew a session too early.

Deviations: there is no GSSAPI (Kerberos), and OAUTHBEARER takes signed tokens only, where Apache Kafka takes unsigned ones
unless a class of its own checks them.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k17_sasl_handshake

API = k17_sasl_handshake.API
VERSIONS = (0, 1)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": []}
