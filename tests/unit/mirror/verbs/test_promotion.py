"""When a copy may become a topic of this cluster, and what is said of what it lacks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import click
import pytest
from mirror_kit import finding

from headrace.mirror.memory.findings import Kind
from headrace.mirror.memory.state import Skip, State
from headrace.mirror.names import CopyNames
from headrace.mirror.verbs import promotion
from headrace.mirror.verbs.promotion import SILENT, Source, Standing, standings, until_complete

STATE = State(target_id=UUID(int=1), source_bootstrap="east:9092")
STANDING = Standing(topic="dc-east.t", partition=0, end=10, lag=0, obstacle="")
COPIES = {("dc-east.t", 0): 1, ("dc-east.t", 1): 1, ("dc-east.u", 0): 1}
ENDS = {"dc-east.t-0": 10, "dc-east.t-1": 5}


def test_each_partition_stands_where_both_ends_say() -> None:
    skipped = Skip(log_end_offset=5, first_offset=5, last_offset=6)
    found = standings(
        ["dc-east.t"],
        COPIES,
        ENDS,
        {"dc-east": Source(ends={"t-0": 13, "t-1": 8})},
        {"dc-east.t-0": STATE, "dc-east.t-1": replace(STATE, skipped=skipped)},
    )
    assert [(one.partition, one.end, one.lag, one.lacks, one.obstacle) for one in found] == [
        (0, 10, 3, "3 messages", ""),
        (1, 5, 1, "1 message", ""),
    ]


def test_a_copy_with_a_name_of_its_own_stands_where_its_source_says() -> None:
    (found,) = standings(
        ["t"],
        {("t", 0): 1},
        {"t-0": 10},
        {"west": Source(ends={"east.t-0": 12})},
        {},
        (),
        CopyNames({"t": "west.east.t"}),
    )
    assert found.lag == 2


def test_a_source_that_does_not_answer_leaves_the_lag_unknown() -> None:
    found = standings(["dc-east.t"], COPIES, ENDS, {"dc-east": SILENT}, {})
    assert {one.lag for one in found} == {None}
    assert "nobody knows" in found[0].lacks


def test_partitions_that_only_the_source_has_are_lacking() -> None:
    source = Source(ends={"t-0": 10, "t-1": 0, "t-2": 7, "t-x-1": 5})
    found = standings(["dc-east.t"], {("dc-east.t", 0): 1}, ENDS, {"dc-east": source}, {"dc-east.t-0": STATE})
    assert [(one.partition, one.end, one.lag, one.obstacle) for one in found] == [
        (0, 10, 0, ""),
        (2, None, 7, ""),
    ]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (Source(ends={"t-0": 12}, cluster_id="other"), "another cluster answers, other"),
        (
            Source(ends={"t-0": 12}, cluster_id="east", topic_ids={"t": UUID(int=8)}),
            "deleted and created again",
        ),
        (
            Source(ends={"t-0": 9}, cluster_id="east", topic_ids={"t": UUID(int=7)}),
            "ends at 9, before the 10 that were copied",
        ),
        (Source(ends={"u-0": 9}, cluster_id="east"), "does not list the partition"),
    ],
)
def test_another_log_than_the_one_that_was_copied_is_an_obstacle(source: Source, sentence: str) -> None:
    state = replace(STATE, source_id=UUID(int=7))
    (found,) = standings(
        ["dc-east.t"],
        {("dc-east.t", 0): 1},
        ENDS,
        {"dc-east": source},
        {"dc-east.t-0": state},
        origins={"dc-east.t": "east"},
    )
    assert sentence in found.obstacle
    assert (found.lag, found.lacks) == (None, "nobody knows how many messages")


@pytest.mark.parametrize("obstacle", ["stopped", "rotten", "paused"])
def test_what_does_not_go_on_has_an_obstacle(obstacle: str) -> None:
    state = {
        "stopped": replace(STATE, stopped=finding(Kind.GAP, 1, 2)),
        "rotten": replace(STATE, rotten=finding(Kind.ROT, 1, 2)),
        "paused": STATE,
    }[obstacle]
    paused = {"dc-east.t"} if obstacle == "paused" else set[str]()
    found = standings(["dc-east.t"], {("dc-east.t", 0): 1}, ENDS, {}, {"dc-east.t-0": state}, paused)
    assert found[0].obstacle


def waited(*looks: Standing, timeout: float = 30) -> list[Standing]:
    left = list(looks)

    async def look() -> list[Standing]:
        return [left.pop(0) if len(left) > 1 else left[0]]

    return asyncio.run(until_complete(look, timeout))


def test_promoting_waits_until_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotion, "LOOK_SECONDS", 0)
    assert waited(replace(STANDING, lag=5), replace(STANDING, lag=1), STANDING) == [STANDING]


@pytest.mark.parametrize(
    ("standing", "sentence"),
    [
        (replace(STANDING, lag=None), "its source does not answer"),
        (replace(STANDING, obstacle="gap: gone"), r"does not go on \(gap: gone\)"),
        (replace(STANDING, lag=7), "still lacks 7 messages after 0 s"),
    ],
)
def test_promoting_gives_up_with_nothing_done(standing: Standing, sentence: str) -> None:
    with pytest.raises(click.ClickException, match=sentence) as refused:
        waited(standing, timeout=0)
    assert "nothing was promoted" in refused.value.message


def test_a_topic_that_never_was_a_copy_is_refused_and_what_was_promoted_passed_over() -> None:
    clusters = {"dc-east.t": {"headrace.mirror.clusters": "EAST"}, "dc-east.u": {}}

    async def topic_configs(topic: str) -> dict[str, str]:
        return clusters.get(topic, {"headrace.mirror.clusters": ""})

    client = cast("Any", SimpleNamespace(topic_configs=topic_configs))
    assert asyncio.run(promotion.check(client, ["dc-east.t", "dc-east.former"])) == ["dc-east.t"]
    with pytest.raises(click.ClickException, match=r"dc-east.u is no copy"):
        asyncio.run(promotion.check(client, ["dc-east.t", "dc-east.u"]))
