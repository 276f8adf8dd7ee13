"""The certificates of hosts, as they lie in the inventory's folder: what each must be for, and what is wrong with them.

`ca.pem` is what everybody trusts, `HOST.pem` a host's certificate with those that lead to one of these, `HOST.key` its key
without a passphrase, which ansible-vault may have encrypted. Who made them does not matter; playbooks/certificates.yml can.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from headrace_inventory.addresses import Groups, HostVars, in_datacenter

MAKE = "playbooks/certificates.yml makes what is missing"
DAYS_LEFT_MIN = 1
# HAProxy passes TLS through, and nobody asks loads and audit.
SECURED_GROUPS = ("broker", "zookeeper", "registry")


def secured_hosts(groups: Groups, hostvars: HostVars) -> list[str]:
    """The hosts that need a certificate for one of their services."""
    hosts = dict.fromkeys(host for group in SECURED_GROUPS for host in groups.get(group, []))
    return [host for host in hosts if hostvars[host].get("headrace_security_open", []) != ["plaintext"]]


def names_of(host: str, groups: Groups, hostvars: HostVars) -> list[str]:
    """What a host is reached by: itself, and with a broker the bootstrap addresses behind which it is."""
    datacenter = str(hostvars[host]["headrace_datacenter"])
    is_broker = host in groups.get("broker", [])
    balancers = groups.get("haproxy", []) if is_broker else []
    balancers = in_datacenter(balancers, hostvars, datacenter)
    found = [host, str(hostvars[host]["headrace_address"])]
    for balancer in balancers:
        found += [balancer, str(hostvars[balancer]["headrace_address"])]
    if is_broker and hostvars[host].get("headrace_publish_address"):
        found.append(str(hostvars[host]["headrace_publish_address"]).rpartition(":")[0])
    return list(dict.fromkeys([*found, *hostvars[host].get("headrace_certificate_names", [])]))


def names_in(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    found = {*names.get_values_for_type(x509.DNSName)}
    return found | {str(address) for address in names.get_values_for_type(x509.IPAddress)}


def covers(certificate: x509.Certificate, name: str) -> bool:
    """Whether a client that reaches it by that name is content with it."""
    found = names_in(certificate)
    if name in found:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        _, dot, domain = name.partition(".")
        return bool(dot) and f"*.{domain}" in found
    return False


def is_for_clients(certificate: x509.Certificate) -> bool:
    """Whether who connects may show it."""
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in uses or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in uses


def has_peers(host: str, groups: Groups, hostvars: HostVars) -> bool:
    """Whether it is a ZooKeeper of several, which show their certificates to each other."""
    ensemble = in_datacenter(groups["zookeeper"], hostvars, str(hostvars[host]["headrace_datacenter"]))
    return host in ensemble and len(ensemble) > 1


def certificates(groups: Groups, hostvars: HostVars) -> list[str]:
    """One sentence for each certificate that is missing, or with which a broker could not be reached."""
    hosts = secured_hosts(groups, hostvars)
    if not hosts:
        return []
    folder = Path(hostvars[hosts[0]]["headrace_certificates_from"])
    try:
        authorities = x509.load_pem_x509_certificates((folder / "ca.pem").read_bytes())
    except (OSError, ValueError) as error:
        return [f"{folder / 'ca.pem'} holds no certificates to trust ({_reason(error)}): {MAKE}."]
    now = datetime.now(UTC)
    return [
        problem
        for host in hosts
        for problem in _host_problems(
            host,
            folder,
            authorities,
            names_of(host, groups, hostvars),
            now,
            has_peers=has_peers(host, groups, hostvars),
        )
    ]


def _host_problems(
    host: str,
    folder: Path,
    authorities: list[x509.Certificate],
    names: list[str],
    now: datetime,
    *,
    has_peers: bool,
) -> Iterator[str]:
    path, key = folder / f"{host}.pem", folder / f"{host}.key"
    try:
        chain = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        yield f"Host {host} has no certificate in {path} ({_reason(error)}): {MAKE}."
        return
    if not key.is_file():
        yield f"Host {host} has no key in {key}: {MAKE}."
    certificate = chain[0]
    until = certificate.not_valid_after_utc
    if until < now + timedelta(days=DAYS_LEFT_MIN):
        yield f"The certificate of host {host} ({path}) is valid until {until:%Y-%m-%d %H:%M} UTC alone: renew it."
    missing = [name for name in names[1:] if not covers(certificate, name)]
    if missing:
        yield f"The certificate of host {host} ({path}) is not for {', '.join(missing)}, which clients reach it by."
    if not any(_is_issued_by(chain[-1], authority) for authority in authorities):
        yield f"The certificate of host {host} ({path}) leads to nobody in {folder / 'ca.pem'}."
    if has_peers and not is_for_clients(certificate):
        yield (
            f"The certificate of host {host} ({path}) is for servers alone, and a ZooKeeper shows it to the others of its "
            "ensemble: have one made for TLS clients, too."
        )


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:
        # Each algorithm has an error of its own for a signature that is another's.
        return certificate == authority
    return True


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is not in PEM"
