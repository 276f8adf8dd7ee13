"""Access control lists as requests name them, for sessions with brokers that ask who may do what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from processes import eventually
from sessions import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS, METADATA, Message, Session

from headrace.broker.auth.acls import PatternType, Permission
from headrace.broker.auth.operations import Operation, ResourceType

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Until the first list is there everybody may do everything: brokers have to find each other."""
ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
"""Nobody authenticates: who may do what is told apart by where it comes from."""
KINDS = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)
CLUSTER = "kafka-cluster"


def rule(
    kind: ResourceType,
    name: str,
    operation: Operation,
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:*",
    host: str = CLIENT,
    permission: Permission = Permission.ALLOW,
) -> Message:
    """An element of CreateAcls."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


def filter_of(**wanted: Any) -> Message:
    """A filter that takes all but for what is `wanted`."""
    everything = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }
    return everything | wanted


def rights_of_the_admin() -> list[Message]:
    """All that can be done, for who comes from its address: brokers do, too."""
    names = {kind: CLUSTER if kind is ResourceType.CLUSTER else "*" for kind in KINDS}
    return [rule(kind, name, Operation.ALL, host=ADMIN) for kind, name in names.items()]


def allow(session: Session, rules: Iterable[Message]) -> None:
    """Make the rules, which hold for the broker that is asked as soon as they are made."""
    answer = session.look(CREATE_ACLS, 3, {"creations": list(rules)})
    assert {result["error_code"] for result in answer["results"]} <= {0}, answer


def guard(session: Session) -> None:
    """From now on who does not come from the admin's address may do nothing; only the first time it takes some time."""
    allow(session, rights_of_the_admin())


def forget_rules_of_clients(session: Session) -> None:
    answer = session.look(DELETE_ACLS, 3, {"filters": [filter_of(host_filter=CLIENT)]})
    assert answer["filter_results"][0]["error_code"] == 0


def rules_there(session: Session) -> int:
    """How many entries there are."""
    found = session.look(DESCRIBE_ACLS, 3, filter_of())
    return sum(len(resource["acls"]) for resource in found["resources"])


def topic_is_there(session: Session, name: str) -> None:
    def is_led() -> bool:
        message = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        topic = session.look(METADATA, 4, message)["topics"][0]
        return bool(topic["error_code"] == 0 and all(p["error_code"] == 0 for p in topic["partitions"]))

    eventually(is_led, what=f"topic {name}")
