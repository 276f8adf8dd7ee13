"""A broker with a plaintext listener, one with TLS and one with TLS for clients that show a certificate; clients for each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from processes import BrokerProcess, free_port
from tls_kit import Identity, authority, pem_settings, signed

NAMES = ("PLAINTEXT", "SSL", "MUTUAL")


class TlsBroker:
    """One of them below `home`, with an authority of its own that signed the broker and a client, alice."""

    def __init__(self, home: Path, zookeeper: str, set: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.authority = authority()
        self.alice = signed(self.authority, "CN=alice,OU=front ends")
        self.ports = {name: free_port() for name in NAMES}
        self.files = home / "certificates"
        stores = pem_settings(self.files, signed(self.authority, "broker"), [self.authority.certificate])
        properties = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
            "listener.name.mutual.ssl.client.auth": "required",
            **stores,
            **(set or {}),
        }
        self.process = BrokerProcess(home / "broker", broker_id=1, zookeeper=zookeeper, set=properties)
        self.alice_files = self.write("alice", self.alice)

    def address(self, listener: str) -> tuple[str, int]:
        return "127.0.0.1", self.ports[listener]

    def bootstrap(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    @property
    def log(self) -> str:
        return self.process.log.read_text()

    @property
    def authority_file(self) -> Path:
        return self.files / "trust.pem"

    def write(self, name: str, identity: Identity) -> tuple[Path, Path]:
        """The files of a client's certificate and of its key."""
        certificate, key = self.files / f"{name}.pem", self.files / f"{name}.key"
        certificate.write_text(identity.chain_pem())
        key.write_text(identity.key_pem())
        return certificate, key

    def librdkafka(self, listener: str, **more: Any) -> dict[str, Any]:
        """The settings of librdkafka's clients at a listener."""
        settings = {"bootstrap.servers": self.bootstrap(listener), **more}
        if listener != "PLAINTEXT":
            settings |= {"security.protocol": "ssl", "ssl.ca.location": str(self.authority_file)}
        if listener == "MUTUAL":
            certificate, key = self.alice_files
            settings |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
        return settings
