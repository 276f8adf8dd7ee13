"""Key and trust stores in each form, with the passwords that they need, and what is said of those that cannot be used."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from tls_kit import PASSWORD, authority, jks_store, pem_of, pkcs12_store, signed

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.tls.contexts import parsed
from headrace.broker.tls.stores import KeyStore, key_store, trust_store

CA = authority()
BROKER = signed(CA, "broker")
OTHER = signed(CA, "other")


def keys_of(settings: dict[str, str]) -> KeyStore | None:
    return key_store(parsed(settings))


def is_broker(found: KeyStore | None) -> bool:
    assert found is not None
    return found.key_pem().decode() == BROKER.key_pem() and [
        each.public_bytes(Encoding.PEM) for each in found.chain
    ] == [each.public_bytes(Encoding.PEM) for each in BROKER.chain]


def refusal(settings: dict[str, str], *, trust: bool = False) -> str:
    with pytest.raises(ConfigurationError) as raised:
        (trust_store if trust else key_store)(parsed(settings))
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


def file_of(tmp_path: Path, content: bytes | str, name: str = "store") -> str:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


@pytest.mark.parametrize("password", [None, "key-secret"])
def test_pem_file(tmp_path: Path, password: str | None) -> None:
    text = BROKER.chain_pem() + BROKER.key_pem(password)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": file_of(tmp_path, text)}
    assert is_broker(keys_of(settings | ({"ssl.key.password": password} if password else {})))


def test_pem_inline_on_one_line() -> None:
    one_line = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": BROKER.key_pem().replace("\n", " "),
        "ssl.keystore.certificate.chain": BROKER.chain_pem().replace("\n", " "),
    }
    assert is_broker(keys_of(one_line))
    trusted = trust_store(
        parsed({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem_of(CA.certificate)})
    )
    assert trusted == (CA.certificate,)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_file_under_either_name(tmp_path: Path, kind: str) -> None:
    location = file_of(tmp_path, pkcs12_store(BROKER))
    settings = {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": location,
        "ssl.keystore.password": PASSWORD,
    }
    assert is_broker(keys_of(settings))


@pytest.mark.parametrize("key_password", [None, "key-secret"])
def test_jks_file(tmp_path: Path, key_password: str | None) -> None:
    location = file_of(tmp_path, jks_store(BROKER, [CA.certificate], key_password=key_password))
    settings = {"ssl.keystore.location": location, "ssl.keystore.password": PASSWORD}
    assert is_broker(keys_of(settings | ({"ssl.key.password": key_password} if key_password else {})))


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_jks_trust_store_with_and_without_password(tmp_path: Path, password: str | None) -> None:
    settings = {"ssl.truststore.location": file_of(tmp_path, jks_store(None, [CA.certificate]))}
    settings |= {"ssl.truststore.password": password} if password else {}
    assert trust_store(parsed(settings)) == (CA.certificate,)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_stores_of_keytool(tmp_path: Path, kind: str) -> None:
    def keytool(*arguments: str) -> None:
        common = ("-storetype", kind, "-storepass", PASSWORD, "-noprompt")
        subprocess.run(["keytool", *arguments, *common], check=True, capture_output=True, timeout=60)

    location, trust = str(tmp_path / "keys"), str(tmp_path / "trust")
    keytool("-genkeypair", "-keyalg", "EC", "-alias", "b", "-dname", "CN=b", "-keystore", location)
    authority_file = file_of(tmp_path, pem_of(CA.certificate), "ca.pem")
    keytool("-importcert", "-alias", "ca", "-file", authority_file, "-keystore", trust)
    found = keys_of({"ssl.keystore.location": location, "ssl.keystore.password": PASSWORD})
    assert found is not None
    assert found.certificate.subject.rfc4514_string() == "CN=b"
    trusted = trust_store(parsed({"ssl.truststore.location": trust, "ssl.truststore.password": PASSWORD}))
    assert trusted == (CA.certificate,)


def test_nothing_is_named() -> None:
    assert keys_of({}) is None
    assert trust_store(parsed({})) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ssl.keystore.key": "x"}, "ssl.keystore.type=JKS is not allowed: give PEM with ssl.keystore.key."),
        (
            {"ssl.keystore.certificate.chain": "x"},
            "ssl.keystore.key= is not allowed: give the key of ssl.keystore.certificate.chain.",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": "x"},
            "ssl.keystore.certificate.chain= is not allowed: give the certificates of ssl.keystore.key.",
        ),
        (
            {"ssl.keystore.location": "/no/such"},
            "ssl.keystore.location=/no/such is not allowed: give a file that can be read (No such file or directory).",
        ),
    ],
)
def test_refused_key_stores(settings: dict[str, str], said: str) -> None:
    assert refusal(settings) == said


def test_inline_key_beside_a_file_or_a_password_of_the_store() -> None:
    inline = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": BROKER.key_pem(),
        "ssl.keystore.certificate.chain": BROKER.chain_pem(),
    }
    assert "give no file with ssl.keystore.key" in refusal(inline | {"ssl.keystore.location": "/x"})
    assert "give no password with PEM" in refusal(inline | {"ssl.keystore.password": PASSWORD})


@pytest.mark.parametrize("store", [jks_store(BROKER), pkcs12_store(BROKER)], ids=["JKS", "PKCS12"])
def test_wrong_password(tmp_path: Path, store: bytes) -> None:
    location = file_of(tmp_path, store)
    settings = {"ssl.keystore.location": location}
    assert refusal(settings) == "ssl.keystore.password= is not allowed: give the password of the key store."
    said = refusal(settings | {"ssl.keystore.password": "wrong"})
    assert said.startswith("ssl.keystore.password=[hidden] is not allowed: give the password")
    assert location in said


def test_wrong_password_of_a_key(tmp_path: Path) -> None:
    location = file_of(tmp_path, jks_store(BROKER, key_password="key-secret"))
    settings = {"ssl.keystore.location": location, "ssl.keystore.password": PASSWORD}
    said = f"ssl.key.password=[hidden] is not allowed: give the key's password, {location}."
    assert refusal(settings) == said
    pem_file = file_of(tmp_path, BROKER.chain_pem() + BROKER.key_pem("key-secret"))
    pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": pem_file}
    assert refusal(pem) == "ssl.key.password= is not allowed: give the key's password."
    assert "ssl.key.password=[hidden]" in refusal(pem | {"ssl.key.password": "wrong"})


def test_a_key_that_is_not_the_certificates(tmp_path: Path) -> None:
    location = file_of(tmp_path, OTHER.key_pem() + BROKER.chain_pem())
    said = refusal({"ssl.keystore.type": "PEM", "ssl.keystore.location": location})
    assert said == f"ssl.keystore.location={location} is not allowed: give the key's own certificate first."


@pytest.mark.parametrize("size", [0, 3, 40, 300, -21, -1])
def test_a_store_cut_short(tmp_path: Path, size: int) -> None:
    for store in (jks_store(BROKER, [CA.certificate]), pkcs12_store(BROKER)):
        location = file_of(tmp_path, store[:size])
        refusal({"ssl.keystore.location": location, "ssl.keystore.password": PASSWORD})
        refusal({"ssl.truststore.location": location}, trust=True)


def test_pem_without_its_type_says_so(tmp_path: Path) -> None:
    location = file_of(tmp_path, BROKER.key_pem() + BROKER.chain_pem())
    said = refusal({"ssl.keystore.location": location, "ssl.keystore.password": PASSWORD})
    assert "PEM files need the type PEM" in said


def test_a_trust_store_that_trusts_nobody(tmp_path: Path) -> None:
    location = file_of(tmp_path, jks_store(None))
    assert "a store with a certificate" in refusal({"ssl.truststore.location": location}, trust=True)
    pem = {"ssl.truststore.type": "PEM", "ssl.truststore.location": file_of(tmp_path, "nothing")}
    assert "give PEM with certificates" in refusal(pem, trust=True)
