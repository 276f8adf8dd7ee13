"""Dynamic broker configuration: levels over levels, keys that are refused, keys of Apache Kafka that are passed over."""

from __future__ import annotations

import pytest

from headrace.broker.config.broker import BROKER_KEYS, BrokerConfig
from headrace.broker.config.dynamic import (
    DYNAMIC_KEYS,
    check,
    check_level,
    check_step,
    merged,
    usable,
    with_levels,
)
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import InvalidRequestError


def test_every_dynamic_key_is_a_key_of_the_broker() -> None:
    assert BROKER_KEYS.keys() >= DYNAMIC_KEYS


def test_later_levels_win_over_all_synonyms_of_earlier_ones() -> None:
    static = {"log.retention.ms": "1", "log.roll.hours": "2", "a": "b"}
    found = merged(static, {"log.retention.hours": "3"}, {"log.roll.ms": "4"})
    assert found == {"log.retention.hours": "3", "log.roll.ms": "4", "a": "b"}


def test_the_brokers_own_level_is_the_last_word_and_its_end_brings_the_others_back() -> None:
    static, _ = BrokerConfig.from_properties({"message.max.bytes": "1", "log.retention.hours": "1"})
    default, own = {"message.max.bytes": "2", "log.retention.ms": "5"}, {"message.max.bytes": "3"}
    config = with_levels(static, default, own)
    assert (config.logs.message_max_bytes, LogConfig.from_broker(config).retention_ms) == (3, 5)
    assert with_levels(static, default, {}).logs.message_max_bytes == 2
    assert with_levels(static, {}, {}) == static


def test_listeners_stay_those_that_are_bound() -> None:
    static, _ = BrokerConfig.from_properties({"listeners": "PLAINTEXT://:0"})
    assert with_levels(static, {"max.connections": "5"}, {}).listeners == static.listeners


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("broker.id", "1", "at a start only"),
        ("log.retention.hours", "1", "at a start only"),
        ("num.io.threads", "8", "no effect"),
        ("no.such.key", "1", "no such key"),
        ("max.connections", "many", "whole number"),
        ("max.connections", "-1", "whole number"),
    ],
)
def test_other_keys_and_bad_values_are_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        check({"max.connections.per.ip": "5", name: value})


def test_what_apache_kafka_stored_for_itself_is_passed_over() -> None:
    assert usable({"num.io.threads": "8", "max.connections": "5", "message.max.bytes": "x"}) == {
        "max.connections": "5"
    }


def test_levels_that_do_not_go_together_are_an_error() -> None:
    static, _ = BrokerConfig.from_properties({})
    with pytest.raises(ConfigurationError):
        with_levels(static, {"max.connections": "x"}, {})


@pytest.mark.parametrize(("threads", "is_allowed"), [(1, False), (2, True), (8, True), (9, False)])
def test_cleaner_threads_change_by_a_factor_of_two_at_most(threads: int, is_allowed: bool) -> None:
    current, _ = BrokerConfig.from_properties({"log.cleaner.threads": "4"})
    changed = {"log.cleaner.threads": str(threads)}
    check(changed)
    if is_allowed:
        check_step(current, changed)
    else:
        with pytest.raises(InvalidRequestError, match="in steps"):
            check_step(current, changed)


def test_each_cleaner_thread_needs_some_memory() -> None:
    enough = {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": "2097154"}
    assert BrokerConfig.from_properties(enough)[0].logs.log_cleaner_threads == 2
    with pytest.raises(ConfigurationError, match=r"log\.cleaner\.threads=2"):
        BrokerConfig.from_properties({**enough, "log.cleaner.dedupe.buffer.size": "2097152"})


def test_keys_and_certificates_change_for_single_listeners_of_single_brokers() -> None:
    changed = {"listener.name.outside.ssl.keystore.location": "/x"}
    check(changed)
    assert usable(changed) == changed
    with pytest.raises(InvalidRequestError, match="for all brokers: name one by its id"):
        check_level(changed)
    with pytest.raises(
        InvalidRequestError, match=r"give it as listener\.name\.<name>\.ssl\.keystore\.location"
    ):
        check({"ssl.keystore.location": "/x"})
    with pytest.raises(InvalidRequestError, match="at a start only"):
        check({"listener.name.outside.ssl.client.auth": "none"})


def test_what_clients_set_is_taken_as_it_stands() -> None:
    """CVE-2024-31141: whoever may set a configuration reads no file of the host by it, provider or not."""
    variable = "${file:/etc/passwd:root}"
    static, _ = BrokerConfig.from_properties(
        {
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        }
    )
    own = {"broker.rack": variable, "config.providers": "file"}
    assert with_levels(static, {}, own).network.broker_rack == variable
    assert merged({}, own)["broker.rack"] == variable
    with pytest.raises(InvalidRequestError, match=r"config\.providers"):
        check({"config.providers": "file"})
