"""A past window is loaded again from the offline log, in place of the rows that its table has.

Owns when that may be done, and that it is seen all at once: the rows go and come in one commit of the table. Invariants:
nothing is touched at offsets that the load has not reached, nor outside of the window; what is a dead letter without a row
stays one (a redrive appends the row before it takes the letter); where the log may have lost some of the window nothing is
changed.
"""

from __future__ import annotations

import tempfile
from collections import Counter as Multiset
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from headrace.audit.ledger.accounts import CLOCK_SKEW_MS
from headrace.audit.period import Period
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.registry_address import RegistryAddress
from headrace.load import history, tables, task
from headrace.load.commit import WarehouseTransaction
from headrace.load.log_client import LogClient
from headrace.load.names import DATACENTER, OFFSET, TOPIC, TOPIC_PARTITION
from headrace.load.ranges import Limits, LogOffsets, OffsetRange
from headrace.load.source import chunks
from headrace.load.write import target_of

RANGE_MAX: Final = 20_000
"""Offsets that are decoded at a time."""
NO_COLUMNS: Final = "the registry does not know its schema, or the table has no columns for it yet"
RELOADED: Final = "headrace.reloaded"
"""Of a snapshot: the topic and the window that it loaded again."""

RowPlace = tuple[int, int]
"""Partition and offset."""


