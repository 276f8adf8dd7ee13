"""What the command asks brokers, and what it makes of their refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import pytest
from scripted_broker import API_VERSIONS, scripted_broker

from headrace.broker.auth.acls import EVERY_BINDING, Binding, Entry, Pattern, Permission
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import ErrorCode
from headrace.cli.acl_admin import AclAdmin
from headrace.cli.cluster_admin import ClusterAdmin

DESCRIBE, CREATE, DELETE = 29, 30, 31
READ = Binding(
    Pattern(ResourceType.TOPIC, "events"), Entry("User:alice", "*", Operation.READ, Permission.ALLOW)
)
ACL = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
RESOURCE = {"resource_type": 2, "resource_name": "events", "pattern_type": 3}
DONE = {"error_code": 0, "error_message": None}


class Lists:
    """The only broker: it has one entry, and says `error` to whatever is asked."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.asked: list[tuple[int, dict[str, Any]]] = []

    def __call__(self, key: int, message: dict[str, Any]) -> dict[str, Any]:
        if key == API_VERSIONS:
            return {"api_keys": [{"api_key": k, "min_version": 0, "max_version": 3} for k in (29, 30, 31)]}
        self.asked.append((key, message))
        said = {"error_code": self.error, "error_message": "so it is" if self.error else None}
        if key == DESCRIBE:
            return {**said, "resources": [] if self.error else [{**RESOURCE, "acls": [ACL]}]}
        if key == CREATE:
            return {"results": [said]}
        return {"filter_results": [{**DONE, "matching_acls": [{**said, **RESOURCE, **ACL}]}]}


@contextmanager
def asking(lists: Lists) -> Iterator[AclAdmin]:
    with scripted_broker(lists) as broker:
        host, port = broker.address
        with ClusterAdmin(Bootstrap(f"{host}:{port}")) as cluster:
            yield AclAdmin(cluster)


def test_entries_are_listed_added_and_removed() -> None:
    lists = Lists()
    with asking(lists) as admin:
        assert admin.listed([EVERY_BINDING]) == [READ]
        admin.add([READ])
        assert admin.remove([READ]) == [READ]
    creation = {**RESOURCE, **ACL, "resource_pattern_type": 3}
    del creation["pattern_type"]
    assert lists.asked[1] == (CREATE, {"creations": [creation]})
    (wanted,) = lists.asked[2][1]["filters"]
    assert wanted["resource_name_filter"] == "events"
    assert wanted["principal_filter"] == "User:alice"


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.listed([EVERY_BINDING]),
        lambda admin: admin.add([READ]),
        lambda admin: admin.remove([READ]),
    ],
    ids=["list", "add", "remove"],
)
def test_a_refusal_is_one_sentence(ask: Callable[[AclAdmin], Any]) -> None:
    lists = Lists()
    lists.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with asking(lists) as admin, pytest.raises(click.ClickException, match="so it is"):
        ask(admin)
