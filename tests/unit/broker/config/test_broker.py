"""`server.properties` is read as Apache Kafka reads it, and refused in words that help."""

from __future__ import annotations

import pytest

from headrace.broker.config.broker import BrokerConfig, is_known
from headrace.broker.config.keys import ConfigurationError, text_of
from headrace.broker.config.listeners import Listener
from headrace.broker.config.properties import parse_properties
from headrace.broker.config.topics import TOPIC_CONFIGS, LogConfig
from headrace.broker.errors import InvalidConfigError


def config_of(**properties: str) -> BrokerConfig:
    return BrokerConfig.from_properties({key.replace("_", "."): value for key, value in properties.items()})[
        0
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\nc: 3\nd 4\ne", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("# comment\n! another\n\n  a=1", {"a": "1"}),
        ("a=one,\\\n    two", {"a": "one,two"}),
        ("a=ends in a backslash\\\\\nb=1", {"a": "ends in a backslash\\", "b": "1"}),
        ("a\\=b=c\\u00e9\\td", {"a=b": "cé\td"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_properties_are_parsed_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_without_properties_every_default_is_kafkas() -> None:
    config = config_of()
    assert config.broker_id == -1
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.log_dirs == ("/tmp/kafka-logs",)
    assert config.network.socket_request_max_bytes == 104857600
    assert config.groups.offsets_topic_num_partitions == 50
    assert config.replication.fetch_max_bytes == 57671680
    assert LogConfig.from_broker(config) == LogConfig()


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "2"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(properties: dict[str, str], retention_ms: int) -> None:
    config, _ = BrokerConfig.from_properties(properties)
    assert LogConfig.from_broker(config).retention_ms == retention_ms


@pytest.mark.parametrize(
    ("properties", "flush_ms"),
    [
        ({}, 2**63 - 1),
        ({"log.flush.scheduler.interval.ms": "500"}, 500),
        ({"log.flush.scheduler.interval.ms": "500", "log.flush.interval.ms": "100"}, 100),
    ],
)
def test_flushing_falls_back_on_the_schedulers_interval(properties: dict[str, str], flush_ms: int) -> None:
    config, _ = BrokerConfig.from_properties(properties)
    assert LogConfig.from_broker(config).flush_ms == flush_ms


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("log.segment.bytes", "ten", "a whole number from 14 to 2147483647"),
        ("log.segment.bytes", "13", "a whole number from 14 to 2147483647"),
        ("log.segment.bytes", "1_000", "a whole number"),
        ("log.segment.bytes", "2147483648", "a whole number from 14 to 2147483647"),
        ("password.encoder.key.length", "200", "one of 128, 192, 256"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.message.timestamp.type", "Never", "one of CreateTime, LogAppendTime"),
        ("log.cleanup.policy", "delete,shred", "one of compact, delete"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "a number from 0 to 1"),
        ("listeners", "127.0.0.1:9092", "NAME://HOST:PORT"),
        ("listeners", "PLAINTEXT://:70000", "NAME://HOST:PORT"),
        ("listeners", "B://:9093", "names that listener.security.protocol.map has (A, PLAINTEXT)"),
        ("listeners", "A://:1,A://:2", "listeners with different names"),
        ("listeners", "", "at least one"),
        ("listeners", "A://:1,PLAINTEXT://:1", "each listener a port of its own"),
        ("listeners", "A://:1", "an advertised listener of that name"),
        ("advertised.listeners", "A://:1", "names that listeners has, too"),
        ("inter.broker.listener.name", "OTHER", "the name of an advertised listener (PLAINTEXT)"),
        ("security.inter.broker.protocol", "SSL", "an advertised listener of that name"),
        ("security.inter.broker.protocol", "TLS", "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("control.plane.listener.name", "OTHER", "other than that of inter.broker.listener.name"),
        ("control.plane.listener.name", "PLAINTEXT", "other than that of inter.broker.listener.name"),
        ("listener.security.protocol.map", "A:TLS", "each protocol one of PLAINTEXT, SSL"),
        ("listener.name.plaintext.ssl.client.auth", "maybe", "one of none, requested, required"),
        ("principal.builder.class", "a.Builder", "DefaultKafkaPrincipalBuilder"),
        ("listener.name.plaintext.ssl.engine.factory.class", "a.Factory", "no value"),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_what_is_allowed(
    key: str, value: str, allowed: str
) -> None:
    properties = {"listener.security.protocol.map": "A:PLAINTEXT,PLAINTEXT:PLAINTEXT", key: value}
    with pytest.raises(ConfigurationError) as caught:
        BrokerConfig.from_properties(properties)
    if (key, value) == ("listeners", "A://:1"):
        # Without a listener for brokers it is their protocol that has none.
        key, value = "security.inter.broker.protocol", "PLAINTEXT"
    assert caught.value.key == key
    assert value in str(caught.value)
    assert allowed in caught.value.allowed


def test_unknown_keys_are_told_and_kafkas_own_are_not() -> None:
    properties = {
        "log.segment.byte": "1",
        "num.io.threads": "8",
        "ssl.keystore.location": "x",
        "mirror.sources": "dc-east",
        "headrace.metrics.listener": "127.0.0.1:9404",
    }
    _, unknown = BrokerConfig.from_properties(properties)
    assert unknown == ["log.segment.byte"]
    assert not is_known("segment.bytes")


def test_listeners_are_advertised_unless_others_are_given() -> None:
    assert config_of(listeners="PLAINTEXT://[::1]:1234").advertised_listeners == (
        Listener("PLAINTEXT", "::1", 1234),
    )
    with pytest.raises(
        ConfigurationError, match=r"advertised.listeners=PLAINTEXT://0.0.0.0:1.* a routable address"
    ):
        config_of(listeners="PLAINTEXT://0.0.0.0:1")
    config = config_of(listeners="PLAINTEXT://0.0.0.0:1", advertised_listeners="PLAINTEXT://name:2")
    assert config.advertised_listeners == (Listener("PLAINTEXT", "name", 2),)


def test_listeners_have_protocols_and_settings_of_their_own() -> None:
    properties = {
        "listeners": "INSIDE://:1,outside://:2,CONTROL://:3",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT, outside:plaintext,CONTROL:PLAINTEXT",
        "inter.broker.listener.name": "inside",
        "control.plane.listener.name": "CONTROL",
        "ssl.client.auth": "none",
        "listener.name.outside.ssl.client.auth": "required",
    }
    config, unknown = BrokerConfig.from_properties(properties)
    assert unknown == []
    assert [listener.name for listener in config.listeners] == ["INSIDE", "OUTSIDE", "CONTROL"]
    assert (config.inter_broker_listener, config.control_plane_listener) == ("INSIDE", "CONTROL")
    assert config.settings_of("OUTSIDE")["ssl.client.auth"] == "required"
    assert config.settings_of("INSIDE")["ssl.client.auth"] == "none"


def test_a_listener_of_each_family_may_share_a_port() -> None:
    config = config_of(listeners="PLAINTEXT://127.0.0.1:1,SSL://[::1]:1")
    assert [listener.port for listener in config.listeners] == [1, 1]


def test_the_listener_between_brokers_is_said_once() -> None:
    with pytest.raises(ConfigurationError, match=r"either inter\.broker\.listener\.name or security\.inter"):
        config_of(inter_broker_listener_name="PLAINTEXT", security_inter_broker_protocol="PLAINTEXT")


def test_a_topics_own_values_come_before_the_brokers() -> None:
    defaults = LogConfig.from_broker(config_of(log_segment_bytes="5000"))
    config = defaults.with_overrides({"retention.ms": "99", "cleanup.policy": "compact,delete"})
    assert (config.segment_bytes, config.retention_ms) == (5000, 99)
    assert config.cleanup_policy == ("compact", "delete")


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        ({"retention.msec": "1"}, "retention.msec"),
        ({"retention.ms": "soon"}, "soon"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "min.compaction.lag.ms"),
    ],
)
def test_a_bad_topic_configuration_is_refused_in_a_sentence(overrides: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        LogConfig().with_overrides(overrides)
    assert word in str(caught.value)


def test_every_topic_configuration_has_a_broker_property_with_the_same_default() -> None:
    config = config_of()
    for topic_config in TOPIC_CONFIGS.values():
        assert topic_config.key.synonyms, topic_config.name
        assert topic_config.broker_value(config) == topic_config.default, topic_config.name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_numbers_with_a_fraction_are_printed_as_java_prints_them(value: float, text: str) -> None:
    assert text_of(value) == text
