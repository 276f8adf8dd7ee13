"""What a call may do: asks the authorizer, in the words of a handler, and has denials noted.

Only there while the broker has an authorizer; without one nobody asks.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.auth.authorizer import Authorizer
from headrace.broker.auth.operations import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from headrace.broker.errors import ClusterAuthorizationError
from headrace.broker.handlers.call import Call


class Access:
    """The rights of the client of one call."""

    __slots__ = ("_authorizer", "_call")

    def __init__(self, authorizer: Authorizer, call: Call) -> None:
        self._authorizer = authorizer
        self._call = call

    def may(self, operation: Operation, kind: ResourceType, name: str, *, quietly: bool = False) -> bool:
        """Whether it may; a denial is noted unless the question is asked quietly, to filter or to describe."""
        client = self._call.client
        if self._authorizer.allows(client.principal, client.host, operation, kind, name):
            return True
        if not quietly:
            self._note(operation, kind, name)
        return False

    def may_cluster(self, operation: Operation, *, quietly: bool = False) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, quietly=quietly)

    def require_cluster(self, operation: Operation) -> None:
        """Raises ClusterAuthorizationError."""
        if not self.may_cluster(operation):
            raise ClusterAuthorizationError("Cluster authorization failed.")

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether it may do that to some resource of that kind."""
        client = self._call.client
        if self._authorizer.allows_any(client.principal, client.host, operation, kind):
            return True
        self._note(operation, kind, "NONE")
        return False

    def allowed(
        self, operation: Operation, kind: ResourceType, names: Iterable[str], *, quietly: bool = False
    ) -> set[str]:
        """Those of the names that it may do that to."""
        return {name for name in dict.fromkeys(names) if self.may(operation, kind, name, quietly=quietly)}

    def operations(self, kind: ResourceType, name: str) -> int:
        """The bits of the operations that it may do to the resource, as responses tell them (KIP-430)."""
        return sum(1 << each for each in OPERATIONS[kind] if self.may(each, kind, name, quietly=True))

    def _note(self, operation: Operation, kind: ResourceType, name: str) -> None:
        call = self._call
        self._authorizer.denied(
            call.client.principal, call.client.host, operation, kind, name, call.header.key
        )
