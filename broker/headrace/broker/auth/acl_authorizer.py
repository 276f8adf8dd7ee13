"""Who may do what by access control lists: the rules of Kafka's kafka.security.authorizer.AclAuthorizer, without I/O.

A super user may do everything. Else the lists for a resource are those of its name, of every prefix of its name and of `*`: one
entry that denies what is asked decides, before all that allow it; without any list `allow.everyone.if.no.acl.found` decides,
and what nothing allows is refused. To allow READ, WRITE, DELETE or ALTER allows DESCRIBE, and ALTER_CONFIGS allows
DESCRIBE_CONFIGS; to deny them does not deny it.

Invariants: a list that is stored and cannot be read refuses everybody but super users what it is about; an answer is kept
until some list changes. Whoever keeps the lists tells of them with `put`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from headrace.broker.auth.acls import (
    ANYTHING,
    EVERYBODY,
    Binding,
    BindingFilter,
    Entry,
    Pattern,
    PatternType,
    Permission,
)
from headrace.broker.auth.decisions import Decisions
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import Principal

ANSWERS_MAX = 20_000
"""Answers that are kept, of some hundred bytes each."""
ALLOWED_BY = {
    Operation.DESCRIBE: (
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
UNREADABLE = frozenset(
    (
        Entry(EVERYBODY, ANYTHING, Operation.ALL, Permission.DENY),
        # No list that can be read has it.
        Entry("", "", Operation.UNKNOWN, Permission.UNKNOWN),
    )
)
"""Stands for a list whose entries nobody knows."""

Entries = frozenset[Entry]
Question = tuple[Principal, str, Operation, ResourceType, str]


class AclAuthorizer:
    """`version` grows with each change of a list; `decisions` hears what was decided."""

    def __init__(
        self,
        decisions: Decisions,
        *,
        super_users: Iterable[str] = (),
        allows_without_lists: bool = False,
    ) -> None:
        self.granted, self.denied = decisions.granted, decisions.denied
        self._super_users = frozenset(super_users)
        self._allows_without_lists = allows_without_lists
        self._lists: dict[Pattern, Entries] = {}
        # Of each kind of resource the sizes of prefixes that there are, shortest first.
        self._prefix_sizes: dict[ResourceType, tuple[int, ...]] = {}
        self._answers: dict[Question, bool] = {}
        self.version = 0

    @property
    def lists(self) -> Mapping[Pattern, Entries]:
        """All lists; those that cannot be read are `UNREADABLE`."""
        return self._lists

    def put(self, pattern: Pattern, entries: Entries) -> None:
        """These are the entries for that pattern from now on; none: there is no such list."""
        if self._lists.get(pattern, frozenset()) == entries:
            return
        if entries:
            self._lists[pattern] = entries
        else:
            del self._lists[pattern]
        if pattern.type is PatternType.PREFIXED:
            prefixes = (p for p in self._lists if p.type is PatternType.PREFIXED and p.kind is pattern.kind)
            self._prefix_sizes[pattern.kind] = tuple(sorted({len(prefix.name) for prefix in prefixes}))
        self._answers.clear()
        self.version += 1

    def matching(self, wanted: BindingFilter) -> list[Binding]:
        """The bindings that can be read and that the filter takes, in order."""
        return sorted(
            binding
            for pattern, entries in self._lists.items()
            if entries is not UNREADABLE and wanted.pattern.matches(pattern)
            for binding in (Binding(pattern, entry) for entry in entries)
            if wanted.entry.matches(binding.entry) and not binding.entry.has_unknown
        )

    def allows(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str, /
    ) -> bool:
        """Whether the principal, coming from that address, may do that to the resource of that name."""
        question = (principal, host, operation, kind, name)
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[question] = self._allows(str(principal), host, operation, kind, name)
        return answer

    def _allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        lists = list(self._lists_for(kind, name))
        if not lists:
            return self._allows_without_lists
        mine = [e for entries in lists for e in entries if _is_of(e, principal, host)]
        if any(e.permission is Permission.DENY and e.operation in (operation, Operation.ALL) for e in mine):
            return False
        allowing = (*ALLOWED_BY.get(operation, (operation,)), Operation.ALL)
        return any(e.permission is Permission.ALLOW and e.operation in allowing for e in mine)

    def _lists_for(self, kind: ResourceType, name: str) -> Iterator[Entries]:
        """The lists that there are for a resource."""
        patterns = [Pattern(kind, ANYTHING)]
        if name != ANYTHING:
            patterns.append(Pattern(kind, name))
        for size in self._prefix_sizes.get(kind, ()):
            if size > len(name):
                break
            patterns.append(Pattern(kind, name[:size], PatternType.PREFIXED))
        for pattern in patterns:
            entries = self._lists.get(pattern)
            if entries:
                yield entries

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, /
    ) -> bool:
        """Whether there is some resource of that kind, existing or not, to which it may do that.

        Nothing implies an operation here, as in Kafka's `authorizeByResourceType`.
        """
        who = str(principal)
        if who in self._super_users:
            return True
        allowed: list[Pattern] = []
        denied: set[Pattern] = set()
        for pattern, entries in self._lists.items():
            if pattern.kind is not kind:
                continue
            for entry in entries:
                if not _is_of(entry, who, host) or entry.operation not in (operation, Operation.ALL):
                    continue
                if entry.permission is Permission.DENY:
                    denied.add(pattern)
                elif entry.permission is Permission.ALLOW:
                    allowed.append(pattern)
        if Pattern(kind, ANYTHING) in denied:
            return False
        return self._allows_without_lists or any(_is_left(pattern, denied) for pattern in allowed)


def _is_of(entry: Entry, principal: str, host: str) -> bool:
    return entry.principal in (principal, EVERYBODY) and entry.host in (host, ANYTHING)


def _is_left(allowed: Pattern, denied: set[Pattern]) -> bool:
    """Whether something of what is allowed is not denied."""
    if allowed.type is PatternType.LITERAL and (allowed.name == ANYTHING or allowed in denied):
        return allowed.name == ANYTHING
    prefixes = (allowed.name[:size] for size in range(1, len(allowed.name) + 1))
    return not any(Pattern(allowed.kind, prefix, PatternType.PREFIXED) in denied for prefix in prefixes)
