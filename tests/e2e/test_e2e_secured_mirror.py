"""A mirror from a live cluster behind passwords over TLS to an offline one behind certificates, and what it says when refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import ForegroundProcess, eventually
from psutil import Process
from secured_cluster import CANARY, SecuredCluster, headrace, properties_text
from zookeeper_process import ZooKeeperProcess

EVENTS, PARTITIONS = 300, 2
SOURCE = "dc-east"


class Mirrored:
    """`live` has topics that `offline` copies; `file` is of a command that asks both."""

    def __init__(self, home: Path, zookeeper: ZooKeeperProcess) -> None:
        self.live = SecuredCluster(home / "live", zookeeper.under_chroot(home / "live"), protocol="SASL_SSL")
        self.source = {f"mirror.{SOURCE}.{key}": value for key, value in self.live.client_settings().items()}
        try:
            self.offline = SecuredCluster(
                home / "offline",
                zookeeper.under_chroot(home / "offline"),
                count=2,
                protocol="SSL",
                set={
                    "mirror.sources": SOURCE,
                    f"mirror.{SOURCE}.bootstrap.servers": self.live.bootstrap,
                    f"mirror.{SOURCE}.sync.groups": ".*",
                    "mirror.metadata.max.age.ms": "500",
                    **self.source,
                },
            )
        except BaseException:
            self.live.end()
            raise
        self.file = home / "both.properties"
        self.file.write_text(properties_text({**self.offline.client_settings(), **self.source}))

    @property
    def options(self) -> list[str]:
        return ["--bootstrap", self.offline.bootstrap, "--command-config", str(self.file)]

    def end(self) -> None:
        self.offline.end()
        self.live.end()


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[Mirrored]:
    found = Mirrored(tmp_path_factory.mktemp("mirrored"), zookeeper)
    yield found
    found.end()


def copied(mirrored: Mirrored) -> bool:
    done = headrace("mirror", "status", "--json", *mirrored.options)
    found = json.loads(done.stdout)["partitions"] if done.returncode == 0 else []
    return len(found) == PARTITIONS and all(each["lag"] == 0 for each in found)


def test_a_secured_cluster_is_copied_into_another_secured_one(mirrored: Mirrored) -> None:
    live = mirrored.live
    assert (
        headrace("topics", "create", "events", "--partitions", str(PARTITIONS), *live.options).returncode == 0
    )
    lines = "".join(f"event-{n}\n" for n in range(EVENTS))
    assert headrace("produce", "events", *live.options, text=lines).returncode == 0
    eventually(lambda: copied(mirrored), timeout_s=60, every_s=1, what="the copies")
    read = headrace("consume", f"{SOURCE}.events", "--max", str(EVENTS), *mirrored.offline.options)
    assert len(set(read.stdout.split())) == EVENTS, read.stderr


def test_copies_are_verified_and_promoted_by_a_command_that_both_let_in(mirrored: Mirrored) -> None:
    verified = headrace("mirror", "verify", *mirrored.options)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    rows = headrace("mirror", "promote", f"{SOURCE}.events", "--dry-run", *mirrored.options)
    assert rows.returncode == 0, rows.stderr


def test_a_command_that_the_source_does_not_let_in_says_so(mirrored: Mirrored) -> None:
    done = headrace("mirror", "verify", *mirrored.offline.options)
    assert done.returncode == 1
    assert f"{SOURCE} at {mirrored.live.bootstrap} does not answer" in done.stdout
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.long
def test_a_member_beside_a_secured_cluster_brings_a_secured_one_into_it(
    mirrored: Mirrored, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    """`headrace mirror run`, whose file says how both let in."""
    live, chroot = mirrored.live, zookeeper.under_chroot(tmp_path)
    assert headrace("topics", "create", "merged", *live.options).returncode == 0
    target = SecuredCluster(tmp_path, chroot, protocol="SASL_SSL")
    settings = {
        "bootstrap.servers": target.bootstrap,
        "zookeeper.connect": chroot,
        "mirror.member.id": "101",
        "mirror.metadata.max.age.ms": "1000",
        "mirror.sources": SOURCE,
        f"mirror.{SOURCE}.bootstrap.servers": live.bootstrap,
        f"mirror.{SOURCE}.topics": "merged",
        f"mirror.{SOURCE}.mode": "aggregate",
        **target.client_settings(),
        **mirrored.source,
    }
    file, log = tmp_path / "member.properties", tmp_path / "member.log"
    file.write_text(properties_text(settings))
    try:
        member = ForegroundProcess(["headrace.cli", "mirror", "run", "--config", str(file)], log)
        try:
            lines = "".join(f"event-{n}\n" for n in range(EVENTS))
            assert headrace("produce", "merged", *live.options, text=lines).returncode == 0
            read = headrace("consume", "merged", "--max", str(EVENTS), "--timeout", "60", *target.options)
            assert sorted(read.stdout.split()) == sorted(lines.split()), read.stderr
            status = headrace("mirror", "status", "--json", *target.options)
            assert {row["owner"] for row in json.loads(status.stdout)["aggregates"]} == {101}
            assert CANARY not in log.read_text() + status.stdout + status.stderr
            assert CANARY not in " ".join(Process(member.process.pid).cmdline())
        finally:
            member.end()
    finally:
        target.end()


def test_no_secret_shows_in_logs_and_reports(mirrored: Mirrored) -> None:
    for broker in (*mirrored.live.brokers.values(), *mirrored.offline.brokers.values()):
        assert CANARY not in broker.log.read_text()
    status = headrace("mirror", "status", "--json", *mirrored.options)
    assert CANARY not in status.stdout + status.stderr


def test_a_mirror_with_a_wrong_password_says_so_and_goes_on_trying(
    mirrored: Mirrored, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    wrong = mirrored.live.client_settings(password=f"{CANARY}-wrong")
    refused = SecuredCluster(
        tmp_path,
        zookeeper.under_chroot(tmp_path),
        protocol="SSL",
        set={
            "mirror.sources": SOURCE,
            f"mirror.{SOURCE}.bootstrap.servers": mirrored.live.bootstrap,
            **{f"mirror.{SOURCE}.{key}": value for key, value in wrong.items()},
        },
    )
    try:
        log = refused.brokers[1].log
        eventually(lambda: "refused a log-in by PLAIN" in log.read_text(), timeout_s=30, what="the reason")
        assert CANARY not in log.read_text()
    finally:
        refused.end()
