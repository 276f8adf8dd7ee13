"""The ledger's inputs in the warehouse: which data files the tables have, and the envelopes in those that are new.

Owns the reading of tables, by file: a file is read once, and when one that was counted is gone (rows were deleted, files
rewritten) all are counted anew. Invariants: the offsets that a table holds are read before its dead letters, and those
before its files, so nothing is missed that they speak of; rows that were dead letters count once those are gone (see
`load/redrive`, which appends them first).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, LongType, StringType, TimestampType, TimestamptzType

from headrace.audit.counting.count import count
from headrace.audit.latency import Rows, SourcePartition
from headrace.audit.ledger.ledger import ForeignLedgerError, Ledger
from headrace.audit.ledger.passings import Passed
from headrace.audit.parcels import PlacedTallies
from headrace.audit.period import Period
from headrace.audit.windows import WINDOW_SIZE_MS, Int64s, Stream, tally
from headrace.load import history
from headrace.load.columns import RecordColumns
from headrace.load.commit import unsettled_paths
from headrace.load.names import DATACENTER, OFFSET, TIMESTAMP, TOPIC, TOPIC_PARTITION, partition_column
from headrace.load.tables import (
    DEAD_LETTER,
    NAMESPACE,
    OWN_TABLES,
    UnreadableTableError,
    is_table_of,
    load_table,
    split_topic,
    table_of_topic,
)

OWN: Final = (DATACENTER, TOPIC, TOPIC_PARTITION, OFFSET)
ENVELOPE_TYPES: Final = {
    "header.time": (TimestampType, TimestamptzType),
    "header.producer": (StringType,),
    "header.sequence": (IntegerType, LongType),
}
COLUMNS: Final = (*OWN, *ENVELOPE_TYPES)
ARRIVAL_COLUMNS: Final = (
    "topic",
    "partition",
    "first_offset",
    "next_offset",
    "committed_at_ms",
    "kind",
    "reason",
    "life",
)
YOUNGER_MS_MAX: Final = 86_400_000
"""By how much an event's time may be later than its record's."""
DEAD_LETTER_COLUMNS: Final = (*OWN, "_last_offset", "value")


class Envelopes(NamedTuple):
    """The events of one partition in one data file, in the order of their offsets."""

    place: SourcePartition
    offset: Int64s
    time_ms: Int64s
    sequence: Int64s
    producer: npt.NDArray[np.intp]
    names: list[str]


class Warehouse:
    """Reads which files the tables have, and the envelopes of those that are new."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._snapshots: dict[str, Snapshot | None] = {}
        """What of each table was read last; an unchanged one costs nothing more."""

    def read_into(self, ledger: Ledger) -> int:
        """Read what is new; returns how many data files. Files that are gone make it count everything anew.

        Raises:
            ForeignLedgerError: a table is not the one that was read before.
            WarehouseError: a table that was read before cannot be read any longer.
        """
        names = [name for name in self._event_tables() if self._has_read_arrivals(ledger, name)]
        letters = self._dead_letter_files({name: load_table(self._catalog, name) for name in names})
        tables = {name: load_table(self._catalog, name) for name in names}
        changed = [name for name, table in tables.items() if self._is_new(ledger, name, table)]
        plans = {name: _files(tables[name]) for name in changed}
        present = {name: set(ledger.files.get(name, ())) for name in tables}
        present |= {name: set(plan) for name, plan in plans.items()} | {DEAD_LETTER: set(letters)}
        if any(not files <= present.get(name, set()) for name, files in ledger.files.items()):
            ledger.forget_warehouse()
            plans = {name: _files(table) for name, table in tables.items()}
        number = 0
        for name, plan in plans.items():
            redriven = history.redriven(tables[name])
            for key, task in plan.items():
                source = redriven.get(task.file.file_path)
                if source is None:
                    number += self._read_file(ledger, tables[name], name, key, task)
                else:
                    number += _read_redriven(
                        ledger, tables[name], name, key, task, is_letters=source in letters
                    )
        for path, table in letters.items():
            if path not in ledger.files.get(DEAD_LETTER, ()):
                ledger.on_file(DEAD_LETTER, path, _dead_letters(ledger, table, path))
        self._snapshots = {name: table.current_snapshot() for name, table in tables.items()}
        return number

    def rows_of(self, topic: tuple[str, str], period: Period) -> int:
        """Return how many rows of a topic have an event's time in a period; none where there is no table."""
        datacenter, name = topic
        table_name = table_of_topic(f"{datacenter}.{name}")
        if table_name not in self._event_tables():
            return 0
        since, until = (
            datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
            for time_ms in (period.since_ms, period.until_ms)
        )
        chosen = f"{DATACENTER} = '{datacenter}' and {TOPIC} = '{name}' and header.time >= '{since}' and header.time < '{until}'"
        return load_table(self._catalog, table_name).scan(row_filter=chosen).count()

    def _is_new(self, ledger: Ledger, name: str, table: Table) -> bool:
        return name not in ledger.files or self._snapshots.get(name) != table.current_snapshot()

    def _event_tables(self) -> list[str]:
        try:
            names = [identifier[-1] for identifier in self._catalog.list_tables(NAMESPACE)]
        except NoSuchNamespaceError:
            return []
        return [name for name in names if name not in OWN_TABLES]

    def _has_read_arrivals(self, ledger: Ledger, name: str) -> bool:
        """Read the commits that are new; False where a table cannot be read and never was, so that it is none of a load."""
        try:
            self._read_arrivals(ledger, name)
        except UnreadableTableError:
            if name in ledger.tables:
                raise
            return False
        return True

    def _read_arrivals(self, ledger: Ledger, name: str) -> None:
        """Read the commits that are new; those that expired since are in the load's history."""
        table = load_table(self._catalog, name)
        snapshots = table.snapshots()
        numbers = [snapshot.sequence_number or 0 for snapshot in snapshots]
        if ledger.tables.setdefault(name, history.uuid_of(table)) != history.uuid_of(table):
            raise ForeignLedgerError(f"table {name} was dropped and made anew since it was read")
        known = ledger.commits.get(name, 0)
        if known > max(numbers, default=0):
            raise ForeignLedgerError(f"the ledger knows commit {known} of table {name}, which has fewer")
        if not numbers or max(numbers) <= known:
            return
        if len([number for number in numbers if number > known]) == max(numbers) - known:
            rows = history.rows_of(table, (item for item in snapshots if (item.sequence_number or 0) > known))
        else:
            rows = history.arrivals(self._catalog, name)
        columns = (rows.column(column).to_pylist() for column in ARRIVAL_COLUMNS)
        hosts = {snapshot.timestamp_ms: history.host_of(snapshot) for snapshot in snapshots}
        for topic, partition, first, following, committed, kind, reason, life in zip(*columns, strict=True):
            if not is_table_of(name, topic):
                continue
            place = SourcePartition(*split_topic(topic), partition)
            if kind is None:
                ledger.on_loaded(place, first, following, committed, hosts.get(committed, ""))
            else:
                ledger.on_passed(Passed(place, first, following, kind, reason, life, committed))
        ledger.commits[name] = max(numbers)

    def _dead_letter_files(self, tables: Mapping[str, Table]) -> dict[str, Table]:
        """Return the dead-letter files with a table to read them with: those settled and those about to be."""
        if not self._catalog.table_exists(f"{NAMESPACE}.{DEAD_LETTER}"):
            return {path: table for table in tables.values() for path in unsettled_paths(table)}
        letters = load_table(self._catalog, DEAD_LETTER)
        files = {task.file.file_path: letters for task in letters.scan().plan_files()}
        for table in tables.values():
            files |= {path: table for path in unsettled_paths(table, letters) if path not in files}
        return files

    def _read_file(self, ledger: Ledger, table: Table, name: str, key: str, task: FileScanTask) -> int:
        is_counted = key in ledger.files.get(name, ())
        if is_counted and key not in ledger.rows_forgotten:
            return 0
        if not is_counted and _is_settled(ledger, table, name, task):
            ledger.on_file(name, key, ())
            return 0
        found = _own_envelopes(table, name, task)
        if not is_counted:
            ledger.on_file(name, key, _tallies(found))
        ledger.rows_forgotten.discard(key)
        for rows in _timed(found, key):
            ledger.latencies.on_rows(rows)
        return 1


