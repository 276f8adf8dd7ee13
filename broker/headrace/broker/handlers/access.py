"""What a call may do: asks the authorizer, in the words of a handler, and has denials noted.

Only there while the broker has an authorizer; without one nobody asks: `access` is None then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headrace.broker.auth.authorizer import Authorizer
from headrace.broker.auth.decisions import ANY_NAME
from headrace.broker.auth.operations import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from headrace.broker.errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services

REFUSALS: dict[ResourceType, type[KafkaError]] = {
    ResourceType.TOPIC: TopicAuthorizationError,
    ResourceType.GROUP: GroupAuthorizationError,
    ResourceType.CLUSTER: ClusterAuthorizationError,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationError,
}
DENIALS_MAX = 100
"""Denials of one request that are noted one by one."""


class Access:
    """The rights of the client of one call."""

    __slots__ = ("_authorizer", "_call", "_noted")

    def __init__(self, authorizer: Authorizer, call: Call) -> None:
        self._authorizer = authorizer
        self._call = call
        self._noted: set[tuple[Operation, ResourceType, str]] = set()

    def may(self, operation: Operation, kind: ResourceType, name: str, *, quietly: bool = False) -> bool:
        """Whether it may; the answer is noted unless the question is asked quietly, to filter or to describe."""
        client = self._call.client
        if not self._authorizer.allows(client.principal, client.host, operation, kind, name):
            if not quietly:
                self._note(operation, kind, name)
            return False
        if not quietly:
            self._authorizer.granted(
                client.principal, client.host, operation, kind, name, self._call.header.key
            )
        return True

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
        self._note(operation, kind, ANY_NAME)
        return False

    def allowed(
        self, operation: Operation, kind: ResourceType, names: Iterable[str], *, quietly: bool = False
    ) -> set[str]:
        """Those of the names that it may do that to."""
        return {name for name in dict.fromkeys(names) if self.may(operation, kind, name, quietly=quietly)}

    def refused(
        self, operation: Operation, kind: ResourceType, names: Iterable[str], *, quietly: bool = False
    ) -> set[str]:
        """Those of the names that it may not do that to."""
        return {name for name in dict.fromkeys(names) if not self.may(operation, kind, name, quietly=quietly)}

    def operations(self, kind: ResourceType, name: str) -> int:
        """The bits of the operations that it may do to the resource, as responses tell them (KIP-430)."""
        return sum(1 << each for each in OPERATIONS[kind] if self.may(each, kind, name, quietly=True))

    def _note(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Once a request, however often it names the resource."""
        call, noted = self._call, (operation, kind, name)
        if noted not in self._noted and len(self._noted) < DENIALS_MAX:
            self._noted.add(noted)
            self._authorizer.denied(
                call.client.principal, call.client.host, operation, kind, name, call.header.key
            )


def cluster_operations(rights: Access | None) -> int:
    """The bits of what may be done to the cluster; none of who may not even describe it (KIP-430)."""
    if rights is None:
        return sum(1 << operation for operation in OPERATIONS[ResourceType.CLUSTER])
    if not rights.may_cluster(Operation.DESCRIBE):
        return 0
    return rights.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def access(broker: Services, call: Call) -> Access | None:
    """What the call's client may do; None where everybody may do everything."""
    return None if broker.authorizer is None else Access(broker.authorizer, call)


def refused_topics(
    broker: Services, call: Call, operation: Operation, topics: Iterable[str]
) -> Collection[str]:
    """Those of the topics that the call's client may not do that to."""
    if broker.authorizer is None:
        return ()
    return Access(broker.authorizer, call).refused(operation, ResourceType.TOPIC, topics)


def require(broker: Services, call: Call, operation: Operation, kind: ResourceType, name: str) -> None:
    """Raises the KafkaError of the kind unless the client may do that to the resource of that name."""
    if broker.authorizer is not None and not Access(broker.authorizer, call).may(operation, kind, name):
        raise REFUSALS[kind](f"{kind.name.capitalize().replace('_', ' ')} authorization failed.")


def require_cluster(broker: Services, call: Call, operation: Operation) -> None:
    """Raises ClusterAuthorizationError unless the client may do that to the cluster."""
    if broker.authorizer is not None:
        Access(broker.authorizer, call).require_cluster(operation)
