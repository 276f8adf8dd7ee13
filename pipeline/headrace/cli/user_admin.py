"""What is asked of brokers about users' passwords for SCRAM (KIP-554). Every failure is a ClickException.

A password goes no further than this: brokers are sent what SCRAM makes of it and of a random salt.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import click

from headrace.broker.auth.sasl.credentials import MECHANISM_CODES, salted_password
from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.wire.api import k50_describe_user_scram_credentials, k51_alter_user_scram_credentials
from headrace.cli.cluster_admin import ClusterAdmin

VERSION = 0
SALT_SIZE = 24
CODES = {name: code for code, name in MECHANISM_CODES.items()}


class UserAdmin:
    """Asks through `cluster`, which its owner closes."""

    def __init__(self, cluster: ClusterAdmin) -> None:
        self._cluster = cluster

    def mechanisms(self, user: str | None = None) -> dict[str, dict[str, int]]:
        """Iterations by mechanism by user: of one, if there is one of that name, or of all that have a password."""

        def attempt() -> dict[str, dict[str, int]]:
            message = {"users": None if user is None else [{"name": user}]}
            answer = self._cluster.any().ask(k50_describe_user_scram_credentials.API, VERSION, message)
            _raise_for(answer)
            return dict(_described(answer["results"]))

        return self._cluster.asked("describe users", attempt)

    def set_password(self, user: str, password: str, mechanisms: Iterable[str], iterations: int) -> None:
        self._alter(user, [_upsertion(user, password, each, iterations) for each in mechanisms], [])

    def remove(self, user: str, mechanisms: Iterable[str]) -> None:
        self._alter(user, [], [{"name": user, "mechanism": CODES[each]} for each in mechanisms])

    def _alter(self, user: str, upsertions: list[dict[str, Any]], deletions: list[dict[str, Any]]) -> None:
        def attempt() -> None:
            link = self._cluster.broker(self._cluster.cluster([]).controller)
            message = {"deletions": deletions, "upsertions": upsertions}
            answer = link.ask(k51_alter_user_scram_credentials.API, VERSION, message)
            for result in answer["results"]:
                _raise_for(result)

        self._cluster.asked(f"change user {user}", attempt)


def _described(results: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, dict[str, int]]]:
    for result in results:
        if result["error_code"] == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        _raise_for(result)
        infos = result["credential_infos"]
        yield result["user"], {MECHANISM_CODES.get(i["mechanism"], "?"): i["iterations"] for i in infos}


def _upsertion(user: str, password: str, mechanism: str, iterations: int) -> dict[str, Any]:
    if not password:
        raise click.UsageError("An empty password lets nobody in: give another.")
    salt = secrets.token_bytes(SALT_SIZE)
    return {
        "name": user,
        "mechanism": CODES[mechanism],
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted_password(mechanism, password, salt, iterations),
    }


def _raise_for(answer: Mapping[str, Any]) -> None:
    if answer["error_code"]:
        raise error_of(answer["error_code"], answer["error_message"] or "")
