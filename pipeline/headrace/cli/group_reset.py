"""Where a group goes on: offsets that a person chooses for it, in partitions of topics, while it has no members.

Owns what a place means in a partition: its beginning, its end, an offset, or the first message of a time on. An offset
outside of a log becomes the end of it that is nearer; a time after the last message becomes the log's end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import click
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.broker.wire.partitions import PartitionKey
from headrace.cli.asking import asked, reason_of
from headrace.cli.group_lag import ends_of, first_since, partitions_of
from headrace.cli.shared import TIMEOUT_SECONDS, no_such_topic

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPoint:
    """One of an end's name, an offset and a time in milliseconds since 1970."""

    end: str = ""
    offset: int | None = None
    time_ms: int | None = None


def place_of(text: str) -> ResetPoint:
    """Understand what follows `--to`; raises ValueError."""
    if text in (EARLIEST, LATEST):
        return ResetPoint(end=text)
    if text.isdecimal():
        return ResetPoint(offset=int(text))
    time = datetime.fromisoformat(text)
    return ResetPoint(time_ms=int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))


def chosen(
    client: AdminClient, topics: Collection[str], committed: Collection[PartitionKey]
) -> list[PartitionKey]:
    """All partitions of these topics or, without any, those that the group has committed; raises ClickException."""
    if not topics:
        return sorted(committed)
    found = partitions_of(client, set(topics))
    unknown = sorted(set(topics) - {topic for topic, _ in found})
    if unknown:
        raise no_such_topic(unknown[0])
    return sorted(found)


def offsets_at(client: AdminClient, keys: list[PartitionKey], place: ResetPoint) -> dict[PartitionKey, int]:
    """The offset of a place in each partition; raises ClickException where one has no leader that answers."""
    starts, ends = ends_of(client, keys)
    times = {} if place.time_ms is None else first_since(client, keys, place.time_ms)
    found = {}
    for key in keys:
        start, end = starts[key], ends[key]
        if start is None or end is None:
            raise click.ClickException(f"{key[0]}-{key[1]} has no leader that answers; nothing was changed.")
        later = times.get(key)
        wanted = {EARLIEST: start, LATEST: end}.get(place.end, end if later is None else later)
        found[key] = min(max(wanted if place.offset is None else place.offset, start), end)
    return found


def commit(client: AdminClient, group: str, offsets: Mapping[PartitionKey, int]) -> None:
    """Have the group go on there; raises ClickException."""
    what = f"reset group {group}"
    wished = ConsumerGroupTopicPartitions(group, [TopicPartition(t, p, at) for (t, p), at in offsets.items()])
    done = asked(
        what, client.alter_consumer_group_offsets([wished], request_timeout=TIMEOUT_SECONDS)[group].result
    )
    refused = [each for each in done.topic_partitions if each.error is not None]
    if refused:
        first = refused[0]
        raise click.ClickException(
            f"{what}: {len(refused)} of {len(offsets)} offsets were refused, as {first.topic}-{first.partition}: "
            f"{reason_of(first.error)}."
        )
