"""Access control lists as data: who may, or may not, do what to which resources, and filters over them.

The codes are those of the protocol (org.apache.kafka.common.acl, .resource); one that nobody knows becomes UNKNOWN. Must not know
how a list is kept or asked.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from headrace.broker.auth.operations import Operation, ResourceType

ANYTHING = "*"
"""Every name as a resource's, every address as a host's."""
EVERYBODY = "User:*"
E = TypeVar("E", bound=IntEnum)


class PatternType(IntEnum):
    """How a pattern's name is understood; only LITERAL and PREFIXED are stored, MATCH and ANY are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(NamedTuple):
    """The resources that a list is about: of one name, of all names (`*`) or of those that begin so."""

    kind: ResourceType
    name: str
    type: PatternType = PatternType.LITERAL


class Entry(NamedTuple):
    """What is allowed or denied to whom, from where."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def has_unknown(self) -> bool:
        return self.operation is Operation.UNKNOWN or self.permission is Permission.UNKNOWN


class Binding(NamedTuple):
    """One entry of one list."""

    pattern: Pattern
    entry: Entry


class PatternFilter(NamedTuple):
    """`name` None takes all; MATCH takes every pattern that is about the resource of that name."""

    kind: ResourceType
    name: str | None
    type: PatternType

    def matches(self, pattern: Pattern) -> bool:
        if self.kind not in (ResourceType.ANY, pattern.kind):
            return False
        if self.type not in (PatternType.ANY, PatternType.MATCH, pattern.type):
            return False
        if self.name is None:
            return True
        if self.type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, ANYTHING)

    def named(self) -> list[Pattern]:
        """The patterns that it names itself: there, or not; none for a filter that has to look at all there are."""
        if self.name is None or self.kind in (ResourceType.ANY, ResourceType.UNKNOWN):
            return []
        types = {
            PatternType.ANY: (PatternType.LITERAL, PatternType.PREFIXED),
            PatternType.LITERAL: (PatternType.LITERAL,),
            PatternType.PREFIXED: (PatternType.PREFIXED,),
        }
        return [Pattern(self.kind, self.name, each) for each in types.get(self.type, ())]


class EntryFilter(NamedTuple):
    """None and ANY take all."""

    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, entry: Entry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


class BindingFilter(NamedTuple):
    pattern: PatternFilter
    entry: EntryFilter

    def matches(self, binding: Binding) -> bool:
        return self.pattern.matches(binding.pattern) and self.entry.matches(binding.entry)


def exactly(binding: Binding) -> BindingFilter:
    """The filter that takes nothing else."""
    pattern, entry = binding
    return BindingFilter(PatternFilter(*pattern), EntryFilter(*entry))


EVERY_BINDING = BindingFilter(
    PatternFilter(ResourceType.ANY, None, PatternType.ANY),
    EntryFilter(None, None, Operation.ANY, Permission.ANY),
)


def of_code(kind: type[E], code: int) -> E:
    """The member with that code, or UNKNOWN."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def title(member: IntEnum) -> str:
    """A member's name as znodes and logs have it: `TransactionalId`, `DescribeConfigs`."""
    return "".join(word.capitalize() for word in member.name.split("_"))


def of_title(kind: type[E], text: str) -> E:
    """The member of that name, however it is capitalised and with underscores or none, or UNKNOWN."""
    wanted = text.upper().replace("_", "")
    return next((member for member in kind if member.name.replace("_", "") == wanted), kind(0))
