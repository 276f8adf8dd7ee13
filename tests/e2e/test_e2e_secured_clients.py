"""Commands and brokers as clients of secured brokers: replication over TLS through a kill, and every kind of refusal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import eventually
from secured_cluster import CANARY, SecuredCluster, headrace
from tls_kit import authority, pem_of
from zookeeper_process import ZooKeeperProcess

PROTOCOLS = (pytest.param("SSL", marks=pytest.mark.long), "SASL_SSL")


@pytest.fixture(scope="module", params=PROTOCOLS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> Iterator[SecuredCluster]:
    home = tmp_path_factory.mktemp(request.param.lower())
    found = SecuredCluster(
        home, zookeeper.under_chroot(home), count=3, protocol=request.param, set={"min.insync.replicas": "2"}
    )
    yield found
    found.end()


def produced(cluster: SecuredCluster, topic: str, lines: list[str]) -> None:
    done = headrace("produce", topic, "--json", *cluster.options, text="".join(f"{x}\n" for x in lines))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["acknowledged"] == len(lines)


def is_well(cluster: SecuredCluster) -> bool:
    return headrace("cluster", "status", *cluster.options).returncode == 0


@pytest.mark.acceptance
def test_brokers_replicate_over_their_secured_listener_through_a_kill(cluster: SecuredCluster) -> None:
    made = headrace(
        "topics", "create", "events", "--partitions", "3", "--replication-factor", "3", *cluster.options
    )
    assert made.returncode == 0, made.stderr
    produced(cluster, "events", [f"before-{n}" for n in range(100)])
    cluster.kill(2)
    produced(cluster, "events", [f"while-{n}" for n in range(100)])
    cluster.start(2)
    eventually(lambda: is_well(cluster), timeout_s=60, what="all replicas in sync")
    read = headrace("consume", "events", "--max", "200", *cluster.options)
    assert read.returncode == 0, read.stderr
    assert len(set(read.stdout.split())) == 200
    described = headrace("topics", "describe", "events", "--json", *cluster.options)
    assert all(len(each["isrs"]) == 3 for each in json.loads(described.stdout)["partitions"])
    groups = headrace("groups", "list", "--json", *cluster.options)
    assert groups.returncode == 0, groups.stderr


def test_no_secret_shows_in_a_log(cluster: SecuredCluster) -> None:
    for broker in cluster.brokers.values():
        assert CANARY not in broker.log.read_text()


def refusal(cluster: SecuredCluster, file: Path, *command: str) -> str:
    done = headrace(*command, "--bootstrap", cluster.bootstrap, "--command-config", str(file), timeout_s=40)
    assert done.returncode in (1, 2)
    assert CANARY not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


COMMANDS = [
    ("topics", "list"),
    ("cluster", "status"),
    ("consume", "events", "--max", "1"),
    ("groups", "list"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(each[:2]) for each in COMMANDS])
def test_an_authority_that_is_not_trusted_is_one_sentence(
    cluster: SecuredCluster, tmp_path: Path, command: tuple[str, ...]
) -> None:
    other = tmp_path / "other.pem"
    other.write_text(pem_of(authority("another").certificate))
    file = cluster.write_client("untrusting", ssl__truststore__location=str(other))
    assert "is not accepted: " in refusal(cluster, file, *command)


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(each[:2]) for each in COMMANDS])
def test_a_wrong_password_is_one_sentence(cluster: SecuredCluster, command: tuple[str, ...]) -> None:
    if cluster.protocol == "SSL":
        pytest.skip("nobody has a password there")
    settings = cluster.client_settings(password=f"{CANARY}-wrong")
    file = cluster.write_client("wrong", sasl__jaas__config=settings["sasl.jaas.config"])
    assert "refused a log-in by PLAIN" in refusal(cluster, file, *command)


def test_a_certificate_of_another_host_is_one_sentence(tmp_path: Path, zookeeper: ZooKeeperProcess) -> None:
    broker = SecuredCluster(tmp_path, zookeeper.under_chroot(tmp_path), made={"hosts": ("elsewhere",)})
    try:
        assert "IP address mismatch" in refusal(broker, broker.client_file, "topics", "list")
    finally:
        broker.end()
