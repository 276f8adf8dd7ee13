"""One registry asked by Confluent's client: what is sent, what comes of its answers, and the bounds."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import logging
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from registry_kit import scripted_registry

from headrace.events import registry_client
from headrace.events.registry_address import RegistryAddress
from headrace.events.registry_client import NoAnswerError, RegistryClient, StatusError

LATEST = "/subjects/orders-value/versions/latest"
VERSIONS = "/subjects/orders-value/versions"


def client_of(url: str) -> RegistryClient:
    return RegistryClient(RegistryAddress(url), timeout_seconds=5)


def test_the_latest_version_is_asked_for_each_time() -> None:
    answers: dict[str, tuple[int, Any]] = {LATEST: (200, {"id": 3, "schema": '"int"'})}
    with scripted_registry(answers) as registry:
        client = client_of(registry.url)
        assert client.latest("orders-value").schema_id == 3
        answers[LATEST] = (200, {"id": 4, "schema": '"long"'})
        assert client.latest("orders-value").schema_id == 4
        client.close()


def test_a_registration_carries_the_schema_and_brings_its_id() -> None:
    with scripted_registry({VERSIONS: (200, {"id": 7})}) as registry:
        client = client_of(registry.url + "/")
        assert client.register("orders-value", '"int"') == 7
        client.close()
    assert [(posted["schema"], posted["schemaType"]) for posted in registry.posted] == [('"int"', "AVRO")]


@pytest.mark.parametrize(
    ("status", "answer", "sentence"),
    [
        (409, {"error_code": 409, "message": "is not compatible"}, "is not compatible"),
        (422, {"message": "has no code"}, "has no code"),
        (403, {"detail": "no message"}, "HTTP status 403"),
        (502, b"<html>Bad Gateway</html>", "HTTP status 502"),
        (400, [], "HTTP status 400"),
        (401, b"who?", "HTTP status 401, it lets in users by name and password: check these"),
        (404, b"<html>nothing here</html>", "HTTP status 404, is this a schema registry?"),
    ],
)
def test_an_error_is_told_in_the_registrys_words_or_by_its_status(
    status: int, answer: Any, sentence: str
) -> None:
    with scripted_registry({LATEST: (status, answer)}) as registry:
        client = client_of(registry.url)
        with pytest.raises(StatusError) as raised:
            client.latest("orders-value")
        client.close()
    assert (raised.value.status, str(raised.value)) == (status, sentence)
    assert len(registry.asked) == 1  # who asks says how often


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"<html>hello</html>", "the answer is no JSON, is this a schema registry?"),
        ([1], "is this a schema registry?"),
        (b"", "is this a schema registry?"),
        ({"hello": 1}, "the answer has no id, is this a schema registry?"),
    ],
)
def test_what_is_no_registry_gives_no_answer(answer: Any, sentence: str) -> None:
    with scripted_registry({VERSIONS: (200, answer)}) as registry:
        client = client_of(registry.url)
        with pytest.raises(NoAnswerError, match=sentence.replace("?", r"\?")):
            client.register("orders-value", '"int"')
        client.close()


def test_nobody_at_the_address_is_said_as_the_system_says_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(NoAnswerError, match=r"^\[Errno 111\] Connection refused$"):
        client_of(address).latest("orders-value")
    with pytest.raises(NoAnswerError, match="nowhere"):
        client_of("nowhere").latest("orders-value")


def test_a_registry_that_accepts_and_says_nothing_is_left_after_the_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = RegistryClient(
            RegistryAddress(f"http://127.0.0.1:{silent.getsockname()[1]}"), timeout_seconds=0.05
        )
        with pytest.raises(NoAnswerError, match="timed out"):
            client.latest("orders-value")
        client.close()


def test_an_answer_beyond_the_bound_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fitting = {"id": 1, "schema": '"int"'}
    with scripted_registry({LATEST: (200, {**fitting, "more": "x" * 2000})}) as registry:
        client = client_of(registry.url)
        assert client.latest("orders-value").schema_id == 1
        monkeypatch.setattr(registry_client, "ANSWER_SIZE_MAX", 2000)
        with pytest.raises(NoAnswerError, match="the answer is larger than 2000 bytes"):
            client.latest("orders-value")
        registry.answers[LATEST] = (500, b"x" * 2001)
        with pytest.raises(NoAnswerError, match="the answer is larger than 2000 bytes"):
            client.latest("orders-value")
        registry.answers[LATEST] = (200, fitting)
        assert client.latest("orders-value").schema_id == 1
        client.close()


def test_a_redirection_is_followed() -> None:
    answers: dict[str, tuple[int, Any]] = {LATEST: (200, {"id": 3, "schema": '"int"'})}
    answers["/old" + LATEST] = (302, LATEST.encode())
    with scripted_registry(answers) as registry:
        client = client_of(registry.url + "/old")
        assert client.latest("orders-value").schema_id == 3
        client.close()


def test_user_and_password_of_the_url_are_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with scripted_registry({LATEST: (200, {"id": 3, "schema": '"int"'})}) as registry:
        client = client_of(registry.url.replace("://", "://load:s%40cret@"))
        client.latest("orders-value")
        client.close()
        assert client.url == registry.url
    [(_, _, headers)] = registry.asked
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"load:s@cret").decode()
    assert "cret" not in caplog.text


def test_whom_the_system_trusts_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = tmp_path / "certificate.pem"
    write_certificate(certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with scripted_registry({LATEST: (200, {"id": 3, "schema": '"int"'})}, tls) as registry:
        with pytest.raises(NoAnswerError, match="CERTIFICATE_VERIFY_FAILED"):
            client_of(registry.url).latest("orders-value")
        paths = ssl.get_default_verify_paths()._replace(cafile=str(certificate))
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
        client = client_of(registry.url)
        assert client.latest("orders-value").schema_id == 3
        client.close()


def write_certificate(file: Path) -> None:
    """Write a key and a certificate of 127.0.0.1 that nobody else signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "registry")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(secret + certificate.public_bytes(serialization.Encoding.PEM))


def test_confluents_client_is_imported_by_who_asks_alone() -> None:
    program = (
        "import sys, headrace.load.registry as load, headrace.producer.registration\n"
        "from headrace.events.registry_address import RegistryAddress\n"
        "load.SchemaRegistry(RegistryAddress('http://127.0.0.1:1'))\n"
        "assert not [name for name in sys.modules if name.startswith('confluent_kafka.schema_registry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
