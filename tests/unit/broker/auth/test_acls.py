"""Filters over access control lists, and the names that znodes have for their parts."""

from __future__ import annotations

import pytest

from headrace.broker.auth.acls import (
    Binding,
    BindingFilter,
    Entry,
    EntryFilter,
    Pattern,
    PatternFilter,
    PatternType,
    Permission,
    of_code,
    of_title,
    title,
)
from headrace.broker.auth.operations import Operation, ResourceType

TOPIC, GROUP, ANY = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.ANY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


@pytest.mark.parametrize(
    ("wanted", "pattern", "is_taken"),
    [
        (PatternFilter(TOPIC, "a", LITERAL), Pattern(TOPIC, "a"), True),
        (PatternFilter(TOPIC, "a", LITERAL), Pattern(TOPIC, "a", PREFIXED), False),
        (PatternFilter(TOPIC, "a", LITERAL), Pattern(GROUP, "a"), False),
        (PatternFilter(TOPIC, "a", LITERAL), Pattern(TOPIC, "*"), False),
        (PatternFilter(TOPIC, "a", PatternType.ANY), Pattern(TOPIC, "a", PREFIXED), True),
        (PatternFilter(TOPIC, "ab", PatternType.ANY), Pattern(TOPIC, "a", PREFIXED), False),
        (PatternFilter(ANY, None, PatternType.ANY), Pattern(GROUP, "g", PREFIXED), True),
        (PatternFilter(ANY, None, LITERAL), Pattern(GROUP, "g", PREFIXED), False),
        (PatternFilter(TOPIC, "ab", PatternType.MATCH), Pattern(TOPIC, "a", PREFIXED), True),
        (PatternFilter(TOPIC, "ab", PatternType.MATCH), Pattern(TOPIC, "ab"), True),
        (PatternFilter(TOPIC, "ab", PatternType.MATCH), Pattern(TOPIC, "*"), True),
        (PatternFilter(TOPIC, "ab", PatternType.MATCH), Pattern(TOPIC, "a"), False),
        (PatternFilter(TOPIC, "a", PatternType.MATCH), Pattern(TOPIC, "ab", PREFIXED), False),
        (PatternFilter(TOPIC, "a", PatternType.UNKNOWN), Pattern(TOPIC, "a"), False),
    ],
)
def test_patterns_are_taken(wanted: PatternFilter, pattern: Pattern, is_taken: bool) -> None:
    assert wanted.matches(pattern) is is_taken


def test_entries_are_taken_by_each_of_their_parts() -> None:
    entry = Entry("User:alice", "10.0.0.1", Operation.READ, Permission.ALLOW)
    everything = EntryFilter(None, None, Operation.ANY, Permission.ANY)
    assert everything.matches(entry)
    assert EntryFilter(*entry).matches(entry)
    for other in (
        everything._replace(principal="User:*"),
        everything._replace(host="*"),
        everything._replace(operation=Operation.ALL),
        everything._replace(permission=Permission.DENY),
    ):
        assert not other.matches(entry)
    taken = BindingFilter(PatternFilter(TOPIC, "a", LITERAL), everything)
    assert taken.matches(Binding(Pattern(TOPIC, "a"), entry))
    assert not taken.matches(Binding(Pattern(TOPIC, "b"), entry))


def test_a_filter_names_the_patterns_that_it_is_about() -> None:
    assert PatternFilter(TOPIC, "a", PREFIXED).named() == [Pattern(TOPIC, "a", PREFIXED)]
    assert PatternFilter(TOPIC, "a", PatternType.ANY).named() == [
        Pattern(TOPIC, "a"),
        Pattern(TOPIC, "a", PREFIXED),
    ]
    for open_ in (
        PatternFilter(TOPIC, "a", PatternType.MATCH),
        PatternFilter(TOPIC, None, LITERAL),
        PatternFilter(ANY, "a", LITERAL),
    ):
        assert open_.named() == []


def test_names_and_codes_of_all_kinds_are_known_and_others_are_unknown() -> None:
    for kind in (ResourceType, Operation, Permission, PatternType):
        for member in kind:
            assert of_title(kind, title(member)) is member
            assert of_title(kind, member.name) is member
            assert of_code(kind, int(member)) is member
        assert of_title(kind, "TwoPhaseCommit") is kind(0)
        assert of_code(kind, 99) is of_code(kind, -1) is kind(0)
    assert title(ResourceType.TRANSACTIONAL_ID) == "TransactionalId"
