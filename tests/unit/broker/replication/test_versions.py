"""`inter.broker.protocol.version` chooses the versions that Apache Kafka 3.9's MetadataVersion chooses."""

from __future__ import annotations

import pytest

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.replication.versions import versions_of
from headrace.broker.wire.api import APIS

KEY = "inter.broker.protocol.version"


@pytest.mark.parametrize(
    ("protocol_version", "expected"),
    [
        ("3.0-IV0", (5, 7, 3, 12, 6, 4)),
        ("3.0", (5, 7, 3, 12, 7, 4)),
        ("3.1", (5, 7, 3, 13, 7, 4)),
        ("3.2-IV0", (6, 7, 3, 13, 7, 4)),
        ("3.3", (6, 7, 3, 13, 7, 4)),
        ("3.4", (7, 8, 4, 13, 7, 4)),
        ("3.5-IV0", (7, 8, 4, 14, 8, 4)),
        ("3.5-IV1", (7, 8, 4, 15, 8, 4)),
        ("3.5.2", (7, 8, 4, 15, 8, 4)),
        ("3.6", (7, 8, 4, 15, 8, 4)),
        ("3.7-IV3", (7, 8, 4, 15, 8, 4)),
        ("3.7", (7, 8, 4, 16, 8, 4)),
        ("3.8", (7, 8, 4, 16, 8, 4)),
        ("3.9-IV0", (7, 8, 4, 17, 9, 4)),
        ("3.9.2", (7, 8, 4, 17, 9, 4)),
    ],
)
def test_each_release_has_its_versions(protocol_version: str, expected: tuple[int, ...]) -> None:
    config, _ = BrokerConfig.from_properties({KEY: protocol_version})
    assert versions_of(config.replication.inter_broker_protocol_version) == expected


def test_the_newest_versions_are_the_default_and_the_last_that_there_are() -> None:
    config, _ = BrokerConfig.from_properties({})
    newest = versions_of(config.replication.inter_broker_protocol_version)
    assert newest == tuple(APIS[key].versions[1] for key in (4, 6, 5, 1, 2, 23))


@pytest.mark.parametrize(
    "text", ["2.8", "4.0", "3", "3.10", "3.0-IV2", "3.9-IV1", "3.7-IV5", "latest", "3.9-"]
)
def test_other_versions_are_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        BrokerConfig.from_properties({KEY: text})
    assert str(caught.value) == (
        f"{KEY}={text} is not allowed: give a version from 3.0 to 3.9, such as 3.7 or 3.7-IV4."
    )


def test_only_from_3_2_on_brokers_are_told_that_a_leader_recovers() -> None:
    assert [versions_of(f"3.{n}").tells_recovery for n in range(4)] == [False, False, True, True]
