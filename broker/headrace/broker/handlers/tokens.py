"""What the requests about delegation tokens (keys 38 to 41) share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import ANONYMOUS, Principal
from headrace.broker.errors import DelegationTokenNotAllowedError
from headrace.broker.handlers.access import Access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services

REQUESTER_VERSION = 3
"""Of the requests that create and describe tokens: who asked is told from there on (KIP-373)."""


def check_asker(broker: Services, call: Call) -> None:
    """Only a client that has shown who it is, and not by a token, may ask. Raises DelegationTokenNotAllowedError."""
    client = call.client
    protocols = {listener.name: listener.security_protocol for listener in broker.config.listeners}
    protocol = protocols.get(client.listener, "PLAINTEXT")
    if client.is_by_token or protocol == "PLAINTEXT" or (protocol == "SSL" and client.principal == ANONYMOUS):
        raise DelegationTokenNotAllowedError(
            "Delegation token requests are allowed only to clients that logged in, and not by a token."
        )


def may(broker: Services, call: Call, operation: Operation, kind: ResourceType, name: str) -> bool:
    """Whether the client may do that."""
    return broker.authorizer is None or Access(broker.authorizer, call).may(operation, kind, name)


def requester(principal: Principal) -> dict[str, str]:
    """Who asked for a token, as answers tell it."""
    return {
        "token_requester_principal_type": principal.type,
        "token_requester_principal_name": principal.name,
    }


def principals(said: Iterable[Mapping[str, str]]) -> list[Principal]:
    return [Principal(each["principal_type"], each["principal_name"]) for each in said]
