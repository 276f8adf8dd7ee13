"""One broker over TLS beside Apache Kafka: produce, fetch from the page cache; both with one version, cipher and key.

Measured as one broker is without TLS (`broker_cells`), whose cells say what the encryption costs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bench import contest, flows
from bench.runs import RawRun, Workshop
from bench.workloads import SECURED

AROUND_SECONDS = 1.3
CIPHER = "TLS_AES_256_GCM_SHA384"
name = "tls"
title = "Broker, with TLS"
note = (
    f"TLS 1.3, {CIPHER}; one partition and one connection, acks=1, no compression; "
    "the client encrypts and decrypts on the same cores"
)
cells = tuple(SECURED)


def expected(cell: str, workshop: Workshop) -> tuple[int, float]:
    """Runs of the cell and about how long they take, both brokers together."""
    runs = workshop.effort.pairs * (1 if workshop.kafka_jars is None else 2)
    return runs, runs * (flows.run_seconds(SECURED[cell], workshop.effort) + AROUND_SECONDS)


def measure(wanted: tuple[str, ...], workshop: Workshop) -> Iterator[RawRun]:
    """Run the wanted cells against two warm brokers."""
    authority, keys = certificates(workshop.data)
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.cipher.suites": CIPHER,
    }
    with (
        contest.zookeeper(workshop.data / "zookeeper") as ensemble,
        contest.both(
            workshop.kafka_jars,
            workshop.data,
            ensemble,
            settings=settings,
            second_listener="SSL",
            authority=authority,
        ) as peers,
    ):
        for peer in peers:
            flows.warm_up(peer, workshop, is_tls=True)
        for cell in wanted:
            yield from flows.pairs(SECURED[cell], peers, workshop)


def certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate that signs itself, for 127.0.0.1, and a file of it with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority, keys = folder / "authority.pem", folder / "keys.pem"
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    authority.write_bytes(pem)
    keys.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + pem
    )
    return authority, keys
