"""What is asked of brokers about access control lists; any of them answers. Every failure is a ClickException."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from headrace.broker.auth.acls import Binding, BindingFilter, exactly
from headrace.broker.auth.messages import VERSION, binding_in, creation, described, filter_message
from headrace.broker.errors import error_of
from headrace.broker.wire.api import k29_describe_acls, k30_create_acls, k31_delete_acls
from headrace.broker.wire.schema import Api
from headrace.cli.cluster_admin import ClusterAdmin


class AclAdmin:
    """Asks through `cluster`, which its owner closes."""

    def __init__(self, cluster: ClusterAdmin) -> None:
        self._cluster = cluster

    def listed(self, filters: Sequence[BindingFilter]) -> list[Binding]:
        """The bindings that one of the filters takes, in order."""
        found: set[Binding] = set()
        for each in filters:
            answer = self._ask("list access control lists", k29_describe_acls.API, filter_message(each))
            found |= set(described(answer))
        return sorted(found)

    def add(self, bindings: Sequence[Binding]) -> None:
        message = {"creations": [creation(binding) for binding in bindings]}
        answer = self._ask("add to access control lists", k30_create_acls.API, message)
        for binding, result in zip(bindings, answer["results"], strict=True):
            _check("add to access control lists", result, binding)

    def remove(self, bindings: Sequence[Binding]) -> list[Binding]:
        """Those of them that were there."""
        message = {"filters": [filter_message(exactly(binding)) for binding in bindings]}
        answer = self._ask("remove from access control lists", k31_delete_acls.API, message)
        removed = []
        for result in answer["filter_results"]:
            _check("remove from access control lists", result)
            for acl in result["matching_acls"]:
                binding = binding_in(acl, acl)
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
