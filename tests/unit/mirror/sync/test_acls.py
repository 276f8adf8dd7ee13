"""Who may read copies: what is brought, what is left, and that nothing is widened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.auth.acl_authorizer import AclAuthorizer
from headrace.broker.auth.acls import Binding, Entry, Pattern, PatternType, Permission
from headrace.broker.auth.decisions import Decisions
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import Principal
from headrace.mirror.sync.acls import AclMove, move, told

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
COPY = "dc-east.orders"


def entry(operation: Operation = READ, who: str = "User:a", permission: Permission = ALLOW) -> Entry:
    return Entry(who, "*", operation, permission)


def there(name: str, what: Entry, type_: PatternType = PatternType.LITERAL) -> Binding:
    return Binding(Pattern(TOPIC, name, type_), what)


def here(what: Entry, name: str = COPY, type_: PatternType = PatternType.LITERAL) -> Binding:
    return Binding(Pattern(TOPIC, name, type_), what)


@pytest.mark.parametrize(
    ("source", "own", "added", "removed"),
    [
        ([], [], (), ()),
        ([there("orders", entry())], [], (entry(),), ()),
        ([there("orders", entry())], [here(entry())], (), ()),
        ([there("*", entry())], [], (entry(),), ()),
        ([there("ord", entry(), PatternType.PREFIXED)], [], (entry(),), ()),
        ([there("others", entry())], [], (), ()),
        ([Binding(Pattern(GROUP, "orders"), entry())], [], (), ()),
        ([there("orders", entry(ALL))], [], (entry(READ),), ()),
        ([there("orders", entry(DESCRIBE))], [], (entry(DESCRIBE),), ()),
        ([there("orders", entry(WRITE))], [], (), ()),
        ([there("orders", entry(Operation.ALTER_CONFIGS))], [], (), ()),
        ([there("orders", entry(ALL, permission=DENY))], [], (entry(ALL, permission=DENY),), ()),
        ([there("orders", entry(WRITE, permission=DENY))], [], (entry(WRITE, permission=DENY),), ()),
        ([], [here(entry())], (), (entry(),)),
        ([], [here(entry(DESCRIBE))], (), (entry(DESCRIBE),)),
        ([], [here(entry(permission=DENY))], (), ()),
        ([], [here(entry(Operation.ALTER_CONFIGS)), here(entry(ALL))], (), ()),
        ([], [here(entry(), "dc-east.", PatternType.PREFIXED), here(entry(), "*")], (), ()),
    ],
)
def test_what_is_brought(
    source: list[Binding], own: list[Binding], added: tuple[Entry, ...], removed: tuple[Entry, ...]
) -> None:
    assert move(COPY, "orders", source, own) == AclMove(copy=COPY, added=added, removed=removed)


def test_changes_are_told() -> None:
    found = AclMove(
        copy=COPY, added=(entry(permission=DENY),), removed=(entry(DESCRIBE)._replace(host="10.0.0.1"),)
    )
    assert told(found) == (
        "dc-east.orders: deny read to User:a is new, allow describe to User:a from 10.0.0.1 is gone"
    )


NAMES = st.sampled_from(["orders", "ord", "*", "others"])
ENTRIES = st.builds(
    Entry,
    st.sampled_from(["User:a", "User:b", "User:*"]),
    st.sampled_from(["*", "h"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL, Operation.ALTER, Operation.DELETE]),
    st.sampled_from([ALLOW, DENY]),
)
LISTS = st.lists(
    st.builds(
        Binding,
        st.builds(
            Pattern, st.just(TOPIC), NAMES, st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])
        ),
        ENTRIES,
    ),
    max_size=8,
)


def authorizer(bindings: list[Binding]) -> AclAuthorizer:
    found = AclAuthorizer(Decisions({}))
    for pattern in {b.pattern for b in bindings}:
        found.put(pattern, frozenset(b.entry for b in bindings if b.pattern == pattern))
    return found


@given(LISTS, st.lists(st.builds(here, ENTRIES), max_size=4))
def test_nobody_may_do_to_a_copy_what_was_not_allowed_before_at_either_end(
    source: list[Binding], own: list[Binding]
) -> None:
    found = move(COPY, "orders", source, own)
    after = [b for b in own if b.entry not in found.removed] + [here(each) for each in found.added]
    at_source, before, now = authorizer(source), authorizer(own), authorizer(after)
    for who in (Principal("User", "a"), Principal("User", "b")):
        for operation in (READ, WRITE, DESCRIBE, Operation.ALTER, Operation.DELETE):
            if now.allows(who, "h", operation, TOPIC, COPY) and not before.allows(
                who, "h", operation, TOPIC, COPY
            ):
                assert operation in (READ, DESCRIBE)
                assert at_source.allows(who, "h", operation, TOPIC, "orders")
