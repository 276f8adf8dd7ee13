"""The mark of a mirror's copy: who sees it, what it does, and what it survives."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from virtual_time import LoopClock, VirtualLoop

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.copies import MIRROR_CLUSTERS, MIRROR_REMOTE
from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode, InvalidConfigError, PolicyViolationError
from headrace.broker.handlers import (
    k21_delete_records,
    k32_describe_configs,
    k33_alter_configs,
    k44_incremental_alter_configs,
)
from headrace.broker.server.cluster import Cluster
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.topics.changes import Topics
from headrace.broker.tasks import Tasks
from headrace.mirror.service import mirrored_names

MARK = {MIRROR_CLUSTERS: "EAST,NORTH"}
PROPERTIES = {
    "mirror.sources": "dc-east",
    "mirror.dc-east.bootstrap.servers": "h:1",
    "mirror.dc-east.topics": "orders|__own",
}


@pytest.mark.parametrize(
    ("overrides", "is_copy"), [(MARK, True), ({MIRROR_CLUSTERS: ""}, False), ({"retention.ms": "1"}, False)]
)
def test_a_topic_with_clusters_is_a_copy(overrides: dict[str, str], is_copy: bool) -> None:
    assert LogConfig().with_overrides(overrides).is_mirror_copy is is_copy
    assert LogConfig(is_mirror_copy=True).with_overrides(overrides).is_mirror_copy is is_copy


@pytest.mark.parametrize("value", ["a b", ",", "a,", "x" * 250])
def test_what_is_no_list_of_clusters_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfigError, match="the ids of clusters"):
        LogConfig().with_overrides({MIRROR_CLUSTERS: value})


@pytest.mark.parametrize(
    ("topic", "is_mirrored"),
    [
        ("dc-east.orders", True),
        ("dc-east.others", False),
        ("dc-east.__own", False),
        ("dc-west.orders", False),
        ("orders", False),
    ],
)
def test_the_mark_has_an_effect_where_the_topic_is_mirrored(topic: str, is_mirrored: bool) -> None:
    async def overrides(properties: dict[str, str]) -> dict[str, str]:
        config, _ = BrokerConfig.from_properties({"zookeeper.connect": "nowhere"})
        names = mirrored_names(properties)
        cluster = Cluster(config, LoopClock(loop), MetadataCache(), Tasks(), names)
        cluster.configurations._stored._overrides[topic] = {**MARK, "retention.ms": "1"}
        return cluster.configurations.of_topic(topic)

    with VirtualLoop() as loop:
        found = loop.run_until_complete(overrides(PROPERTIES))
        assert found == {"retention.ms": "1", **(MARK if is_mirrored else {})}
        assert loop.run_until_complete(overrides({})) == {"retention.ms": "1"}, "the mirror is switched off"


@pytest.mark.parametrize(
    ("remote", "is_mirrored"),
    [
        ("dc-east.orders", True),
        ("dc-east.others", True),
        ("dc-east.__own", False),
        ("dc-west.orders", False),
    ],
)
def test_a_topic_of_another_name_is_the_copy_that_it_is_configured_to_be(
    remote: str, is_mirrored: bool
) -> None:
    stored = {**MARK, MIRROR_REMOTE: remote}

    async def overrides() -> dict[str, str]:
        config, _ = BrokerConfig.from_properties({"zookeeper.connect": "nowhere"})
        cluster = Cluster(config, LoopClock(loop), MetadataCache(), Tasks(), mirrored_names(PROPERTIES))
        cluster.configurations._stored._overrides["own"] = stored
        assert cluster.configurations.remote_topics() == {"own": remote}
        assert not cluster.configurations.is_mirrored("own"), "a client may make a topic of that name"
        return cluster.configurations.of_topic("own")

    with VirtualLoop() as loop:
        found = loop.run_until_complete(overrides())
    assert found == (stored if is_mirrored else {MIRROR_REMOTE: remote})


@pytest.mark.parametrize("value", ["orders", ".orders", "dc east.orders", "dc-east.", "dc-east.a b"])
def test_what_is_no_name_of_a_copy_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"the name of a source in mirror\.sources, a dot"):
        LogConfig().with_overrides({MIRROR_REMOTE: value})


def test_clients_add_no_partitions_to_a_copy_and_the_mirror_does() -> None:
    async def refuse(topic: str) -> None:
        raise PolicyViolationError(topic)

    async def nothing(path: str) -> None:
        return None

    topics = Topics(
        BrokerConfig(), cast("Any", SimpleNamespace(get=nothing)), MetadataCache(), Tasks(), refuse
    )

    def grown(*, by_client: bool) -> ErrorCode:
        work = topics.grow("t", 9, None, timeout_ms=1000, validate_only=False, by_client=by_client)
        return asyncio.run(work).error

    assert grown(by_client=True) is ErrorCode.POLICY_VIOLATION
    assert grown(by_client=False) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is none in this test"


def test_clients_delete_no_records_of_a_copy() -> None:
    log = SimpleNamespace(is_mirror_copy=True)
    services = SimpleNamespace(
        authorizer=None,
        metadata=SimpleNamespace(partition=lambda topic, index: object()),
        partitions=SimpleNamespace(leader_of=lambda topic, index: SimpleNamespace(log=log)),
    )
    wanted = {"topics": [{"name": "dc-east.orders", "partitions": [{"partition_index": 0, "offset": 5}]}]}
    answer = k21_delete_records.handle(cast("Any", services), cast("Any", None), wanted)
    assert isinstance(answer, dict)
    (partition,) = answer["topics"][0]["partitions"]
    assert (partition["error_code"], partition["low_watermark"]) == (ErrorCode.POLICY_VIOLATION, -1)


def test_who_replaces_all_configurations_leaves_the_mark() -> None:
    resource = {"configs": [{"name": "retention.ms", "value": "7"}]}
    assert k33_alter_configs._replaced(resource, {**MARK, "segment.ms": "5"}) == {"retention.ms": "7", **MARK}
    resource = {"configs": [{"name": MIRROR_CLUSTERS, "value": ""}]}
    assert k33_alter_configs._replaced(resource, dict(MARK)) == {MIRROR_CLUSTERS: ""}


@pytest.mark.parametrize(("operation", "left"), [(0, {MIRROR_CLUSTERS: ""}), (1, {})])
def test_a_mark_is_taken_away_by_its_name(operation: int, left: dict[str, str]) -> None:
    config = {"name": MIRROR_CLUSTERS, "config_operation": operation, "value": ""}
    resource = {"resource_type": 2, "configs": [config]}
    assert k44_incremental_alter_configs._changed(resource, dict(MARK)) == left


@pytest.mark.parametrize(("overrides", "told"), [(MARK, ["EAST,NORTH"]), ({}, [])])
def test_the_mark_is_described_where_it_is(overrides: dict[str, str], told: list[str]) -> None:
    config, _ = BrokerConfig.from_properties({})
    configurations = SimpleNamespace(of_broker=lambda name: {}, static_properties={})
    services = SimpleNamespace(broker_id=1, config=config, configurations=configurations, authorizer=None)
    entries = k32_describe_configs.topic_entries(cast("Any", services), overrides)
    assert [entry["value"] for entry in entries if entry["name"] == MIRROR_CLUSTERS] == told
