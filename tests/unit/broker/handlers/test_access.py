"""What a call may do, in the words of a handler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from calls import call_in

from headrace.broker.auth.acl_authorizer import AclAuthorizer
from headrace.broker.auth.acls import Entry, Pattern, Permission
from headrace.broker.auth.decisions import Decisions
from headrace.broker.auth.operations import CLUSTER_NAME, Operation, ResourceType
from headrace.broker.errors import ClusterAuthorizationError, GroupAuthorizationError, TopicAuthorizationError
from headrace.broker.handlers.access import (
    DENIALS_MAX,
    access,
    cluster_operations,
    refused_topics,
    require,
    require_cluster,
)

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


class World:
    """A broker whose lists let everybody do some things."""

    def __init__(self) -> None:
        self.decisions = Decisions({})
        authorizer = AclAuthorizer(self.decisions)
        for kind, name, operation in (
            (TOPIC, "events", Operation.READ),
            (GROUP, "loads", Operation.READ),
            (CLUSTER, CLUSTER_NAME, Operation.DESCRIBE),
            (CLUSTER, CLUSTER_NAME, Operation.ALTER_CONFIGS),
        ):
            pattern = Pattern(kind, name)
            before = authorizer.lists.get(pattern, frozenset())
            authorizer.put(pattern, before | {Entry("User:*", "*", operation, Permission.ALLOW)})
        self.broker = cast("Any", SimpleNamespace(authorizer=authorizer))
        self.call = call_in(0)

    @property
    def denied_count(self) -> int:
        return sum(self.decisions.denied_counts.values())


def test_without_an_authorizer_nobody_asks() -> None:
    broker = cast("Any", SimpleNamespace(authorizer=None))
    call = call_in(0)
    assert access(broker, call) is None
    require(broker, call, Operation.READ, GROUP, "g")
    require_cluster(broker, call, Operation.CLUSTER_ACTION)
    assert refused_topics(broker, call, Operation.READ, ["t"]) == ()
    assert cluster_operations(None) == sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


def test_what_may_not_be_done_is_refused_and_noted_once_a_request() -> None:
    world = World()
    rights = access(world.broker, world.call)
    assert rights is not None
    names = ["events", "other", "other", "third"]
    assert rights.refused(Operation.READ, TOPIC, names) == {"other", "third"}
    assert rights.allowed(Operation.READ, TOPIC, names) == {"events"}
    assert world.denied_count == 2
    assert rights.refused(Operation.WRITE, TOPIC, names, quietly=True) == set(names)
    assert world.denied_count == 2
    assert not rights.may_any(Operation.WRITE, TOPIC)
    assert world.denied_count == 3


def test_a_request_of_many_names_fills_no_log() -> None:
    world = World()
    rights = access(world.broker, world.call)
    assert rights is not None
    rights.refused(Operation.READ, TOPIC, [f"t{n}" for n in range(10 * DENIALS_MAX)])
    assert world.denied_count == DENIALS_MAX


def test_each_kind_has_its_error() -> None:
    world = World()
    require(world.broker, world.call, Operation.READ, GROUP, "loads")
    for kind, error in ((GROUP, GroupAuthorizationError), (TOPIC, TopicAuthorizationError)):
        with pytest.raises(error):
            require(world.broker, world.call, Operation.DELETE, kind, "loads")
    require_cluster(world.broker, world.call, Operation.DESCRIBE)
    with pytest.raises(ClusterAuthorizationError):
        require_cluster(world.broker, world.call, Operation.CLUSTER_ACTION)


def test_operations_are_told_as_bits() -> None:
    world = World()
    rights = access(world.broker, world.call)
    assert rights is not None
    told = rights.operations(TOPIC, "events")
    assert told == 1 << Operation.READ | 1 << Operation.DESCRIBE
    configs = 1 << Operation.ALTER_CONFIGS | 1 << Operation.DESCRIBE_CONFIGS
    assert cluster_operations(rights) == 1 << Operation.DESCRIBE | configs
    assert world.denied_count == 0
