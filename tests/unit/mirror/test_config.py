"""The mirror's properties: what they mean, and the sentence for each wrong one."""

from __future__ import annotations

import pytest

from headrace.broker.config.keys import ConfigurationError
from headrace.broker.wire.special_values import READ_COMMITTED, READ_UNCOMMITTED
from headrace.mirror.config import MirrorConfig
from headrace.mirror.memory.arrivals import Arrival, decode, encode, missing, recorded_ends

GOOD = {"mirror.sources": "dc-east", "mirror.dc-east.bootstrap.servers": "a:9092, [::1]:9093"}


def test_a_broker_without_sources_mirrors_nothing() -> None:
    assert MirrorConfig.from_properties({"log.dirs": "/data"}).sources == ()


def test_a_source_has_addresses_and_topics() -> None:
    (source,) = MirrorConfig.from_properties(GOOD).sources
    assert source.bootstrap_servers == (("a", 9092), ("::1", 9093))
    assert source.matches("_schemas")
    assert not source.matches("__consumer_offsets")
    assert source.source_topic("dc-east.page.views") == "page.views"
    assert source.source_topic("dc-west.pageviews") is None


def test_a_source_of_aggregates_makes_no_copies() -> None:
    config = MirrorConfig.from_properties(GOOD | {"mirror.dc-east.mode": "aggregate"})
    assert config.sources == ()
    (source,) = config.aggregates
    assert source.target_topic("pageviews") == "pageviews"
    assert not source.matches("headrace.monitoring"), "each datacenter's own"
    assert source.matches("headraces")
    assert MirrorConfig.from_properties(GOOD | {"mirror.dc-east.mode": "copy"}).aggregates == ()


def test_the_expression_is_for_the_whole_name() -> None:
    (source,) = MirrorConfig.from_properties(GOOD | {"mirror.dc-east.topics": "page|views"}).sources
    assert source.matches("views")
    assert not source.matches("pageviews")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mirror.sources": "a,a"}, "mirror.sources=a,a is not allowed"),
        ({"mirror.dc-east.bootstrap.servers": ""}, "give HOST:PORT,HOST:PORT of the source's brokers"),
        ({"mirror.dc-east.bootstrap.servers": "a:99999"}, "mirror.dc-east.bootstrap.servers=a:99999"),
        ({"mirror.dc-east.topics": "("}, "give a regular expression"),
        (
            {"mirror.fetch.max.bytes": "many"},
            "mirror.fetch.max.bytes=many is not allowed: give a whole number",
        ),
        ({"mirror.metadata.max.age.ms": "60000"}, "from 100 to 10000"),
        ({"mirror.dc-east.bytes.per.second": "0"}, "a whole number above 0"),
        ({"mirror.dc-east.bytes.per.second": "5MB"}, "a whole number above 0"),
        ({"mirror.dc-east.sync.groups": "("}, "mirror.dc-east.sync.groups=( is not allowed: give a regular"),
        (
            {"mirror.dc-east.sync.configs": "no"},
            "mirror.dc-east.sync.configs=no is not allowed: give true or",
        ),
        ({"mirror.sync.groups.interval.ms": "100"}, "from 1000 to 3600000"),
        (
            {"mirror.dc-east.isolation": "serializable"},
            "mirror.dc-east.isolation=serializable is not allowed: give read_uncommitted or read_committed",
        ),
        (
            {"mirror.dc-east.isolation": "read_uncommitted", "mirror.dc-east.mode": "aggregate"},
            "mirror.dc-east.isolation=read_uncommitted is not allowed: give read_committed, beside mirror.dc-",
        ),
        (
            {"mirror.dc-east.start": "yesterday"},
            "mirror.dc-east.start=yesterday is not allowed: give earliest, latest or a time such as 2026-",
        ),
        (
            {"mirror.dc-east.mode": "merge"},
            "mirror.dc-east.mode=merge is not allowed: give copy or aggregate",
        ),
        (
            {"mirror.dc-east.mode": "aggregate", "mirror.dc-east.sync.groups": "g"},
            "mirror.dc-east.sync.groups=g is not allowed: give nothing beside mirror.dc-east.mode=aggregate",
        ),
        (
            {"mirror.dc-east.mode": "aggregate", "mirror.dc-east.sync.configs": "true"},
            "mirror.dc-east.sync.configs=true is not allowed: give nothing beside",
        ),
        ({"mirror.dc-west.topics": "x"}, "of a datacenter that mirror.sources names"),
    ],
)
def test_a_bad_value_is_a_sentence(change: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        MirrorConfig.from_properties(GOOD | change)
    assert sentence in str(caught.value)


def test_a_limit_is_each_sources_own() -> None:
    (source,) = MirrorConfig.from_properties(GOOD | {"mirror.dc-east.bytes.per.second": "5000"}).sources
    assert source.bytes_per_second == 5000
    (source,) = MirrorConfig.from_properties(GOOD).sources
    assert source.bytes_per_second is None


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (None, None),
        ("earliest", None),
        ("latest", -1),
        ("1970-01-02T00:00:00.5Z", 86_400_500),
        ("1970-01-02T01:00:00+01:00", 86_400_000),
        ("1970-01-02", 86_400_000),
        ("1960-01-01", 0),
    ],
)
def test_new_copies_begin_where_a_source_says(text: str | None, start: int | None) -> None:
    more = {} if text is None else {"mirror.dc-east.start": text}
    (source,) = MirrorConfig.from_properties(GOOD | more).sources
    assert source.start == start


@pytest.mark.parametrize(
    ("more", "isolation"),
    [
        ({}, READ_UNCOMMITTED),
        ({"mirror.dc-east.isolation": "read_uncommitted"}, READ_UNCOMMITTED),
        ({"mirror.dc-east.isolation": "read_committed"}, READ_COMMITTED),
    ],
)
def test_a_source_is_read_up_to_where_it_says(more: dict[str, str], isolation: int) -> None:
    (source,) = MirrorConfig.from_properties(GOOD | more).sources
    assert source.isolation == isolation


def test_configurations_follow_unless_they_are_told_not_to() -> None:
    for more, wanted in (({}, True), ({"mirror.dc-east.sync.configs": "false"}, False)):
        (source,) = MirrorConfig.from_properties(GOOD | more).sources
        assert source.sync_configs is wanted


def test_groups_are_brought_where_a_source_names_some() -> None:
    (source,) = MirrorConfig.from_properties(GOOD | {"mirror.dc-east.sync.groups": "billing|a.*"}).sources
    assert source.sync_groups is not None
    assert source.sync_groups.pattern == "billing|a.*"
    (source,) = MirrorConfig.from_properties(GOOD).sources
    assert source.sync_groups is None


def test_an_arrival_is_25_bytes() -> None:
    arrival = Arrival(5, 9, 1_700_000_000_000, is_estimated=True)
    assert len(encode(arrival)) == 25
    assert decode(encode(arrival)) == arrival
    assert recorded_ends([(b"a", encode(arrival)), (b"a", b"broken"), (b"b", encode(Arrival(3, 2, 0)))]) == {
        b"a": 10,
        b"b": 3,
    }


def test_what_a_crash_left_out_is_estimated() -> None:
    assert missing(10, 0, 15, 77) == Arrival(10, 14, 77, is_estimated=True)
    assert missing(None, 4, 15, 77) == Arrival(4, 14, 77, is_estimated=True)
    assert missing(15, 0, 15, 77) is None
    assert missing(20, 0, 15, 77) is None
