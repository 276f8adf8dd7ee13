"""A renewed certificate without a restart, by Kafka's own admin API, while clients publish and read."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from cryptography import x509
from processes import eventually
from test_e2e_tls_clients import context_of
from tls_broker import TlsBroker
from tls_kit import PASSWORD, authority, jks_store, pem_settings, pkcs12_store, signed
from zookeeper_process import ZooKeeperProcess

SECRET = {"password.encoder.secret": "a-secret-of-the-broker"}


@pytest.fixture
def broker(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[TlsBroker]:
    broker = TlsBroker(tmp_path, zookeeper.under_chroot(tmp_path), SECRET)
    yield broker
    broker.process.end()


def serial(broker: TlsBroker, listener: str) -> int:
    """The serial number of the certificate that a new connection is shown."""
    with (
        socket.create_connection(broker.address(listener), timeout=10) as raw,
        context_of(broker, listener).wrap_socket(raw, server_hostname="127.0.0.1") as sock,
    ):
        der = sock.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


def alter(broker: TlsBroker, **settings: str) -> None:
    """As `kafka-configs --alter --add-config` does."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    admin = AdminClient(broker.librdkafka("PLAINTEXT"))
    admin.incremental_alter_configs([resource])[resource].result(20)


def described(broker: TlsBroker) -> dict[str, Any]:
    admin = AdminClient(broker.librdkafka("PLAINTEXT"))
    resource = ConfigResource(ResourceType.BROKER, "1")
    found: dict[str, Any] = admin.describe_configs([resource])[resource].result(20)
    return found


def test_a_store_of_another_name_and_the_same_again(broker: TlsBroker, tmp_path: Path) -> None:
    path = tmp_path / "renewed.pem"
    renewed = signed(broker.authority, "broker")
    path.write_text(renewed.key_pem() + renewed.chain_pem())
    old = serial(broker, "SSL")
    producer = confluent_kafka.Producer(broker.librdkafka("SSL"))
    failures: list[Any] = []

    def publish() -> None:
        for _ in range(100):
            producer.produce(
                "kept", b"x", on_delivery=lambda error, _: failures.append(error) if error else None
            )
        producer.flush(20)

    publish()
    alter(broker, listener_name_ssl_ssl_keystore_location=str(path))
    eventually(lambda: serial(broker, "SSL") == renewed.certificate.serial_number)
    assert serial(broker, "MUTUAL") == old
    publish()
    again = signed(broker.authority, "broker", ("localhost", "127.0.0.1", "more"))
    path.write_text(again.key_pem() + again.chain_pem())
    alter(broker, listener_name_ssl_ssl_keystore_location=str(path))
    eventually(lambda: serial(broker, "SSL") == again.certificate.serial_number)
    publish()
    assert failures == []
    assert broker.log.count("certificate renewed") == 2
    # Connections from before go on: nobody was closed.
    assert "handshake failed" not in broker.log


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_store_with_a_password_outlives_a_restart(broker: TlsBroker, tmp_path: Path, kind: str) -> None:
    renewed = signed(broker.authority, "broker")
    path = tmp_path / "renewed"
    path.write_bytes(jks_store(renewed) if kind == "JKS" else pkcs12_store(renewed))
    settings = {
        "listener_name_ssl_ssl_keystore_location": str(path),
        "listener_name_ssl_ssl_keystore_type": kind,
        "listener_name_ssl_ssl_keystore_password": PASSWORD,
    }
    with pytest.raises(
        KafkaException, match=r"ssl\.keystore\.password=\[hidden\] is not allowed: give the password"
    ):
        alter(broker, **{**settings, "listener_name_ssl_ssl_keystore_password": "wrong"})
    alter(broker, **settings)
    eventually(lambda: serial(broker, "SSL") == renewed.certificate.serial_number)
    entry = described(broker)["listener.name.ssl.ssl.keystore.password"]
    assert (entry.value, entry.is_sensitive) == (None, True)
    broker.process.stop()
    broker.process.start()
    assert serial(broker, "SSL") == renewed.certificate.serial_number
    assert PASSWORD not in broker.log


def test_what_is_refused_changes_nothing(broker: TlsBroker, tmp_path: Path) -> None:
    old = serial(broker, "SSL")
    other = tmp_path / "other.pem"
    stranger = signed(broker.authority, "another")
    other.write_text(stranger.key_pem() + stranger.chain_pem())
    for settings, said in (
        (
            {"listener_name_ssl_ssl_keystore_location": str(other)},
            "a certificate for CN=broker, not for CN=another",
        ),
        ({"listener_name_ssl_ssl_keystore_location": "/no/such"}, "No such file"),
        ({"ssl_keystore_location": str(other)}, r"listener\.name\.<name>\.ssl\.keystore\.location"),
        ({"listener_name_ssl_ssl_client_auth": "required"}, "at a start only|has no effect"),
    ):
        with pytest.raises(KafkaException, match=said):
            alter(broker, **settings)
    assert serial(broker, "SSL") == old


def test_trust_is_renewed_too(broker: TlsBroker, tmp_path: Path) -> None:
    newcomers = authority("newcomers")
    certificate, key = broker.write("bob", signed(newcomers, "bob"))
    context = ssl.create_default_context(cafile=str(broker.authority_file))
    context.load_cert_chain(str(certificate), str(key))

    def is_welcome() -> bool:
        try:
            with (
                socket.create_connection(broker.address("MUTUAL"), timeout=10) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
            ):
                sock.settimeout(0.5)
                return sock.recv(1) != b""
        except TimeoutError:
            return True
        except OSError:
            return False

    assert not is_welcome()
    pem_settings(
        tmp_path / "both", signed(broker.authority), [broker.authority.certificate, newcomers.certificate]
    )
    alter(broker, listener_name_mutual_ssl_truststore_location=str(tmp_path / "both" / "trust.pem"))
    eventually(is_welcome, timeout_s=20)
