"""What the gate asks whether a client may do something."""

from __future__ import annotations

from typing import Protocol

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import Principal


class Authorizer(Protocol):
    """Says who may do what; `version` grows whenever an answer may have changed."""

    version: int

    def allows(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str, /
    ) -> bool:
        """Whether the principal, coming from that address, may do that to the resource of that name."""
        ...

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, /
    ) -> bool:
        """Whether there is some resource of that kind, existing or not, to which it may do that."""
        ...

    def granted(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
        key: int,
        /,
    ) -> None:
        """A request of that API may do it, which it was asked for: take note."""
        ...

    def denied(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
        key: int,
        /,
    ) -> None:
        """A request of that API was refused for it: take note."""
        ...
