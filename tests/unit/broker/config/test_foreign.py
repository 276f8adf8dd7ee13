"""Keys of Apache Kafka that have no effect are told, those that somebody relies on are refused, none is passed over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.broker import command
from headrace.broker.config import foreign
from headrace.broker.config.broker import BROKER_KEYS, BrokerConfig, is_known
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.topics import TOPIC_CONFIGS, LogConfig, known_overrides

SOURCES = Path(command.__file__).parent


def test_every_key_is_read_somewhere_or_said_to_have_no_effect() -> None:
    text = "\n".join(p.read_text() for p in SOURCES.rglob("*.py") if p.name != "sections.py")
    defaults_of_topics = {name for topic in TOPIC_CONFIGS.values() for name in topic.key.synonyms}
    for name in BROKER_KEYS.keys() - defaults_of_topics:
        is_read = re.search(rf"\.{name.replace('.', '_')}\b", text) is not None
        reason = foreign.reason_without_effect(name)
        assert is_read == (reason is None), f"{name} is {'' if is_read else 'not '}read; no effect: {reason}"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("authorizer.zookeeper.url", "", "127.0.0.1:2181"),
        ("create.topic.policy.class.name", "", "a.Policy"),
        ("alter.config.policy.class.name", "", "a.Policy"),
        ("process.roles", "", "broker"),
        ("remote.log.storage.system.enable", "false", "true"),
        ("principal.builder.class", foreign.PRINCIPAL_BUILDER, "a.Builder"),
        ("ssl.engine.factory.class", "", "a.Factory"),
        ("zookeeper.metadata.migration.enable", "False", "true"),
        ("zookeeper.ssl.crl.enable", "false", "true"),
        ("zookeeper.ssl.ocsp.enable", "false", "true"),
    ],
)
def test_what_somebody_relies_on_is_refused_with_what_is_allowed(name: str, good: str, bad: str) -> None:
    assert BrokerConfig.from_properties({name: good})[1] == []
    with pytest.raises(ConfigurationError) as caught:
        BrokerConfig.from_properties({name: bad})
    assert (caught.value.key, caught.value.value) == (name, bad)
    assert caught.value.allowed == foreign.CHECKED[name][1]


def test_what_has_no_effect_is_told_at_the_start_by_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "zookeeper.connect=localhost\nnum.io.threads=8\nnum.network.threads=3\nsasl.kerberos.kinit.cmd=x\n"
        "replica.socket.receive.buffer.bytes=2\nmetadata.log.dir=/x\nlog.segment.byte=1\nzookeeper.set.acl=false\n"
    )
    command.load_config(path)
    told = {
        facts.get("keys", facts.get("key")): facts for facts in (vars(r)["facts"] for r in caplog.records)
    }
    assert list(told) == [
        "metadata.log.dir",
        "num.io.threads,num.network.threads",
        "replica.socket.receive.buffer.bytes",
        "sasl.kerberos.kinit.cmd",
        "log.segment.byte",
    ]
    assert all("reason" in told[keys] for keys in told if keys != "log.segment.byte")


@pytest.mark.parametrize(
    ("properties", "allowed"),
    [
        ({"broker.id": "1001"}, "reserved.broker.max.id=1000"),
        ({"broker.id": "-1", "broker.id.generation.enable": "false"}, "a whole number from 0"),
        ({"broker.id": "1", "node.id": "2"}, "the value of broker.id, 1"),
    ],
)
def test_broker_ids_are_those_that_kafka_takes(properties: dict[str, str], allowed: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(allowed)):
        BrokerConfig.from_properties(properties)


def test_older_names_stand_for_those_that_came_after_them() -> None:
    assert BrokerConfig.from_properties({"node.id": "7"})[0].broker_id == 7
    assert (
        BrokerConfig.from_properties({"broker.id": "1001", "broker.id.generation.enable": "false"})[1] == []
    )
    config, unknown = BrokerConfig.from_properties(
        {"log.message.timestamp.difference.max.ms": "5", "log.message.timestamp.after.max.ms": "6"}
    )
    assert unknown == []
    log = LogConfig.from_broker(config)
    assert (log.message_timestamp_before_max_ms, log.message_timestamp_after_max_ms) == (5, 6)
    log = log.with_overrides({"message.timestamp.difference.max.ms": "9"})
    assert (log.message_timestamp_before_max_ms, log.message_timestamp_after_max_ms) == (9, 9)


def test_what_apache_kafka_stored_for_a_topic_is_passed_over_by_its_name_alone() -> None:
    stored = {"compression.zstd.level": "3", "retention.ms": "x", "message.timestamp.difference.max.ms": "9"}
    assert known_overrides(stored) == {"retention.ms": "x", "message.timestamp.difference.max.ms": "9"}


def test_no_key_has_an_effect_and_none() -> None:
    names = [name for names in foreign.WITHOUT_EFFECT.values() for name in names]
    assert len(names) == len(set(names))
    assert not set(names) & foreign.CHECKED.keys()
    assert all(is_known(name) for name in names)


def test_where_tokens_come_from_has_an_effect_among_brokers_that_log_in_by_them() -> None:
    keys = ("sasl.login.read.timeout.ms", "sasl.oauthbearer.token.endpoint.url")
    given = dict.fromkeys(keys, "1")
    assert list(foreign.without_effect(given).values()) == [list(keys)]
    for prefix in ("", "listener.name.internal."):
        assert not foreign.without_effect(
            {**given, f"{prefix}sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}
        )
