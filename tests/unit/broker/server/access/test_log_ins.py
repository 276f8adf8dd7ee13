"""The listeners whose clients log in, from a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from headrace.broker.auth.jaas import PLAIN_MODULE, SCRAM_MODULE, jaas_of
from headrace.broker.auth.sasl.exchange import Authenticated, RefusedError
from headrace.broker.auth.sasl.scram import ScramServer
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.foreign import without_effect
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.server.access.log_ins import LOG_IN_SIZE_MAX, LogIns, settings_of_mechanism

PLAIN = f'{PLAIN_MODULE} required user_alice="canary";'
BASE = {
    "zookeeper.connect": "nowhere:2181",
    "listeners": "PLAINTEXT://:0,OUT://:0",
    "advertised.listeners": "PLAINTEXT://here:1,OUT://here:2",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.out.plain.sasl.jaas.config": PLAIN,
}


def log_ins(**more: str) -> LogIns:
    properties = {**BASE, **more}
    config, unknown = BrokerConfig.from_properties(properties)
    assert unknown == []
    assert without_effect(properties) == {}
    return LogIns(config, lambda *_: None, lambda *_: None)


def refused(more: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as error:
        log_ins(**more)
    assert "canary" not in str(error.value)
    return str(error.value)


def test_only_listeners_of_sasl_ask_who_a_client_is() -> None:
    found = log_ins()
    plaintext, out = BrokerConfig.from_properties(BASE)[0].listeners
    assert found.at(plaintext) is None
    log_in = found.at(out)
    assert log_in is not None
    assert log_in.size_max == LOG_IN_SIZE_MAX
    assert found.at(out) is not log_in


def test_a_listener_and_a_mechanism_have_settings_of_their_own() -> None:
    more = {
        "listener.name.out.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connections.max.reauth.ms": "5000",
        "listener.name.out.connections.max.reauth.ms": "6000",
        "listener.name.out.scram-sha-256.connections.max.reauth.ms": "7000",
        "listener.name.out.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "sasl.server.max.receive.size": "100000",
    }
    found = log_ins(**more)
    mechanisms = found._listeners["OUT"]
    assert mechanisms.names == ("PLAIN", "SCRAM-SHA-256")
    assert mechanisms.session_ms_max("PLAIN") == 6000
    assert mechanisms.session_ms_max("SCRAM-SHA-256") == 7000
    assert mechanisms.size_max == 100_000
    assert isinstance(mechanisms.exchange("SCRAM-SHA-256"), ScramServer)
    assert mechanisms.exchange("PLAIN").step(b"\0alice\0canary", 0).found == Authenticated("alice")
    assert settings_of_mechanism({**BASE, **more}, "OUT", "PLAIN")["connections.max.reauth.ms"] == "6000"


def test_what_cannot_be_served_ends_the_start() -> None:
    jaas = "listener.name.out.plain.sasl.jaas.config"
    assert "sasl.enabled.mechanisms=GSSAPI" in refused({"sasl.enabled.mechanisms": "GSSAPI"})
    assert "sasl.enabled.mechanisms=" in refused({"sasl.enabled.mechanisms": ""})
    assert "PlainLoginModule required" in refused({jaas: ""})
    assert "without the prefix" in refused({jaas: "", "sasl.jaas.config": PLAIN})
    more = {"inter.broker.listener.name": "OUT"}
    assert "sasl.mechanism.inter.broker.protocol=GSSAPI" in refused(more)
    assert log_ins(**more, **{"sasl.mechanism.inter.broker.protocol": "PLAIN"})
    assert "is not allowed in sasl.jaas.config" in refused(
        {jaas: 'com.sun.security.auth.module.JndiLoginModule required password="canary";'}
    )
    assert "semicolon" in refused({jaas: f'{PLAIN_MODULE} required user_alice="canary"'})
    assert "no class of Java's" in refused(
        {"listener.name.out.plain.sasl.server.callback.handler.class": "a.B"}
    )
    assert "jwks.endpoint.url" in refused({"sasl.enabled.mechanisms": "OAUTHBEARER"})
    for url in ("ftp://issuer/keys", "keys.json", "https:///keys", "file:///nowhere/canary-keys"):
        with pytest.raises(ConfigurationError, match=r"jwks\.endpoint\.url"):
            log_ins(**{"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": url})


def test_bearer_tokens_are_checked_with_the_keys_of_a_file(tmp_path: Path) -> None:
    key = RSAKey.generate_key(2048, {"kid": "one"})
    file = tmp_path / "keys of ours.json"
    file.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    url = f"file://{quote(str(file))}"
    found = log_ins(**{"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": url})
    token = jwt.encode({"alg": "RS256", "kid": "one"}, {"sub": "alice", "iat": 1, "exp": 100}, key)
    message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    mechanisms = found._listeners["OUT"]
    assert mechanisms.exchange("OAUTHBEARER").step(message, 50_000).found == Authenticated("alice", 100_000)
    exchange = mechanisms.exchange("OAUTHBEARER")
    assert exchange.step(message, 500_000).answer == b'{"status":"invalid_token"}'
    with pytest.raises(RefusedError):
        exchange.step(b"\x01", 500_000)


def test_a_broker_finds_what_it_logs_in_to_others_with() -> None:
    text = f'{PLAIN_MODULE} required username="broker" password="canary" user_broker="canary";'
    module = jaas_of({"listener.name.out.plain.sasl.jaas.config": text}, "OUT", "PLAIN")
    assert module is not None
    assert (module.username, module.password) == ("broker", "canary")
    assert jaas_of({}, "OUT", "PLAIN") is None
