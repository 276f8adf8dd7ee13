"""What `headrace mirror restore` finds out, refuses and orders, of clusters in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import click
import pytest
from mirror_kit import SHARED, log
from one_topic_cluster import Cluster

from headrace.mirror.memory.orders import PROMOTED, TOPICS, Promoted, encode_promoted, encode_topics, key_of
from headrace.mirror.memory.state import RESTORE, RestoreOrder, decode_restore, encode_restore, place_of
from headrace.mirror.memory.state import key_of as place_key
from headrace.mirror.verbs import epoch_renewal, restoration

TARGET_ID, SOURCE_ID = UUID(int=9), UUID(int=3)
T, U = "dc-east.t", "t"
PROMOTED_KEY = key_of(T, PROMOTED)


class World:
    """`dc-east.t` was promoted after the batches that `SHARED` names, and both sides have gone on since."""

    def __init__(self, shared: int = 40, own: int = 3, theirs: int = 2) -> None:
        copy = log(*SHARED[:shared], *[(2, b"own")] * own, epoch=7)
        source = log(*SHARED[:shared], *[(2, b"source")] * theirs, epoch=5)
        self.here = Cluster("HERE", T, TARGET_ID, copy)
        self.there = Cluster("EAST", U, SOURCE_ID, source)
        self.here.configs = {"headrace.mirror.clusters": ""}
        self.here.records[PROMOTED_KEY] = encode_promoted(Promoted("EAST", SOURCE_ID))
        self.end = sum(size for size, _ in SHARED[:shared])

    @property
    def key(self) -> bytes:
        return place_key(place_of(T, 0), RESTORE)

    def plan(self) -> restoration.Plan:
        @asynccontextmanager
        async def copied_source_client(here: Any, source: str) -> AsyncIterator[Cluster]:
            assert source == "dc-east"
            yield self.there

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(restoration, "copied_source_client", copied_source_client)
            return asyncio.run(restoration.plan(cast("Any", self.here), [T]))


def test_each_partition_loses_what_lies_behind_the_common_part() -> None:
    world = World()
    world.here.committed = {"behind": world.end, "beyond": world.end + 2}
    plan = world.plan()
    (cut,) = plan.cuts
    base = world.end - SHARED[39][0]
    assert cut.order == RestoreOrder(
        target_id=TARGET_ID, source_id=SOURCE_ID, end_offset=world.end, epoch=5, epoch_start=base
    )
    assert str(cut) == (
        f"dc-east.t-0 has 6 messages of its own (offsets {world.end} to {world.end + 5}) behind what its source has up to "
        f"offset {world.end}; 4 of the source's follow there"
    )
    (reader,) = plan.readers
    assert reader.startswith(f"Group beyond has read dc-east.t-0 up to offset {world.end + 2}, ")
    assert "has no messages of its own behind" in str(World(own=0).plan().cuts[0])


def test_the_order_is_there_before_the_topic_is_a_copy_again() -> None:
    world = World()
    world.there.configs = {"headrace.mirror.clusters": "WEST"}
    plan = world.plan()
    assert world.here.configs == {"headrace.mirror.clusters": ""}
    order, (cut,) = world.here.set_topic_configs, plan.cuts

    async def marked(topic: str, values: dict[str, str]) -> None:
        assert decode_restore(world.here.records[world.key]) == cut.order
        await order(topic, values)

    world.here.set_topic_configs = marked  # type: ignore[method-assign]
    asyncio.run(restoration.order(cast("Any", world.here), plan))
    assert world.here.configs == {"headrace.mirror.clusters": "WEST,EAST"}
    again = world.plan()
    assert (again.begun, again.done, again.marks) == ([T], [], {})
    with pytest.raises(click.ClickException, match="is not a copy yet"):
        asyncio.run(restoration.until_done(cast("Any", world.here), again.begun, 0))
    del world.here.records[world.key]
    asyncio.run(restoration.until_done(cast("Any", world.here), again.begun, 0))
    assert (world.plan().begun, world.plan().done) == ([], [T])


def test_a_broker_that_dies_while_the_mark_is_set_is_followed_by_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restoration, "LOOK_SECONDS", 0)
    world = World()
    world.there.configs = {"headrace.mirror.clusters": "WEST"}
    plan, mark, tries = world.plan(), world.here.set_topic_configs, []

    async def dies(topic: str, values: dict[str, str]) -> None:
        tries.append(topic)
        await mark(topic, values)
        if len(tries) < deaths:
            raise ConnectionError("the broker closed the connection")

    monkeypatch.setattr(world.here, "set_topic_configs", dies)
    deaths = 3
    asyncio.run(restoration.order(cast("Any", world.here), plan))
    assert (tries, world.here.configs["headrace.mirror.clusters"]) == ([T] * 3, "WEST,EAST")
    deaths = 1_000
    with pytest.raises(click.ClickException, match="closed the connection; give the same order again"):
        asyncio.run(restoration.order(cast("Any", world.here), plan))


def refused(world: World) -> str:
    with pytest.raises(click.ClickException) as caught:
        world.plan()
    assert world.here.configs.get("headrace.mirror.clusters", "") == "", "nothing was done"
    return caught.value.message


def test_what_cannot_be_restored_is_refused_in_a_sentence() -> None:
    told: list[str] = []

    def tell(world: World) -> None:
        told.append(
            refused(world)
            .removeprefix("dc-east.t cannot be made a copy, ")
            .partition(":")[0]
            .partition(";")[0]
        )

    world = World()
    world.here.configs = {}
    tell(world)
    world = World()
    world.there.cluster_id = "WEST"
    tell(world)
    world = World()
    world.there.configs = {"headrace.mirror.clusters": "HERE"}
    tell(world)
    world = World()
    world.there.topic_ids = {U: UUID(int=4)}
    tell(world)
    world = World()
    world.there.configs = {"cleanup.policy": "compact"}
    tell(world)
    world = World()
    world.here.leaders[T, 1] = 1
    tell(world)
    world = World()
    world.there.leaders[U, 0] = -1
    tell(world)
    world = World()
    world.here.unknown = True
    tell(world)
    world = World()
    world.here.committed, world.here.group_state = {"billing": 3}, "Stable"
    tell(world)
    world = World()
    world.here.records[key_of("dc-east", TOPICS)] = encode_topics("other")
    tell(world)
    assert told == [
        "it was never promoted from a copy",
        "it was a copy from the cluster EAST, and its source is the cluster WEST",
        "its source's data comes from this cluster (cluster id HERE)",
        "its source was deleted and created again since",
        "its source is compacted, so that nothing tells what is its own",
        "it has 2 partitions, and its source 1",
        "partition 0 has no leader at its source",
        "the leader of dc-east.t-0 does not know yet what is committed",
        "group billing has members and reads it here",
        "`headrace mirror topics dc-east` has left it out",
    ]


def test_a_partition_without_a_common_message_is_cut_whole_only_where_its_source_is_known() -> None:
    world = World(shared=0)
    (cut,) = world.plan().cuts
    assert cut.order == replace(cut.order, end_offset=0, epoch=-1, epoch_start=-1)
    del world.here.records[PROMOTED_KEY]
    assert "partition 0 (offsets 0 to 6) has nothing in common with its source (offsets 0 to 4)" in refused(
        world
    )
    world = World(shared=0)
    world.there.logs[U, 0] = log((2, b"source"), begin=3)
    assert "has nothing in common" in refused(world)


def test_a_new_leader_epoch_is_begun_for_each_partition_with_followers() -> None:
    here = Cluster("HERE", T, TARGET_ID, [], [], [], [])
    here.logs = {(T, number): [] for number in range(3)}
    client = cast("Any", here)
    assert asyncio.run(epoch_renewal.renew(client, [(T, 0), (T, 1), (T, 2)])) == ""
    assert here.assigned == [[(0, [2, 3, 1]), (1, [2, 1])], [(0, [1, 2, 3]), (1, [1, 2])]]
    here.assigned, here.moving = [], [{"name": T, "partitions": [{"partition_index": 0}]}]
    assert asyncio.run(epoch_renewal.renew(client, [(T, 0), (T, 2)])) == ""
    assert here.assigned == []


def test_an_order_survives_its_record() -> None:
    order = RestoreOrder(target_id=TARGET_ID, source_id=SOURCE_ID, end_offset=7, epoch=2, epoch_start=5)
    assert decode_restore(encode_restore(order)) == order
    with pytest.raises(ValueError, match="no order to restore"):
        decode_restore(b"{}")
