"""Access control lists: made, told of and taken away alike, in the same znodes, and the same rights by the same lists."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_rules import (
    AUTHORIZER,
    CLIENT,
    CLUSTER,
    allow,
    filter_of,
    forget_rules_of_clients,
    guard,
    rule,
)
from pairs import running_pair
from random_rules import TOPICS, ask_for_rights, filters_of, random_rules
from sessions import (
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    Message,
    Pair,
    Session,
    create_topic,
)
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.acls import PatternType, Permission
from headrace.broker.auth.operations import Operation, ResourceType

LITERAL, PREFIXED, MATCH, ANY = (
    PatternType.LITERAL,
    PatternType.PREFIXED,
    PatternType.MATCH,
    PatternType.ANY,
)
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
VERSIONS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def guarded(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A pair with authorizers; what comes from another address than the admin's may do nothing."""
    home = tmp_path_factory.mktemp("guarded")
    with running_pair(kafka_jars, zookeeper, home, AUTHORIZER) as both:
        both.wait_for_coordinator()
        for address in (both.kafka.address, both.headrace.addresses[0]):
            guard(Session(address))
        yield both


def of_version(version: int, message: Message) -> Message:
    """Without what the version does not have."""
    if version > 0:
        return message
    return {name: value for name, value in message.items() if "pattern_type" not in name}


@pytest.mark.acceptance
def test_without_an_authorizer_there_are_no_lists(pair: Pair) -> None:
    def script(session: Session) -> None:
        for version in VERSIONS:
            session.ask(DESCRIBE_ACLS, version, of_version(version, filter_of()))
            creation = of_version(version, rule(TOPIC, "t", READ))
            session.ask(CREATE_ACLS, version, {"creations": [creation, creation]})
            session.ask(DELETE_ACLS, version, {"filters": [of_version(version, filter_of())]})

    pair.compare(script)


@pytest.mark.parametrize("version", VERSIONS)
def test_lists_are_made_told_and_taken_away(guarded: Pair, version: int) -> None:
    def told(session: Session, note: str = "", **wanted: Any) -> None:
        wanted = {"host_filter": CLIENT, **wanted}
        message = of_version(version, filter_of(**wanted))
        session.ask(DESCRIBE_ACLS, version, message, note=note)

    def script(session: Session) -> None:
        rules = [
            rule(TOPIC, "made-1", READ),
            rule(TOPIC, "made-1", WRITE, permission=Permission.DENY),
            rule(TOPIC, "made-1", READ),
            rule(GROUP, "made", ALL, principal="User:alice:with:colons"),
            rule(ResourceType.TRANSACTIONAL_ID, "made-1", DESCRIBE, principal="Group:sre"),
            rule(ResourceType.CLUSTER, CLUSTER, Operation.IDEMPOTENT_WRITE),
            rule(ResourceType.USER, "User:alice", Operation.CREATE_TOKENS),
            rule(GROUP, "*", Operation.ALTER_CONFIGS),
        ]
        if version > 0:
            rules.append(rule(TOPIC, "made-", DESCRIBE, pattern=PREFIXED))
        session.ask(CREATE_ACLS, version, {"creations": [of_version(version, each) for each in rules]})
        told(session)
        told(session, "topics", resource_type_filter=TOPIC)
        told(session, "literal", pattern_type_filter=LITERAL)
        told(session, "denied", permission_type=Permission.DENY)
        told(session, "of alice", principal_filter="User:alice:with:colons")
        told(session, "to read", operation=READ)
        told(session, "by name", resource_name_filter="made-1")
        told(session, "of no host", host_filter="10.0.0.1")
        if version > 0:
            for pattern in (PREFIXED, MATCH):
                told(
                    session,
                    f"by name, {pattern.name}",
                    resource_name_filter="made-1",
                    pattern_type_filter=pattern,
                )
            told(session, "all that match a group", resource_name_filter="g", pattern_type_filter=MATCH)
        filters = [
            filter_of(host_filter=CLIENT, operation=READ),
            filter_of(host_filter=CLIENT, resource_type_filter=TOPIC),
            filter_of(
                resource_type_filter=TOPIC, resource_name_filter="nowhere", pattern_type_filter=LITERAL
            ),
            filter_of(host_filter="10.0.0.1"),
        ]
        session.ask(DELETE_ACLS, version, {"filters": [of_version(version, each) for each in filters]})
        told(session, "what is left")
        left = filter_of(host_filter=CLIENT, **({} if version == 0 else {"pattern_type_filter": ANY}))
        session.ask(DELETE_ACLS, version, {"filters": [of_version(version, left)]})
        told(session, "nothing is left")

    guarded.compare(script)


