"""Until when the certificate holds that a service shows, as a host finds out without a library for certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from playbooks_kit import load
from tls_kit import CERTIFICATE_PADDING, authority, der_of, signed

served = load("ansible.module_utils.headrace_served_certificates")
look = load("headrace_look")


@contextmanager
def shown(folder: Path) -> Iterator[tuple[int, datetime]]:
    """A server that shows a certificate to one client: its port, and until when the certificate holds."""
    identity = signed(authority(), "zookeeper-1")
    path = folder / "both.pem"
    path.write_text(identity.key_pem() + identity.chain_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with context.wrap_socket(connection, server_side=True):
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], identity.certificate.not_valid_after_utc
        thread.join()


def test_what_is_served_is_read(tmp_path: Path) -> None:
    with shown(tmp_path) as (port, until):
        assert served.served_until("127.0.0.1", port) == until.timestamp()


@pytest.mark.parametrize("year", [2049, 2050])
def test_both_forms_of_a_time_are_read(year: int) -> None:
    until = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert served.valid_until(der_of(lasting(until))) == until.timestamp()


def lasting(until: datetime) -> x509.Certificate:
    owner = authority()
    builder = x509.CertificateBuilder(
        issuer_name=owner.certificate.subject,
        subject_name=owner.certificate.subject,
        public_key=owner.key.public_key(),
        serial_number=1,
        not_valid_before=datetime(2026, 1, 1, tzinfo=UTC),
        not_valid_after=until,
    ).add_extension(CERTIFICATE_PADDING, critical=False)
    return builder.sign(owner.key, hashes.SHA256())


def test_who_shows_none_is_not_told_of() -> None:
    assert served.served_until("127.0.0.1", 1) is None


@pytest.mark.parametrize("bytes_", [b"", b"\x30", b"\x30\x03\x02\x01\x01", b"\x30\x84\xff\xff\xff\xff"])
def test_what_is_no_certificate_is_refused(bytes_: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        served.valid_until(bytes_)


def test_a_look_asks_those_alone_that_speak_tls(tmp_path: Path) -> None:
    with shown(tmp_path) as (port, until):
        probes = [
            {"kind": "http", "address": "127.0.0.1", "port": 1},
            {"kind": "zookeeper_tls", "address": "127.0.0.1", "port": port},
        ]
        left = timedelta(seconds=look.certificate_left_s(probes))
    assert abs(datetime.now(UTC) + left - until) < timedelta(seconds=30)
    assert look.certificate_left_s(probes[:1]) is None
