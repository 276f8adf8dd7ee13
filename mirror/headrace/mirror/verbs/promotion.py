"""Making copies topics of this cluster, which its clients write to: with all that the source has, or with what there is.

`promote` waits until the copies lack nothing, `failover` does not; either is refused, and changes nothing, where one of the
topics never was a copy. Both write down what it was a copy of, then set the configuration that marks a copy to nothing;
`restore` goes back. What was promoted before is passed over, so that an order that was broken off can be given again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import click

from headrace.broker.config.copies import MIRROR_CLUSTERS
from headrace.broker.errors import KafkaError
from headrace.mirror import lineage
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.memory import orders
from headrace.mirror.memory.state import NO_ID, State, topic_of
from headrace.mirror.names import CopyNames
from headrace.mirror.told import folded, newest
from headrace.mirror.verbs import ordering

LOOK_SECONDS = 0.5
Ends = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What answers at a source's address: its partitions' ends, its topics' ids, its cluster's; nothing where nobody does."""

    ends: Ends = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    cluster_id: str = ""


SILENT = Source()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One partition of a copy or of its source: where the copy ends (None: there is none yet), what its source has beyond
    (None: nobody knows), and what is in its way.
    """

    topic: str
    partition: int
    end: int | None
    lag: int | None
    obstacle: str

    @property
    def lacks(self) -> str:
        """What the copy lacks, in words; nothing when it has all."""
        if self.lag is None:
            return "nobody knows how many messages" + (
                "" if self.obstacle else ": its source does not answer"
            )
        return f"{self.lag:,} message{'s' if self.lag != 1 else ''}" if self.lag else ""


def standings(
    topics: Sequence[str],
    copies: Mapping[tuple[str, int], int],
    ends: Ends,
    sources: Mapping[str, Source],
    states: Mapping[str, State],
    paused: Container[str] = (),
    names: CopyNames | None = None,
    origins: Mapping[str, str] | None = None,
) -> list[Standing]:
    """Each partition of these topics, and each with messages that their sources have besides.

    Args:
        copies: the partitions there are.
        ends: of the copies, by `<topic>-<partition>`; older than what the sources say.
        origins: topic → the id of the cluster that it is a copy of.
    """
    found, names = [], names or CopyNames()
    for topic in topics:
        source, original = sources.get(names.source_of(topic), SILENT), names.original_of(topic)
        for partition in sorted(place[1] for place in copies if place[0] == topic):
            key = f"{topic}-{partition}"
            state, end, source_end = (
                states.get(key),
                ends.get(key),
                source.ends.get(f"{original}-{partition}"),
            )
            lag = copied = None
            if end is not None:
                copied = end if state is None else state.next_offset(end)
                lag = None if source_end is None else max(0, source_end - copied)
            stopped = None if state is None else state.stopped or state.rotten
            obstacle = _another(source, original, state, (origins or {}).get(topic, ""))
            if not obstacle and source.ends and source_end is None:
                obstacle = "its source does not list the partition, or has no leader for it"
            if not obstacle and copied is not None and source_end is not None and source_end < copied:
                obstacle = f"its source ends at {source_end}, before the {copied} that were copied, so it is another log"
            lag = None if obstacle else lag
            if stopped is not None:
                obstacle = f"{stopped.kind}: {stopped.reason}"
            elif topic in paused:
                obstacle = "it is paused"
            found.append(Standing(topic=topic, partition=partition, end=end, lag=lag, obstacle=obstacle))
        found += [
            Standing(topic=topic, partition=partition, end=None, lag=end, obstacle="")
            for partition, end in _partitions_of(source.ends, original)
            if end and (topic, partition) not in copies
        ]
    return found


def _another(source: Source, original: str, state: State | None, origin: str) -> str:
    """Why what answers is not what was copied, or nothing."""
    if source.cluster_id and origin and source.cluster_id != origin:
        return f"at its source's address another cluster answers, {source.cluster_id}"
    there = source.topic_ids.get(original, NO_ID)
    if state is not None and NO_ID not in (there, state.source_id) and there != state.source_id:
        return "its source was deleted and created again"
    return ""


def _partitions_of(ends: Ends, topic: str) -> list[tuple[int, int]]:
    """The partitions of a topic, with their ends, in order."""
    places = ((place.rpartition("-"), end) for place, end in ends.items())
    return sorted((int(partition), end) for (name, _, partition), end in places if name == topic)


async def origins_of(client: ClusterClient, topics: Sequence[str]) -> dict[str, str]:
    """Copy → the id of the cluster that it is a copy of."""
    found = {topic: lineage.clusters_of(await _configs(client, topic)) for topic in topics}
    return {topic: clusters[-1] for topic, clusters in found.items() if clusters}


async def check(client: ClusterClient, topics: Sequence[str]) -> list[str]:
    """Those of these topics that are copies, and not promoted before; raises ClickException where one never was a copy."""
    copies = []
    for topic in topics:
        match lineage.standing(await _configs(client, topic), is_remembered=False):
            case lineage.Standing.COPY:
                copies.append(topic)
            case lineage.Standing.FORMER:
                pass
            case _:
                raise click.ClickException(
                    f"{topic} is no copy (it has no configuration {MIRROR_CLUSTERS}); nothing was promoted"
                )
    return copies


async def until_complete(
    look: Callable[[], Awaitable[list[Standing]]], timeout_seconds: float
) -> list[Standing]:
    """Wait until the copies lack nothing; raises ClickException at once for what no waiting ends, and after the time."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        found = await look()
        refuse_obstacles(found)
        lagging = [one for one in found if one.lag]
        if not lagging:
            return found
        if time.monotonic() >= deadline:
            one = lagging[0]
            place = f"{one.topic}-{one.partition}" + (
                "" if one.end is not None else ", which is no copy yet,"
            )
            raise click.ClickException(
                f"{place} still lacks {one.lacks} after {timeout_seconds:g} s; nothing was promoted: "
                "stop its producers and try again, or give --timeout"
            )
        await asyncio.sleep(LOOK_SECONDS)


def refuse_obstacles(found: Sequence[Standing]) -> None:
    """Raise ClickException for what no waiting ends."""
    for one in found:
        place = f"{one.topic}-{one.partition}"
        if one.obstacle:
            raise click.ClickException(
                f"{place} does not go on ({one.obstacle}); nothing was promoted: mend it, or "
                "`headrace mirror failover` promotes what there is"
            )
        if one.lag is None:
            raise click.ClickException(
                f"what {place} lacks is not known, its source does not answer; nothing was promoted: "
                "`headrace mirror failover` promotes what there is"
            )


async def promote(client: ClusterClient, topics: Sequence[str]) -> None:
    """End these copies; raises ClickException."""
    states = newest(await folded(client), client)
    for topic in topics:
        clusters = lineage.clusters_of(await _configs(client, topic))
        ids = (state.source_id for place, state in states.items() if topic_of(place) == topic)
        source_id = next((one for one in ids if one != NO_ID), NO_ID)
        known = orders.Promoted(clusters[-1] if clusters else "", source_id)
        key = orders.key_of(topic, orders.PROMOTED)
        await ordering.publish(client, key, orders.PROMOTED, orders.encode_promoted(known))
        try:
            await client.set_topic_configs(topic, {MIRROR_CLUSTERS: ""})
        except KafkaError as error:
            raise click.ClickException(f"{topic} was not promoted: {error}; try again") from error


async def _configs(client: ClusterClient, topic: str) -> dict[str, str]:
    try:
        return await client.topic_configs(topic)
    except KafkaError as error:
        raise click.ClickException(f"{topic} cannot be promoted: {error}; nothing was promoted") from error
