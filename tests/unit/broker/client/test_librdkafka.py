"""What librdkafka is told: it takes each of these settings, and makes of them what Kafka's mean."""

from __future__ import annotations

from pathlib import Path

import pytest
import tls_kit
from confluent_kafka import Producer
from secured_broker import NAME, PASSWORD, jaas, sasl_settings

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.librdkafka import settings_of
from headrace.broker.client.security import ClientSecurity
from headrace.broker.config.keys import ConfigurationError


def told(settings: dict[str, str]) -> dict[str, object]:
    found = settings_of(Bootstrap("127.0.0.1:1", ClientSecurity.of(settings)))
    Producer({**found, "log_level": 0})
    return found


def test_nothing_is_told_of_plaintext() -> None:
    assert told({}) == {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
def test_stores_of_every_kind_become_pem(tmp_path: Path, kind: str) -> None:
    authority = tls_kit.authority()
    own = tls_kit.signed(authority, "client")
    if kind == "PEM":
        settings = tls_kit.pem_settings(tmp_path, own, [authority.certificate])
    else:
        (tmp_path / "keys").write_bytes(
            tls_kit.jks_store(own) if kind == "JKS" else tls_kit.pkcs12_store(own)
        )
        (tmp_path / "trust").write_bytes(tls_kit.jks_store(None, [authority.certificate]))
        settings = {
            f"ssl.{store}store.{key}": value
            for store, name in (("key", "keys"), ("trust", "trust"))
            for key, value in (
                ("location", str(tmp_path / name)),
                ("password", tls_kit.PASSWORD),
                ("type", kind),
            )
        }
    found = told({"security.protocol": "SSL", **settings})
    assert found["ssl.ca.pem"] == tls_kit.pem_of(authority.certificate)
    assert found["ssl.certificate.pem"] == own.chain_pem()
    assert str(found["ssl.key.pem"]).startswith("-----BEGIN PRIVATE KEY")
    assert found["ssl.endpoint.identification.algorithm"] == "https"
    unchecked = {"security.protocol": "SSL", **settings, "ssl.endpoint.identification.algorithm": ""}
    assert told(unchecked)["ssl.endpoint.identification.algorithm"] == "none"


def test_a_user_and_its_password_are_told() -> None:
    found = told(sasl_settings("SCRAM-SHA-256"))
    assert found["security.protocol"] == "SASL_PLAINTEXT"
    assert (found["sasl.mechanism"], found["sasl.username"], found["sasl.password"]) == (
        "SCRAM-SHA-256",
        NAME,
        PASSWORD,
    )


def test_a_delegation_token_is_refused_that_the_library_could_not_show() -> None:
    module = jaas("SCRAM-SHA-256").replace(";", ' tokenauth="true";')
    with pytest.raises(ConfigurationError, match="knows no delegation tokens"):
        told({**sasl_settings("SCRAM-SHA-256"), "sasl.jaas.config": module})


def test_the_library_asks_us_for_tokens_without_anybody_polling(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("e30.e30.sig")
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        "sasl.jaas.config": f'{module} required extension_zone="east";',
    }
    ask = told(settings)["oauth_cb"]
    assert callable(ask)
    text, _, name, extensions = ask("")
    assert (text, name, extensions) == ("e30.e30.sig", "", {"zone": "east"})
