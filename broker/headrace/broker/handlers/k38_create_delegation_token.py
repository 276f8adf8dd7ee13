"""CreateDelegationToken (key 38), versions 0-3 (KIP-48, KIP-373): a token for the client, or for another owner. No deviations."""

from __future__ import annotations

from typing import Any

from headrace.broker.auth.delegation_tokens import NO_TIME
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import USER, Principal
from headrace.broker.errors import DelegationTokenAuthorizationError, InvalidPrincipalTypeError, KafkaError
from headrace.broker.handlers import tokens
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k38_create_delegation_token

API = k38_create_delegation_token.API
VERSIONS = (0, 3)
Answer = dict[str, Any]


def handle(broker: Services, call: Call, request: dict[str, Any]) -> Deferred[Answer]:
    return broker.later("create-delegation-token", _answer(broker, call, request))


async def _answer(broker: Services, call: Call, request: dict[str, Any]) -> Answer:
    requester, owner = call.client.principal, _owner(call, request)
    answer: Answer = {
        "error_code": 0,
        "principal_type": owner.type,
        "principal_name": owner.name,
        "issue_timestamp_ms": NO_TIME,
        "expiry_timestamp_ms": NO_TIME,
        "max_timestamp_ms": NO_TIME,
        "token_id": "",
        "hmac": b"",
    }
    if call.header.version >= tokens.REQUESTER_VERSION:
        answer |= tokens.requester(requester)
    try:
        renewers = _renewers(broker, call, request, owner)
        token, mac = await broker.tokens.create(owner, requester, renewers, request["max_lifetime_ms"])
    except KafkaError as error:
        return answer | {"error_code": error.code}
    return answer | {
        "issue_timestamp_ms": token.issued_at_ms,
        "expiry_timestamp_ms": token.expires_at_ms,
        "max_timestamp_ms": token.ends_at_ms,
        "token_id": token.token_id,
        "hmac": mac,
    }


def _owner(call: Call, request: dict[str, Any]) -> Principal:
    name = request.get("owner_principal_name")
    return Principal(request["owner_principal_type"] or "", name) if name else call.client.principal


def _renewers(broker: Services, call: Call, request: dict[str, Any], owner: Principal) -> list[Principal]:
    """Who may renew the token, once it is certain that the client may have it. Raises KafkaErrors."""
    tokens.check_asker(broker, call)
    if owner != call.client.principal and not tokens.may(
        broker, call, Operation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        raise DelegationTokenAuthorizationError(f"No tokens may be created for {owner}.")
    renewers = tokens.principals(request["renewers"])
    if any(renewer.type != USER for renewer in renewers):
        raise InvalidPrincipalTypeError(f"Renewers are principals of type {USER}.")
    return renewers
