"""TLS beside Apache Kafka: Java's clients, znodes, what each broker refuses at its start, in handshakes and while it runs."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka_oracle import KafkaProcess, run_tool
from kazoo.client import KazooClient
from pairs import chroots
from processes import BrokerProcess, eventually, free_port
from test_conformance_java_clients import TOOLS
from tls_kit import PASSWORD, Identity, authority, jks_store, pem_of, pkcs12_store, signed
from zookeeper_process import ZooKeeperProcess

from bench import apache_kafka
from headrace.broker.config.sections import Passwords
from headrace.broker.tls.password_encoder import PasswordEncoder

LISTENERS = ("PLAIN", "SECURE", "MUTUAL")
KINDS = ("kafka", "headrace")
CA = authority()
BROKER = signed(CA, "CN=broker,O=mill")
ALICE = signed(CA, "CN=alice,OU=front ends")


class TlsPair:
    """A broker of each kind with the same settings, certificates included, each in a chroot of its own."""

    def __init__(self, jars: Path, zookeeper: ZooKeeperProcess, home: Path) -> None:
        self.jars, self.home = jars, home
        self.znodes: KazooClient
        self.ports = {(kind, name): free_port() for kind in KINDS for name in LISTENERS}
        self.place = zookeeper.under_chroot(home)
        self.keys, self.trust = home / "keys.p12", home / "trust.jks"
        self.keys.write_bytes(pkcs12_store(BROKER))
        self.trust.write_bytes(jks_store(None, [CA.certificate]))
        (home / "ca.pem").write_text(pem_of(CA.certificate))
        self.clients = {"SECURE": self.client("anybody", None), "MUTUAL": self.client("alice", ALICE)}

    def settings(self, kind: str) -> dict[str, str]:
        return {
            "listeners": ",".join(f"{name}://127.0.0.1:{self.ports[kind, name]}" for name in LISTENERS),
            "listener.security.protocol.map": "PLAIN:PLAINTEXT,SECURE:SSL,MUTUAL:SSL",
            "inter.broker.listener.name": "MUTUAL",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.keys),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.location": str(self.trust),
            "ssl.truststore.password": PASSWORD,
            "listener.name.mutual.ssl.client.auth": "required",
            "password.encoder.secret": "a-secret",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def client(self, name: str, identity: Identity | None) -> Path:
        """The properties file of a Java client."""
        path = self.home / f"{name}.properties"
        lines = [
            "security.protocol=SSL",
            f"ssl.truststore.location={self.trust}",
            f"ssl.truststore.password={PASSWORD}",
        ]
        if identity is not None:
            store = self.home / f"{name}.jks"
            store.write_bytes(jks_store(identity))
            lines += [f"ssl.keystore.location={store}", f"ssl.keystore.password={PASSWORD}"]
        path.write_text("\n".join(lines) + "\n")
        return path

    def tool(
        self,
        name: str,
        kind: str,
        listener: str,
        *arguments: str,
        stdin: str | None = None,
        config: str = "--command-config",
    ) -> str:
        bootstrap = f"127.0.0.1:{self.ports[kind, listener]}"
        security = (config, str(self.clients[listener])) if listener in self.clients else ()
        ended = run_tool(
            self.jars, TOOLS[name], "--bootstrap-server", bootstrap, *security, *arguments, stdin=stdin
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return re.sub(r"TopicId: \S+", "TopicId: ID", ended.stdout)


@pytest.fixture(scope="module")
def tls(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsPair]:
    home = tmp_path_factory.mktemp("tls")
    pair = TlsPair(kafka_jars, zookeeper, home)
    with chroots(pair.place) as znodes:
        pair.znodes = znodes
        properties = {
            "broker.id": "1",
            "log.dirs": str(home / "kafka"),
            "zookeeper.connect": f"{pair.place}/kafka",
        }
        config = home / "kafka.properties"
        config.write_text("".join(f"{k}={v}\n" for k, v in {**properties, **pair.settings("kafka")}.items()))
        kafka = KafkaProcess(
            kafka_jars, config, bootstrap=f"127.0.0.1:{pair.ports['kafka', 'PLAIN']}", log=home / "kafka.log"
        )
        headrace = BrokerProcess(
            home / "headrace", broker_id=1, zookeeper=f"{pair.place}/headrace", set=pair.settings("headrace")
        )
        try:
            kafka.wait_until_serving()
            eventually(lambda: znodes.exists("/kafka/brokers/ids/1"), what="Kafka's registration")
            yield pair
        finally:
            headrace.end()
            kafka.end()


@pytest.mark.long
@pytest.mark.parametrize("listener", ["SECURE", "MUTUAL"])
def test_javas_tools_over_tls(tls: TlsPair, listener: str) -> None:
    topic = f"java-{listener}"
    said = {}
    for kind in KINDS:
        tls.tool("topics", kind, listener, "--create", "--topic", topic, "--partitions", "2")
        tls.tool(
            "console-producer",
            kind,
            listener,
            "--topic",
            topic,
            stdin="one\ntwo\nthree\n",
            config="--producer.config",
        )
        read = tls.tool(
            "console-consumer",
            kind,
            listener,
            *("--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000"),
            config="--consumer.config",
        )
        described = tls.tool("topics", kind, listener, "--describe", "--topic", topic)
        said[kind] = (sorted(read.split()), described)
    assert said["headrace"] == said["kafka"]
    assert said["kafka"][0] == ["one", "three", "two"]


def test_the_registration_tells_the_protocol_of_each_listener(tls: TlsPair) -> None:
    found = {}
    for kind in KINDS:
        znode = json.loads(tls.znodes.get(f"/{kind}/brokers/ids/1")[0])
        for name in LISTENERS:
            znode["endpoints"] = [e.replace(str(tls.ports[kind, name]), name) for e in znode["endpoints"]]
        found[kind] = {k: v for k, v in znode.items() if k not in ("timestamp", "jmx_port")}
        if found[kind]["port"] != -1:
            found[kind]["port"] = "PLAIN"
    assert found["headrace"] == found["kafka"]
    assert found["kafka"]["listener_security_protocol_map"] == {
        "PLAIN": "PLAINTEXT",
        "SECURE": "SSL",
        "MUTUAL": "SSL",
    }


API_VERSIONS = b"\0\0\0\x0b\0\x12\0\0\0\0\0\1\0\1c"


def ending(tls: TlsPair, kind: str, listener: str, context: ssl.SSLContext) -> str:
    """Whether a client's first request is answered."""
    answer = b""
    with (
        suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(("127.0.0.1", tls.ports[kind, listener]), timeout=20) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
    ):
        sock.sendall(API_VERSIONS)
        answer = sock.recv(1)
    return "served" if answer else "refused"


