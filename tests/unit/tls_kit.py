"""Certificates, keys and stores for tests: an authority, what it signs, and the files of each form."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

PASSWORD = "store-secret"
CERTIFICATE_PADDING = x509.UnrecognizedExtension(
    x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x04\x83\x01\x11\x70" + b"x" * 70000
)
"""What makes a certificate larger than a handshake may be."""


@dataclass(frozen=True)
class Identity:
    """A key and its certificate, and the authority's where one signed it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate | None = None

    @property
    def chain(self) -> list[x509.Certificate]:
        return [self.certificate, *([self.authority] if self.authority else [])]

    def chain_pem(self) -> str:
        return "".join(pem_of(each) for each in self.chain)

    def key_pem(self, password: str | None = None) -> str:
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            protection = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
        ).decode()

    def key_der(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def pem_of(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def der_of(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def name_of(text: str) -> x509.Name:
    """CN=TEXT, or a whole name in the form of RFC 4514."""
    if "=" in text:
        return x509.Name.from_rfc4514_string(text)
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def authority(name: str = "headrace-test-ca") -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = name_of(name)
    builder = _builder(subject, subject, key, days=(-1, 30)).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    return Identity(key, builder.sign(key, hashes.SHA256()))


def signed(
    signer: Identity,
    name: str = "broker",
    hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    days: tuple[float, float] = (-1, 30),
    extension: x509.ExtensionType | None = None,
) -> Identity:
    """An identity for these hosts, valid between these days from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(name_of(name), signer.certificate.subject, key, days=days)
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False
        )
    if extension is not None:
        builder = builder.add_extension(extension, critical=False)
    return Identity(key, builder.sign(signer.key, hashes.SHA256()), signer.certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[float, float]
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def pem_settings(
    folder: Path, identity: Identity, trusted: Iterable[x509.Certificate] = ()
) -> dict[str, str]:
    """The settings of a key store and a trust store in PEM files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    keys, trust = folder / "keys.pem", folder / "trust.pem"
    keys.write_text(identity.key_pem() + identity.chain_pem())
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys)}
    if certificates := list(trusted):
        trust.write_text("".join(pem_of(each) for each in certificates))
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}
    return settings


def pkcs12_store(identity: Identity, password: str = PASSWORD) -> bytes:
    protection = serialization.BestAvailableEncryption(password.encode())
    return pkcs12.serialize_key_and_certificates(
        b"broker", identity.key, identity.certificate, identity.chain[1:], protection
    )


def jks_store(
    identity: Identity | None,
    trusted: Sequence[x509.Certificate] = (),
    password: str = PASSWORD,
    key_password: str | None = None,
) -> bytes:
    """A store as keytool writes it."""
    entries = []
    if identity is not None:
        key = _protected(identity.key_der(), key_password or password)
        chain = b"".join(_jks_certificate(der_of(each)) for each in identity.chain)
        head = struct.pack(">I", 1) + _jks_text("broker") + struct.pack(">Q", 0)
        entries.append(
            head + struct.pack(">I", len(key)) + key + struct.pack(">I", len(identity.chain)) + chain
        )
    entries += [
        struct.pack(">I", 2) + _jks_text(f"ca{i}") + struct.pack(">Q", 0) + _jks_certificate(der_of(each))
        for i, each in enumerate(trusted)
    ]
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    digest = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
    return body + digest


def _jks_text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _jks_certificate(der: bytes) -> bytes:
    return _jks_text("X.509") + struct.pack(">I", len(der)) + der


def _protected(der: bytes, password: str) -> bytes:
    secret, salt = password.encode("utf-16-be"), os.urandom(20)
    stream, block = b"", salt
    while len(stream) < len(der):
        block = hashlib.sha1(secret + block).digest()
        stream += block
    cipher = bytes(a ^ b for a, b in zip(der, stream, strict=False))
    sealed = salt + cipher + hashlib.sha1(secret + der).digest()
    algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
    octets = b"\x04\x82" + struct.pack(">H", len(sealed)) + sealed
    return b"\x30\x82" + struct.pack(">H", len(algorithm) + len(octets)) + algorithm + octets
