"""What the options of the command stand for."""

from __future__ import annotations

from typing import Any

import click
import pytest

from headrace.broker.auth.acls import Binding, Entry, Pattern, PatternType, Permission, exactly
from headrace.broker.auth.operations import CLUSTER_NAME, Operation, ResourceType
from headrace.cli.acl_rules import Wish, addable, bindings, filters, removable, row

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
IDS = ResourceType.TRANSACTIONAL_ID
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE = "User:alice"


def wish(*resources: tuple[ResourceType, str], **more: Any) -> Wish:
    return Wish(**{"resources": resources, "pattern_type": LITERAL, "allowed": (ALICE,), **more})


def operations(found: list[Binding]) -> set[tuple[ResourceType, Operation]]:
    return {(binding.pattern.kind, binding.entry.operation) for binding in found}


def test_each_combination_is_an_entry() -> None:
    found = bindings(
        wish(
            (TOPIC, "a"),
            (TOPIC, "b"),
            operations=("read", "DescribeConfigs"),
            allowed_hosts=("10.0.0.1", "10.0.0.2"),
            denied=("User:bob",),
        )
    )
    assert len(found) == 2 * 2 * 3
    assert Binding(Pattern(TOPIC, "a"), Entry(ALICE, "10.0.0.1", Operation.READ, Permission.ALLOW)) in found
    assert Binding(Pattern(TOPIC, "b"), Entry("User:bob", "*", Operation.READ, Permission.DENY)) in found


def test_without_an_operation_all_are_meant_and_the_cluster_has_no_prefix() -> None:
    found = bindings(wish((TOPIC, "a"), (CLUSTER, CLUSTER_NAME), pattern_type=PREFIXED))
    assert [b.pattern for b in found] == [Pattern(TOPIC, "a", PREFIXED), Pattern(CLUSTER, CLUSTER_NAME)]
    assert {b.entry.operation for b in found} == {Operation.ALL}


def test_what_producers_and_consumers_need() -> None:
    found = operations(bindings(wish((TOPIC, "a"), (IDS, "i"), is_producer=True, is_idempotent=True)))
    assert found == {
        (TOPIC, Operation.WRITE),
        (TOPIC, Operation.DESCRIBE),
        (TOPIC, Operation.CREATE),
        (IDS, Operation.WRITE),
        (IDS, Operation.DESCRIBE),
        (CLUSTER, Operation.IDEMPOTENT_WRITE),
    }
    found = operations(bindings(wish((TOPIC, "a"), (GROUP, "g"), is_consumer=True)))
    assert found == {(TOPIC, Operation.READ), (TOPIC, Operation.DESCRIBE), (GROUP, Operation.READ)}
    both = bindings(wish((TOPIC, "a"), (GROUP, "g"), is_consumer=True, is_producer=True))
    assert len(both) == len(set(both)) == 5


@pytest.mark.parametrize(
    "wrong",
    [
        wish(),
        wish((TOPIC, "a"), operations=("fly",)),
        wish((TOPIC, "a"), operations=("ClusterAction",)),
        wish((GROUP, "g"), operations=("Write",)),
        wish((TOPIC, "a"), allowed=("alice",)),
        wish((TOPIC, "a"), is_producer=True, operations=("Read",)),
        wish((TOPIC, "a"), is_consumer=True),
        wish((GROUP, "g"), is_producer=True),
        wish((TOPIC, "a"), (GROUP, "g"), is_producer=True),
        wish((TOPIC, "a"), is_producer=True, denied=("User:bob",)),
        wish((TOPIC, "a"), is_idempotent=True),
    ],
    ids=str,
)
def test_wrong_use_is_said(wrong: Wish) -> None:
    with pytest.raises(click.UsageError):
        bindings(wrong)


def test_hosts_are_added_as_brokers_write_those_of_clients() -> None:
    given = wish((TOPIC, "a"), allowed_hosts=("10.0.0.1", "::1", "*"), denied_hosts=("::ffff:10.0.0.2",))
    found = addable(given)
    assert (found.allowed_hosts, found.denied_hosts) == (
        ("10.0.0.1", "0:0:0:0:0:0:0:1", "*"),
        ("10.0.0.2",),
    )


@pytest.mark.parametrize("host", ["10.0.0.0/8", "shop.example", "10.0.0.*", "10.0.0", ""])
def test_what_no_client_would_match_is_not_added(host: str) -> None:
    for kind in ("allowed_hosts", "denied_hosts"):
        with pytest.raises(click.UsageError, match="no client would match it"):
            addable(wish((TOPIC, "a"), **{kind: (host,)}))


def test_hosts_are_removed_as_they_are_given_and_as_brokers_write_them() -> None:
    found = removable(wish((TOPIC, "a"), allowed_hosts=("10.0.0.0/8", "10.0.0.1"), denied_hosts=("::1",)))
    assert (found.allowed_hosts, found.denied_hosts) == (
        ("10.0.0.0/8", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
    )


def test_filters_take_what_is_named_and_else_all() -> None:
    binding = bindings(wish((TOPIC, "a"), operations=("Read",)))[0]
    other = bindings(wish((GROUP, "g"), operations=("Read",), allowed=("User:bob",)))[0]
    anything = wish(pattern_type=PatternType.ANY)
    assert [f.matches(b) for f in filters(anything) for b in (binding, other)] == [True, True]
    assert [f.matches(b) for f in filters(anything, ["User:bob"]) for b in (binding, other)] == [False, True]
    assert [f.matches(b) for f in filters(wish((TOPIC, "a"))) for b in (binding, other)] == [True, False]
    assert exactly(binding).matches(binding)
    assert not exactly(binding).matches(other)
    assert row(binding) == {
        "resource": "Topic",
        "name": "a",
        "pattern": "Literal",
        "principal": ALICE,
        "permission": "Allow",
        "operation": "Read",
        "host": "*",
    }
