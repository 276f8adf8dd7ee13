"""A pipeline that serves is secured in three roll-outs, and given other certificates and log-ins, and its producers go on."""

from __future__ import annotations

import itertools
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from commands import headrace
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from deployments import Deployment, copy_of_local
from kazoo.exceptions import KazooException

from headrace.broker.zk.access import ZooKeeperAccess
from headrace.broker.zk.client import kazoo_client

NETWORK = 75
EAST, OFFLINE = f"127.{NETWORK}.1", f"127.{NETWORK}.3"
PASSWORD, LATER_PASSWORD = "c4n4ry-of-the-kit", "c4n4ry-of-later"
PASSWORDS = {"kit-1": PASSWORD, "kit-2": LATER_PASSWORD}
TOPIC = "clicks"
PUBLISHED_A_SECOND = 100
# One live datacenter and the offline one, without loads and auditor: what they need of brokers, counters and registries need too.
HOSTS = ("--limit", "all:!dc_west:!offline-load-1:!offline-audit-1")
# Of ZooKeeper and registry; each has another port for TLS.
ZOOKEEPER, REGISTRY = f"{EAST}.11", f"{EAST}.12"
PLAIN_PLACES, TLS_PLACES = ((ZOOKEEPER, 2181), (REGISTRY, 8081)), ((ZOOKEEPER, 2182), (REGISTRY, 8082))
# Where the servers of dc-east's ensemble speak among each other.
PEER_PLACES = tuple((f"{EAST}.{n}", 3888) for n in (11, 14, 15))
# Of brokers, ZooKeepers and registries.
CERTIFICATES = 7 + 5 + 3


def secured_by(*usernames: str) -> str:
    """The variables of a pipeline whose services log in as the first of these."""
    log_ins = "".join(f"  - {{username: {each}, password: {PASSWORDS[each]}}}\n" for each in usernames)
    return f"headrace_security: tls_sasl\nheadrace_logins_secret:\n{log_ins}"


class Publisher:
    """Publishes numbers, each once, and keeps which were acknowledged and what failed."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                **settings,
            }
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _told(self, error: Any, message: Any) -> None:
        (self.failed if error else self.acknowledged).append(str(error or message.value().decode()))

    def _run(self) -> None:
        for number in itertools.count():
            if self._ended.wait(1 / PUBLISHED_A_SECOND):
                return
            self._producer.produce(TOPIC, f"{self.name}-{number}".encode(), on_delivery=self._told)
            self._producer.poll(0)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        assert self.failed == []
        assert self.acknowledged


def secured_client(inventory: Path, username: str = "kit-1") -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(inventory / "certificates" / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": username,
        "sasl.password": PASSWORDS[username],
    }


def messages(bootstrap: str, topic: str, settings: dict[str, Any]) -> list[str]:
    """All values of a topic, in offset order by partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False, **settings}
    )
    try:
        partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in partitions
        }
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found: list[str] = []
        places = [TopicPartition(topic, partition) for partition, end in ends.items() if end]
        while any(at.offset < ends[at.partition] for at in consumer.position(places)):
            for message in consumer.consume(1000, timeout=10):
                assert message.error() is None
                found.append((message.value() or b"").decode())
        return found
    finally:
        consumer.close()


def is_open(place: tuple[str, int]) -> bool:
    with suppress(OSError), socket.create_connection(place, 2):
        return True
    return False


def speaks_tls(place: tuple[str, int]) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError), socket.create_connection(place, 2) as plain, context.wrap_socket(plain):
        return True
    return False


def with_an_ensemble(deployment: Deployment) -> None:
    """Two more ZooKeepers in dc-east."""
    deployment.edit(
        f"        dc-east-broker-1: {{headrace_address: {EAST}.1,",
        f"        dc-east-zookeeper-2: {{headrace_address: {EAST}.14, zookeeper_id: 2}}\n"
        f"        dc-east-zookeeper-3: {{headrace_address: {EAST}.15, zookeeper_id: 3}}\n"
        f"        dc-east-broker-1: {{headrace_address: {EAST}.1,",
    )
    deployment.edit("        dc-east-zookeeper-1:\n", "        dc-east-zookeeper-[1:3]:\n")


def peers(deployment: Deployment) -> list[tuple[str, str]]:
    """Of each server of dc-east's ensemble: whether it goes to the others by TLS, and whether they may come in clear."""
    files = [path.read_text() for path in deployment.root.rglob("dc-east-zookeeper-*/zoo.cfg")]
    lines = [dict(line.split("=", 1) for line in file.splitlines() if "=" in line) for file in files]
    return [(each["sslQuorum"], each["portUnification"]) for each in lines]