class NotReloadedError(Exception):
    """Nothing was changed; the message is a sentence without a full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """What the table had of the window, and what it has, or would have, after it."""

    rows_before: int
    rows_after: int
    added: int
    removed: int


class Log(NamedTuple):
    """A topic of the offline cluster, and where its schemas are."""

    bootstrap: Bootstrap
    registry: RegistryAddress
    topic: str


def reload_window(catalog: Catalog, client: LogClient, log: Log, period: Period, *, is_dry: bool) -> Reload:
    """Load a window again; when dry, say what that would change.

    Raises:
        NotReloadedError
        StandstillError, ConnectionFailedError, KafkaError, WarehouseError, OSError
    """
    name = tables.table_of_topic(log.topic)
    table = tables.load_table(catalog, name)
    if "header" not in table.schema().column_names:
        raise NotReloadedError(
            f"the rows of {log.topic} have no time of their own, so no window of them is known"
        )
    held = history.held(table)
    places = {place: at for place, at in held.positions.items() if place.topic == log.topic}
    if not places:
        raise NotReloadedError(f"the table has nothing of {log.topic}; `headrace load` loads it")
    logs = client.log_offsets([*places])
    chosen = _chosen(log.topic, period, places)
    _check(client, held, places, logs, period, _rows(table, chosen))
    decoded, buried = _from_log(catalog, table, log, _ranges(places, logs), period)
    for _ in range(tables.COMMIT_ATTEMPTS_MAX):
        there = Multiset(_rows(table, chosen))
        rows = _without(decoded, buried - there.keys())
        wanted = Multiset(_places_of(rows))
        found = Reload(
            rows_before=there.total(),
            rows_after=wanted.total(),
            added=(wanted - there).total(),
            removed=(there - wanted).total(),
        )
        if is_dry or there == wanted:
            return found
        try:
            told = {RELOADED: f"{log.topic} {_time(period.since_ms).isoformat()}"}
            with WarehouseTransaction(table) as transaction:
                transaction.overwrite(rows, overwrite_filter=chosen, snapshot_properties=told)
        except CommitFailedException:
            table = tables.load_table(catalog, name)
            continue
        return found
    raise NotReloadedError("the load committed before each try; stop it for the moment, and say it again")


def _rows(table: Table, chosen: str) -> list[RowPlace]:
    return _places_of(table.scan(row_filter=chosen, selected_fields=(TOPIC_PARTITION, OFFSET)).to_arrow())


def _check(
    client: LogClient,
    held: history.Held,
    places: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, LogOffsets],
    period: Period,
    rows: list[RowPlace],
) -> None:
    """Refuse where the log is not the one that was loaded, or has not all of the window any more."""
    topics = {place.topic for place in places}
    if any("compact" in policy for policy in client.topic_settings(topics, "cleanup.policy").values()):
        raise NotReloadedError("the topic is compacted, so the log may lack what the table rightly has")
    strangers = held.strangers(client.cluster_id(), client.topic_ids(), places)
    for place, position in sorted(places.items()):
        where = f"{place.topic}-{place.partition}"
        if place in strangers:
            raise NotReloadedError(f"{where}: {strangers[place]}")
        if held.lives.get(place, 0):
            raise NotReloadedError(
                f"{where} was let go on in another log, so its offsets are not those of one log"
            )
        log = logs[place]
        if log.end < position:
            raise NotReloadedError(
                f"{where} is loaded up to offset {position}, but its log ends at {log.end}"
            )
        if log.start and _may_have_lost(client, place, log, period):
            raise NotReloadedError(
                f"retention has taken the offsets below {log.start} of {where}, which may have had events of this window"
            )
        if any(partition == place.partition and offset < log.start for partition, offset in rows):
            raise NotReloadedError(
                f"the table has rows of this window that {where} has no longer, below offset {log.start}"
            )


def _may_have_lost(client: LogClient, place: TopicPartition, log: LogOffsets, period: Period) -> bool:
    """Whether what a log has no longer may be as young as a window: it is older than the first record that is left."""
    wanted = OffsetRange(
        topic=place.topic, partition=place.partition, first_offset=log.start, next_offset=log.end
    )
    for chunk in chunks(client, wanted) if log.start < log.end else ():
        for records in chunk.records:
            if len(records.timestamp_ms):
                return int(records.timestamp_ms[0]) + CLOCK_SKEW_MS >= period.since_ms
    return True


def _from_log(
    catalog: Catalog, table: Table, log: Log, ranges: Iterator[OffsetRange], period: Period
) -> tuple[pa.Table, set[RowPlace]]:
    """Return the rows of a window as the log has them, and which records of the topic are dead letters."""
    found = [tables.arrow_schema(table).empty_table()]
    dead_letters = tables.ensure_table(catalog, tables.DEAD_LETTER, tables.DEAD_LETTER_TABLE)
    with tempfile.TemporaryDirectory(prefix="headrace-reload-") as folder:
        rows, letters = (replace(target_of(item, folder), io_properties={}) for item in (table, dead_letters))
        for wanted in ranges:
            assignment = task.Assignment(
                ranges=(wanted,),
                bootstrap=log.bootstrap,
                registry=log.registry,
                rows=rows,
                dead_letters=letters,
                shape=tables.shape_of(table),
                limits=Limits(records_per_range_max=RANGE_MAX, bytes_per_range_max=1 << 62),
            )
            found.append(_decoded(assignment, rows.columns, period))
    return pa.concat_tables(found), _dead_letters(dead_letters, log.topic)


def _without(rows: pa.Table, buried: Set[RowPlace]) -> pa.Table:
    return rows.filter(pa.array([place not in buried for place in _places_of(rows)], type=pa.bool_()))


def _decoded(assignment: task.Assignment, columns: pa.Schema, period: Period) -> pa.Table:
    """Decode a range as the load does, and return its rows of the window."""
    done = task.run(assignment)
    (result,), (wanted,) = done.ranges, assignment.ranges
    if result.next_offset < wanted.next_offset:
        reason = result.failure or (result.finding.sentence if result.finding else NO_COLUMNS)
        where = f"{wanted.topic}-{wanted.partition}"
        raise NotReloadedError(f"offset {result.next_offset} of {where} cannot be loaded again: {reason}")
    if done.rows is None:
        return columns.empty_table()
    rows = pq.read_table(done.rows.path).cast(columns)
    Path(done.rows.path).unlink()
    time = pc.struct_field(rows.column("header"), "time")
    since, until = (pa.scalar(_time(at), type=time.type) for at in period)
    return rows.filter(pc.and_(pc.greater_equal(time, since), pc.less(time, until)))


def _ranges(
    places: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, LogOffsets]
) -> Iterator[OffsetRange]:
    for place, position in sorted(places.items()):
        for first in range(logs[place].start, position, RANGE_MAX):
            yield OffsetRange(
                topic=place.topic,
                partition=place.partition,
                first_offset=first,
                next_offset=min(position, first + RANGE_MAX),
            )


def _chosen(topic: str, period: Period, places: Mapping[TopicPartition, int]) -> str:
    """Return the filter of the rows of a window that the load has brought so far."""
    datacenter, name = tables.split_topic(topic)
    since, until = (_time(at).isoformat() for at in period)
    reached = " or ".join(
        f"({TOPIC_PARTITION} = {place.partition} and {OFFSET} < {position})"
        for place, position in sorted(places.items())
    )
    return (
        f"{DATACENTER} = '{datacenter}' and {TOPIC} = '{name}' and header.time >= '{since}' and header.time < '{until}' "
        f"and ({reached})"
    )


def _dead_letters(table: Table, topic: str) -> set[RowPlace]:
    datacenter, name = tables.split_topic(topic)
    chosen = f"{DATACENTER} = '{datacenter}' and {TOPIC} = '{name}'"
    return set(
        _places_of(table.scan(row_filter=chosen, selected_fields=(TOPIC_PARTITION, OFFSET)).to_arrow())
    )


def _places_of(rows: pa.Table) -> list[RowPlace]:
    columns = [rows.column(name).to_pylist() for name in (TOPIC_PARTITION, OFFSET)]
    return list(zip(*columns, strict=True))


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
