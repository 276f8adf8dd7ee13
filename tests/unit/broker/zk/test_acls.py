"""Znodes of access control lists, as Apache Kafka writes them."""

from __future__ import annotations

import json

import pytest

from headrace.broker.auth.acls import Entry, Pattern, PatternType, Permission
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.zk import acls
from headrace.broker.zk.paths import MalformedZnodeError

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
TOPIC = Pattern(ResourceType.TOPIC, "events")
IDS = Pattern(ResourceType.TRANSACTIONAL_ID, "loads-", PREFIXED)
ENTRY = Entry("User:alice:ü", "*", Operation.DESCRIBE_CONFIGS, Permission.DENY)
STORED = {
    "version": 1,
    "acls": [
        {"principal": "User:alice:ü", "permissionType": "Deny", "operation": "DescribeConfigs", "host": "*"}
    ],
}


def test_where_lists_and_changes_are() -> None:
    assert acls.path_of(TOPIC) == "/kafka-acl/Topic/events"
    assert acls.path_of(IDS) == "/kafka-acl-extended/prefixed/TransactionalId/loads-"
    assert "/kafka-acl/DelegationToken" in acls.PERSISTENT_PATHS
    assert "/kafka-acl-extended-changes" in acls.PERSISTENT_PATHS


def test_a_list_is_written_and_read() -> None:
    assert json.loads(acls.encode_entries([ENTRY])) == STORED
    assert acls.decode_entries("/p", json.dumps(STORED).encode()) == {ENTRY}
    assert acls.decode_entries("/p", b"") == frozenset()


def test_what_a_later_kafka_knows_is_unknown() -> None:
    later = {"version": 1, "acls": [{**STORED["acls"][0], "operation": "TwoPhaseCommit"}]}  # type: ignore[index]
    assert acls.decode_entries("/p", json.dumps(later).encode()) == {
        ENTRY._replace(operation=Operation.UNKNOWN)
    }


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"acls":[]}',
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[1]}',
        b'{"version":1,"acls":null}',
        b'{"version":1,"acls":[{"principal":"alice","permissionType":"Deny","operation":"Read","host":"*"}]}',
    ],
)
def test_what_no_kafka_writes_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedZnodeError, match="/p "):
        acls.decode_entries("/p", data)


def test_changes_are_told_in_the_form_of_their_kind() -> None:
    assert acls.encode_change(TOPIC) == b"TOPIC:events"
    assert json.loads(acls.encode_change(IDS)) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "loads-",
        "patternType": "PREFIXED",
    }
    for pattern in (TOPIC, IDS, Pattern(ResourceType.GROUP, "a:b")):
        assert acls.decode_change(pattern.type, acls.encode_change(pattern)) == pattern
    # As Kafka before 2.0 wrote it.
    assert acls.decode_change(LITERAL, b"Topic:events") == TOPIC


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (LITERAL, b"events"),
        (LITERAL, b"Nothing:events"),
        (LITERAL, b"\xff\xfe"),
        (PREFIXED, b"{}"),
        (PREFIXED, b'{"version":2,"resourceType":"TOPIC","name":"a","patternType":"PREFIXED"}'),
        (PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"MATCH"}'),
    ],
)
def test_a_change_of_nothing_is_refused(type_: PatternType, data: bytes) -> None:
    with pytest.raises(MalformedZnodeError):
        acls.decode_change(type_, data)
