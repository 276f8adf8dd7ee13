"""Kafka's own Java clients where they may not, or not so fast: they name Kafka's errors, and wait as they are told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_oracle import run_tool
from sasl_broker import SaslBroker
from sessions import Pair
from test_conformance_clients import agree, make_topic
from test_conformance_java_clients import TOOLS
from zookeeper_process import ZooKeeperProcess

from headrace.broker.auth.jaas import PLAIN_MODULE

pytestmark = pytest.mark.long
LISTENER = "SASL_PLAINTEXT"
USER, PASSWORD = "stranger", "stranger-canary"
RATE, RECORD_SIZE, RECORD_COUNT = 100_000, 10_000, 150
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
}


class Stranger:
    """Runs Kafka's tools as a user who has no right at all."""

    def __init__(self, jars: Path, broker: SaslBroker, home: Path) -> None:
        self.jars, self.broker, self.config = jars, broker, home / "stranger.properties"
        module = f'{PLAIN_MODULE} required username="{USER}" password="{PASSWORD}";'
        said = {"security.protocol": LISTENER, "sasl.mechanism": "PLAIN", "sasl.jaas.config": module}
        self.config.write_text("".join(f"{key}={value}\n" for key, value in said.items()))

    def told(self, tool: str, *arguments: str) -> str:
        """All that it prints."""
        ended = run_tool(self.jars, tool, *arguments)
        return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def stranger(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stranger]:
    home = tmp_path_factory.mktemp("strangers")
    broker = SaslBroker(home, zookeeper.under_chroot(home), AUTHORIZER)
    make_topic(broker.bootstrap("PLAINTEXT"), "secret")
    yield Stranger(kafka_jars, broker, home)
    broker.process.end()


def test_java_clients_without_rights_name_kafkas_errors(stranger: Stranger) -> None:
    bootstrap, config = stranger.broker.bootstrap(LISTENER), str(stranger.config)
    where, topic = ("--bootstrap-server", bootstrap), ("--topic", "secret")
    told = stranger.told(
        *(TOOLS["verifiable-producer"], *where, *topic, "--max-messages", "1", "--producer.config", config)
    )
    assert "TopicAuthorizationException" in told
    assert "Not authorized to access topics: [secret]" in told
    described = ("--describe", "--group", "nobody", "--command-config", config)
    told = stranger.told(TOOLS["groups"], *where, *described)
    assert "GroupAuthorizationException" in told
    assert "nobody" in told
    told = stranger.told(TOOLS["topics"], *where, "--create", "--topic", "new", "--command-config", config)
    assert "Authorization failed." in told
    brokers = ("--entity-type", "brokers", "--entity-name", "1", "--describe", "--command-config", config)
    assert "ClusterAuthorizationException" in stranger.told(TOOLS["configs"], *where, *brokers)
    acls = ("kafka.admin.AclCommand", *where, "--list", "--command-config", config)
    assert "ClusterAuthorizationException" in stranger.told(*acls)


def test_a_java_producer_without_a_right_to_its_transactional_id(stranger: Stranger) -> None:
    sizes = (
        "--num-records",
        "1",
        "--record-size",
        "10",
        "--throughput",
        "-1",
        "--transaction-duration-ms",
        "100",
    )
    settings = ("--producer.config", str(stranger.config), "--producer-props")
    props = (f"bootstrap.servers={stranger.broker.bootstrap(LISTENER)}", "transactional.id=tx")
    told = stranger.told(TOOLS["producer-performance"], "--topic", "secret", *sizes, *settings, *props)
    assert "TransactionalIdAuthorizationException" in told


def test_a_java_producer_is_slowed_down_to_its_quota_and_knows(pair: Pair, kafka_jars: Path) -> None:
    name = ("--topic", "java-slow")

    def script(bootstrap: str) -> tuple[bool, bool]:
        make_topic(bootstrap, name[1])
        quota = ("--alter", "--add-config", f"producer_byte_rate={RATE}")
        entity = ("--entity-type", "clients", "--entity-name", "java-slow")
        run_tool(kafka_jars, TOOLS["configs"], "--bootstrap-server", bootstrap, *quota, *entity)
        sizes = ("--num-records", str(RECORD_COUNT), "--record-size", str(RECORD_SIZE), "--throughput", "-1")
        props = (f"bootstrap.servers={bootstrap}", "client.id=java-slow", "batch.size=0")
        ended = run_tool(
            kafka_jars,
            *(TOOLS["producer-performance"], *name, *sizes, "--print-metrics", "--producer-props", *props),
        )
        assert f"{RECORD_COUNT} records sent" in ended.stdout, ended.stdout + ended.stderr
        (longest_ms,) = re.findall(r"produce-throttle-time-max\S*\s*:\s*([\d.]+)", ended.stdout)
        rate = float(re.findall(r"records sent, ([\d.]+) records/sec", ended.stdout)[-1]) * RECORD_SIZE
        # A window of ten seconds takes as much at once as its rate makes of them.
        return float(longest_ms) > 100, rate < 5 * RATE

    assert agree(pair, script) == (True, True)
