"""What is asked of brokers about access control lists; any of them answers. Every failure is a ClickException."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

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
from headrace.broker.errors import error_of
from headrace.broker.wire.api import k29_describe_acls, k30_create_acls, k31_delete_acls
from headrace.broker.wire.schema import Api
from headrace.cli.acl_rules import exactly
from headrace.cli.cluster_admin import ClusterAdmin

# The first with prefixed patterns.
VERSION = 1


class AclAdmin:
    """Asks through `cluster`, which its owner closes."""

    def __init__(self, cluster: ClusterAdmin) -> None:
        self._cluster = cluster

    def listed(self, filters: Sequence[BindingFilter]) -> list[Binding]:
        """The bindings that one of the filters takes, in order."""
        found: set[Binding] = set()
        for each in filters:
            answer = self._ask("list access control lists", k29_describe_acls.API, _filter(each))
            found |= {_binding(r, acl) for r in answer["resources"] for acl in r["acls"]}
        return sorted(found)

    def add(self, bindings: Sequence[Binding]) -> None:
        message = {"creations": [_creation(binding) for binding in bindings]}
        answer = self._ask("add to access control lists", k30_create_acls.API, message)
        for binding, result in zip(bindings, answer["results"], strict=True):
            _check("add to access control lists", result, binding)

    def remove(self, bindings: Sequence[Binding]) -> list[Binding]:
        """Those of them that were there."""
        message = {"filters": [_filter(exactly(binding)) for binding in bindings]}
        answer = self._ask("remove from access control lists", k31_delete_acls.API, message)
        removed = []
        for result in answer["filter_results"]:
            _check("remove from access control lists", result)
            for acl in result["matching_acls"]:
                binding = _binding(acl, acl)
                _check("remove from access control lists", acl, binding)
                removed.append(binding)
        return sorted(removed)

    def _ask(self, what: str, api: Api, message: dict[str, Any]) -> dict[str, Any]:
        def attempt() -> dict[str, Any]:
            answer: dict[str, Any] = self._cluster.any().ask(api, VERSION, message)
            if answer.get("error_code"):
                raise error_of(answer["error_code"], answer["error_message"] or "")
            return answer

        return self._cluster.asked(what, attempt)


def _check(what: str, result: dict[str, Any], binding: Binding | None = None) -> None:
    if result["error_code"]:
        name = "" if binding is None else f" for {binding.pattern.name}"
        reason = error_of(result["error_code"], result["error_message"] or "")
        raise click.ClickException(f"{what}{name}: {reason}")


def _creation(binding: Binding) -> dict[str, Any]:
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


def _filter(wanted: BindingFilter) -> dict[str, Any]:
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


def _binding(resource: dict[str, Any], acl: dict[str, Any]) -> Binding:
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