def _read_redriven(
    ledger: Ledger, table: Table, name: str, key: str, task: FileScanTask, *, is_letters: bool
) -> int:
    """Count rows that were dead letters, unless these are still there; when they became visible is no latency."""
    if key in ledger.files.get(name, ()):
        return 0
    ledger.on_file(name, key, () if is_letters else _tallies(_own_envelopes(table, name, task)))
    return 1


def _own_envelopes(table: Table, name: str, task: FileScanTask) -> list[Envelopes]:
    """Read a data file, but for what copies of other tables are in it."""
    return [
        item
        for item in _envelopes(table, task)
        if is_table_of(name, f"{item.place.datacenter}.{item.place.topic}")
    ]


def _is_settled(ledger: Ledger, table: Table, name: str, task: FileScanTask) -> bool:
    """Whether a file that is read again after the ledger was lost is of settled windows alone, by its statistics.

    They tell of the records' timestamps; an event is not a day younger than its record.
    """
    topics = {place[:2] for place in ledger.reach.loaded if table_of_topic(".".join(place[:2])) == name}
    if not topics or not topics <= ledger.rebuilt.keys() or TIMESTAMP not in table.schema().column_names:
        return False
    column = table.schema().find_field(TIMESTAMP)
    upper = (task.file.upper_bounds or {}).get(column.field_id)
    if upper is None or not isinstance(column.field_type, TimestamptzType):
        return False
    last_ms = int(from_bytes(column.field_type, upper)) // 1000
    return last_ms + YOUNGER_MS_MAX < min(ledger.rebuilt[topic] for topic in topics)


