"""Where a source's groups would go on in its copies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.mirror.names import CopyNames
from headrace.mirror.sync import group_offsets
from headrace.mirror.sync.groups import METADATA, Committed, Copies, GroupMove, group_move

COPIES = Copies(
    source="dc-east",
    starts={("dc-east.t", 0): 10, ("dc-east.t", 1): 0},
    ends={("dc-east.t", 0): 100, ("dc-east.t", 1): 7},
)


def move(
    committed: dict[tuple[str, int], int], here: dict[tuple[str, int], int] | None = None, by: str = METADATA
) -> GroupMove:
    known = {place: Committed(offset, by) for place, offset in (here or {}).items()}
    return group_move("g", committed, COPIES, state="Empty", here=known)


@pytest.mark.parametrize(
    ("offset", "wanted", "not_yet", "lost"),
    [(50, 50, 0, 0), (100, 100, 0, 0), (130, 100, 30, 0), (10, 10, 0, 0), (4, 10, 0, 6)],
)
def test_a_committed_offset_is_clamped_to_what_the_copy_holds(
    offset: int, wanted: int, not_yet: int, lost: int
) -> None:
    found = move({("t", 0): offset})
    assert (found.offsets, found.not_yet, found.lost) == ({("dc-east.t", 0): wanted}, not_yet, lost)


def test_what_has_no_copy_is_passed_over_and_nobody_is_moved_back() -> None:
    assert move({("u", 0): 5, ("t", 9): 5, ("t", 0): -1}).offsets == {}
    assert move({("t", 0): 50}, {("dc-east.t", 0): 50}).offsets == {}
    assert move({("t", 0): 50, ("t", 1): 3}, {("dc-east.t", 0): 60, ("dc-east.t", 1): 2}).offsets == {
        ("dc-east.t", 1): 3
    }


def test_a_group_that_committed_here_itself_is_left_alone_until_it_is_deleted() -> None:
    found = move({("t", 0): 50, ("t", 1): 3}, {("dc-east.t", 1): 2}, by="")
    assert found.offsets == {}
    assert found.refusal == (
        "it committed offset 2 of dc-east.t-1 in the cluster of the copies itself; "
        "`headrace groups delete g` there has it follow the source again"
    )
    # What it reads of topics that are no copies says nothing of the copies.
    assert move({("t", 0): 50}, {("other", 0): 9}, by="").offsets == {("dc-east.t", 0): 50}


def test_a_copy_with_a_name_of_its_own_is_found() -> None:
    copies = Copies(
        source="offline",
        starts={("t", 0): 0},
        ends={("t", 0): 9},
        names=CopyNames({"t": "offline.dc-east.t"}),
    )
    found = group_move("g", {("dc-east.t", 0): 5, ("t", 0): 7}, copies, state="", here={})
    assert found.offsets == {("t", 0): 5}


def test_what_is_not_in_the_copies_yet_is_told_again_and_again() -> None:
    found = move({("t", 0): 130}, {("dc-east.t", 0): 100})
    assert (found.offsets, found.not_yet) == ({}, 30)


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance"])
def test_a_group_with_members_here_is_left_alone(state: str) -> None:
    found = group_move("g", {("t", 0): 50}, COPIES, state=state, here={})
    assert (found.offsets, state in found.refusal) == ({}, True)
    assert group_offsets.told(found, dry_run=False).startswith("g is left alone: ")


def test_it_is_said_what_is_read_twice_and_what_is_lost() -> None:
    assert group_offsets.told(move({("t", 0): 130}), dry_run=True) == (
        "g would go on in 1 partitions; 30 messages that it read are not in the copies yet, and would be read twice."
    )
    assert group_offsets.told(move({("t", 0): 4}), dry_run=False) == (
        "g goes on in 1 partitions; 6 that it did not read are no longer in them."
    )
    assert group_offsets.told(move({}), dry_run=False) == "g is where it is to be."


def test_a_group_that_got_members_meanwhile_stands_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    committed: list[str] = []

    async def commit(client: Any, group: str, offsets: Any) -> None:
        if group != "good":
            raise error_of(ErrorCode.UNKNOWN_MEMBER_ID if group == "joined" else ErrorCode.NOT_COORDINATOR)
        committed.append(group)

    monkeypatch.setattr(group_offsets, "commit", commit)
    moves = [GroupMove(group=group, offsets={("dc-east.t", 0): 5}) for group in ("joined", "good")]
    done = asyncio.run(group_offsets.bring(cast("Any", None), moves))
    assert [(one.group, one.refusal) for one in done] == [
        ("joined", "it has members in the cluster of the copies by now"),
        ("good", ""),
    ]
    assert committed == ["good"]
    with pytest.raises(KafkaError):
        asyncio.run(group_offsets.bring(cast("Any", None), [replace(moves[0], group="other")]))