def play(deployment: Deployment, playbook: str, *arguments: str) -> str:
    done = deployment.play(playbook, *arguments)
    assert done.returncode == 0, done.stdout[-8000:]
    assert not any(password in done.stdout + done.stderr for password in PASSWORDS.values())
    return done.stdout


@contextmanager
def rolled_out(tmp_path: Path, security: str = "") -> Iterator[Deployment]:
    """A pipeline with these variables and a mirrored topic to publish to."""
    deployment = copy_of_local(tmp_path, network=NETWORK)
    with_an_ensemble(deployment)
    variables = deployment.inventory / "group_vars" / "all.yml"
    text = variables.read_text(encoding="utf-8")
    topic = "  - {name: pageviews.rejected, partitions: 1}\n"
    assert topic in text
    variables.write_text(
        text.replace(topic, topic + f"  - {{name: {TOPIC}, partitions: 3}}\n") + security,
        encoding="utf-8",
    )
    try:
        if security:
            play(deployment, "certificates.yml")
        play(deployment, "site.yml", *HOSTS)
        yield deployment
    finally:
        if (deployment.root / "supervisor.sock").exists():
            assert deployment.play("down.yml").returncode == 0


@pytest.fixture
def plaintext(alone: None, tmp_path: Path) -> Iterator[Deployment]:
    with rolled_out(tmp_path) as deployment:
        yield deployment


@pytest.fixture
def secured(alone: None, tmp_path: Path) -> Iterator[Deployment]:
    with rolled_out(tmp_path, secured_by("kit-1")) as deployment:
        yield deployment


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_pipeline_is_secured_while_it_serves(plaintext: Deployment) -> None:
    variables = plaintext.inventory / "group_vars" / "all.yml"
    with variables.open("a", encoding="utf-8") as file:
        file.write(secured_by("kit-1"))
    refused = plaintext.play("preflight.yml", "--tags", "inventory")
    assert refused.returncode != 0
    assert "ca.pem holds no certificates to trust (No such file or directory)" in refused.stdout
    assert "dc-east-broker-2.pem and dc-east-broker-2.key: missing" in play(plaintext, "certificates.yml")

    before = Publisher("before", {"bootstrap.servers": f"{EAST}.100:9092"})
    play(plaintext, "site.yml", *HOSTS, "-e", "headrace_security_stage=beside")
    assert is_open((f"{EAST}.100", 9092))
    assert is_open((f"{EAST}.100", 9094))
    assert all(map(is_open, (*PLAIN_PLACES, *TLS_PLACES)))
    assert peers(plaintext) == 3 * [("false", "true")]
    secured = {"bootstrap.servers": f"{EAST}.100:9094", **secured_client(plaintext.inventory)}
    after = Publisher("after", secured)
    play(plaintext, "site.yml", *HOSTS, "-e", "headrace_security_stage=moved")
    before.end()
    assert peers(plaintext) == 3 * [("true", "true")]
    play(plaintext, "site.yml", *HOSTS)
    assert peers(plaintext) == 3 * [("true", "false")]
    assert all(map(speaks_tls, PEER_PLACES))
    assert not is_open((f"{EAST}.1", 9092))
    assert not is_open((f"{EAST}.100", 9092))
    assert not any(map(is_open, PLAIN_PLACES))
    again = play(plaintext, "site.yml", *HOSTS)
    assert re.findall(r"changed=([1-9]\d*)", again) == []

    keys = {path: path.read_bytes() for path in plaintext.inventory.glob("certificates/*.key")}
    play(plaintext, "rotate_certificates.yml", *HOSTS)
    assert sum(path.read_bytes() != key for path, key in keys.items()) == CERTIFICATES
    after.end()

    everything_is_there_once(
        sorted(before.acknowledged + after.acknowledged), secured_client(plaintext.inventory)
    )
    who_may_what(plaintext)
    no_secret_is_in_sight(plaintext)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_the_kits_log_in_is_changed_in_three_roll_outs(secured: Deployment) -> None:
    """Added as the second one, put first, the old one taken out: all along, whoever has a log-in that holds publishes."""
    variables = secured.inventory / "group_vars" / "all.yml"
    text = variables.read_text(encoding="utf-8")

    def roll_out(*usernames: str) -> None:
        variables.write_text(text.replace(secured_by("kit-1"), secured_by(*usernames)), encoding="utf-8")
        play(secured, "site.yml", *HOSTS)

    place = {"bootstrap.servers": f"{EAST}.100:9094"}
    old, new = (secured_client(secured.inventory, username) for username in PASSWORDS)
    before = Publisher("before", place | old)
    roll_out("kit-1", "kit-2")
    after = Publisher("after", place | new)
    roll_out("kit-2", "kit-1")
    before.end()
    roll_out("kit-2")
    assert re.findall(r"changed=([1-9]\d*)", play(secured, "site.yml", *HOSTS)) == []
    after.end()

    everything_is_there_once(sorted(before.acknowledged + after.acknowledged), new)
    nobody_logs_in_to_brokers(old)
    assert registry_answers(secured, "/subjects", PASSWORD) == 401
    assert registry_answers(secured, "/subjects", LATER_PASSWORD, "kit-2") == 200
    no_secret_is_in_sight(secured)


