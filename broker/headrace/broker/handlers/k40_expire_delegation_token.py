"""ExpireDelegationToken (key 40), versions 0-2 (KIP-48). No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.delegation_tokens import NO_TIME
from headrace.broker.errors import KafkaError
from headrace.broker.handlers import tokens
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k40_expire_delegation_token

API = k40_expire_delegation_token.API
VERSIONS = (0, 2)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    mac, period_ms = bytes(request["hmac"]), request["expiry_time_period_ms"]
    return broker.later("expire-delegation-token", _answer(broker, call, mac, period_ms))


async def _answer(broker: Services, call: Call, mac: bytes, period_ms: int) -> dict[str, Any]:
    try:
        tokens.check_asker(broker, call)
        token = await broker.tokens.expire(call.client.principal, mac, period_ms)
    except KafkaError as error:
        return {"error_code": error.code, "expiry_timestamp_ms": NO_TIME}
    return {"error_code": 0, "expiry_timestamp_ms": token.expires_at_ms}
