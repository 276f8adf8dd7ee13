"""What the options of `headrace acls` stand for: bindings to add, filters to list or remove by. The rules of Kafka's kafka-acls.

Every refusal is a click.UsageError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import click

from headrace.broker.auth.acls import (
    ANYTHING,
    Binding,
    BindingFilter,
    Entry,
    EntryFilter,
    Pattern,
    PatternFilter,
    PatternType,
    Permission,
    of_title,
    title,
)
from headrace.broker.auth.hosts import host_text
from headrace.broker.auth.operations import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from headrace.broker.auth.principal import Principal

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
IDS = ResourceType.TRANSACTIONAL_ID
PRODUCER = {
    TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    IDS: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER = {TOPIC: (Operation.READ, Operation.DESCRIBE), GROUP: (Operation.READ,)}
Resource = tuple[ResourceType, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a call of the command names."""

    resources: tuple[Resource, ...]
    pattern_type: PatternType
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    denied_hosts: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    is_producer: bool = False
    is_consumer: bool = False
    is_idempotent: bool = False


def bindings(wish: Wish) -> list[Binding]:
    """Each operation on each resource for each principal from each address."""
    _check_role(wish)
    pairs = list(_pairs(wish))
    if not pairs:
        raise click.UsageError(
            "Name a resource: --topic, --group, --cluster, --transactional-id or another one."
        )
    people = [
        *_people(wish.allowed, wish.allowed_hosts, Permission.ALLOW),
        *_people(wish.denied, wish.denied_hosts, Permission.DENY),
    ]
    found = [
        Binding(pattern, Entry(principal, host, operation, permission))
        for pattern, operation in pairs
        for principal, host, permission in people
    ]
    return list(dict.fromkeys(found))


def addable(wish: Wish) -> Wish:
    """The same with its hosts as brokers write those of clients; what no client would ever match is wrong use."""
    for principal in (*wish.allowed, *wish.denied):
        kind, _, name = principal.partition(":")
        if not kind or not name:
            raise click.UsageError(
                f"{principal!r} is nobody: give TYPE:NAME, as in User:alice, or User:* for all."
            )
    for host in (*wish.allowed_hosts, *wish.denied_hosts):
        if host != ANYTHING and _written(host) is None:
            raise click.UsageError(
                f"{host!r} is no address, and no client would match it: "
                "name each address, such as 10.0.0.7, or give * for all."
            )
    return _with_hosts(wish, lambda host: (_written(host) or host,))


def removable(wish: Wish) -> Wish:
    """The same with its hosts as they are given and as brokers write them: other tools add what no client matches."""
    return _with_hosts(wish, lambda host: (host, _written(host) or host))


def _with_hosts(wish: Wish, spellings: Callable[[str], tuple[str, ...]]) -> Wish:
    def spelled(hosts: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(text for host in hosts for text in spellings(host)))

    return replace(wish, allowed_hosts=spelled(wish.allowed_hosts), denied_hosts=spelled(wish.denied_hosts))


def _written(host: str) -> str | None:
    """An address as brokers write those of clients; None for all else."""
    try:
        return host_text(host)
    except ValueError:
        return None


def filters(wish: Wish, principals: Sequence[str] = ()) -> list[BindingFilter]:
    """All entries for the resources, or for all where none is named; of these principals, or of all."""
    patterns = [PatternFilter(kind, name, wish.pattern_type) for kind, name in wish.resources] or [
        PatternFilter(ResourceType.ANY, None, wish.pattern_type)
    ]
    who: list[str | None] = [_principal(each) for each in principals] or [None]
    return [
        BindingFilter(pattern, EntryFilter(principal, None, Operation.ANY, Permission.ANY))
        for pattern in patterns
        for principal in who
    ]


def row(binding: Binding) -> dict[str, str]:
    """As it is shown."""
    pattern, entry = binding
    return {
        "resource": title(pattern.kind),
        "name": pattern.name,
        "pattern": title(pattern.type),
        "principal": entry.principal,
        "permission": title(entry.permission),
        "operation": title(entry.operation),
        "host": entry.host,
    }


def _check_role(wish: Wish) -> None:
    kinds = {kind for kind, _ in wish.resources}
    has_role = wish.is_producer or wish.is_consumer
    if has_role and wish.operations:
        raise click.UsageError("--operation and --producer or --consumer: give one of them.")
    if wish.is_idempotent and not wish.is_producer:
        raise click.UsageError("--idempotent: give --producer, too.")
    if has_role and wish.denied:
        raise click.UsageError("--producer and --consumer allow: give --allow-principal.")
    if wish.is_producer and TOPIC not in kinds:
        raise click.UsageError("--producer: name its --topic.")
    if wish.is_consumer and not {TOPIC, GROUP} <= kinds:
        raise click.UsageError("--consumer: name its --topic and its --group.")
    known = {*(PRODUCER if wish.is_producer else ()), *(CONSUMER if wish.is_consumer else ())}
    odd = sorted(kinds - known) if has_role else []
    if odd:
        raise click.UsageError(
            f"--producer and --consumer have no use for a {title(odd[0])}: give it in another call."
        )


def _pairs(wish: Wish) -> Iterator[tuple[Pattern, Operation]]:
    roles = [*([PRODUCER] if wish.is_producer else []), *([CONSUMER] if wish.is_consumer else [])]
    for kind, name in wish.resources:
        pattern = Pattern(kind, name, PatternType.LITERAL if kind is CLUSTER else wish.pattern_type)
        if roles:
            yield from ((pattern, operation) for role in roles for operation in role.get(kind, ()))
        else:
            yield from ((pattern, operation) for operation in _operations(kind, wish.operations))
    if wish.is_idempotent:
        yield Pattern(CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE


def _operations(kind: ResourceType, names: Iterable[str]) -> list[Operation]:
    allowed = (*OPERATIONS[kind], Operation.ALL)
    found = [of_title(Operation, name) for name in names] or [Operation.ALL]
    for operation, name in zip(found, names, strict=False):
        if operation not in allowed:
            known = ", ".join(sorted(map(title, allowed)))
            raise click.UsageError(f"--operation {name}: of a {title(kind)} there are {known}.")
    return found


def _people(
    principals: Iterable[str], hosts: Iterable[str], permission: Permission
) -> Iterator[tuple[str, str, Permission]]:
    where = list(hosts) or [ANYTHING]
    for principal in principals:
        yield from ((_principal(principal), host, permission) for host in where)


def _principal(text: str) -> str:
    try:
        return str(Principal.parse(text))
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