def context_of(tls: TlsPair, identity: Identity | None = None, **versions: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(tls.home / "ca.pem"))
    if identity is not None:
        certificate = tls.home / "client.pem"
        certificate.write_text(identity.chain_pem() + identity.key_pem())
        context.load_cert_chain(str(certificate))
    for name, version in versions.items():
        setattr(context, name, version)
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("identity", "listener", "expected"),
    [
        (None, "SECURE", "served"),
        (ALICE, "MUTUAL", "served"),
        (None, "MUTUAL", "refused"),
        (signed(CA, "old", days=(-3, -1)), "MUTUAL", "refused"),
        (signed(CA, "early", days=(1, 3)), "MUTUAL", "refused"),
        (signed(authority("strange"), "stranger"), "MUTUAL", "refused"),
        (signed(authority("strange"), "stranger"), "SECURE", "served"),
    ],
    ids=["anybody", "alice", "nobody", "expired", "not-yet", "stranger", "not-asked"],
)
def test_who_is_served(
    tls: TlsPair, identity: Identity | None, listener: str, expected: str, version: ssl.TLSVersion
) -> None:
    context = context_of(tls, identity, minimum_version=version, maximum_version=version)
    endings = {kind: ending(tls, kind, listener, context) for kind in KINDS}
    assert endings == dict.fromkeys(KINDS, expected)


def test_versions_before_tls_1_2_are_not_spoken(tls: TlsPair) -> None:
    context = context_of(tls)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert {kind: ending(tls, kind, "SECURE", context) for kind in KINDS} == dict.fromkeys(KINDS, "refused")


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x12\0\x12\0\0\0\0\0\1\0\x08consumer"])
def test_plaintext_at_a_listener_with_tls_ends_the_connection(tls: TlsPair, first: bytes) -> None:
    for kind in KINDS:
        with socket.create_connection(("127.0.0.1", tls.ports[kind, "SECURE"]), timeout=20) as sock:
            sock.sendall(first)
            with suppress(ConnectionResetError):
                while sock.recv(100):
                    pass


@pytest.mark.long
def test_passwords_of_either_kind_are_read_by_the_other(tls: TlsPair, tmp_path: Path) -> None:
    """What kafka-configs has a broker store is the same but for salt and vector, and what Kafka wrote is decoded here."""
    encoder = PasswordEncoder(Passwords(password_encoder_secret="a-secret"))
    path = tmp_path / "renewed.jks"
    path.write_bytes(jks_store(signed(CA, "CN=broker,O=mill")))
    prefix = "listener.name.secure.ssl.keystore"
    wanted = f"{prefix}.location={path},{prefix}.password={PASSWORD},{prefix}.type=JKS"
    stored: dict[str, dict[str, str]] = {}
    described = {}
    for kind in KINDS:
        entity = ("--entity-type", "brokers", "--entity-name", "1")
        tls.tool("configs", kind, "MUTUAL", *entity, "--alter", "--add-config", wanted)
        znode = tls.znodes.get(f"/{kind}/config/brokers/1")[0]
        stored[kind] = json.loads(znode)["config"]
        described[kind] = sorted(
            line.strip() for line in tls.tool("configs", kind, "MUTUAL", *entity, "--describe").splitlines()
        )
    assert stored["headrace"].keys() == stored["kafka"].keys()
    fields = {
        kind: {
            part.rpartition(":")[0]: part.rpartition(":")[2]
            for part in found[f"{prefix}.password"].split(",")
        }
        for kind, found in stored.items()
    }
    for random in ("salt", "initializationVector", "encryptedPassword"):
        lengths = {len(found.pop(random)) for found in fields.values()}
        assert len(lengths) == 1
    assert fields["headrace"] == fields["kafka"]
    assert encoder.decode(stored["kafka"][f"{prefix}.password"]) == PASSWORD
    assert described["headrace"] == described["kafka"]


