"""Copies' configurations follow their sources': which, on which broker, and how often."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.copies import MIRROR_CLUSTERS
from headrace.broker.errors import InvalidConfigError
from headrace.mirror.config import SourceConfig
from headrace.mirror.memory.reports import CONFIGS, SyncReport
from headrace.mirror.rounds.configs import CHANGES_PER_LOOK_MAX, ConfigRounds
from headrace.mirror.source import Source, SourceTopic
from headrace.mirror.sync import configs

COPY = {MIRROR_CLUSTERS: "EAST"}
NAME = "dc-east.orders"


@pytest.mark.parametrize(
    ("there", "here", "wanted"),
    [
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact"}, {"cleanup.policy": "compact"}, {}),
        ({"retention.ms": "1", "min.insync.replicas": "2"}, {"retention.ms": "5"}, {}),
        (
            {"follower.replication.throttled.replicas": "*", MIRROR_CLUSTERS: "X", "segment.bytes": "1"},
            {},
            {},
        ),
        # An older source does not tell all of them.
        ({}, {"message.timestamp.before.max.ms": "5"}, {}),
    ],
)
def test_the_source_wins_in_what_is_synced_and_nowhere_else(
    there: dict[str, str], here: dict[str, str], wanted: dict[str, str]
) -> None:
    assert configs.changes(there, here) == wanted


def test_a_change_is_told_with_what_it_replaces() -> None:
    found = {"cleanup.policy": "compact", "compression.type": "zstd"}
    assert configs.told(NAME, found, {"cleanup.policy": "delete"}) == (
        "dc-east.orders: cleanup.policy delete -> compact, compression.type unknown -> zstd"
    )


class World:
    """This cluster, of which this broker leads what it takes to do rounds, and a source."""

    def __init__(self, *, sync_configs: bool = True) -> None:
        self.overrides: dict[str, dict[str, str]] = {}
        self.altered: list[str] = []
        self.refused: set[str] = set()
        self.leader = 1
        self.now_ms = 5_000
        host = SimpleNamespace(
            broker_id=1,
            clock=SimpleNamespace(now_ms=lambda: self.now_ms),
            configurations=SimpleNamespace(
                in_effect=BrokerConfig(),
                of_topic=lambda name: self.overrides.get(name, {}),
                alter_topic=self.alter,
            ),
            metadata=SimpleNamespace(partition=lambda *_: SimpleNamespace(leader=self.leader)),
        )
        config = SourceConfig(
            name="dc-east", bootstrap_servers=(), topics=re.compile(".*"), sync_configs=sync_configs
        )
        self.source = SimpleNamespace(config=config, topics={}, syncs={}, copy_of=config.target_topic)
        self.rounds = ConfigRounds(cast("Any", host))

    async def alter(
        self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]], *, validate_only: bool
    ) -> None:
        assert not validate_only
        if name in self.refused:
            raise InvalidConfigError("it is too large")
        self.altered.append(name)
        self.overrides[name] = dict(change(dict(self.overrides[name])))

    def source_has(self, name: str, **configs: str) -> None:
        values = {key.replace("_", "."): value for key, value in configs.items()}
        self.source.topics[name] = SourceTopic(
            name=name, topic_id=UUID(int=5), partitions={0: (1, 0)}, configs=values
        )

    def look(self) -> SyncReport | None:
        asyncio.run(self.rounds.keep_in_step(cast("Source", self.source)))
        found: SyncReport | None = self.source.syncs.get(CONFIGS)
        return found


def test_a_copy_follows_and_is_compared_once_for_each_time_that_the_source_was_asked() -> None:
    world = World()
    world.overrides[NAME] = {**COPY, "retention.ms": "7", "compression.type": "lz4"}
    world.source_has("orders", cleanup_policy="compact", compression_type="producer", retention_ms="9")
    assert world.look() == SyncReport(source="dc-east", what=CONFIGS, succeeded_ms=5_000, in_step=1)
    wanted = {**COPY, "retention.ms": "7", "cleanup.policy": "compact", "compression.type": "producer"}
    assert world.overrides[NAME] == wanted
    world.overrides[NAME]["cleanup.policy"] = "delete"
    world.look()
    assert world.overrides[NAME]["cleanup.policy"] == "delete"
    world.source_has("orders", cleanup_policy="compact")
    world.look()
    assert world.overrides[NAME] == wanted
    world.source_has("orders", cleanup_policy="compact")
    world.look()
    assert world.altered == [NAME, NAME], "what is the same already is not written"


@pytest.mark.parametrize("overrides", [{}, {MIRROR_CLUSTERS: ""}])
def test_what_is_no_copy_is_left_alone(overrides: dict[str, str]) -> None:
    world = World()
    world.overrides[NAME] = overrides
    world.source_has("orders", cleanup_policy="compact")
    found = world.look()
    assert (world.altered, found and found.in_step) == ([], 0)


def test_one_broker_does_it_and_none_where_it_is_switched_off() -> None:
    for world, leader in ((World(), 2), (World(sync_configs=False), 1)):
        world.leader = leader
        world.overrides[NAME] = dict(COPY)
        world.source_has("orders", cleanup_policy="compact")
        assert (world.look(), world.altered) == (None, [])


def test_so_many_are_changed_at_a_look_and_the_others_at_the_next() -> None:
    world = World()
    for number in range(CHANGES_PER_LOOK_MAX + 5):
        world.overrides[f"dc-east.t{number}"] = dict(COPY)
        world.source_has(f"t{number}", cleanup_policy="compact")
    found = world.look()
    assert found is not None
    assert (len(world.altered), found.succeeded_ms) == (CHANGES_PER_LOOK_MAX, None)
    found = world.look()
    assert found is not None
    assert (len(set(world.altered)), found.succeeded_ms) == (CHANGES_PER_LOOK_MAX + 5, 5_000)


def test_a_change_that_is_refused_is_told_and_tried_when_the_source_was_asked_again() -> None:
    world = World()
    world.overrides[NAME] = dict(COPY)
    world.refused.add(NAME)
    world.source_has("orders", cleanup_policy="compact")
    found = world.look()
    assert found is not None
    assert (found.succeeded_ms, found.problem) == (None, f"{NAME}: it is too large")
    world.refused.clear()
    assert world.look() == found
    world.source_has("orders", cleanup_policy="compact")
    found = world.look()
    assert found is not None
    assert (found.problem, world.overrides[NAME]["cleanup.policy"]) == ("", "compact")


def test_who_is_promoted_meanwhile_is_left_alone() -> None:
    world = World()
    world.overrides[NAME] = dict(COPY)
    world.source_has("orders", cleanup_policy="compact")
    alter = world.alter

    async def late(name: str, change: Any, *, validate_only: bool) -> None:
        world.overrides[name] = {MIRROR_CLUSTERS: ""}
        await alter(name, change, validate_only=validate_only)

    cast("Any", world.rounds)._host.configurations.alter_topic = late
    world.look()
    assert world.overrides[NAME] == {MIRROR_CLUSTERS: ""}


def test_what_is_stored_and_no_configuration_is_told() -> None:
    world = World()
    world.overrides[NAME] = {**COPY, "max.message.bytes": "many"}
    world.source_has("orders", cleanup_policy="compact")
    found = world.look()
    assert found is not None
    assert found.problem.startswith(f"{NAME}: max.message.bytes=many is not allowed")
