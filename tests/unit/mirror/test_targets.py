"""The copies of a source's topics: which are created, marked, grown, and which are left alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.broker.config.copies import MIRROR_CLUSTERS
from headrace.broker.errors import ErrorCode, UnknownTopicOrPartitionError
from headrace.mirror.config import SourceConfig
from headrace.mirror.source import Source, SourceTopic
from headrace.mirror.targets import MARK_MAX_AGE_MS, ZOOKEEPER_SILENT, Targets

COPY, FORMER = {MIRROR_CLUSTERS: "EAST"}, {MIRROR_CLUSTERS: ""}
NAME = "dc-east.orders"


class Cluster:
    """The topics of this cluster: name → (partitions, overrides); `done` is what was done to them."""

    def __init__(self, topics: Mapping[str, tuple[int, dict[str, str]]]) -> None:
        self.topics = dict(topics)
        self.done: list[Any] = []
        self.looks = 0

    async def create(self, topics: list[Any], *, timeout_ms: int) -> list[Any]:
        for topic in topics:
            self.topics[topic.name] = topic.partition_count, dict(topic.configs)
            self.done.append(("created", topic.name))
        return [SimpleNamespace(error=ErrorCode.NONE, message=None) for _ in topics]

    async def grow(self, name: str, count: int, assignments: Any, **_: Any) -> Any:
        self.topics[name] = count, self.topics[name][1]
        self.done.append(("grown", name, count))
        return SimpleNamespace(error=ErrorCode.NONE, message=None)

    async def stored_of_topics(self, names: list[str]) -> dict[str, dict[str, str]]:
        self.looks += 1
        return {name: dict(self.topics[name][1]) for name in names}

    async def alter_topic(
        self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> None:
        if name not in self.topics:
            raise UnknownTopicOrPartitionError(f"there is no {name}")
        count, overrides = self.topics[name]
        self.topics[name] = count, dict(change(dict(overrides)))
        self.done.append(("altered", name))


class World:
    """A source with the topic `orders` of two partitions, and this cluster's mirror."""

    def __init__(
        self, topics: Mapping[str, tuple[int, dict[str, str]]], *, is_remembered: bool = False
    ) -> None:
        self.cluster = Cluster(topics)
        self.now_ms = 0
        led = [SimpleNamespace(topic=name) for name in topics]
        host = SimpleNamespace(
            topics=self.cluster,
            configurations=self.cluster,
            led=lambda: led,
            clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms),
            metadata=SimpleNamespace(
                topics=lambda name: (
                    range(self.cluster.topics[name][0]) if name in self.cluster.topics else None
                ),
                topic_id=lambda name: UUID(int=1),
            ),
        )
        self.targets = Targets(
            cast("Any", host), cast("Any", SimpleNamespace(remembers=lambda _: is_remembered))
        )
        config = SourceConfig(name="dc-east", bootstrap_servers=(("h", 1),), topics=re.compile(".*"))
        self.source = cast(
            "Source",
            SimpleNamespace(
                config=config,
                copy_of=config.target_topic,
                cluster_id="EAST",
                topics={},
                unreadable={},
                not_brought={},
            ),
        )
        self.source_has("orders", {"cleanup.policy": "delete"})

    def source_has(self, name: str, configs: Mapping[str, str], *, partition_count: int = 2) -> None:
        partitions = dict.fromkeys(range(partition_count), (1, 0))
        self.source.topics[name] = SourceTopic(
            name=name, topic_id=UUID(int=5), partitions=partitions, configs=configs
        )

    def look(self) -> list[Any]:
        """What is done to this cluster's topics now."""
        self.cluster.done.clear()
        asyncio.run(self.targets.keep_in_step(self.source))
        return list(self.cluster.done)


def test_a_copy_is_marked_from_its_first_moment() -> None:
    world = World({})
    assert world.look() == [("created", NAME)]
    assert world.cluster.topics[NAME] == (2, {"cleanup.policy": "delete", **COPY})


def test_a_copy_of_a_copy_tells_of_all_clusters() -> None:
    world = World({})
    world.source_has("dc-north.t", {"cleanup.policy": "delete", MIRROR_CLUSTERS: "NORTH"})
    world.look()
    assert world.cluster.topics["dc-east.dc-north.t"][1][MIRROR_CLUSTERS] == "NORTH,EAST"


