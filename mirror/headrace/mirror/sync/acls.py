"""Who may read a copy, as its topic's access control lists at the source say, and what to change for that. Pure.

Nothing is widened: a copy is read only, so of what is allowed READ and DESCRIBE are brought (and READ for ALL), each for the copy
alone, whether the source allows it for that topic, for a prefix or for all; all that is denied is brought, and no denial is
ever taken away here. In a copy's own list the source wins: who may read it no more at the source may not here either, also
where somebody allowed it here. Lists of prefixes and of all topics are this cluster's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.broker.auth.acls import (
    Binding,
    BindingFilter,
    Entry,
    EntryFilter,
    Pattern,
    PatternFilter,
    PatternType,
    Permission,
)
from headrace.broker.auth.operations import Operation, ResourceType

LISTS_OF_TOPICS = BindingFilter(
    PatternFilter(ResourceType.TOPIC, None, PatternType.ANY),
    EntryFilter(None, None, Operation.ANY, Permission.ANY),
)
BROUGHT_AS = {
    Operation.READ: Operation.READ,
    Operation.ALL: Operation.READ,
    Operation.DESCRIBE: Operation.DESCRIBE,
}
"""What is allowed of a copy where that is allowed of its topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclMove:
    """What to add to a copy's own list, and what to take out of it."""

    copy: str
    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]

    @property
    def pattern(self) -> Pattern:
        return Pattern(ResourceType.TOPIC, self.copy)

    def bindings(self, entries: Iterable[Entry]) -> list[Binding]:
        return [Binding(self.pattern, entry) for entry in entries]


def wanted(topic: str, there: Iterable[Binding]) -> frozenset[Entry]:
    """What a copy's list shall hold, of all lists of topics at the source."""
    about = PatternFilter(ResourceType.TOPIC, topic, PatternType.MATCH)
    found = set()
    for pattern, entry in there:
        if not about.matches(pattern):
            continue
        if entry.permission is Permission.DENY:
            found.add(entry)
        elif entry.permission is Permission.ALLOW and entry.operation in BROUGHT_AS:
            found.add(entry._replace(operation=BROUGHT_AS[entry.operation]))
    return frozenset(found)


def move(copy: str, topic: str, there: Iterable[Binding], here: Collection[Binding]) -> AclMove:
    """What to change for one copy, of all lists of topics there and here."""
    own = {entry for pattern, entry in here if pattern == Pattern(ResourceType.TOPIC, copy)}
    shall = wanted(topic, there)
    gone = (
        entry
        for entry in own - shall
        if entry.permission is Permission.ALLOW and entry.operation in BROUGHT_AS.values()
    )
    return AclMove(copy=copy, added=tuple(sorted(shall - own)), removed=tuple(sorted(gone)))


def told(found: AclMove) -> str:
    """What to say of a copy's changes."""
    said = [
        *(f"{_told(entry)} is new" for entry in found.added),
        *(f"{_told(entry)} is gone" for entry in found.removed),
    ]
    return f"{found.copy}: {', '.join(said)}"


def _told(entry: Entry) -> str:
    where = "" if entry.host == "*" else f" from {entry.host}"
    return f"{entry.permission.name.lower()} {entry.operation.name.lower()} to {entry.principal}{where}"
