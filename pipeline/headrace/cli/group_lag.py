"""What a group has still to read, by partition: of all partitions of the topics that it reads or has committed to.

Lag is the log end offset (what a new message would get) minus the committed offset. Without a committed offset nobody
but the consumer's own `auto.offset.reset` knows where it begins, so its lag is unknown, unless the partition is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from confluent_kafka import OFFSET_INVALID, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.broker.wire.partitions import PartitionKey
from headrace.cli.asking import asked, reason_of
from headrace.cli.shared import TIMEOUT_SECONDS

Row = dict[str, Any]
GONE = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "LEADER_NOT_AVAILABLE")


def rows_of(
    client: AdminClient, committed: Mapping[PartitionKey, int], owners: Mapping[PartitionKey, Any]
) -> list[Row]:
    """One row a partition; its end and lag are None where nobody can tell. Raises ClickException."""
    keys = sorted(
        {*committed, *owners, *partitions_of(client, {topic for topic, _ in (*committed, *owners)})}
    )
    ends = _offsets(client, keys, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    untold = [key for key in keys if key not in committed and ends[key] is not None]
    starts = _offsets(client, untold, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    rows = []
    for key in keys:
        offset, owner = committed.get(key), owners.get(key)
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "offset": offset,
                "end": ends[key],
                "lag": lag(offset, starts.get(key), ends[key]),
                "member": None if owner is None else owner.member_id,
            }
        )
    return rows


def ends_of(
    client: AdminClient, keys: list[PartitionKey]
) -> tuple[dict[PartitionKey, int | None], dict[PartitionKey, int | None]]:
    """Where logs begin, and where they end; None of a partition without a leader that answers."""
    starts = _offsets(client, keys, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    return starts, _offsets(client, keys, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def first_since(
    client: AdminClient, keys: list[PartitionKey], time_ms: int
) -> dict[PartitionKey, int | None]:
    """The first offset with a time from then on; None where there is none."""
    found = _offsets(client, keys, OffsetSpec.for_timestamp(time_ms))
    return {key: None if offset is None or offset < 0 else offset for key, offset in found.items()}


def lag(offset: int | None, start: int | None, end: int | None) -> int | None:
    """Messages that are still to be read; None: unknown."""
    if end is None:
        return None
    if offset is None:
        return 0 if start == end else None
    return max(end - offset, 0)


def total(rows: Iterable[Row]) -> int | None:
    """The group's lag; None when that of any partition is unknown."""
    lags = [row["lag"] for row in rows]
    return None if None in lags else sum(lags)


def sentence(rows: list[Row]) -> str:
    """The group's lag in words."""
    whole = total(rows)
    if whole is not None:
        return f"lag {whole}"
    known = [row["lag"] for row in rows if row["lag"] is not None]
    return (
        f"lag unknown ({len(rows) - len(known)} of {len(rows)} partitions have no committed offset, or no leader that answers; "
        f"{sum(known)} in the others)"
    )


def partitions_of(client: AdminClient, topics: set[str]) -> set[PartitionKey]:
    known = asked("list topics", lambda: client.list_topics(timeout=TIMEOUT_SECONDS)).topics
    return {(topic, partition) for topic in topics if topic in known for partition in known[topic].partitions}


def _offsets(client: AdminClient, keys: Iterable[PartitionKey], spec: Any) -> dict[PartitionKey, int | None]:
    wanted = {TopicPartition(*key): spec for key in keys}
    asking = client.list_offsets(wanted, request_timeout=TIMEOUT_SECONDS) if wanted else {}
    return {(place.topic, place.partition): _offset(place, future) for place, future in asking.items()}


def _offset(place: TopicPartition, future: Any) -> int | None:
    try:
        offset: int = future.result().offset
    except KafkaException as error:
        if error.args[0].name() in GONE:
            return None
        raise click.ClickException(
            f"read an offset of {place.topic}-{place.partition}: {reason_of(error)}."
        ) from error
    return None if offset == OFFSET_INVALID else offset
