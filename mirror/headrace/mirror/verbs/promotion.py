"""Making copies topics of this cluster, which its clients write to: with all that the source has, or with what there is.

`promote` waits until the copies lack nothing, `failover` does not; either is refused, and changes nothing, where one of the
topics never was a copy. Both write down what it was a copy of, then set the configuration that marks a copy to nothing;
`restore` goes back. What was promoted before is passed over, so that an order that was broken off can be given again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass

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
class Standing:
    """One partition of a copy: where it ends, what its source has beyond (None: nobody knows), and what is in its way."""

    topic: str
    partition: int
    end: int | None
    lag: int | None
    obstacle: str

    @property
    def lacks(self) -> str:
        """What the copy lacks, in words; nothing when it has all."""
        if self.lag is None:
            return "nobody knows how many messages: its source does not answer"
        return f"{self.lag:,} message{'s' if self.lag != 1 else ''}" if self.lag else ""


def standings(
    topics: Sequence[str],
    copies: Mapping[tuple[str, int], int],
    ends: Ends,
    source_ends: Mapping[str, Ends],
    states: Mapping[str, State],
    paused: Container[str] = (),
    names: CopyNames | None = None,
) -> list[Standing]:
    """Each partition of these topics; `copies` are the partitions there are, ends by `<topic>-<partition>`."""
    found, names = [], names or CopyNames()
    for topic, partition in sorted(place for place in copies if place[0] in topics):
        key = f"{topic}-{partition}"
        state, end = states.get(key), ends.get(key)
        source_end = source_ends.get(names.source_of(topic), {}).get(
            f"{names.original_of(topic)}-{partition}"
        )
        lag = None
        if end is not None and source_end is not None:
            lag = max(0, source_end - (end if state is None else state.next_offset(end)))
        stopped = None if state is None else state.stopped or state.rotten
        obstacle = "it is paused" if topic in paused else ""
        obstacle = obstacle if stopped is None else f"{stopped.kind}: {stopped.reason}"
        found.append(Standing(topic=topic, partition=partition, end=end, lag=lag, obstacle=obstacle))
    return found


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
        lagging = [one for one in found if one.lag]
        if not lagging:
            return found
        if time.monotonic() >= deadline:
            one = lagging[0]
            raise click.ClickException(
                f"{one.topic}-{one.partition} still lacks {one.lacks} after {timeout_seconds:g} s; nothing was promoted: "
                "stop its producers and try again, or give --timeout"
            )
        await asyncio.sleep(LOOK_SECONDS)


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