@pytest.mark.parametrize(
    "change",
    [
        "listener.name.secure.ssl.keystore.location=OTHER",
        "listener.name.secure.ssl.keystore.location=/no/such",
        "listener.name.secure.ssl.keystore.location=FEWER",
        "listener.name.secure.ssl.truststore.location=/no/such",
        "ssl.keystore.location=SAME",
    ],
)
def test_changes_that_are_refused(tls: TlsPair, tmp_path: Path, change: str) -> None:
    for name, identity in {
        "OTHER": signed(CA, "CN=other,O=mill"),
        "FEWER": signed(CA, "CN=broker,O=mill", ("localhost",)),
        "SAME": BROKER,
    }.items():
        (tmp_path / name).write_bytes(pkcs12_store(identity))
        change = change.replace(name, str(tmp_path / name))
    name, _, value = change.partition("=")
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    for kind in KINDS:
        before = tls.znodes.exists(f"/{kind}/config/brokers/1")
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{tls.ports[kind, 'PLAIN']}"})
        with pytest.raises(KafkaException) as refused:
            admin.incremental_alter_configs([resource])[resource].result(20)
        assert refused.value.args[0].name() == "INVALID_REQUEST", refused.value
        after = tls.znodes.exists(f"/{kind}/config/brokers/1")
        assert (before and before.version) == (after and after.version)


REFUSED: dict[str, Mapping[str, str | None]] = {
    "no key": {"ssl.keystore.location": None},
    "no such file": {"ssl.keystore.location": "/no/such"},
    "wrong password": {"ssl.keystore.password": "wrong"},
    "no password": {"ssl.keystore.password": None},
    "a key inline that is no PEM": {"ssl.keystore.key": "x"},
    "trust of others": {"ssl.truststore.location": "STRANGE"},
    "an unknown cipher": {"ssl.cipher.suites": "TLS_NO_SUCH"},
    "client auth": {"ssl.client.auth": "maybe"},
    "a bad rule": {"ssl.principal.mapping.rules": "RULE:a"},
    "no protocol for a listener": {"listener.security.protocol.map": "PLAIN:PLAINTEXT"},
    "an unknown protocol": {"listener.security.protocol.map": "PLAIN:PLAINTEXT,SECURE:TLS"},
    "both ways to name it": {"security.inter.broker.protocol": "SSL"},
    "brokers without a listener": {"inter.broker.listener.name": "OTHER"},
    "advertised only": {"advertised.listeners": "SECURE://127.0.0.1:1,OTHER://127.0.0.1:2"},
    "control plane without a listener": {"control.plane.listener.name": "OTHER"},
    "control plane of brokers": {"control.plane.listener.name": "SECURE"},
    "one port twice": {"listeners": "PLAIN://127.0.0.1:19555,SECURE://127.0.0.1:19555"},
    "PEM with a store's password": {"ssl.keystore.type": "PEM"},
}


@pytest.mark.long
@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_settings_that_end_the_start_of_both(
    tls: TlsPair, tmp_path: Path, change: Mapping[str, str | None]
) -> None:
    strange = tmp_path / "strange.jks"
    strange.write_bytes(jks_store(None, [authority("strange").certificate]))
    ports = [free_port(), free_port()]
    properties: dict[str, Any] = {
        **tls.settings("kafka"),
        "broker.id": "7",
        "listeners": f"PLAIN://127.0.0.1:{ports[0]},SECURE://127.0.0.1:{ports[1]}",
        "inter.broker.listener.name": "SECURE",
        "log.dirs": str(tmp_path / "logs"),
        "zookeeper.connect": f"{tls.place}/kafka",
        **change,
    }
    config = tmp_path / "server.properties"
    lines = [
        f"{k}={str(v).replace('STRANGE', str(strange))}\n" for k, v in properties.items() if v is not None
    ]
    config.write_text("".join(lines))
    checked = subprocess.run(
        [sys.executable, "-m", "headrace.broker.command", "--check", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 2, checked.stderr
    assert checked.stderr.startswith("Error: ")
    assert PASSWORD not in checked.stderr
    ended = subprocess.run(
        apache_kafka.command(tls.jars, config, ("-Xmx256m", "-XX:TieredStopAtLevel=1")),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0, ended.stdout[-3000:]