def _files(table: Table) -> dict[str, FileScanTask]:
    """Return the files of a table's current snapshot; a file that lost rows to a delete file is another one."""
    return {
        "|".join([task.file.file_path, *sorted(item.file_path for item in task.delete_files)]): task
        for task in table.scan().plan_files()
    }


def _has_envelopes(schema: Schema) -> bool:
    """Whether rows may be events: a load's own columns are there, and a `header` with the envelope's fields and types.

    A table of a topic whose schema has no `header`, or another kind of `header`, has none; nor has a table that no load made.
    """
    columns = schema.column_names
    types = {name: schema.find_type(name) for name in ENVELOPE_TYPES if name in columns}
    return set(_as_named(OWN, columns)) <= set(columns) and all(
        isinstance(types.get(name), kinds) for name, kinds in ENVELOPE_TYPES.items()
    )


def _envelopes(table: Table, task: FileScanTask) -> list[Envelopes]:
    """Read the envelopes of a data file."""
    if not _has_envelopes(table.schema()):
        return []
    names = _as_named(COLUMNS, table.schema().column_names)
    projection = table.scan(selected_fields=names).projection()
    scan = ArrowScan(table.metadata, table.io, projection, AlwaysTrue())
    rows = scan.to_table([task])
    return list(_by_partition(rows.rename_columns({names[2]: TOPIC_PARTITION})))


def _as_named(columns: Sequence[str], present: Iterable[str]) -> tuple[str, ...]:
    """Return the names that the columns have in a table or a file, which may be an older release's."""
    return tuple(partition_column(present) if name == TOPIC_PARTITION else name for name in columns)


def _by_partition(rows: pa.Table) -> Iterator[Envelopes]:
    """Part the rows of a file; one whose envelope is null is no event."""
    header = rows.column("header").combine_chunks()
    if isinstance(header, pa.ChunkedArray):
        header = pa.concat_arrays(header.chunks) if header.num_chunks else pa.array([], header.type)
    time, producer, sequence = (pc.struct_field(header, name) for name in ("time", "producer", "sequence"))
    whole = pc.and_(pc.and_(pc.is_valid(time), pc.is_valid(producer)), pc.is_valid(sequence))
    kept = np.flatnonzero(_numpy(whole))
    names = producer.take(pa.array(kept)).dictionary_encode()
    columns = {name: rows.column(name).combine_chunks() for name in OWN}
    places = _places(columns, kept)
    offset = _numpy(columns[OFFSET])[kept]
    # A schema of somebody else's may tell finer times; what is below a millisecond is left away as floor does.
    time_ms = _numpy(time.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).take(pa.array(kept))) // 1000
    sequences = _numpy(sequence.take(pa.array(kept)))
    for place, members in places:
        order = members[np.argsort(offset[members], kind="stable")]
        yield Envelopes(
            place,
            offset[order],
            time_ms[order],
            sequences[order],
            _numpy(names.indices)[order].astype(np.intp),
            names.dictionary.to_pylist(),
        )


