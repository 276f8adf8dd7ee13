"""Which topics a source's are brought into: made, grown, marked, or refused with a sentence."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.broker.config.copies import MERGED_CLUSTERS, MIRROR_CLUSTERS
from headrace.broker.errors import ErrorCode
from headrace.mirror.aggregate.topics import keep_in_step
from headrace.mirror.config import SourceConfig
from headrace.mirror.source import Source, SourceTopic

DELETE = {"cleanup.policy": "delete"}
EAST = {MERGED_CLUSTERS: "EAST"}


class Cluster:
    """This cluster `HERE`: name → (partitions, overrides); topics are created and altered at once."""

    cluster_id = "HERE"

    def __init__(self, topics: Mapping[str, tuple[int, dict[str, str]]]) -> None:
        self.found = dict(topics)
        self.is_full = False

    async def look_at(self, topics: Collection[str]) -> None: ...

    def partition_count(self, topic: str) -> int | None:
        return self.found[topic][0] if topic in self.found else None

    def configs_of(self, topic: str) -> dict[str, str]:
        return dict(self.found[topic][1]) if topic in self.found else {}

    async def create(self, topic: str, count: int, configs: Mapping[str, str]) -> tuple[int, str]:
        if self.is_full:
            return ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers"
        self.found[topic] = count, dict(configs)
        return 0, ""

    async def grow(self, topic: str, count: int) -> tuple[int, str]:
        self.found[topic] = count, self.found[topic][1]
        return 0, ""

    async def mark(self, topic: str, configs: Mapping[str, str]) -> None:
        self.found[topic] = self.found[topic][0], {**self.configs_of(topic), **configs}


def looked(cluster: Cluster, configs: Mapping[str, str], cluster_id: str = "EAST") -> dict[str, str]:
    """Why a source's topic `clicks` of two partitions is not brought, by its name."""
    config = SourceConfig(
        name="dc", bootstrap_servers=(("h", 1),), topics=re.compile(".*"), is_aggregate=True
    )
    topic = SourceTopic(
        name="clicks", topic_id=UUID(int=5), partitions={0: (1, 0), 1: (1, 0)}, configs=configs
    )
    source = SimpleNamespace(
        config=config, cluster_id=cluster_id, topics={"clicks": topic}, unreadable={}, not_brought={}
    )
    asyncio.run(keep_in_step(cast("Any", cluster), cast("Source", source)))
    found: dict[str, str] = source.not_brought
    return found


def test_a_topic_is_made_and_says_from_its_first_moment_whose_messages_it_has() -> None:
    cluster = Cluster({})
    assert looked(cluster, DELETE) == {}
    assert cluster.found == {"clicks": (2, {**DELETE, **EAST})}


def test_one_that_is_there_is_grown_and_marked_with_all_that_is_brought_into_it() -> None:
    cluster = Cluster({"clicks": (1, {"retention.ms": "5"})})
    assert looked(cluster, DELETE) == {}
    assert cluster.found == {"clicks": (2, {"retention.ms": "5", **EAST})}
    assert looked(cluster, {**DELETE, MERGED_CLUSTERS: "NORTH"}, "WEST") == {}
    assert cluster.found["clicks"][1][MERGED_CLUSTERS] == "EAST,NORTH,WEST"


@pytest.mark.parametrize(
    ("configs", "here", "reason"),
    [
        ({}, {}, "its configuration is not known yet"),
        ({"cleanup.policy": "compact,delete"}, {}, "it is compacted"),
        ({**DELETE, "message.timestamp.type": "LogAppendTime"}, {}, "its messages have their brokers' times"),
        ({**DELETE, MIRROR_CLUSTERS: "X"}, {}, "it is a mirror's copy at the source"),
        ({**DELETE, MERGED_CLUSTERS: "X,HERE"}, {}, "messages of this cluster are brought into it there"),
        (DELETE, {"clicks": (2, {MIRROR_CLUSTERS: "X"})}, "the topic of that name here is a mirror's copy"),
    ],
)
def test_what_cannot_be_an_aggregate_is_left_alone(
    configs: dict[str, str], here: dict[str, tuple[int, dict[str, str]]], reason: str
) -> None:
    cluster = Cluster(here)
    assert looked(cluster, configs)["clicks"].startswith(reason)
    assert cluster.found == here


def test_a_topic_that_this_cluster_refuses_is_told() -> None:
    cluster = Cluster({})
    cluster.is_full = True
    assert looked(cluster, DELETE) == {"clicks": "it cannot have 2 partitions here: too few brokers"}
