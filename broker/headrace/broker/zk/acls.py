"""The znodes of access control lists as Apache Kafka 3.9 writes them (kafka.zk.ZkData, AclEntry): paths and content.

`/kafka-acl` holds the literal lists and `/kafka-acl-extended/prefixed` the prefixed ones, each by resource type and name; what is
said of a change lies beside them, in two forms. Decoders raise `MalformedZnodeError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from headrace.broker.auth.acls import Entry, Pattern, PatternType, Permission, of_title, title
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.auth.principal import Principal
from headrace.broker.zk.paths import MalformedZnodeError, fields_of

FOLDERS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
CHANGE_PREFIX = "acl_changes_"
KINDS = tuple(kind for kind in ResourceType if kind not in (ResourceType.UNKNOWN, ResourceType.ANY))
VERSION = 1
PERSISTENT_PATHS = (
    *(f"{folder}/{title(kind)}" for folder in FOLDERS.values() for kind in KINDS),
    *CHANGES.values(),
)
"""What a broker with an authorizer makes sure of when it starts."""


def folder(kind: ResourceType, pattern_type: PatternType) -> str:
    """The parent of the lists of one kind of resource."""
    return f"{FOLDERS[pattern_type]}/{title(kind)}"


def path_of(pattern: Pattern) -> str:
    """Where a list is kept."""
    return f"{folder(pattern.kind, pattern.type)}/{pattern.name}"


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """Version 1 of a list."""
    listed = [
        {
            "principal": entry.principal,
            "permissionType": title(entry.permission),
            "operation": title(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return json.dumps(
        {"version": VERSION, "acls": listed}, separators=(",", ":"), ensure_ascii=False
    ).encode()


def decode_entries(path: str, data: bytes) -> frozenset[Entry]:
    """The entries of a list; an empty znode has none."""
    if not data:
        return frozenset()
    with fields_of(path, data) as fields:
        if fields["version"] != VERSION:
            raise MalformedZnodeError(f"{path} has version {fields['version']}, not {VERSION}")
        return frozenset(
            Entry(
                str(Principal.parse(str(entry["principal"]))),
                str(entry["host"]),
                of_title(Operation, str(entry["operation"])),
                of_title(Permission, str(entry["permissionType"])),
            )
            for entry in fields["acls"]
        )


def encode_change(pattern: Pattern) -> bytes:
    """The word that a list was changed."""
    if pattern.type is PatternType.LITERAL:
        return f"{pattern.kind.name}:{pattern.name}".encode()
    fields = {
        "version": VERSION,
        "resourceType": pattern.kind.name,
        "name": pattern.name,
        "patternType": pattern.type.name,
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode_change(pattern_type: PatternType, data: bytes) -> Pattern:
    """The list that was changed, of those whose changes are told in this form."""
    path = CHANGES[pattern_type]
    if pattern_type is PatternType.LITERAL:
        kind, colon, name = data.decode("utf-8", "replace").partition(":")
        pattern = Pattern(of_title(ResourceType, kind), name)
        if not colon:
            raise MalformedZnodeError(f"{path} holds no RESOURCE:NAME: {data[:200]!r}")
    else:
        with fields_of(path, data) as fields:
            if fields["version"] > VERSION:
                raise MalformedZnodeError(f"{path} has version {fields['version']}, not {VERSION}")
            kind, name = str(fields["resourceType"]), str(fields["name"])
            changed = of_title(PatternType, str(fields["patternType"]))
            pattern = Pattern(of_title(ResourceType, kind), name, changed)
    if pattern.kind not in KINDS or pattern.type not in FOLDERS:
        raise MalformedZnodeError(f"{path} tells of what is no resource: {data[:200]!r}")
    return pattern