def _places(
    columns: Mapping[str, Any], kept: npt.NDArray[np.intp]
) -> list[tuple[SourcePartition, npt.NDArray[np.intp]]]:
    """Return the partitions among the kept rows, each with the indices of its rows among these."""
    datacenter, topic = (columns[name].dictionary_encode() for name in (DATACENTER, TOPIC))
    partition = _numpy(columns[TOPIC_PARTITION])[kept].astype(np.int64)
    key = (
        (_numpy(datacenter.indices)[kept].astype(np.int64) << 48)
        | (_numpy(topic.indices)[kept].astype(np.int64) << 32)
        | partition
    )
    found = []
    for value in np.unique(key).tolist():
        place = SourcePartition(
            datacenter.dictionary[value >> 48].as_py(),
            topic.dictionary[value >> 32 & 0xFFFF].as_py(),
            value & 0xFFFFFFFF,
        )
        found.append((place, np.flatnonzero(key == value)))
    return found


def _tallies(found: list[Envelopes]) -> Iterator[PlacedTallies]:
    for item in found:
        tallies = tally(item.names, item.producer, item.time_ms, item.sequence, WINDOW_SIZE_MS)
        yield item.place, int(item.offset[0]), int(item.offset[-1]) + 1, tuple(tallies)


def _timed(found: list[Envelopes], file: str) -> Iterator[Rows]:
    for item in found:
        yield Rows(
            file=file,
            place=item.place,
            streams=tuple(Stream(item.place.datacenter, item.place.topic, name) for name in item.names),
            stream=item.producer,
            time_ms=item.time_ms,
            sequence=item.sequence,
            offset=item.offset,
        )


def _dead_letters(ledger: Ledger, table: Table, path: str) -> Iterator[PlacedTallies]:
    """Count dead letters: their envelopes, where they have one, are as good as rows; a lost event is not buried."""
    with table.io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
        names = _as_named(DEAD_LETTER_COLUMNS, file.schema_arrow.names)
        letters = file.read(list(names)).select(names).rename_columns(DEAD_LETTER_COLUMNS)
    places = letters.group_by(list(OWN[:3])).aggregate([]).to_pylist()
    for wanted in places:
        place = SourcePartition(wanted[DATACENTER], wanted[TOPIC], wanted[TOPIC_PARTITION])
        mask = True
        for name in OWN[:3]:
            mask = pc.and_(mask, pc.equal(letters.column(name), wanted[name]))
        members = letters.filter(mask)
        first, last = (
            pc.min(members.column(OFFSET)).as_py(),
            pc.max(members.column("_last_offset")).as_py(),
        )
        tallies, foreign = count([_columns(members)], WINDOW_SIZE_MS)
        buried = sum(item.count for item in tallies)
        ledger.on_dead_letters(place, buried, foreign)
        yield place, first, last + 1, tuple(tallies)


def _columns(letters: pa.Table) -> RecordColumns:
    """Return the values of dead letters as if they had just been fetched."""
    values = [value or b"" for value in letters.column("value").to_pylist()]
    size = np.array([len(value) for value in values], dtype=np.int64)
    start = np.cumsum(size) - size
    offset = _numpy(letters.column(OFFSET).combine_chunks())
    nothing = np.zeros(len(size), dtype=np.int64)
    data = b"".join(values) + bytes(64)
    return RecordColumns(
        data, offset, nothing, nothing, nothing, start, size, headers_start=start + size, end=start + size
    )


def _numpy(column: Any) -> Any:
    return column.to_numpy(zero_copy_only=False)
