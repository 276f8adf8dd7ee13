"""Brokers that reach ZooKeeper over TLS, or log in there with a digest, and what others may do to the znodes they make."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from processes import BrokerProcess, eventually, free_port
from secured_cluster import CANARY, KEY_PASSWORD, headrace
from tls_kit import PASSWORD, authority, pem_settings, pkcs12_store, signed
from zookeeper_process import ZooKeeperProcess

from headrace.broker import zookeeper_server

DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
ZOOKEEPER_PASSWORD = f"{CANARY}-of-zookeeper"


class SecuredZooKeeper(ZooKeeperProcess):
    """The port in plain text takes log-ins by digest; `secure_port` speaks TLS and wants certificates."""

    def __init__(self, home: Path, more: str = "") -> None:
        home.mkdir(parents=True)
        self.authority = authority()
        self.secure_port = free_port()
        (home / "keys.p12").write_bytes(pkcs12_store(signed(self.authority, "zookeeper")))
        self.files = pem_settings(
            home / "client", signed(self.authority, "broker"), [self.authority.certificate]
        )
        self.jaas = home / "server.jaas"
        self.give_password(ZOOKEEPER_PASSWORD)
        self.secure = (
            f"secureClientPort={self.secure_port}\n"
            "secureClientPortAddress=127.0.0.1\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            f"ssl.keyStore.location={home / 'keys.p12'}\n"
            f"ssl.keyStore.password={PASSWORD}\n"
            f"ssl.trustStore.location={self.files['ssl.truststore.location']}\n"
            f"{more}"
        )
        super().__init__(home)

    def give_password(self, password: str) -> None:
        """Those who log in need it from the next start on."""
        self.jaas.write_text(f'Server {{ {DIGEST_MODULE} required user_kafka="{password}"; }};\n')

    def start(self) -> None:
        if self.secure not in self._config.read_text():
            self._config.write_text(self._config.read_text() + self.secure)
        os.environ["SERVER_JVMFLAGS"] = f"-Djava.security.auth.login.config={self.jaas}"
        try:
            command = zookeeper_server.command(zookeeper_server.find_jars(), self._config, sync=False)
        finally:
            del os.environ["SERVER_JVMFLAGS"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(lambda: zookeeper_server.is_serving(self._host, self.port), what="ZooKeeper's answer")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    found = SecuredZooKeeper(tmp_path_factory.mktemp("secured-zookeeper") / "zookeeper")
    yield found
    found.end()


def tls_settings(zookeeper: SecuredZooKeeper) -> dict[str, str]:
    return {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": zookeeper.files["ssl.keystore.location"],
        "zookeeper.ssl.truststore.location": zookeeper.files["ssl.truststore.location"],
    }


def digest_settings(home: Path, password: str = ZOOKEEPER_PASSWORD) -> dict[str, str]:
    home.mkdir(parents=True, exist_ok=True)
    jaas = home / "client.jaas"
    jaas.write_text(
        f'Client {{\n  {DIGEST_MODULE} required\n  username="kafka"\n  password="{password}";\n}};\n'
    )
    return {"headrace.zookeeper.jaas.file": str(jaas)}


@contextmanager
def a_broker(home: Path, zookeeper: str, settings: dict[str, str]) -> Iterator[BrokerProcess]:
    listener = {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    broker = BrokerProcess(home, broker_id=1, zookeeper=zookeeper, set={**listener, **settings})
    try:
        yield broker
    finally:
        broker.end()
    assert CANARY not in broker.log.read_text()


def of_anybody(zookeeper: SecuredZooKeeper, chroot: str) -> KazooClient:
    client = KazooClient(f"{zookeeper.address}/{chroot}")
    client.start()
    return client


def test_a_broker_registers_and_serves_over_tls(zookeeper: SecuredZooKeeper, tmp_path: Path) -> None:
    secure = f"127.0.0.1:{zookeeper.secure_port}/tls"
    with a_broker(tmp_path, secure, {**tls_settings(zookeeper), "zookeeper.set.acl": "true"}) as broker:
        made = headrace("topics", "create", "t", "--partitions", "20", "--bootstrap", broker.bootstrap)
        assert made.returncode == 0, made.stderr
        others = of_anybody(zookeeper, "tls")
        assert others.get_children("/brokers/ids") == ["1"]
        with pytest.raises(NoAuthError):
            others.set("/controller_epoch", b"7")
        others.stop()


def test_a_logged_in_broker_owns_its_znodes_and_passwords_are_for_it_alone(
    zookeeper: SecuredZooKeeper, tmp_path: Path
) -> None:
    settings = {**digest_settings(tmp_path), "zookeeper.set.acl": "true"}
    with a_broker(tmp_path / "broker", f"{zookeeper.address}/digest", settings) as broker:
        assert headrace("topics", "create", "t", "--bootstrap", broker.bootstrap).returncode == 0
        others = of_anybody(zookeeper, "digest")
        acls, _ = others.get_acls("/brokers/topics/t")
        assert {(each.id.scheme, each.id.id, each.perms) for each in acls} == {
            ("sasl", "kafka", 31),
            ("world", "anyone", 1),
        }
        others.get("/brokers/topics/t")
        for path in ("/config/users", "/config/brokers"):
            with pytest.raises(NoAuthError):
                others.get_children(path)
        for path in ("/brokers/topics/t", "/cluster/id", "/config/topics/t"):
            with pytest.raises(NoAuthError):
                others.set(path, b"")
        others.create("/consumers/group", b"")
        others.stop()


def refused(home: Path, zookeeper: str, settings: dict[str, str]) -> str:
    began = time.monotonic()
    with (
        pytest.raises(AssertionError) as raised,
        a_broker(home, zookeeper, {**settings, "zookeeper.connection.timeout.ms": "3000"}),
    ):
        pass
    assert time.monotonic() - began < 30
    assert CANARY not in str(raised.value)
    return str(raised.value).splitlines()[-1]


def test_whoever_is_not_let_in_is_told_why(zookeeper: SecuredZooKeeper, tmp_path: Path) -> None:
    wrong = digest_settings(tmp_path / "wrong", f"{CANARY}-wrong")
    sentence = refused(tmp_path / "a", f"{zookeeper.address}/x", wrong)
    assert "refused the log-in of kafka" in sentence
    other = pem_settings(tmp_path / "other", signed(authority("other")), [authority("other").certificate])
    distrusting = {
        **tls_settings(zookeeper),
        "zookeeper.ssl.truststore.location": other["ssl.truststore.location"],
    }
    sentence = refused(tmp_path / "b", f"127.0.0.1:{zookeeper.secure_port}/x", distrusting)
    assert "does not agree on TLS (" in sentence
    sentence = refused(tmp_path / "c", f"{zookeeper.address}/x", {"zookeeper.set.acl": "true"})
    assert "zookeeper.set.acl=true is not allowed" in sentence
    missing = {**tls_settings(zookeeper), "zookeeper.ssl.keystore.location": "/nowhere.pem"}
    sentence = refused(tmp_path / "d", f"127.0.0.1:{zookeeper.secure_port}/x", missing)
    assert "zookeeper.ssl.keystore.location=/nowhere.pem" in sentence
    assert KEY_PASSWORD not in sentence


REFUSED = "ZooKeeper refuses the log-in"
BACK_S_MAX = 5


def session_of_broker(zookeeper: SecuredZooKeeper) -> int:
    """Which session registered it; 0 while there is none."""
    anybody = of_anybody(zookeeper, "renewed")
    found = anybody.exists("/brokers/ids/1")
    anybody.stop()
    return found.ephemeralOwner if found else 0


def restart(zookeeper: SecuredZooKeeper, password: str) -> None:
    zookeeper.kill()
    zookeeper.give_password(password)
    zookeeper.start()


@pytest.mark.acceptance
def test_a_broker_comes_back_with_the_right_password(zookeeper: SecuredZooKeeper, tmp_path: Path) -> None:
    """ZooKeeper's password changes while a broker runs, and its file follows; then ZooKeeper's changes and changes back."""
    settings = {
        **digest_settings(tmp_path),
        "zookeeper.set.acl": "true",
        "zookeeper.session.timeout.ms": "3000",
    }
    other = f"{CANARY}-another"
    with a_broker(tmp_path / "broker", f"{zookeeper.address}/renewed", settings) as broker:
        assert headrace("topics", "create", "t", "--bootstrap", broker.bootstrap).returncode == 0

        def refused(password: str, times: int) -> set[int]:
            before = session_of_broker(zookeeper)
            restart(zookeeper, password)
            said = broker.log.read_text
            eventually(lambda: said().count(REFUSED) == times, timeout_s=20, what="the refusal")
            # More log-ins are refused, which is said once, and clients are served.
            time.sleep(2.5)
            assert said().count(REFUSED) == times
            assert "t" in headrace("topics", "list", "--bootstrap", broker.bootstrap).stdout
            return {0, before}

        def is_back(but: set[int]) -> bool:
            return session_of_broker(zookeeper) not in but

        gone = refused(other, 1)
        digest_settings(tmp_path, other)
        eventually(lambda: is_back(gone), timeout_s=BACK_S_MAX, what="the broker, by its file")
        gone = refused(ZOOKEEPER_PASSWORD, 2)
        restart(zookeeper, other)
        eventually(lambda: is_back(gone), timeout_s=BACK_S_MAX, what="the broker, by ZooKeeper")
        assert headrace("topics", "create", "u", "--bootstrap", broker.bootstrap).returncode == 0


def test_where_everybody_has_to_log_in_a_wrong_password_is_told_alike(tmp_path: Path) -> None:
    server = SecuredZooKeeper(
        tmp_path / "zookeeper", "enforce.auth.enabled=true\nenforce.auth.schemes=sasl\nsuperUser.1=kafka\n"
    )
    try:
        wrong = digest_settings(tmp_path / "wrong", f"{CANARY}-wrong")
        assert "refused the log-in of kafka" in refused(tmp_path / "a", f"{server.address}/x", wrong)
        right = {**digest_settings(tmp_path / "right"), "zookeeper.set.acl": "true"}
        with a_broker(tmp_path / "b", f"{server.address}/y", right) as broker:
            assert headrace("topics", "create", "t", "--bootstrap", broker.bootstrap).returncode == 0
        assert "Missing AuthenticationProvider" not in (tmp_path / "zookeeper" / "zookeeper.log").read_text()
    finally:
        server.end()