def test_what_no_list_takes_is_refused(guarded: Pair) -> None:
    def script(session: Session) -> None:
        refused = {
            "cluster of another name": rule(ResourceType.CLUSTER, "mine", READ),
            "no name": rule(TOPIC, "", READ),
            "a path": rule(TOPIC, "a/b", READ),
            "unknown kind": rule(TOPIC, "t", READ) | {"resource_type": 77},
            "unknown pattern": rule(TOPIC, "t", READ) | {"resource_pattern_type": 77},
            "unknown operation": rule(TOPIC, "t", READ) | {"operation": 77},
            "unknown permission": rule(TOPIC, "t", READ) | {"permission_type": 77},
            "no principal": rule(TOPIC, "t", READ, principal="alice"),
            "a dot": rule(TOPIC, ".", READ),
        }
        good = rule(TOPIC, "good", READ)
        for note, creation in refused.items():
            session.ask(CREATE_ACLS, 3, {"creations": [creation, good]}, note=note)
        filters: dict[str, Message] = {
            "any kind": {"resource_type": ResourceType.ANY},
            "any pattern": {"resource_pattern_type": ANY},
            "match": {"resource_pattern_type": MATCH},
            "any operation": {"operation": Operation.ANY},
            "any permission": {"permission_type": Permission.ANY},
        }
        for note, odd in filters.items():
            session.ask(CREATE_ACLS, 3, {"creations": [good | odd, good]}, note=note)
        for note, field in {
            "kind": "resource_type",
            "pattern": "resource_pattern_type",
            "operation": "operation",
            "permission": "permission_type",
        }.items():
            session.ask(CREATE_ACLS, 3, {"creations": [good | {field: 0}]}, note=f"{note} 0")
            name = {"kind": "resource_type_filter", "pattern": "pattern_type_filter"}.get(note, field)
            for code in (0, 77):
                wanted = filter_of(**{name: code, "resource_name_filter": "good"})
                session.ask(DESCRIBE_ACLS, 3, wanted, note=f"{note} {code}")
                session.ask(DELETE_ACLS, 3, {"filters": [wanted]}, note=f"{note} {code}")
        for note, wanted in {
            "a path": filter_of(resource_type_filter=TOPIC, resource_name_filter="a/b"),
            "no name": filter_of(resource_type_filter=TOPIC, resource_name_filter=""),
        }.items():
            session.ask(DELETE_ACLS, 3, {"filters": [wanted]}, note=note)
        forget_rules_of_clients(session)

    guarded.compare(script)


def test_who_may_not_see_or_change_lists(guarded: Pair) -> None:
    def script(session: Session) -> None:
        client = session.another(source=CLIENT)

        def ask_all(note: str) -> None:
            for version in VERSIONS:
                client.ask(
                    DESCRIBE_ACLS, version, of_version(version, filter_of(host_filter=CLIENT)), note=note
                )
                creation = of_version(version, rule(TOPIC, "t", READ))
                client.ask(CREATE_ACLS, version, {"creations": [creation, creation]}, note=note)
                wanted = of_version(version, filter_of(operation=READ, host_filter=CLIENT))
                client.ask(DELETE_ACLS, version, {"filters": [wanted, wanted]}, note=note)

        ask_all("nothing")
        allow(session, [rule(ResourceType.CLUSTER, CLUSTER, DESCRIBE)])
        ask_all("describe")
        allow(session, [rule(ResourceType.CLUSTER, CLUSTER, Operation.ALTER)])
        ask_all("alter")
        client.close()
        forget_rules_of_clients(session)

    guarded.compare(script)


def test_the_znodes_are_alike(guarded: Pair) -> None:
    def script(session: Session) -> None:
        allow(
            session,
            [
                rule(TOPIC, "stored", READ, principal='User:ü "x"'),
                rule(TOPIC, "stored", Operation.DESCRIBE_CONFIGS, permission=Permission.DENY),
                rule(ResourceType.TRANSACTIONAL_ID, "stored-", WRITE, pattern=PREFIXED),
            ],
        )

    for address in (guarded.kafka.address, guarded.headrace.addresses[0]):
        script(Session(address))
    found = {}
    for chroot in ("/kafka", "/headrace"):
        stored = {}
        for path in ("/kafka-acl/Topic/stored", "/kafka-acl-extended/prefixed/TransactionalId/stored-"):
            content = json.loads(guarded.znodes.get(chroot + path)[0])
            content["acls"].sort(key=str_of)
            stored[path] = content
        folders = {
            path: sorted(guarded.znodes.get_children(chroot + path))
            for path in ("/kafka-acl", "/kafka-acl-extended", "/kafka-acl-extended/prefixed")
        }
        changes = {
            path: newest(guarded, chroot + path)
            for path in ("/kafka-acl-changes", "/kafka-acl-extended-changes")
        }
        found[chroot] = (stored, folders, changes)
    assert found["/headrace"] == found["/kafka"]
    for address in (guarded.kafka.address, guarded.headrace.addresses[0]):
        forget_rules_of_clients(Session(address))
    for chroot in ("/kafka", "/headrace"):
        assert not guarded.znodes.exists(f"{chroot}/kafka-acl/Topic/stored")


def str_of(entry: Message) -> str:
    return json.dumps(entry, sort_keys=True)


def newest(pair: Pair, path: str) -> Any:
    name = max(pair.znodes.get_children(path))
    data = pair.znodes.get(f"{path}/{name}")[0].decode()
    return name.rstrip("0123456789"), json.loads(data) if data.startswith("{") else data


# Nothing may keep the admin out, who comes from another address.
PRINCIPALS = ("User:*", "User:ANONYMOUS", "User:other", "Group:ANONYMOUS")
HOSTS = {
    Permission.ALLOW: (CLIENT, CLIENT, "127.0.0.3", "*"),
    Permission.DENY: (CLIENT, CLIENT, "127.0.0.3", CLIENT),
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 12))])
def test_random_lists_give_the_same_rights(guarded: Pair, seed: int) -> None:
    def script(session: Session) -> None:
        for name in TOPICS:
            create_topic(session, name)
        chooser = random.Random(seed)
        for _ in range(10):
            rules = random_rules(chooser, PRINCIPALS, HOSTS)
            allow(session, rules)
            client = session.another(source=CLIENT)
            ask_for_rights(client)
            client.close()
            session.ask(DELETE_ACLS, 3, {"filters": filters_of(rules)})

    guarded.compare(script)