def everything_is_there_once(acknowledged: list[str], client: dict[str, Any]) -> None:
    """In the live cluster, and soon in its copy."""
    assert sorted(messages(f"{EAST}.100:9094", TOPIC, client)) == acknowledged
    deadline = time.monotonic() + 60
    while len(copied := messages(f"{OFFLINE}.1:9094", f"dc-east.{TOPIC}", client)) < len(acknowledged):
        assert time.monotonic() < deadline, f"{len(copied)} of {len(acknowledged)} are copied"
    assert sorted(copied) == acknowledged


def nobody_logs_in_to_brokers(client: dict[str, Any]) -> None:
    with pytest.raises(KafkaException):
        Consumer({"bootstrap.servers": f"{EAST}.100:9094", "group.id": "x", **client}).list_topics(timeout=5)


def who_may_what(deployment: Deployment) -> None:
    """Nobody comes in without a password, and an account may do what it was given."""
    kit = deployment.root / "config" / "dc-east-broker-1" / "client.secret"
    east = ("--bootstrap", f"{EAST}.1:9094", "--command-config", str(kit))
    nobody_logs_in_to_brokers({**secured_client(deployment.inventory), "sasl.password": "another password"})
    assert headrace("topics", "list", *east).returncode == 0
    created = headrace("topics", "create", "made-later", *east)
    assert created.returncode == 0, created.stderr
    of_znodes(deployment, kit)
    of_registry(deployment)


def of_znodes(deployment: Deployment, kit: Path) -> None:
    """Only who has logged in is let in, and owns what it makes."""
    settings = {"zookeeper.ssl.client.enable": "true"} | {
        f"zookeeper.ssl.truststore.{key}": value
        for key, value in (
            ("type", "PEM"),
            ("location", str(deployment.inventory / "certificates" / "ca.pem")),
        )
    }
    place = f"{ZOOKEEPER}:{TLS_PLACES[0][1]}"
    stranger = kazoo_client(place, 6000, ZooKeeperAccess.of(settings, {}))
    stranger.start(10)
    with pytest.raises(KazooException):
        stranger.get_children("/")
    stranger.stop()
    settings["headrace.zookeeper.jaas.file"] = str(kit.with_name("zookeeper.secret"))
    broker = kazoo_client(place, 6000, ZooKeeperAccess.of(settings, {}))
    broker.start(10)
    acls, _ = broker.get_acls("/brokers/topics/made-later")
    broker.stop()
    assert {(each.id.scheme, each.id.id, each.perms) for each in acls} == {
        ("sasl", "kit-1", 31),
        ("world", "anyone", 1),
    }


def of_registry(deployment: Deployment) -> None:
    answers = [registry_answers(deployment, "/subjects", password) for password in ("", "another", PASSWORD)]
    assert answers == [401, 401, 200]
    assert registry_answers(deployment, "/ready", "") == 200


def registry_answers(deployment: Deployment, path: str, password: str, username: str = "kit-1") -> int:
    """The status of its answer to who has that password, or to nobody in particular."""
    answer = requests.get(
        f"https://{REGISTRY}:{TLS_PLACES[1][1]}{path}",
        auth=(username, password) if password else None,
        verify=str(deployment.inventory / "certificates" / "ca.pem"),
        timeout=10,
    )
    return answer.status_code


def no_secret_is_in_sight(deployment: Deployment) -> None:
    processes = subprocess.run(
        ["ps", "axwwe", "-o", "args="], capture_output=True, text=True, check=True
    ).stdout
    assert not any(password in processes for password in PASSWORDS.values())
    for path in deployment.root.rglob("*"):
        if path.is_file() and path.suffix != ".secret" and path.stat().st_size < 50_000_000:
            content = path.read_bytes()
            assert not any(password.encode() in content for password in PASSWORDS.values()), path
    assert {path.stat().st_mode & 0o777 for path in deployment.root.rglob("*.secret")} == {0o640}
