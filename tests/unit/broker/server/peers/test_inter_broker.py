"""How a broker is let in by the others, from its own configuration."""

from __future__ import annotations

import pytest
from secured_broker import PASSWORD, jaas

from headrace.broker.client.security import PLAINTEXT
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.server.peers.inter_broker import security_between_brokers

BASE = {
    "broker.id": "1",
    "listeners": "CLIENTS://h:1,BROKERS://h:2",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_SSL",
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": jaas("PLAIN"),
    "ssl.keystore.location": "/general",
    "listener.name.brokers.ssl.keystore.location": "/own",
}


def config_of(**changes: str) -> BrokerConfig:
    return BrokerConfig.from_properties({**BASE, **changes})[0]


def test_without_a_secured_listener_between_brokers_it_is_plaintext() -> None:
    assert security_between_brokers(config_of(**{"inter.broker.listener.name": "CLIENTS"})) == PLAINTEXT


def test_it_is_the_listeners_own_stores_and_login_module() -> None:
    security = security_between_brokers(config_of())
    assert (security.protocol, security.mechanism) == ("SASL_SSL", "PLAIN")
    assert security.value("ssl.keystore.location") == "/own"
    assert (security.login_module.username, security.login_module.password) == ("alice", PASSWORD)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"listener.name.brokers.plain.sasl.jaas.config": jaas("PLAIN", name="")},
            "give a username and a password",
        ),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "the login module of SCRAM-SHA-256"),
    ],
)
def test_what_says_too_little_for_a_client_is_one_sentence(change: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        security_between_brokers(config_of(**change))
    assert PASSWORD not in str(raised.value)
