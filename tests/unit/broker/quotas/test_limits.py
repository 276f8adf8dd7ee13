"""The eight levels of precedence, and the names that znodes have."""

from __future__ import annotations

import pytest

from headrace.broker.quotas.limits import DEFAULT, Entity, Limits, desanitized, sanitized

LEVELS: tuple[tuple[Entity, Entity], ...] = (
    (("alice", "app"), ("alice", "app")),
    (("alice", DEFAULT), ("alice", "app")),
    (("alice", ""), ("alice", "")),
    ((DEFAULT, "app"), ("alice", "app")),
    ((DEFAULT, DEFAULT), ("alice", "app")),
    ((DEFAULT, ""), ("alice", "")),
    (("", "app"), ("", "app")),
    (("", DEFAULT), ("", "app")),
)
"""(entity, who shares its limit), most specific first."""


@pytest.mark.parametrize("first", range(8))
def test_the_most_specific_limit_counts(first: int) -> None:
    limits = Limits()
    for value, (entity, _) in list(enumerate(LEVELS))[first:]:
        limits.set(entity, value)
    assert limits.find("alice", "app") == (LEVELS[first][1], first)


def test_a_limit_that_is_taken_away_leaves_the_next_one() -> None:
    limits = Limits()
    assert not limits
    for value, (entity, _) in enumerate(LEVELS):
        limits.set(entity, value)
    for value, (entity, bucket) in enumerate(LEVELS):
        assert limits.find("alice", "app") == (bucket, value)
        limits.set(entity, None)
    assert limits.find("alice", "app") is None
    assert not limits


def test_others_have_the_defaults() -> None:
    limits = Limits()
    for value, (entity, _) in enumerate(LEVELS):
        limits.set(entity, value)
    assert limits.find("bob", "app") == (("bob", "app"), 3)
    assert limits.find("bob", "tool") == (("bob", "tool"), 4)
    assert limits.find("alice", "tool") == (("alice", "tool"), 1)


def test_a_client_without_a_name_has_the_limits_of_its_user_alone() -> None:
    limits = Limits()
    for value, (entity, _) in enumerate(LEVELS):
        limits.set(entity, value)
    assert limits.find("alice", "") == (("alice", ""), 2)
    limits.set(("alice", ""), None)
    assert limits.find("alice", "") == (("alice", ""), 5)
    limits.set((DEFAULT, ""), None)
    assert limits.find("alice", "") is None


def test_nobody_can_be_named_as_the_default() -> None:
    limits = Limits()
    limits.set((DEFAULT, ""), 1)
    limits.set((sanitized(DEFAULT), ""), 2)
    assert limits.find(DEFAULT, "") == ((sanitized(DEFAULT), ""), 2)


def test_names_are_written_as_in_kafka() -> None:
    name = "CN=a b*c~d+e/f%g,O=é._-"
    text = "CN%3Da%20b%2Ac%7Ed%2Be%2Ff%25g%2CO%3D%C3%A9._-"
    assert sanitized(name) == text
    assert desanitized(text) == name
