"""Who may read a topic at its source may read its copy, and nobody else by the copy's own list."""

from __future__ import annotations

import json
from typing import Any

import pytest
from commands import headrace
from mirror_clusters import Cluster
from processes import eventually
from zookeeper_process import ZooKeeperProcess

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
COPY = "dc-east.orders"
Told = tuple[str, str, str, str]


def lists(cluster: Cluster, topic: str) -> set[Told]:
    """(pattern, principal, permission, operation) of what counts for a topic."""
    options = ("--topic", topic, "--resource-pattern-type", "match", "--json")
    done = headrace("acls", "list", *options, "--bootstrap", cluster.bootstrap)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    return {(row["pattern"], row["principal"], row["permission"], row["operation"]) for row in rows}


def changed(cluster: Cluster, *options: str) -> None:
    done = headrace("acls", *options, "--bootstrap", cluster.bootstrap)
    assert done.returncode == 0, done.stderr


def sync(offline: Cluster, *options: str) -> list[str]:
    done = headrace("mirror", "sync-acls", "dc-east", "--bootstrap", offline.bootstrap, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def told(offline: Cluster, what: str) -> list[dict[str, Any]]:
    done = headrace("mirror", "status", "--json", "--bootstrap", offline.bootstrap)
    rows: list[dict[str, Any]] = json.loads(done.stdout)[what] if done.stdout.startswith("{") else []
    return rows


def round_of(offline: Cluster) -> str:
    return next((row["state"] for row in told(offline, "syncs") if row["what"] == "acls"), "")


def test_readers_follow_their_topic(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> None:
    east = Cluster(tmp_path_factory.mktemp("east"), zookeeper, 1, dict(AUTHORIZER))
    offline = Cluster(tmp_path_factory.mktemp("offline"), zookeeper, 1, dict(AUTHORIZER))
    try:
        east.create("orders", 1)
        changed(
            east,
            "add",
            "--topic",
            "ord",
            "--resource-pattern-type",
            "prefixed",
            "--allow-principal",
            "User:a",
        )
        changed(east, "add", "--topic", "orders", "--deny-principal", "User:b", "--operation", "Read")
        offline.settings["mirror.dc-east.sync.acls"] = "true"
        offline.mirror({"dc-east": east})
        eventually(lambda: COPY in offline.topics, what="the copy")
        # Commands go by what the brokers tell of their sources.
        eventually(lambda: told(offline, "sources") != [], what="the source in what the mirror tells")
        allowed, denied = ("Literal", "User:a", "Allow", "Read"), ("Literal", "User:b", "Deny", "Read")
        if lists(offline, COPY) == set():
            said = sync(offline, "--dry-run")
            assert said[-1] == "the lists of 1 of 1 copies would be changed."
            assert said[0] == f"{COPY}: allow read to User:a is new, deny read to User:b is new"
            assert lists(offline, COPY) == set()
            assert sync(offline)[-1] == "the lists of 1 of 1 copies are changed."
        assert lists(offline, COPY) == {allowed, denied}
        changed(offline, "add", "--topic", COPY, "--allow-principal", "User:c", "--operation", "Read")
        own = ("--topic", "dc-east.", "--resource-pattern-type", "prefixed", "--allow-principal", "User:d")
        changed(offline, "add", *own)
        changed(east, "remove", "--topic", "ord", "--resource-pattern-type", "prefixed", "--force")
        changed(east, "remove", "--topic", "orders", "--force")
        sync(offline)
        assert lists(offline, COPY) == {denied, ("Prefixed", "User:d", "Allow", "All")}
        assert sync(offline) == ["the lists of 0 of 1 copies are changed."]
        eventually(lambda: round_of(offline) == "brought", what="the round of the brokers")
    finally:
        for cluster in (east, offline):
            for broker in cluster.brokers.values():
                broker.end()
