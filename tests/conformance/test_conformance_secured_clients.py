"""Headrace's clients at Apache Kafka that wants passwords over TLS, with sessions of a few seconds: a mirror, and a command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_oracle import KafkaBroker, run_tool
from processes import eventually, free_port
from secured_cluster import CANARY, SecuredCluster, headrace, properties_text, stores
from tls_kit import PASSWORD as STORE_PASSWORD
from tls_kit import authority, pkcs12_store, signed
from zookeeper_process import ZooKeeperProcess

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.client.blocking import BlockingLink
from headrace.broker.client.security import ClientSecurity
from headrace.broker.wire.api import k03_metadata
from headrace.broker.wire.client.login import LoginError

pytestmark = pytest.mark.long
SESSION_SECONDS = 2.0
SOURCE, EVENTS = "dc-east", 200
SCRAM, PLAIN = "SCRAM-SHA-512", "PLAIN"
PASSWORD = f"{CANARY}-of-kafka"
SECURITY = "org.apache.kafka.common.security"
MODULES = {SCRAM: f"{SECURITY}.scram.ScramLoginModule", PLAIN: f"{SECURITY}.plain.PlainLoginModule"}


class SecuredKafka:
    """One broker of Apache Kafka; brokers and tools of its own use a listener in plaintext."""

    def __init__(self, jars: Path, home: Path, zookeeper: str) -> None:
        self.home = home
        self.authority = authority()
        self.port = free_port()
        plain = free_port()
        # Not of PEM: Java before 19 reads no PEM key that has a password.
        keys = home / "kafka.p12"
        keys.write_bytes(pkcs12_store(signed(self.authority, "CN=kafka")))
        jaas = f'{MODULES[PLAIN]} required username="app" password="{PASSWORD}" user_app="{PASSWORD}";'
        self.broker = KafkaBroker(
            jars,
            home / "kafka",
            broker_id=1,
            zookeeper=zookeeper,
            set={
                "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{self.port}",
                "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{MODULES[SCRAM]} required;",
                "connections.max.reauth.ms": str(int(SESSION_SECONDS * 1000)),
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(keys),
                "ssl.keystore.password": STORE_PASSWORD,
            },
        )
        self.broker.bootstrap = f"127.0.0.1:{plain}"
        try:
            self.broker.wait_until_serving()
            user = f"SCRAM-SHA-512=[password={PASSWORD}]"
            tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", self.broker.bootstrap, "--alter")
            done = run_tool(
                jars, *tool, "--add-config", user, "--entity-type", "users", "--entity-name", "app"
            )
            assert done.returncode == 0, done.stdout + done.stderr
        except BaseException:
            self.broker.end()
            raise

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client_settings(self, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            **stores(self.home / "client-stores", None, self.authority),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{MODULES[mechanism]} required username="app" password="{password}";',
        }


@pytest.fixture(scope="module")
def kafka(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    home = tmp_path_factory.mktemp("secured-kafka")
    found = SecuredKafka(kafka_jars, home, zookeeper.under_chroot(home))
    yield found
    found.broker.end()


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM])
def test_links_stay_logged_in_beyond_their_session(kafka: SecuredKafka, mechanism: str) -> None:
    security = ClientSecurity.of(kafka.client_settings(mechanism))

    async def ask() -> None:
        async with await AsyncLink.open(kafka.address, "test", 10_000, security=security) as link:
            for _ in range(4):
                assert (await link.ask(k03_metadata.API, 12, {"topics": []}))["brokers"]
                await asyncio.sleep(SESSION_SECONDS / 2)

    asyncio.run(ask())
    with BlockingLink(kafka.address, "test", 10, security=security) as link:
        assert link.ask(k03_metadata.API, 12, {"topics": []})["brokers"]


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM])
def test_a_wrong_password_is_one_sentence(kafka: SecuredKafka, mechanism: str) -> None:
    security = ClientSecurity.of(kafka.client_settings(mechanism, f"{CANARY}-wrong"))
    with pytest.raises(LoginError, match=f"refused a log-in by {mechanism}") as raised:
        BlockingLink(kafka.address, "test", 10, security=security)
    assert CANARY not in str(raised.value)


def test_a_mirror_copies_it_over_many_sessions(
    kafka: SecuredKafka, zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(properties_text(kafka.client_settings(SCRAM)))
    options = ["--bootstrap", kafka.bootstrap, "--command-config", str(file)]
    made = headrace("topics", "create", "events", *options)
    assert made.returncode == 0, made.stderr
    source = {f"mirror.{SOURCE}.{key}": value for key, value in kafka.client_settings(SCRAM).items()}
    offline = SecuredCluster(
        tmp_path / "offline",
        zookeeper.under_chroot(tmp_path),
        set={
            "mirror.sources": SOURCE,
            f"mirror.{SOURCE}.bootstrap.servers": kafka.bootstrap,
            "mirror.metadata.max.age.ms": "500",
            **source,
        },
    )
    both = tmp_path / "both.properties"
    both.write_text(properties_text({**offline.client_settings(), **source}))

    def lag() -> int | None:
        asked = headrace(
            "mirror", "status", "--json", "--bootstrap", offline.bootstrap, "--command-config", str(both)
        )
        found = json.loads(asked.stdout)["partitions"] if asked.stdout else []
        return found[0]["lag"] if found else None

    try:
        for number in range(3):
            lines = "".join(f"event-{number}-{n}\n" for n in range(EVENTS))
            assert headrace("produce", "events", *options, text=lines).returncode == 0
            eventually(lambda: lag() == 0, timeout_s=60, every_s=1, what="the copy")
            # Longer than a session, with nothing to do.
            asyncio.run(asyncio.sleep(SESSION_SECONDS * 1.5))
        read = headrace("consume", f"{SOURCE}.events", "--max", str(3 * EVENTS), *offline.options)
        assert len(set(read.stdout.split())) == 3 * EVENTS, read.stderr
        log = offline.brokers[1].log.read_text()
        assert "closed the connection" not in log
        assert CANARY not in log
    finally:
        offline.end()
