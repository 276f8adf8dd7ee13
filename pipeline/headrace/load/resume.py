"""A partition that stands still goes on where a person says: what may be said, and the commit that does it.

Owns the rules of `headrace load resume` and `headrace load skip`. Invariants: a partition is moved only from where the table
stands and only while something stops it there; nothing that can still be loaded is passed over, but by going on in another
log; the new position, and what was passed and why, are one snapshot of the table, committed compare-and-set as a load's,
so a load that runs meanwhile plans anew; saying the same again changes nothing. Must not know Spark or schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from headrace.broker.wire.batches import iter_batches
from headrace.broker.wire.partitions import TopicPartition
from headrace.load import commit, expiry, history, ranges, tables
from headrace.load.fences import Fence, compare
from headrace.load.history import Held
from headrace.load.leftovers import Run
from headrace.load.log_client import LogClient
from headrace.load.ranges import OTHER_LOG, ROTTEN, LoadFinding, LogOffsets, OffsetRange, Passing
from headrace.load.source import StandstillError, chunks

Order = Literal["resume", "skip"]
FORMER_FENCES_MAX: Final = 100
"""Older fences of a partition that are compared to find how much of a log is still the one that was read."""


class NotPassedError(Exception):
    """The partition may not go on as asked; the message says why, and what may be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a partition stands in its table and its log; `finding` is why it stands still, None: it does not."""

    table: str
    place: TopicPartition
    position: int
    log: LogOffsets
    life: int
    finding: LoadFinding | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """`is_new` is False when it had been done before."""

    passing: Passing
    is_new: bool


def standings(catalog: Catalog, client: LogClient, topic: str) -> list[Standing]:
    """Return where each partition of a topic stands.

    Raises:
        NotPassedError: there is no such topic.
        WarehouseError: it has no table.
    """
    name = tables.table_of_topic(topic)
    table = tables.load_table(catalog, name)
    return [_standing(client, name, table, place) for place in _partitions(client, topic)]


def let_go_on(
    catalog: Catalog, client: LogClient, order: Order, place: TopicPartition, position: int, at: int
) -> Done:
    """Let a partition that stands still at `position` go on at `at`.

    Raises:
        NotPassedError: it may not; nothing has changed.
        WarehouseError: the topic has no table.
    """
    if place not in _partitions(client, place.topic):
        raise NotPassedError(f"{place.topic} has no partition {place.partition}")
    name = tables.table_of_topic(place.topic)
    tables.load_table(catalog, name)
    for _ in range(tables.COMMIT_ATTEMPTS_MAX):
        try:
            return _attempt(catalog, client, order, name, place, position, at)
        except (commit.RefusedError, CommitFailedException):
            continue
    raise NotPassedError(
        f"{tables.NAMESPACE}.{name} was changed by others {tables.COMMIT_ATTEMPTS_MAX} times meanwhile; run the command again"
    )


def passing_of(standing: Standing, order: Order, position: int, at: int) -> Passing:
    """Return what it means to go on; pure.

    Raises:
        NotPassedError
    """
    place, finding = standing.place, standing.finding
    named = f"{place.topic}-{place.partition}"
    if finding is None:
        raise NotPassedError(f"nothing stops {named} at offset {standing.position}; a load goes on by itself")
    if position != standing.position:
        raise NotPassedError(
            f"the table stands at offset {standing.position} of {named}, not at {position}; {way_on(finding)}"
        )
    if (finding.kind in ROTTEN) != (order == "skip"):
        raise NotPassedError(f"this is not what `headrace load {order}` is for; {way_on(finding)}")
    is_other = finding.kind in OTHER_LOG
    lowest = standing.log.start if is_other else position + 1
    if not lowest <= at <= standing.log.end:
        raise NotPassedError(
            f"--at has to be one of {lowest} to {standing.log.end}, what the log of {named} has now"
        )
    if not is_other and finding.go_on_at not in (None, at):
        raise NotPassedError(f"{named} can be loaded from offset {finding.go_on_at} on; {way_on(finding)}")
    return Passing(
        topic=place.topic,
        partition=place.partition,
        first_offset=position,
        next_offset=at,
        kind=finding.kind,
        reason=finding.detail,
        life=standing.life + is_other,
    )


def way_on(finding: LoadFinding) -> str:
    return finding.sentence.rpartition("; ")[2]


def _attempt(
    catalog: Catalog,
    client: LogClient,
    order: Order,
    name: str,
    place: TopicPartition,
    position: int,
    at: int,
) -> Done:
    table = commit.settle(catalog, name)
    standing = _standing(client, name, table, place)
    if standing.finding is None or standing.position != position:
        done = _done_before(catalog, name, standing, position, at)
        if done is not None:
            return Done(passing=done, is_new=False)
    passing = passing_of(standing, order, position, at)
    if order == "skip":
        _check_beginning(client, place, at, standing.log.end)
    if passing.is_new_life:
        tables.ensure_life(table)
        tables.ensure_life(tables.ensure_table(catalog, tables.DEAD_LETTER, tables.DEAD_LETTER_TABLE))
    commit.let_go_on(table, passing, client.cluster_id(), client.topic_ids().get(place.topic))
    _archive(catalog, name)
    return Done(passing=passing, is_new=True)


def _done_before(catalog: Catalog, name: str, standing: Standing, position: int, at: int) -> Passing | None:
    """Return the partition's last passing when it is the one that is asked for."""
    own = [item for item in history.passings(catalog, name) if item.topic_partition == standing.place]
    if own and (own[-1].first_offset, own[-1].next_offset) == (position, at):
        return own[-1]
    return None


