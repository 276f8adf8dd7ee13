"""Contexts from settings: which ends agree, over what, and which settings are refused."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
from tls_kit import authority, pem_settings, signed

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.tls.contexts import check_handshake, client_context, server_context

CA = authority()
STRANGE_CA = authority("strange-ca")
BROKER = signed(CA, "broker")
CLIENT = signed(CA, "client")


@pytest.fixture
def server(tmp_path: Path) -> dict[str, str]:
    return pem_settings(tmp_path / "server", BROKER, [CA.certificate])


@pytest.fixture
def client(tmp_path: Path) -> dict[str, str]:
    return pem_settings(tmp_path / "client", CLIENT, [CA.certificate])


def handshake(server: dict[str, str], client: dict[str, str]) -> None:
    check_handshake(server_context(server), client_context(client))


def without_keys(settings: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if "keystore" not in name}


def test_the_key_of_a_server_and_who_trusts_it(
    server: dict[str, str], client: dict[str, str], tmp_path: Path
) -> None:
    handshake(server, without_keys(client))
    stranger = pem_settings(tmp_path / "stranger", CLIENT, [STRANGE_CA.certificate])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, stranger)


def test_a_certificate_that_is_no_root_can_be_trusted(server: dict[str, str], tmp_path: Path) -> None:
    handshake(server, without_keys(pem_settings(tmp_path / "pinned", CLIENT, [BROKER.certificate])))


@pytest.mark.parametrize("auth", ["none", "requested", "required"])
def test_client_auth(server: dict[str, str], client: dict[str, str], tmp_path: Path, auth: str) -> None:
    server["ssl.client.auth"] = auth
    handshake(server, client)
    if auth == "required":
        with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            handshake(server, without_keys(client))
    else:
        handshake(server, without_keys(client))
    strange = pem_settings(tmp_path / "strange", signed(STRANGE_CA), [CA.certificate])
    if auth == "none":
        handshake(server, strange)
    else:
        with pytest.raises(ssl.SSLError):
            handshake(server, strange)


@pytest.mark.parametrize("days", [(-3.0, -1.0), (1.0, 3.0)], ids=["expired", "not yet valid"])
def test_a_certificate_out_of_its_time(
    client: dict[str, str], tmp_path: Path, days: tuple[float, float]
) -> None:
    server = pem_settings(tmp_path / "old", signed(CA, days=days))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client)


@pytest.mark.parametrize(
    ("ours", "theirs", "agree"),
    [
        ("TLSv1.2", "TLSv1.2", True),
        ("TLSv1.3", "TLSv1.3", True),
        ("TLSv1.2,TLSv1.3", "TLSv1.2", True),
        ("TLSv1.3", "TLSv1.2", False),
    ],
)
def test_versions(
    server: dict[str, str], client: dict[str, str], ours: str, theirs: str, agree: bool
) -> None:
    server["ssl.enabled.protocols"], client["ssl.enabled.protocols"] = ours, theirs
    if agree:
        handshake(server, client)
    else:
        with pytest.raises(ssl.SSLError):
            handshake(server, client)


def test_older_versions_are_no_setting(server: dict[str, str]) -> None:
    server["ssl.enabled.protocols"] = "TLSv1.1,TLSv1.2"
    with pytest.raises(ConfigurationError, match=r"each item one of TLSv1\.2, TLSv1\.3"):
        server_context(server)


def cipher_of(server: dict[str, str], client: dict[str, str]) -> tuple[str, str]:
    """The cipher and the version that the two agree on."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client_context(client).wrap_bio(to_client, to_server, server_hostname="localhost")
    far = server_context(server).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (near, far):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    found = far.cipher()
    assert found is not None
    return found[0], far.version() or ""


@pytest.mark.parametrize(
    ("suites", "cipher", "version"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2"),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "TLSv1.2",
        ),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384", "TLSv1.2"),
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", "TLSv1.3"),
        (
            "TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
            "TLSv1.3",
        ),
    ],
)
def test_cipher_suites_by_javas_names(
    server: dict[str, str], client: dict[str, str], suites: str, cipher: str, version: str
) -> None:
    server["ssl.cipher.suites"] = suites
    assert cipher_of(server, client) == (cipher, version)


@pytest.mark.parametrize(
    ("suites", "said"),
    [
        ("TLS_NO_SUCH", "give suites without TLS_NO_SUCH"),
        ("TLS_RSA_WITH_NULL_SHA256", "give suites without TLS_RSA_WITH_NULL_SHA256"),
        ("TLS_AES_128_GCM_SHA256", "give TLS_AES_256_GCM_SHA384 among those of TLS 1.3"),
    ],
)
def test_cipher_suites_that_are_refused(server: dict[str, str], suites: str, said: str) -> None:
    server["ssl.cipher.suites"] = suites
    with pytest.raises(ConfigurationError, match=said):
        server_context(server)


def test_suites_and_versions_that_do_not_go_together(server: dict[str, str]) -> None:
    server |= {"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.2"}
    with pytest.raises(ConfigurationError, match=r"ssl\.enabled\.protocols=TLSv1\.2 is not allowed"):
        server_context(server)


def test_a_server_without_a_key() -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.keystore\.location"):
        server_context({})


def test_names_of_hosts(client: dict[str, str]) -> None:
    assert client_context(client).check_hostname
    client["ssl.endpoint.identification.algorithm"] = ""
    context = client_context(client)
    assert not context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
