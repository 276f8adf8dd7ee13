"""One cluster of both kinds of broker with authorizers, and Kafka's own tool: a list made in any way holds everywhere at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from access_rules import (
    AUTHORIZER,
    CLIENT,
    allow,
    filter_of,
    forget_rules_of_clients,
    guard,
    rule,
    topic_is_there,
)
from commands import headrace
from kafka_oracle import KafkaBroker, run_tool
from processes import BrokerProcess, eventually
from sessions import CREATE_TOPICS, DESCRIBE_ACLS, METADATA, Message, Session
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.acls import PatternType
from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode

pytestmark = pytest.mark.acceptance

TOOL = "kafka.admin.AclCommand"
SEEN_SECONDS_MAX = 1.0
TOPIC = "shared"


class Mixed:
    """A broker of each kind, guarded."""

    def __init__(self, home: Path, jars: Path, zookeeper: str) -> None:
        self.jars, self.zookeeper = jars, zookeeper
        self.headrace = BrokerProcess(home / "headrace", broker_id=1, zookeeper=zookeeper, set=AUTHORIZER)
        self.kafka = KafkaBroker(jars, home / "kafka", broker_id=2, zookeeper=zookeeper, set=AUTHORIZER)
        self.kafka.wait_until_serving()
        self.addresses = {"headrace": self.headrace.addresses[0], "kafka": self.kafka.address}
        admin = Session(self.addresses["headrace"])
        guard(admin)
        topic = {"name": TOPIC, "num_partitions": 2, "replication_factor": 2}
        eventually(lambda: len(admin.look(METADATA, 4, {"topics": []})["brokers"]) == 2, what="both brokers")
        admin.look(CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 20_000})
        for address in self.addresses.values():
            topic_is_there(Session(address), TOPIC)

    def end(self) -> None:
        self.headrace.end()
        self.kafka.end()

    def admin(self, kind: str) -> Session:
        return Session(self.addresses[kind])

    def lets_in(self, kind: str) -> bool:
        """Whether the client may describe the topic, as that broker says."""
        client = Session(self.addresses[kind], CLIENT)
        message = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
        code = client.look(METADATA, 4, message)["topics"][0]["error_code"]
        client.close()
        assert code in (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return bool(code == 0)

    def shuts_out(self, kind: str) -> bool:
        return not self.lets_in(kind)

    def tool(self, *arguments: str) -> str:
        ended = run_tool(self.jars, TOOL, *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def lists(self, kind: str) -> list[Message]:
        found = self.admin(kind).look(DESCRIBE_ACLS, 3, filter_of(host_filter=CLIENT))["resources"]
        return sorted(found, key=str)


@pytest.fixture(scope="module")
def mixed(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    home = tmp_path_factory.mktemp("acls")
    cluster = Mixed(home, kafka_jars, zookeeper.under_chroot(home))
    yield cluster
    cluster.end()


def is_seen(holds: Callable[[], bool]) -> float:
    """Seconds until a change holds, of which a busy machine may take ten."""
    began_s = time.monotonic()
    eventually(holds, timeout_s=10, what="the change")
    return time.monotonic() - began_s


KINDS = ("headrace", "kafka")


@pytest.mark.parametrize("pattern", [PatternType.LITERAL, PatternType.PREFIXED])
@pytest.mark.parametrize("maker", KINDS)
def test_what_one_kind_is_told_holds_on_both(mixed: Mixed, maker: str, pattern: PatternType) -> None:
    other = next(kind for kind in KINDS if kind != maker)
    assert not any(mixed.lets_in(kind) for kind in KINDS)
    name = TOPIC if pattern is PatternType.LITERAL else TOPIC[:3]
    allow(mixed.admin(maker), [rule(ResourceType.TOPIC, name, Operation.READ, pattern=pattern)])
    assert mixed.lets_in(maker)
    is_seen(lambda: mixed.lets_in(other))
    assert mixed.lists(maker) == mixed.lists(other)
    forget_rules_of_clients(mixed.admin(other))
    assert not mixed.lets_in(other)
    is_seen(lambda: not mixed.lets_in(maker))


def test_changes_are_seen_on_the_other_broker_within_a_second(mixed: Mixed) -> None:
    seen_seconds = []
    for maker, other in (KINDS, KINDS[::-1]) * 3:
        allow(mixed.admin(maker), [rule(ResourceType.TOPIC, TOPIC, Operation.READ)])
        seen_seconds.append(is_seen(partial(mixed.lets_in, other)))
        forget_rules_of_clients(mixed.admin(maker))
        seen_seconds.append(is_seen(partial(mixed.shuts_out, other)))
    assert median(seen_seconds) < SEEN_SECONDS_MAX


def test_kafkas_tool_asks_a_broker_and_headraces_command_says_the_same(mixed: Mixed) -> None:
    bootstrap = mixed.headrace.bootstrap
    producer = ("--producer", "--topic", TOPIC, "--transactional-id", "ids", "--allow-host", CLIENT)
    consumer = ("--consumer", "--topic", TOPIC, "--group", "loads", "--allow-host", CLIENT)
    who = ("--allow-principal", "User:ANONYMOUS")
    for options in (producer, consumer):
        mixed.tool("--bootstrap-server", bootstrap, "--add", *who, *options)
        theirs = mixed.lists("headrace")
        assert mixed.lets_in("headrace")
        shown = mixed.tool("--bootstrap-server", bootstrap, "--list", "--topic", TOPIC)
        assert f"(principal=User:ANONYMOUS, host={CLIENT}, operation=DESCRIBE, permissionType=ALLOW)" in shown
        mixed.tool("--bootstrap-server", bootstrap, "--remove", "--force", *who, *options)
        assert mixed.lists("headrace") == []
        done = headrace("acls", "add", "--bootstrap", bootstrap, *who, *options)
        assert done.returncode == 0, done.stderr
        assert mixed.lists("headrace") == theirs
        assert headrace("acls", "remove", "--bootstrap", bootstrap, *who, *options).returncode == 0
        assert mixed.lists("headrace") == []


def test_kafkas_tool_writes_to_zookeeper_itself(mixed: Mixed) -> None:
    """As before there is a broker that asks, or past all of them."""
    where = ("--authorizer-properties", f"zookeeper.connect={mixed.zookeeper}")
    options = (
        "--allow-principal",
        "User:*",
        "--allow-host",
        CLIENT,
        "--operation",
        "Describe",
        "--topic",
        TOPIC,
    )
    mixed.tool(*where, "--add", *options)
    for kind in KINDS:
        is_seen(partial(mixed.lets_in, kind))
    mixed.tool(*where, "--remove", "--force", *options)
    for kind in KINDS:
        is_seen(partial(mixed.shuts_out, kind))
