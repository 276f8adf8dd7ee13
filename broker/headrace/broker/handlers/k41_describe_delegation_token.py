"""DescribeDelegationToken (key 41), versions 0-3 (KIP-48, KIP-373): with their HMACs, to whom they are. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.delegation_tokens import Token
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import KafkaError
from headrace.broker.handlers import tokens
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k41_describe_delegation_token

API = k41_describe_delegation_token.API
VERSIONS = (0, 3)


def handle(broker: Services, call: Call, request: dict[str, Any]) -> dict[str, Any]:
    owners = request["owners"]

    def may_see(token: Token) -> bool:
        return tokens.may(
            broker, call, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id
        ) or tokens.may(broker, call, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))

    try:
        tokens.check_asker(broker, call)
        wanted = None if owners is None else tokens.principals(owners)
        found = broker.tokens.book.visible(call.client.principal, wanted, may_see)
    except KafkaError as error:
        return {"error_code": error.code, "tokens": []}
    return {"error_code": 0, "tokens": [_described(broker, call, token) for token in found]}


def _described(broker: Services, call: Call, token: Token) -> dict[str, Any]:
    asked_for = tokens.requester(token.requester) if call.header.version >= tokens.REQUESTER_VERSION else {}
    return asked_for | {
        "principal_type": token.owner.type,
        "principal_name": token.owner.name,
        "issue_timestamp": token.issued_at_ms,
        "expiry_timestamp": token.expires_at_ms,
        "max_timestamp": token.ends_at_ms,
        "token_id": token.token_id,
        "hmac": broker.tokens.book.hmac(token.token_id),
        "renewers": [{"principal_type": each.type, "principal_name": each.name} for each in token.renewers],
    }
