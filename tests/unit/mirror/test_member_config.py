"""The file of `headrace mirror run`."""

from __future__ import annotations

import pytest

from headrace.broker.config.keys import ConfigurationError
from headrace.mirror.member_config import MemberConfig

GOOD = {
    "bootstrap.servers": "k1:9092,k2:9092",
    "zookeeper.connect": "zk:2181/kafka",
    "mirror.member.id": "101",
    "mirror.sources": "dc-east",
    "mirror.dc-east.bootstrap.servers": "e1:9092",
    "mirror.dc-east.mode": "aggregate",
    "mirror.metadata.max.age.ms": "1000",
}


def test_what_lies_below_mirror_means_what_it_means_to_a_broker() -> None:
    config = MemberConfig.from_properties(GOOD | {"headrace.metrics.listener": "127.0.0.1:9404"})
    assert config.bootstrap_servers == (("k1", 9092), ("k2", 9092))
    assert (config.member_id, config.metrics_listener) == (101, "127.0.0.1:9404")
    assert [source.name for source in config.mirror.aggregates] == ["dc-east"]
    assert config.mirror.tunables.metadata_max_age_ms == 1000


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"bootstrap.servers": "k1"}, "bootstrap.servers"),
        ({"zookeeper.connect": ""}, "zookeeper.connect"),
        ({"zookeeper.session.timeout.ms": "soon"}, "zookeeper.session.timeout.ms"),
        ({"mirror.member.id": ""}, "mirror.member.id"),
        ({"mirror.member.id": "-1"}, "mirror.member.id"),
        ({"mirror.member.id": str(2**31)}, "mirror.member.id"),
        ({"mirror.dc-east.mode": "copy"}, "mirror.dc-east.mode"),
        ({"mirror.sources": "", "mirror.dc-east.mode": None}, "mirror."),
        ({"mirror.dc-east.modus": "x"}, "mirror.dc-east.modus"),
        ({"broker.id": "1"}, "broker.id"),
    ],
)
def test_a_bad_file_is_refused_by_the_key_that_is_wrong(change: dict[str, str | None], key: str) -> None:
    properties = {name: value for name, value in (GOOD | change).items() if value is not None}
    with pytest.raises(ConfigurationError) as refused:
        MemberConfig.from_properties(properties)
    assert refused.value.key.startswith(key)