def _archive(catalog: Catalog, name: str) -> None:
    """Keep what was passed also where others expire snapshots; a load does it later when another is at it now."""
    run = Run()
    try:
        expiry.archive(catalog, name, run)
    except (commit.RefusedError, CommitFailedException):
        pass
    finally:
        run.close()


def _partitions(client: LogClient, topic: str) -> list[TopicPartition]:
    found = client.partitions(lambda name: name == topic)
    if not found:
        raise NotPassedError(
            f"the cluster has no topic {topic}; --bootstrap and the topic's whole name say where it is"
        )
    return found


def _standing(client: LogClient, name: str, table: Table, place: TopicPartition) -> Standing:
    held = history.held(table)
    log = client.log_offsets([place])[place]
    position = held.positions.get(place, log.start)
    strangers = held.strangers(client.cluster_id(), client.topic_ids(), [place])
    finding = ranges.standstill(place, position, log, strangers.get(place))
    if finding is None and position < log.end:
        finding = _found_by_reading(client, table, held, place, position)
    return Standing(
        table=name, place=place, position=position, log=log, life=held.lives.get(place, 0), finding=finding
    )


def _found_by_reading(
    client: LogClient, table: Table, held: Held, place: TopicPartition, position: int
) -> LoadFinding | None:
    """Read on as a load would, and return what stops it at the position."""
    wanted = OffsetRange(
        topic=place.topic,
        partition=place.partition,
        first_offset=position,
        next_offset=position + 1,
        fence=held.fences.get(place),
        topic_id=client.topic_ids().get(place.topic),
    )
    try:
        next(chunks(client, wanted), None)
    except StandstillError as error:
        found = error.finding
        if found.kind != "truncation":
            return found
        return ranges.with_way_on(found, _last_common(client, table, place))
    return None


def _last_common(client: LogClient, table: Table, place: TopicPartition) -> int | None:
    """Return the highest former position at which the log still was the one that was read, by the snapshots there are."""
    for fence in _former_fences(table, place):
        start, _ = client.log_offsets([place])[place]
        if fence.base_offset < start:
            break
        fetched = client.fetch(place, fence.base_offset, size_max=1)
        found = next(iter_batches(fetched.records), None)
        if found is not None and compare(fence, found[1]) == "same":
            return fence.next_offset
    return None


def _former_fences(table: Table, place: TopicPartition) -> list[Fence]:
    fences: dict[Fence, None] = {}
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        fence = history.fence_in(snapshot, place)
        if fence is not None:
            fences[fence] = None
        if len(fences) == FORMER_FENCES_MAX:
            break
    return list(fences)


def _check_beginning(client: LogClient, place: TopicPartition, at: int, end: int) -> None:
    """Check that a batch begins at `at`, or none holds it: to begin inside the rotten one would stop there again."""
    if at == end:
        return
    found = next(iter_batches(client.fetch(place, at, size_max=1).records), None)
    if found is not None and found[1].base_offset < at:
        header = found[1]
        raise NotPassedError(
            f"offset {at} lies inside the batch of offsets {header.base_offset} to {header.last_offset}; "
            f"--at {header.next_offset} is behind it"
        )
