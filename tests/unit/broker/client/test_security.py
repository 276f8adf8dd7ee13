"""Kafka's client settings about security: what is known, what is refused, and that no secret is shown."""

from __future__ import annotations

import pickle

import pytest
from secured_broker import PASSWORD, jaas, sasl_settings

from headrace.broker.client.security import PLAINTEXT, ClientSecurity
from headrace.broker.config.keys import ConfigurationError


def refused(properties: dict[str, str], prefix: str = "") -> str:
    with pytest.raises(ConfigurationError) as raised:
        ClientSecurity.of(properties, prefix)
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


def test_nothing_said_is_plaintext_and_what_is_not_about_security_is_left_alone() -> None:
    assert ClientSecurity.of({"bootstrap.servers": "a:1", "client.id": "x"}) == PLAINTEXT
    assert (PLAINTEXT.protocol, PLAINTEXT.uses_tls, PLAINTEXT.uses_sasl) == ("PLAINTEXT", False, False)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_protocol_says_what_is_used(protocol: str) -> None:
    security = ClientSecurity.of({**sasl_settings("PLAIN"), "security.protocol": protocol})
    assert security.uses_tls == protocol.endswith("SSL")
    assert security.uses_sasl == protocol.startswith("SASL")
    assert security.login_module.username == "alice"


def test_settings_behind_a_prefix_are_those_of_one_cluster_and_errors_name_them_whole() -> None:
    prefix = "mirror.dc-east."
    properties = {
        f"{prefix}security.protocol": "SSL",
        "security.protocol": "SASL_SSL",
        f"{prefix}topics": "a",
    }
    assert ClientSecurity.of(properties, prefix).protocol == "SSL"
    assert refused({f"{prefix}security.protocol": "TLS"}, prefix).startswith(
        "mirror.dc-east.security.protocol=TLS "
    )


def test_a_setting_that_nobody_knows_is_refused_with_the_nearest_one() -> None:
    sentence = refused({"ssl.trustore.location": f"/x/{PASSWORD}"})
    assert "give ssl.truststore.location in its place" in sentence


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"sasl.mechanism": "GSSAPI"},
            "sasl.mechanism=GSSAPI is not allowed: give one of PLAIN, SCRAM-SHA-256",
        ),
        ({"sasl.mechanism": ""}, "give one of PLAIN"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "the login module of SCRAM-SHA-512"),
        ({"sasl.jaas.config": ""}, "sasl.jaas.config= is not allowed: give the login module of PLAIN"),
        ({"sasl.jaas.config": jaas("PLAIN")[:-1]}, "does not end with a semicolon"),
        ({"sasl.jaas.config": jaas("PLAIN", name="")}, "give a username and a password"),
        ({"sasl.login.callback.handler.class": "evil.Handler"}, "no other class can be asked"),
        ({"sasl.login.read.timeout.ms": "0"}, "a whole number from 1"),
        ({"ssl.truststore.type": "DER"}, "ssl.truststore.type=DER"),
    ],
)
def test_each_fault_is_one_sentence(change: dict[str, str], said: str) -> None:
    assert said in refused({**sasl_settings("PLAIN"), **change})


def test_a_token_needs_somebody_who_gives_it() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": module}
    assert "sasl.oauthbearer.token.endpoint.url= is not allowed" in refused(settings)


def test_a_secret_is_in_no_representation_and_survives_pickling() -> None:
    security = ClientSecurity.of({**sasl_settings("PLAIN"), "ssl.key.password": PASSWORD})
    for shown in (repr(security), str(security), f"{security.login_module!r}"):
        assert PASSWORD not in shown
    assert pickle.loads(pickle.dumps(security)) == security
