"""What `headrace mirror reverse` finds out, refuses and orders, of clusters in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import click
import pytest
from mirror_kit import SHARED, log
from one_topic_cluster import Cluster

from headrace.broker.config.copies import MIRROR_CLUSTERS, MIRROR_REMOTE
from headrace.mirror.memory.orders import PROMOTED, TOPICS, Promoted, encode_promoted, encode_topics, key_of
from headrace.mirror.memory.state import RESTORE, RestoreOrder, decode_restore, place_of
from headrace.mirror.memory.state import key_of as place_key
from headrace.mirror.verbs import restoration, reversal
from headrace.mirror.verbs.reversal import Reversal

OWN_ID, THEIR_ID = UUID(int=3), UUID(int=9)
T, COPY = "t", "dc-east.t"
REMOTE = "offline.dc-east.t"


class World:
    """The cluster EAST, whose topic's copy in the cluster OFFLINE was promoted after the batches that `SHARED` names; both sides
    have more.
    """

    def __init__(self, shared: int = 40) -> None:
        self.end = sum(size for size, _ in SHARED[:shared])
        here = log(*SHARED[:shared], *[(2, b"never copied")] * 3, epoch=5)
        there = log(*SHARED[:shared], *[(2, b"taken over")] * 4, epoch=7)
        self.here = Cluster("EAST", T, OWN_ID, here)
        self.there = Cluster("OFFLINE", COPY, THEIR_ID, there)
        self.there.configs = {MIRROR_CLUSTERS: ""}
        self.promoted(Promoted("EAST", OWN_ID))

    def promoted(self, known: Promoted) -> None:
        self.there.records[key_of(COPY, PROMOTED)] = encode_promoted(known)

    def plan(self, *topics: str) -> Reversal:
        @asynccontextmanager
        async def copied_source_client(here: Any, source: str) -> AsyncIterator[Cluster]:
            assert source == "offline"
            yield self.there

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reversal, "copied_source_client", copied_source_client)
            return asyncio.run(reversal.plan(cast("Any", self.here), "offline", topics))


def test_the_topic_is_cut_to_where_both_part_and_is_a_copy_under_its_own_name() -> None:
    world = World()
    plan = world.plan().plan
    (cut,) = plan.cuts
    base = world.end - SHARED[39][0]
    assert cut.order == RestoreOrder(
        target_id=OWN_ID, source_id=THEIR_ID, end_offset=world.end, epoch=7, epoch_start=base
    )
    assert str(cut).startswith(
        f"t-0 has 6 messages of its own (offsets {world.end} to {world.end + 5}) behind "
    )
    assert plan.marks == {T: {MIRROR_CLUSTERS: "OFFLINE", MIRROR_REMOTE: REMOTE}}
    assert world.here.records == {}, "nothing was done"
    asyncio.run(restoration.order(cast("Any", world.here), plan))
    assert world.here.configs == plan.marks[T]
    assert decode_restore(world.here.records[place_key(place_of(T, 0), RESTORE)]) == cut.order
    again = world.plan(T).plan
    assert (again.begun, again.done, again.marks) == ([T], [], {})
    world.here.records.clear()
    assert world.plan().plan.done == [T]


def test_a_topic_that_was_lost_is_made_anew_whatever_cluster_lost_it() -> None:
    world = World()
    world.here = Cluster("REBUILT", "another", OWN_ID)
    world.there.configs |= {"cleanup.policy": "delete", "retention.ms": "1"}
    assert world.plan().missing == {}, "what is this cluster's is not known"
    found = world.plan(T)
    assert found.missing == {
        T: (1, {"cleanup.policy": "delete", MIRROR_CLUSTERS: "OFFLINE", MIRROR_REMOTE: REMOTE})
    }
    assert found.plan.cuts == []


def test_of_topics_that_nobody_named_those_that_cannot_be_are_left_out_with_the_reason() -> None:
    world = World()
    world.there.configs |= {"cleanup.policy": "compact"}
    found = world.plan()
    ((unfit,), plan) = found.unfit, found.plan
    assert unfit.topic == T
    assert unfit.reason.startswith("its source is compacted, so that nothing tells what is its own: delete")
    assert (plan.cuts, plan.marks, found.missing) == ([], {}, {})
    with pytest.raises(click.ClickException, match=r"t cannot be made a copy, its source is compacted"):
        world.plan(T)


def test_what_cannot_be_reversed_is_refused_in_a_sentence() -> None:
    told: list[str] = []

    def tell(world: World, topic: str = T) -> None:
        with pytest.raises(click.ClickException) as caught:
            world.plan(topic)
        assert not world.here.configs.get(MIRROR_REMOTE, "").startswith("offline"), "nothing was done"
        told.append(caught.value.message.partition(", ")[2].partition(":")[0].partition(";")[0])

    tell(World(), "u")
    world = World()
    world.there.configs = {MIRROR_CLUSTERS: "EAST"}
    tell(world)
    world = World()
    world.promoted(Promoted("WEST", OWN_ID))
    tell(world)
    world = World()
    world.promoted(Promoted("EAST", UUID(int=4)))
    tell(world)
    world = World()
    world.there.topic_ids["dc-e.t"] = UUID(int=8)
    world.there.leaders["dc-e.t", 0] = 1
    world.there.records[key_of("dc-e.t", PROMOTED)] = encode_promoted(Promoted("EAST", OWN_ID))
    tell(world)
    world = World()
    world.here.configs = {MIRROR_CLUSTERS: "WEST", MIRROR_REMOTE: "dc-west.t"}
    tell(world)
    world = World()
    world.here.records[key_of("offline", TOPICS)] = encode_topics("other")
    tell(world)
    world = World()
    world.here.committed, world.here.group_state = {"billing": 3}, "Stable"
    tell(world)
    assert told == [
        "offline has no topic that was promoted from a copy of it",
        "dc-east.t of offline is a copy still",
        "its copy was one of the cluster WEST, and this is the cluster EAST",
        "it was deleted and created again since it was copied",
        "dc-e.t and dc-east.t of offline were copies of it",
        "it is a copy already, of dc-west.t",
        "`headrace mirror topics offline` has left it out",
        "group billing has members and reads it here",
    ]
