"""Access control lists as clients put them into requests and find them in answers (keys 29 to 31)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.broker.auth.acls import (
    Binding,
    BindingFilter,
    Entry,
    Pattern,
    PatternType,
    Permission,
    of_code,
)
from headrace.broker.auth.operations import Operation, ResourceType

VERSION = 1
"""Of all three keys the first with prefixed patterns."""


def creation(binding: Binding) -> dict[str, Any]:
    """An element of CreateAcls."""
    (kind, name, pattern_type), entry = binding
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern_type,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def filter_message(wanted: BindingFilter) -> dict[str, Any]:
    """DescribeAcls, or an element of DeleteAcls."""
    (kind, name, pattern_type), entry = wanted
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern_type,
        "principal_filter": entry.principal,
        "host_filter": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def described(answer: Mapping[str, Any]) -> Iterator[Binding]:
    """All that an answer of DescribeAcls names."""
    for resource in answer["resources"]:
        for acl in resource["acls"]:
            yield binding_in(resource, acl)


def binding_in(resource: Mapping[str, Any], acl: Mapping[str, Any]) -> Binding:
    return Binding(
        Pattern(
            of_code(ResourceType, resource["resource_type"]),
            resource["resource_name"],
            of_code(PatternType, resource["pattern_type"]),
        ),
        Entry(
            acl["principal"],
            acl["host"],
            of_code(Operation, acl["operation"]),
            of_code(Permission, acl["permission_type"]),
        ),
    )
