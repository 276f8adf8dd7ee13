"""Random access control lists over a few names that begin alike, and all that a client is told of its rights by them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from access_rules import CLUSTER, filter_of, rule
from sessions import DESCRIBE_CLUSTER, DESCRIBE_GROUPS, INIT_PRODUCER_ID, METADATA, Message, Session

from headrace.broker.auth.acls import PatternType, Permission
from headrace.broker.auth.operations import Operation, ResourceType

TOPICS = ("a", "ab", "abd", "b")
NAMES = ("a", "ab", "abc", "b", "*")
PREFIXES = ("a", "ab", "abc", "b")
RULES_MAX = 10
Hosts = Mapping[Permission, Sequence[str]]


def random_rules(chooser: random.Random, principals: Sequence[str], hosts: Hosts) -> list[Message]:
    """Some elements of CreateAcls; `hosts` says by permission where they may be for."""
    return [_random_rule(chooser, principals, hosts) for _ in range(chooser.randint(1, RULES_MAX))]


def _random_rule(chooser: random.Random, principals: Sequence[str], hosts: Hosts) -> Message:
    kind = chooser.choice((ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER))
    is_prefixed = kind is not ResourceType.CLUSTER and chooser.random() < 0.4
    name = CLUSTER if kind is ResourceType.CLUSTER else chooser.choice(PREFIXES if is_prefixed else NAMES)
    permission = chooser.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY))
    return rule(
        kind,
        name,
        chooser.choice([o for o in Operation if o not in (Operation.UNKNOWN, Operation.ANY)]),
        pattern=PatternType.PREFIXED if is_prefixed else PatternType.LITERAL,
        principal=chooser.choice(principals),
        host=chooser.choice(hosts[permission]),
        permission=permission,
    )


def filters_of(rules: Sequence[Message]) -> list[Message]:
    """Those that take away just these rules."""
    return [
        filter_of(
            resource_type_filter=each["resource_type"],
            resource_name_filter=each["resource_name"],
            pattern_type_filter=each["resource_pattern_type"],
            principal_filter=each["principal"],
            host_filter=each["host"],
            operation=each["operation"],
            permission_type=each["permission_type"],
        )
        for each in rules
    ]


def ask_for_rights(client: Session) -> None:
    """All that the client may do to some topics, groups and the cluster, as answers tell it (KIP-430)."""
    topics = [{"name": name} for name in (*TOPICS, "c")]
    wanted = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True}
    client.ask(METADATA, 9, {"topics": topics, **wanted})
    client.ask(METADATA, 9, {"topics": None, **wanted})
    groups = [*TOPICS, "c"]
    client.ask(DESCRIBE_GROUPS, 5, {"groups": groups, "include_authorized_operations": True})
    client.ask(DESCRIBE_CLUSTER, 1, {"include_cluster_authorized_operations": True, "endpoint_type": 1})
    client.ask(INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1000})
