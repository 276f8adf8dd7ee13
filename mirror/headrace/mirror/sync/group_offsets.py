"""Reading groups and their committed offsets from one cluster, and committing them in another: what `headrace mirror sync-groups`
does once, and brokers again and again.

Commits as one who is no member: a broker refuses that for a group that has members by then, whatever was read before.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from headrace.broker.config.copies import MIRROR_CLUSTERS
from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.broker.wire.api import (
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k15_describe_groups,
    k16_list_groups,
)
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.sync.groups import METADATA, Committed, Copies, GroupMove, Offsets, group_move
from headrace.mirror.told import names_of

GROUP_KEY = 0
_HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
COORDINATOR_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)


async def groups(client: ClusterClient, pattern: re.Pattern[str]) -> dict[str, int]:
    """Those whose whole name matches, with the broker that coordinates each; raises KafkaErrors."""
    found: dict[str, int] = {}
    for broker in client.brokers:
        answer = await client.ask(broker, k16_list_groups.API, 3, {})
        if answer["error_code"]:
            raise error_of(answer["error_code"], f"broker {broker} does not list its groups")
        found |= {group["group_id"]: broker for group in answer["groups"]}
    return {group: found[group] for group in sorted(found) if pattern.fullmatch(group)}


async def _coordinator(client: ClusterClient, group: str) -> int:
    """Raises KafkaErrors; a cluster's first group has its brokers make their topic for it, which takes a while."""
    message = {"key": group, "key_type": GROUP_KEY}
    for pause_seconds in COORDINATOR_PAUSES_SECONDS:
        answer = await client.ask(client.brokers[0], k10_find_coordinator.API, 3, message)
        if answer["error_code"] != ErrorCode.COORDINATOR_NOT_AVAILABLE:
            break
        await asyncio.sleep(pause_seconds)
    if answer["error_code"]:
        raise error_of(answer["error_code"], f"group {group} has no coordinator")
    coordinator: int = answer["node_id"]
    return coordinator


async def committed(client: ClusterClient, coordinator: int, group: str) -> dict[PartitionKey, Committed]:
    """What it has committed; raises KafkaErrors."""
    message = {"group_id": group, "topics": None, "require_stable": False}
    answer = await client.ask(coordinator, k09_offset_fetch.API, 7, message)
    if answer["error_code"]:
        raise error_of(answer["error_code"], f"offsets of group {group} cannot be read")
    return {
        (topic["name"], found["partition_index"]): Committed(
            found["committed_offset"], found["metadata"] or ""
        )
        for topic in answer["topics"]
        for found in topic["partitions"]
        if not found["error_code"] and found["committed_offset"] >= 0
    }


async def state_of(client: ClusterClient, coordinator: int, group: str) -> str:
    """The group's state; raises KafkaErrors."""
    message = {"groups": [group], "include_authorized_operations": False}
    answer = await client.ask(coordinator, k15_describe_groups.API, 4, message)
    (found,) = answer["groups"]
    if found["error_code"]:
        raise error_of(found["error_code"], f"group {group} cannot be described")
    state: str = found["group_state"]
    return state


async def commit(client: ClusterClient, group: str, offsets: Mapping[PartitionKey, int]) -> None:
    """Commit for a group without members; raises KafkaErrors."""
    topics: dict[str, list[dict[str, object]]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": METADATA}
        )
    message = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    answer = await client.ask(await _coordinator(client, group), k08_offset_commit.API, 7, message)
    codes = {found["error_code"] for topic in answer["topics"] for found in topic["partitions"]} - {0}
    if codes:
        code = min(codes)
        raise error_of(code, f"offsets of group {group} cannot be committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """A group of a source: what it has committed there; its state and what it has committed here, if it reads what is copied."""

    group: str
    committed: Offsets
    state: str = ""
    here: Mapping[PartitionKey, Committed] = field(default_factory=dict)
    reads_copied: bool = False


async def moves(
    here: ClusterClient, there: ClusterClient, source: str, pattern: re.Pattern[str]
) -> list[GroupMove]:
    """What to commit for each group of the source that matches and has committed in a topic with a copy; raises KafkaErrors."""
    copies, looks = await look(here, there, source, pattern)
    return [
        group_move(one.group, one.committed, copies, state=one.state, here=one.here)
        for one in looks
        if one.reads_copied
    ]


async def look(
    here: ClusterClient, there: ClusterClient, source: str, pattern: re.Pattern[str]
) -> tuple[Copies, list[GroupLook]]:
    """The groups of a source that match, and the copies of what they read; raises KafkaErrors."""
    read = {
        group: {place: found.offset for place, found in (await committed(there, coordinator, group)).items()}
        for group, coordinator in (await groups(there, pattern)).items()
    }
    copies = await _copies(here, source, {place for offsets in read.values() for place in offsets})
    found = []
    for group, offsets in read.items():
        if not any(copies.of(*place) in copies.ends for place in offsets):
            found.append(GroupLook(group=group, committed=offsets))
            continue
        coordinator = await _coordinator(here, group)
        state = await state_of(here, coordinator, group)
        known = await committed(here, coordinator, group)
        found.append(GroupLook(group=group, committed=offsets, state=state, here=known, reads_copied=True))
    return copies, found


async def bring(here: ClusterClient, found: Collection[GroupMove]) -> list[GroupMove]:
    """Commit these; as they came of it, a group that got members meanwhile as one left alone. Raises KafkaErrors."""
    done = []
    for move in found:
        try:
            if move.offsets:
                await commit(here, move.group, move.offsets)
            done.append(move)
        except KafkaError as error:
            if error.code not in _HAS_MEMBERS:
                raise
            refusal = "it has members in the cluster of the copies by now"
            done.append(GroupMove(group=move.group, offsets={}, refusal=refusal))
    return done


async def _copies(here: ClusterClient, source: str, wanted: Collection[PartitionKey]) -> Copies:
    """Of these partitions of the source. A promoted copy is none: its offsets have not been the source's since."""
    names = await names_of(here)
    called = {(names.topic_of(f"{source}.{topic}"), partition) for topic, partition in wanted}
    places = called & here.leaders.keys()
    marks = await here.configs_of(sorted({topic for topic, _ in places}), (MIRROR_CLUSTERS,))
    copies = [place for place in places if lineage.clusters_of(marks.get(place[0], {}))]
    return Copies(
        source=source,
        starts=by_place(copies, await here.log_starts(copies)),
        ends=by_place(copies, await here.log_ends(copies)),
        names=names,
    )


def by_place(places: Collection[PartitionKey], offsets: Mapping[str, int]) -> dict[PartitionKey, int]:
    return {
        place: offsets[f"{place[0]}-{place[1]}"] for place in places if f"{place[0]}-{place[1]}" in offsets
    }


def told(move: GroupMove, *, dry_run: bool = False) -> str:
    """What to say of it."""
    if move.refusal:
        return f"{move.group} is left alone: {move.refusal}."
    if not move.offsets:
        return f"{move.group} is where it is to be."
    parts = [f"{move.group} {'would go' if dry_run else 'goes'} on in {len(move.offsets)} partitions"]
    if move.not_yet:
        parts.append(
            f"{move.not_yet:,} messages that it read are not in the copies yet, and would be read twice"
        )
    if move.lost:
        parts.append(f"{move.lost:,} that it did not read are no longer in them")
    return "; ".join(parts) + "."
