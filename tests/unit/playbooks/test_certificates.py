"""Certificates of an inventory: what is made, what stays, and what is told of those that would not do."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from inventory_kit import Inventory, good_inventory
from playbooks_kit import load

from headrace_inventory import authority
from headrace_inventory.authority import AuthorityError, make_missing, nothing_made
from headrace_inventory.certificates import certificates, names_of, secured_hosts

health = load("ansible.module_utils.headrace_health")


def secured(folder: Path) -> Inventory:
    groups, hostvars = good_inventory()
    for host in groups["broker"]:
        hostvars[host] |= {"headrace_security_open": ["tls"], "headrace_certificates_from": str(folder)}
    return groups, hostvars


def test_whoever_is_asked_over_tls_has_a_certificate(tmp_path: Path) -> None:
    groups, hostvars = secured(tmp_path)
    for host in (*groups["zookeeper"], *groups["registry"], *groups["audit"]):
        hostvars[host]["headrace_security_open"] = ["plaintext", "tls"]
    groups["haproxy"] = ["publish.example.com"]
    hostvars["publish.example.com"] = {"headrace_datacenter": "east", "headrace_address": "10.1.1.100"}
    wanted = [*groups["broker"], *groups["zookeeper"], *groups["registry"]]
    assert secured_hosts(groups, hostvars) == wanted
    assert names_of("east-registry-1", groups, hostvars) == ["east-registry-1", "10.1.3.1"]
    del groups["broker"]
    assert secured_hosts(groups, hostvars) == wanted[4:]
    assert names_of("east-registry-1", groups, hostvars) == ["east-registry-1", "10.1.3.1"]


def make(folder: Path, *, renew: bool = False, dry: bool = False) -> list[str]:
    return make_missing(*secured(folder), renew=renew, dry=dry)


def test_nothing_is_made_where_nothing_is_secured(tmp_path: Path) -> None:
    assert make_missing(*good_inventory(), renew=True, dry=False) == []
    members: Inventory = {"all": ["mirror-1"], "mirror_member": ["mirror-1"]}, {"mirror-1": {}}
    assert make_missing(*members, renew=True, dry=False) == []
    assert nothing_made(*members) == nothing_made(*good_inventory())
    assert nothing_made(*secured(tmp_path)) == "Every host that needs a certificate has one."
    assert certificates(*good_inventory()) == []


def test_what_is_missing_is_told_made_and_good(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    would = make(folder, dry=True)
    assert not folder.exists()
    assert make(folder) == would
    assert len(would) == 5
    assert certificates(*secured(folder)) == []
    assert make(folder) == []
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == {0o600}


def test_a_broker_is_also_known_by_the_bootstrap_addresses_before_it(tmp_path: Path) -> None:
    groups, hostvars = secured(tmp_path)
    groups["haproxy"] = ["publish.example.com"]
    hostvars["publish.example.com"] = {"headrace_datacenter": "east", "headrace_address": "10.1.1.100"}
    hostvars["east-broker-1"]["headrace_certificate_names"] = ["nlb.example.com"]
    for host in ("east-broker-1", "east-registry-1"):
        hostvars[host]["headrace_publish_address"] = "publish.east.internal:9094"
    assert names_of("east-broker-1", groups, hostvars) == [
        "east-broker-1",
        "10.1.1.1",
        "publish.example.com",
        "10.1.1.100",
        "publish.east.internal",
        "nlb.example.com",
    ]
    assert "10.1.1.100" not in names_of("off-broker-1", groups, hostvars)
    assert "publish.east.internal" not in names_of("east-registry-1", groups, hostvars)


def test_a_certificate_for_other_names_or_about_to_end_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    groups, hostvars = secured(tmp_path)
    hostvars["east-broker-1"]["headrace_address"] = "10.1.1.99"
    assert "not for 10.1.1.99" in " ".join(make_missing(groups, hostvars, renew=False, dry=True))
    assert "is not for 10.1.1.99, which clients reach it by" in " ".join(certificates(groups, hostvars))
    monkeypatch.setattr(authority, "CERTIFICATE_DAYS", 20)
    make(tmp_path, renew=True)
    assert len(make(tmp_path, dry=True)) == 4


def test_renewing_changes_every_pair_and_keeps_the_authority(tmp_path: Path) -> None:
    make(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(make(tmp_path, renew=True)) == 4
    same = {path.name for path in tmp_path.iterdir() if path.read_bytes() == before[path.name]}
    assert same == {"ca.pem", "ca.key"}


def test_without_the_authority_s_key_nothing_is_made(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "ca.key").unlink()
    (tmp_path / "east-broker-1.pem").unlink()
    with pytest.raises(
        AuthorityError, match=r"made elsewhere: put east-broker-1.pem and east-broker-1.key there"
    ):
        make(tmp_path)
    assert any(
        "has no certificate in" in problem and "No such file" in problem
        for problem in certificates(*secured(tmp_path))
    )


def test_somebody_else_s_certificate_and_one_that_has_ended_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "ours")
    monkeypatch.setattr(authority, "BEFORE", timedelta(days=2))
    monkeypatch.setattr(authority, "CERTIFICATE_DAYS", -1)
    make(tmp_path / "theirs")
    for ending in ("pem", "key"):
        shutil.copy(tmp_path / "theirs" / f"east-broker-1.{ending}", tmp_path / "ours")
    found = certificates(*secured(tmp_path / "ours"))
    assert len(found) == 2
    yesterday = datetime.now(UTC) - timedelta(days=1)
    assert f"is valid until {yesterday:%Y-%m-%d}" in found[0]
    assert "leads to nobody in" in found[1]


def test_a_zookeeper_of_several_has_a_certificate_that_it_may_show_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, hostvars = good_inventory()
    peers = ["east-zookeeper-1", "east-zookeeper-2", "east-zookeeper-3"]
    for number, host in enumerate(peers, 1):
        hostvars[host] = hostvars[peers[0]] | {"headrace_address": f"10.1.2.{number}", "zookeeper_id": number}
    groups["zookeeper"] = [*peers, "off-zookeeper-1"]
    groups["broker"] = groups["registry"] = []
    for host in groups["zookeeper"]:
        hostvars[host] |= {"headrace_security_open": ["tls"], "headrace_certificates_from": str(tmp_path)}
    make_missing(groups, hostvars, renew=False, dry=False)
    assert certificates(groups, hostvars) == []
    monkeypatch.setattr(ExtendedKeyUsageOID, "CLIENT_AUTH", ExtendedKeyUsageOID.CODE_SIGNING)
    make_missing(groups, hostvars, renew=True, dry=False)
    monkeypatch.undo()
    found = certificates(groups, hostvars)
    assert [problem.split()[4] for problem in found] == peers
    assert "is for servers alone, and a ZooKeeper shows it to the others of its ensemble" in found[0]


def test_what_is_no_certificate_is_told(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("canary")
    (problem,) = certificates(*secured(tmp_path))
    assert problem.endswith(
        "ca.pem holds no certificates to trust (it is not in PEM): playbooks/certificates.yml makes what is missing."
    )


def test_a_broker_that_speaks_tls_is_asked_whether_it_answers(tmp_path: Path) -> None:
    """The certificates are ones that Python's own TLS takes, names included."""
    make(tmp_path)
    host, address = "east-broker-1", "10.1.1.1"
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(tmp_path / f"{host}.pem", tmp_path / f"{host}.key")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            for _ in range(2):
                connection, _ = server.accept()
                with server_context.wrap_socket(connection, server_side=True) as secured_end:
                    if secured_end.recv(100) == health.API_VERSIONS_REQUEST:
                        secured_end.sendall(b"\0\0\0\6\0\0\0\1\0\0")

        threading.Thread(target=serve, daemon=True).start()
        assert health.complaint("kafka_tls", "127.0.0.1", port, "") is None
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname=address) as ours,
        ):
            assert ours.version() in ("TLSv1.2", "TLSv1.3")
    with socket.create_server(("127.0.0.1", 0)) as mute:

        def close() -> None:
            connection, _ = mute.accept()
            connection.sendall(b"HTTP/1.1 400 what\r\n\r\n")
            connection.close()

        threading.Thread(target=close, daemon=True).start()
        assert "TLS fails there" in str(health.complaint("kafka_tls", "127.0.0.1", mute.getsockname()[1], ""))


def test_an_authority_signs_certificates_and_a_host_does_not(tmp_path: Path) -> None:
    make(tmp_path)
    basic = {
        name: x509.load_pem_x509_certificate((tmp_path / name).read_bytes())
        .extensions.get_extension_for_class(x509.BasicConstraints)
        .value.ca
        for name in ("ca.pem", "east-broker-1.pem")
    }
    assert basic == {"ca.pem": True, "east-broker-1.pem": False}
