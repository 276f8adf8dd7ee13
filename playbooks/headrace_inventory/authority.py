"""A small certificate authority in the inventory's folder, for labs and for who has none: makes what is missing or about to end.

Its key stays where it is made, readable by its owner alone; whoever has one of their own puts their files there instead, and then
nothing is made without `ca.key`.
"""

from __future__ import annotations

import ipaddress
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace_inventory.addresses import Groups, HostVars
from headrace_inventory.certificates import covers, names_of, secured_hosts

AUTHORITY_DAYS, CERTIFICATE_DAYS, RENEWED_DAYS_BEFORE = 3650, 397, 30
# A host's clock may be a little behind.
BEFORE = timedelta(hours=1)
NAME_LENGTH_MAX = 64


class AuthorityError(Exception):
    """Nothing can be made; the message is a sentence that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Who signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_missing(groups: Groups, hostvars: HostVars, *, renew: bool, dry: bool) -> list[str]:
    """A sentence for each file pair that is, or would be, made. Raises AuthorityError, OSError."""
    hosts = secured_hosts(groups, hostvars)
    if not hosts:
        return []
    folder, now = Path(hostvars[hosts[0]]["headrace_certificates_from"]), datetime.now(UTC)
    wanted = {host: names_of(host, groups, hostvars) for host in hosts}
    due = {
        host: reason for host, names in wanted.items() if (reason := _why(folder, host, names, now, renew))
    }
    told = [f"{folder / host}.pem and {host}.key: {reason}" for host, reason in due.items()]
    if not due:
        return []
    is_new = not (folder / "ca.pem").exists()
    if is_new:
        told.insert(0, f"{folder / 'ca.pem'} and ca.key: an authority for this inventory")
    elif not (folder / "ca.key").exists():
        raise AuthorityError(
            f"{folder} has a ca.pem without ca.key, so its certificates are made elsewhere: put {hosts_text(due)} there."
        )
    if not dry:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        issuer = _new_issuer(folder, now) if is_new else _issuer(folder)
        for host in due:
            _issue(folder, host, wanted[host], issuer, now)
    return told


def nothing_made(groups: Groups, hostvars: HostVars) -> str:
    """Why nothing had to be made."""
    if secured_hosts(groups, hostvars):
        return "Every host that needs a certificate has one."
    return "No host needs a certificate: brokers, ZooKeepers and registries do, where headrace_security is not plaintext."


def hosts_text(hosts: Iterable[str]) -> str:
    return ", ".join(f"{host}.pem and {host}.key" for host in hosts)


def _why(folder: Path, host: str, names: list[str], now: datetime, renew: bool) -> str:
    """Why a host needs another certificate; empty when it does not."""
    path = folder / f"{host}.pem"
    if not path.exists() or not (folder / f"{host}.key").exists():
        return "missing"
    if renew:
        return "renewed"
    certificate = x509.load_pem_x509_certificates(path.read_bytes())[0]
    if certificate.not_valid_after_utc < now + timedelta(days=RENEWED_DAYS_BEFORE):
        return f"valid until {certificate.not_valid_after_utc:%Y-%m-%d} alone"
    other = [name for name in names if not covers(certificate, name)]
    return f"not for {', '.join(other)}" if other else ""


def _new_issuer(folder: Path, now: datetime) -> Issuer:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"headrace {folder.parent.name}"[:NAME_LENGTH_MAX])]
    )
    usage = _usage(signs_certificates=True)
    certificate = (
        _builder(name, name, key, now, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(folder / "ca.key", _key_bytes(key), 0o600)
    _write(folder / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return Issuer(certificate=certificate, key=key)


def _issuer(folder: Path) -> Issuer:
    """The last of ca.pem is who signs: one that shall be trusted no longer soon stands before it."""
    try:
        certificate = x509.load_pem_x509_certificates((folder / "ca.pem").read_bytes())[-1]
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise AuthorityError(f"{folder}/ca.pem or ca.key cannot be read: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        raise AuthorityError(f"{folder}/ca.key is not the key of the last certificate in ca.pem.")
    return Issuer(certificate=certificate, key=key)


def _issue(folder: Path, host: str, names: list[str], issuer: Issuer, now: datetime) -> None:
    """The key first: a run that ends between them leaves a pair that is seen to be wrong, and made anew."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:NAME_LENGTH_MAX])])
    certificate = (
        _builder(subject, issuer.certificate.subject, key, now, CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key()), critical=False
        )
        .sign(issuer.key, hashes.SHA256())
    )
    (folder / f"{host}.pem").unlink(missing_ok=True)
    _write(folder / f"{host}.key", _key_bytes(key), 0o600)
    _write(folder / f"{host}.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Whole, and with its rights from the first byte on."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".making-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
