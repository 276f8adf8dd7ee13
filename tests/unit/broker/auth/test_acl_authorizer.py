"""The rules of access control lists: a table of cases, and random lists beside a model that knows no short cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.auth import acl_authorizer
from headrace.broker.auth.acl_authorizer import UNREADABLE, AclAuthorizer
from headrace.broker.auth.acls import EVERY_BINDING, Binding, Entry, Pattern, PatternType, Permission
from headrace.broker.auth.decisions import Decisions
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import Principal

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = Permission.ALLOW, Permission.DENY
PREFIXED = PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HERE, THERE = "10.0.0.1", "10.0.0.2"


def with_lists(*bindings: Binding, super_users: tuple[str, ...] = (), open_: bool = False) -> AclAuthorizer:
    authorizer = AclAuthorizer(Decisions({}), super_users=super_users, allows_without_lists=open_)
    for pattern in {binding.pattern for binding in bindings}:
        authorizer.put(pattern, frozenset(b.entry for b in bindings if b.pattern == pattern))
    return authorizer


def binding(
    name: str,
    operation: Operation = READ,
    *,
    who: str = "User:alice",
    host: str = "*",
    permission: Permission = ALLOW,
    kind: ResourceType = TOPIC,
    type: PatternType = PatternType.LITERAL,
) -> Binding:
    return Binding(Pattern(kind, name, type), Entry(who, host, operation, permission))


@pytest.mark.parametrize(
    ("lists", "operation", "is_allowed"),
    [
        ([], READ, False),
        ([binding("events")], READ, True),
        ([binding("events")], WRITE, False),
        ([binding("event")], READ, False),
        ([binding("events", who="User:bob")], READ, False),
        ([binding("events", who="Group:alice")], READ, False),
        ([binding("events", who="User:*")], READ, True),
        ([binding("events", who="Group:*")], READ, False),
        ([binding("*")], READ, True),
        ([binding("ev", type=PREFIXED)], READ, True),
        ([binding("events", type=PREFIXED)], READ, True),
        ([binding("events-", type=PREFIXED)], READ, False),
        ([binding("x", type=PREFIXED)], READ, False),
        ([binding("events", kind=GROUP)], READ, False),
        ([binding("events", host=HERE)], READ, True),
        ([binding("events", host=THERE)], READ, False),
        ([binding("events", ALL)], Operation.ALTER_CONFIGS, True),
        ([binding("events", READ)], DESCRIBE, True),
        ([binding("events", WRITE)], DESCRIBE, True),
        ([binding("events", Operation.DELETE)], DESCRIBE, True),
        ([binding("events", Operation.ALTER)], DESCRIBE, True),
        ([binding("events", Operation.CREATE)], DESCRIBE, False),
        ([binding("events", Operation.ALTER_CONFIGS)], DESCRIBE, False),
        ([binding("events", Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS, True),
        ([binding("events", Operation.ALTER)], Operation.DESCRIBE_CONFIGS, False),
        ([binding("events", DESCRIBE)], READ, False),
        ([binding("events"), binding("events", permission=DENY)], READ, False),
        ([binding("events"), binding("*", permission=DENY)], READ, False),
        ([binding("events"), binding("e", permission=DENY, type=PREFIXED)], READ, False),
        ([binding("events"), binding("events", ALL, permission=DENY)], READ, False),
        ([binding("events"), binding("events", who="User:*", permission=DENY)], READ, False),
        ([binding("events"), binding("events", host=HERE, permission=DENY)], READ, False),
        ([binding("events"), binding("events", host=THERE, permission=DENY)], READ, True),
        ([binding("events"), binding("events", who="User:bob", permission=DENY)], READ, True),
        ([binding("events"), binding("events", WRITE, permission=DENY)], READ, True),
        ([binding("events", DESCRIBE), binding("events", READ, permission=DENY)], DESCRIBE, True),
    ],
)
def test_who_may_do_what(lists: list[Binding], operation: Operation, is_allowed: bool) -> None:
    assert with_lists(*lists).allows(ALICE, HERE, operation, TOPIC, "events") is is_allowed


def test_super_users_may_do_everything_whatever_is_denied() -> None:
    denied = binding("*", ALL, who="User:*", permission=DENY)
    authorizer = with_lists(denied, super_users=("User:alice",))
    assert authorizer.allows(ALICE, HERE, WRITE, TOPIC, "events")
    assert authorizer.allows_any(ALICE, HERE, WRITE, TOPIC)
    assert not authorizer.allows(BOB, HERE, WRITE, TOPIC, "events")


def test_where_no_list_is_the_setting_decides() -> None:
    lists = [binding("private", who="User:bob"), binding("pre", who="User:bob", type=PREFIXED)]
    assert with_lists(*lists, open_=True).allows(ALICE, HERE, READ, TOPIC, "events")
    assert not with_lists(*lists).allows(ALICE, HERE, READ, TOPIC, "events")
    for name in ("private", "pretty"):
        assert not with_lists(*lists, open_=True).allows(ALICE, HERE, READ, TOPIC, name)
    everywhere = binding("*", who="User:bob")
    assert not with_lists(everywhere, open_=True).allows(ALICE, HERE, READ, TOPIC, "events")


@pytest.mark.parametrize(
    ("lists", "is_allowed"),
    [
        ([], False),
        ([binding("events", WRITE)], True),
        ([binding("events", READ)], False),
        ([binding("events", WRITE, host=THERE)], False),
        ([binding("*", WRITE), binding("x", WRITE, permission=DENY, type=PREFIXED)], True),
        ([binding("*", WRITE), binding("*", WRITE, permission=DENY)], False),
        ([binding("events", WRITE), binding("events", WRITE, permission=DENY)], False),
        ([binding("events", WRITE), binding("ev", WRITE, permission=DENY, type=PREFIXED)], False),
        ([binding("ev", WRITE, type=PREFIXED), binding("events", WRITE, permission=DENY)], True),
        ([binding("ev", WRITE, type=PREFIXED), binding("e", ALL, permission=DENY, type=PREFIXED)], False),
        ([binding("e", WRITE, type=PREFIXED), binding("ev", ALL, permission=DENY, type=PREFIXED)], True),
        ([binding("events", WRITE, kind=GROUP)], False),
    ],
)
def test_whether_there_is_anything_to_write_to(lists: list[Binding], is_allowed: bool) -> None:
    assert with_lists(*lists).allows_any(ALICE, HERE, WRITE, TOPIC) is is_allowed
    without = with_lists(*lists, open_=True).allows_any(ALICE, HERE, WRITE, TOPIC)
    assert without is (binding("*", WRITE, permission=DENY) not in lists)


def test_a_list_that_cannot_be_read_refuses_all_but_super_users_and_is_not_shown() -> None:
    authorizer = with_lists(binding("events"), super_users=("User:bob",), open_=True)
    authorizer.put(Pattern(TOPIC, "events"), UNREADABLE)
    assert not authorizer.allows(ALICE, HERE, READ, TOPIC, "events")
    assert authorizer.allows(BOB, HERE, READ, TOPIC, "events")
    assert authorizer.matching(EVERY_BINDING) == []
    assert Pattern(TOPIC, "events") in authorizer.lists


def test_an_answer_is_kept_until_a_list_changes() -> None:
    authorizer = with_lists(binding("events"))
    before = authorizer.version
    assert authorizer.allows(ALICE, HERE, READ, TOPIC, "events")
    authorizer.put(Pattern(TOPIC, "events"), frozenset((binding("events").entry,)))
    assert authorizer.version == before, "nothing changed"
    authorizer.put(Pattern(TOPIC, "events"), frozenset())
    assert authorizer.version == before + 1
    assert not authorizer.allows(ALICE, HERE, READ, TOPIC, "events")
    assert authorizer.lists == {}


def test_kept_answers_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_authorizer, "ANSWERS_MAX", 10)
    authorizer = with_lists(binding("t", type=PREFIXED))
    assert all(authorizer.allows(ALICE, HERE, READ, TOPIC, f"t{n}") for n in range(100))
    assert 0 < len(authorizer._answers) <= 10


def test_what_nobody_knows_is_kept_and_not_told() -> None:
    unknown = binding("events", Operation.UNKNOWN)
    authorizer = with_lists(unknown, binding("events"))
    assert authorizer.matching(EVERY_BINDING) == [binding("events")]
    assert unknown.entry in authorizer.lists[Pattern(TOPIC, "events")]


NAMES = st.text("ab", min_size=1, max_size=3)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from([HERE, THERE, "*"]),
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS, ALL]),
    st.sampled_from([ALLOW, DENY]),
)
PATTERNS = st.one_of(
    st.builds(
        Pattern, st.sampled_from([TOPIC, GROUP]), st.one_of(NAMES, st.just("*")), st.just(PatternType.LITERAL)
    ),
    st.builds(Pattern, st.sampled_from([TOPIC, GROUP]), NAMES, st.just(PREFIXED)),
)


def is_about(pattern: Pattern, kind: ResourceType, name: str) -> bool:
    if pattern.kind is not kind:
        return False
    return name.startswith(pattern.name) if pattern.type is PREFIXED else pattern.name in (name, "*")


def naive(lists: list[Binding], who: str, host: str, operation: Operation, name: str, *, open_: bool) -> bool:
    entries = [b.entry for b in lists if is_about(b.pattern, TOPIC, name)]
    if not entries:
        return open_
    implied = {
        DESCRIBE: {READ, WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }
    verdicts = set()
    for entry in entries:
        if entry.principal not in (who, "User:*") or entry.host not in (host, "*"):
            continue
        if entry.operation in {operation, ALL} or (
            entry.permission is ALLOW and entry.operation in implied.get(operation, ())
        ):
            verdicts.add(entry.permission)
    return verdicts == {ALLOW}


@given(
    st.lists(st.builds(Binding, PATTERNS, ENTRIES), max_size=12),
    st.lists(st.tuples(NAMES, st.sampled_from([READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS]))),
    st.booleans(),
)
def test_the_short_cuts_change_no_answer(
    lists: list[Binding], questions: list[tuple[str, Operation]], open_: bool
) -> None:
    authorizer = with_lists(*lists, open_=open_)
    for _ in range(2):
        for name, operation in questions:
            expected = naive(lists, "User:alice", HERE, operation, name, open_=open_)
            assert authorizer.allows(ALICE, HERE, operation, TOPIC, name) is expected