def test_a_copy_grows_with_its_source_and_is_looked_at_from_time_to_time() -> None:
    world = World({NAME: (1, COPY)})
    assert world.look() == [("grown", NAME, 2)]
    assert world.look() == []
    assert world.cluster.looks == 1
    world.now_ms += MARK_MAX_AGE_MS
    assert world.look() == []
    assert world.cluster.looks == 2


def test_a_copy_that_was_promoted_a_moment_ago_gets_no_partitions_of_its_source() -> None:
    world = World({NAME: (2, COPY)})
    assert world.look() == []
    world.cluster.topics[NAME] = 2, FORMER
    world.source_has("orders", {"cleanup.policy": "delete"}, partition_count=3)
    assert world.look() == []


def test_a_copy_from_before_copies_were_marked_is_marked() -> None:
    world = World({NAME: (2, {"retention.ms": "5"})}, is_remembered=True)
    assert world.look() == [("altered", NAME)]
    assert world.cluster.topics[NAME][1] == {"retention.ms": "5", **COPY}


def test_a_mark_follows_the_source() -> None:
    world = World({NAME: (2, {MIRROR_CLUSTERS: "ANOTHER"})})
    assert world.look() == [("altered", NAME)]
    assert world.cluster.topics[NAME][1] == COPY


@pytest.mark.parametrize("is_remembered", [False, True])
def test_a_promoted_copy_is_left_alone(is_remembered: bool) -> None:
    world = World({NAME: (1, FORMER)}, is_remembered=is_remembered)
    assert world.look() == []


def test_a_topic_that_somebody_else_made_is_left_alone_and_told_of() -> None:
    world = World({NAME: (1, {})})
    assert world.look() == []
    ((name, reason),) = world.source.not_brought.items()
    assert name == NAME
    assert f"set its configuration {MIRROR_CLUSTERS}=EAST to have it copied to" in reason
    world.cluster.topics[NAME] = 1, dict(COPY)
    assert world.look() == [("grown", NAME, 2)]
    assert world.source.not_brought == {}


def test_who_is_promoted_while_it_is_being_marked_stays_so() -> None:
    world = World({NAME: (2, {})}, is_remembered=True)
    alter = world.cluster.alter_topic

    async def late(name: str, change: Any, *, validate_only: bool) -> None:
        world.cluster.topics[name] = 2, dict(FORMER)
        await alter(name, change, validate_only=validate_only)

    world.cluster.alter_topic = late  # type: ignore[method-assign]
    world.look()
    assert world.cluster.topics[NAME][1] == FORMER


def test_nothing_is_done_before_the_source_told_a_topics_configuration() -> None:
    world = World({})
    world.source_has("orders", {})
    assert world.look() == []


@pytest.mark.parametrize(("partition_count", "not_brought"), [(2, {}), (3, {NAME: ZOOKEEPER_SILENT})])
def test_a_copy_that_lacks_nothing_is_in_step_while_zookeeper_is_away(
    partition_count: int, not_brought: dict[str, str]
) -> None:
    world = World({NAME: (2, COPY)})
    world.look()

    async def away(names: list[str]) -> Any:
        raise TimeoutError

    world.cluster.stored_of_topics = away  # type: ignore[method-assign]
    world.now_ms += MARK_MAX_AGE_MS
    world.source_has("orders", {"cleanup.policy": "delete"}, partition_count=partition_count)
    assert world.look() == []
    assert world.source.not_brought == not_brought


def test_a_zookeeper_that_is_away_is_waited_for_once_a_look() -> None:
    names = ("orders", "pages", "views")
    world = World({f"dc-east.{name}": (2, COPY) for name in names})
    for name in names:
        world.source_has(name, {"cleanup.policy": "delete"})
    asked: list[list[str]] = []

    async def away(names: list[str]) -> Any:
        asked.append(names)
        raise TimeoutError

    world.cluster.stored_of_topics = away  # type: ignore[method-assign]
    assert world.look() == []
    assert asked == [[NAME]]
    assert world.source.not_brought == {NAME: ZOOKEEPER_SILENT}
