"""Brokers that speak TLS, or TLS and SASL, among each other and with all clients; files with the settings of such clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from processes import BrokerProcess, free_port
from tls_kit import Identity, authority, pem_settings, signed

CANARY = "canary-7f3a9c"
"""Each secret has it, so that one that shows anywhere is found."""
BROKER_PASSWORD, CLIENT_PASSWORD = f"{CANARY}-of-brokers", f"{CANARY}-of-clients"
KEY_PASSWORD = f"{CANARY}-of-keys"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS: Mapping[str, str] = {
    "offsets.topic.num.partitions": "3",
    "replica.lag.time.max.ms": "3000",
    "zookeeper.session.timeout.ms": "3000",
    "auto.create.topics.enable": "false",
}


class SecuredCluster:
    """Brokers 1 to `count` below `home`; `protocol` is SSL, where all show certificates, or SASL_SSL, with passwords."""

    def __init__(
        self,
        home: Path,
        zookeeper: str,
        *,
        count: int = 1,
        protocol: str = "SSL",
        set: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        signer: Identity | None = None,
        made: Mapping[str, Any] | None = None,
    ) -> None:
        self.home, self.zookeeper, self.protocol, self.count = home, zookeeper, protocol, count
        self.authority = signer or authority()
        self.set = dict(set or {})
        self.made = {"hosts": ("localhost", host), **(made or {})}
        self.addresses = {number: (host, free_port()) for number in range(1, count + 1)}
        self.brokers: dict[int, BrokerProcess] = {}
        self.client_file = self.write_client("client")
        try:
            for number in self.addresses:
                self.start(number)
        except BaseException:
            self.end()
            raise

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    @property
    def options(self) -> list[str]:
        """Of a command that asks this cluster."""
        return ["--bootstrap", self.bootstrap, "--command-config", str(self.client_file)]

    def start(self, number: int) -> None:
        """The first time, or again."""
        host, port = self.addresses[number]
        identity = signed(self.authority, f"CN=broker-{number}", **self.made)
        factor = str(min(self.count, 3))
        properties = {
            **SETTINGS,
            "default.replication.factor": factor,
            "offsets.topic.replication.factor": factor,
            "listeners": f"{self.protocol}://{host}:{port}",
            "security.inter.broker.protocol": self.protocol,
            **stores(self.home / f"stores-{number}", identity, self.authority),
            **self._sasl_of_brokers(),
            **self.set,
        }
        self.brokers[number] = BrokerProcess(
            self.home / f"broker-{number}", broker_id=number, zookeeper=self.zookeeper, set=properties
        )

    def _sasl_of_brokers(self) -> dict[str, str]:
        if self.protocol == "SSL":
            return {"ssl.client.auth": "required"}
        users = f'user_broker="{BROKER_PASSWORD}" user_app="{CLIENT_PASSWORD}"'
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": (
                f'{PLAIN_MODULE} required username="broker" password="{BROKER_PASSWORD}" {users};'
            ),
        }

    def client_settings(self, name: str = "app", password: str = CLIENT_PASSWORD) -> dict[str, str]:
        """What a client of this cluster needs to say."""
        own = signed(self.authority, f"CN={name}") if self.protocol == "SSL" else None
        settings = {
            "security.protocol": self.protocol,
            **stores(self.home / f"stores-{name}", own, self.authority),
        }
        if self.protocol == "SASL_SSL":
            settings["sasl.mechanism"] = "PLAIN"
            settings["sasl.jaas.config"] = f'{PLAIN_MODULE} required username="app" password="{password}";'
        return settings

    def write_client(self, name: str, **settings: str) -> Path:
        """A properties file of a client, with these settings in place of those that are right."""
        changed = {key.replace("__", "."): value for key, value in settings.items()}
        file = self.home / f"{name}.properties"
        self.home.mkdir(parents=True, exist_ok=True)
        file.write_text(properties_text({**self.client_settings(name), **changed}))
        return file

    def kill(self, number: int) -> None:
        self.brokers[number].kill()

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.end()


def stores(folder: Path, identity: Identity | None, trusted: Identity) -> dict[str, str]:
    """A key store whose key has a password of its own, and a trust store, both of PEM."""
    found = pem_settings(folder, identity or trusted, [trusted.certificate])
    if identity is None:
        Path(found.pop("ssl.keystore.location")).unlink()
        del found["ssl.keystore.type"]
        return found
    keys = Path(found["ssl.keystore.location"])
    keys.write_text(identity.key_pem(KEY_PASSWORD) + identity.chain_pem())
    return {**found, "ssl.key.password": KEY_PASSWORD}


def properties_text(settings: Mapping[str, Any]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def headrace(*arguments: str, text: str = "", timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """A command, with its output."""
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
