"""Dead letters whose cause is mended become rows, each once, and are letters no longer.

Owns the order of the steps, since no commit changes two tables: a file of letters is read in slices, the rows of each slice
are appended to their table, and then what is left of the file takes its place. Invariants:
- rows are appended on the very snapshot that was seen to lack them, or on one that a load alone added to since: of two that
  append the same one is refused and looks again, and a load in a hurry holds nobody up;
- a letter that has a row already, as after a death between the two steps, is only taken out;
- a letter at an offset that the table's load has yet to reach stays, since the load brings it;
- letters are taken out only while `dead_letter` has the file that they were read from; else it is read anew.
Must not know brokers or Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import FileScanTask, Table

from headrace.load import commit, history
from headrace.load.avro_types import EventSchema, UnsupportedSchemaError
from headrace.load.decode import NO_SCHEMA
from headrace.load.growth import grow
from headrace.load.leftovers import Run
from headrace.load.letters import REASON, Schemas, schema_ids
from headrace.load.missing_rows import LookedAt, Source, grows, look_at
from headrace.load.names import (
    DATACENTER,
    TOPIC,
    TOPIC_PARTITION,
    partition_column,
)
from headrace.load.registry import RegistryUnreachableError, SchemaRegistry, UnknownSchemaError
from headrace.load.tables import (
    COMMIT_ATTEMPTS_MAX,
    DEAD_LETTER,
    NAMESPACE,
    WarehouseError,
    arrow_schema,
    in_columns,
    load_table,
    shape_of,
    table_of_topic,
    upgrade_all,
)
from headrace.load.write import FileWriter, WrittenFile, target_of

LETTERS_PER_SLICE_MAX: Final = 10_000
APPENDS_MAX: Final = 100
REASONS_MAX: Final = 100
OTHER_REASONS: Final = "other reasons"


class NotRedrivenError(Exception):
    """The letters stay, or most of them; the message is a sentence without a full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which letters; no datacenter and no topics are all. Topics may be named with their datacenter, too."""

    datacenter: str | None = None
    topics: frozenset[str] = frozenset()

    def has(self, source: Source) -> bool:
        is_named = not self.topics or not self.topics.isdisjoint(source_names(source))
        return is_named and self.datacenter in (None, source.datacenter)


def source_names(source: Source) -> tuple[str, str]:
    return source.topic, source.name


@dataclass(slots=True)
class Outcome:
    """What becomes of a topic's letters, by reason: the former one of those with a row, today's of those that stay."""

    rows: Counter[str] = field(default_factory=Counter)
    had_rows: int = 0
    """Letters whose row was there already."""
    stay: Counter[str] = field(default_factory=Counter)

    def add(self, other: Outcome) -> None:
        self.had_rows += other.had_rows
        for mine, theirs in ((self.rows, other.rows), (self.stay, other.stay)):
            for reason, count in theirs.items():
                mine[reason if reason in mine or len(mine) < REASONS_MAX else OTHER_REASONS] += count


Outcomes = dict[Source, Outcome]


def redrive(catalog: Catalog, registry: SchemaRegistry, wanted: Wanted, *, is_dry: bool) -> Outcomes:
    """Give letters their rows; when dry, say what would become of them.

    Raises:
        NotRedrivenError, WarehouseError
    """
    _check(catalog, wanted)
    if not is_dry:
        upgrade_all(catalog)
    work = _Redrive(catalog, registry, wanted, is_dry)
    try:
        work.run()
    except RegistryUnreachableError as error:
        raise NotRedrivenError(f"{work.so_far()}: {error}") from error
    finally:
        work.close()
    return work.outcomes


def _check(catalog: Catalog, wanted: Wanted) -> None:
    """Refuse a topic that the warehouse does not know, letters whose table is gone, and delete files, before anything changes."""
    letters = load_table(catalog, DEAD_LETTER)
    for task in letters.scan().plan_files():
        _check_whole(task)
    found = _sources(letters)
    known = {name for source in found for name in source_names(source)}
    for topic in sorted(wanted.topics - known):
        if not catalog.table_exists(f"{NAMESPACE}.{table_of_topic(topic)}"):
            raise NotRedrivenError(
                f"nothing was changed: the warehouse has neither a table nor dead letters of topic {topic}; "
                "`headrace load redrive --dry-run` shows the topics that have some"
            )
    for source in sorted(filter(wanted.has, found)):
        load_table(catalog, table_of_topic(source.name))


def _check_whole(task: FileScanTask) -> None:
    if task.delete_files:
        raise WarehouseError(
            f"{NAMESPACE}.{DEAD_LETTER} has delete files, which a redrive cannot rewrite: rewrite its data files with "
            "Spark (`CALL system.rewrite_data_files`, option `delete-file-threshold` 1) and redrive once more"
        )


def _sources(letters: Table) -> set[Source]:
    found: set[Source] = set()
    for batch in letters.scan(selected_fields=(DATACENTER, TOPIC)).to_arrow_batch_reader():
        pairs = zip(*(batch.column(name).to_pylist() for name in (DATACENTER, TOPIC)), strict=True)
        found |= {Source(*pair) for pair in pairs}
    return found


class _Redrive:
    """One call's work: what it has seen and written."""

    def __init__(self, catalog: Catalog, registry: SchemaRegistry, wanted: Wanted, is_dry: bool) -> None:
        self._catalog = catalog
        self._registry = registry
        self._wanted = wanted
        self._is_dry = is_dry
        self._run = Run()
        self._seen: set[str] = set()
        self.outcomes: Outcomes = {}

    def run(self) -> None:
        """Take file by file; where others put new files in the place of one, take these."""
        for _ in range(COMMIT_ATTEMPTS_MAX):
            planned = load_table(self._catalog, DEAD_LETTER).scan().plan_files()
            unseen = [item for item in planned if item.file.file_path not in self._seen]
            taken = [self._take(item) for item in unseen]
            if all(taken):
                return
        raise WarehouseError(
            f"the files of {NAMESPACE}.{DEAD_LETTER} were changed by others {COMMIT_ATTEMPTS_MAX} times; redrive once more"
        )

    def close(self) -> None:
        self._run.close()

    def so_far(self) -> str:
        rows = sum(item.rows.total() for item in self.outcomes.values())
        if self._is_dry or not rows:
            return "nothing was changed"
        return f"{rows} letters have rows now and the others stay, so redrive once more"

    def _take(self, task: FileScanTask) -> bool:
        """Take one file; False where somebody else changed it meanwhile, so that what is left of it is elsewhere."""
        _check_whole(task)
        path = task.file.file_path
        self._seen.add(path)
        letters = load_table(self._catalog, DEAD_LETTER)
        rest = None if self._is_dry else FileWriter(target_of(letters, self._run.folder_of(letters)))
        stay: Outcomes = {}
        is_changed = False
        for part in _slices(letters, path):
            for source, members in _by_source(part).items():
                left = self._letters(source, members, path, stay) if self._wanted.has(source) else members
                is_changed |= not left.equals(members)
                if rest is not None:
                    rest.write(left)
        if rest is not None and is_changed and not self._replace(path, rest.close()):
            return False
        if rest is not None:
            rest.abandon()
        self._note(stay)
        return True

    def _letters(self, source: Source, letters: pa.Table, path: str, stay: Outcomes) -> pa.Table:
        """Append the rows of a topic's letters; returns those that stay, with today's reasons."""
        found = self._append(source, letters, path)
        self._note({source: _outcome(letters, found)})
        kept = sorted(found.decoded.bad.keys() - found.had_rows)
        reasons = [found.decoded.bad[index] for index in kept]
        stay.setdefault(source, Outcome()).add(Outcome(stay=Counter(reasons)))
        left = letters.take(pa.array(kept, pa.int64()))
        place = left.schema.get_field_index(REASON)
        return left.set_column(
            place, left.schema.field(place), pa.array(reasons, left.schema.field(place).type)
        )

    def _note(self, found: Outcomes) -> None:
        for source, outcome in found.items():
            self.outcomes.setdefault(source, Outcome()).add(outcome)

    def _append(self, source: Source, letters: pa.Table, path: str) -> LookedAt:
        """Append what the table lacks; where others commit first, look again."""
        ids = schema_ids(letters)
        asked = {each: self._schema(source.name, each) for each in dict.fromkeys(ids) if each != NO_SCHEMA}
        reason: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            try:
                table = self._grown(source, asked)
                found = look_at(table, source, letters, ids, asked)
                if found.new and not self._is_dry:
                    self._commit(table, found, path)
                return found
            except (commit.RefusedError, CommitFailedException) as error:
                reason = error
        raise WarehouseError(
            f"{NAMESPACE}.{table_of_topic(source.name)} was changed by others {COMMIT_ATTEMPTS_MAX} times before its rows "
            f"came, so redrive once more: {reason}"
        )

    def _schema(self, topic: str, schema_id: int) -> EventSchema | str:
        try:
            return self._registry.schema(topic, schema_id)
        except UnsupportedSchemaError as error:
            return f"schema {schema_id}: {error}"
        except UnknownSchemaError as error:
            return str(error)

    def _grown(self, source: Source, asked: Schemas) -> Table:
        """Return the topic's table, with columns for all that these schemas have and it can hold."""
        name = table_of_topic(source.name)
        table = load_table(self._catalog, name)
        for schema_id, schema in asked.items() if not self._is_dry else ():
            if not isinstance(schema, str) and grows(schema, shape_of(table)):
                grow(self._catalog, name, self._registry, source.name, schema_id)
                table = load_table(self._catalog, name)
        return table

    def _commit(self, table: Table, found: LookedAt, path: str) -> None:
        writer = FileWriter(target_of(table, self._run.folder_of(table)))
        writer.write(found.decoded.rows.take(pa.array(found.new)))
        written = writer.close()
        assert written is not None
        told = {history.REDRIVEN: json.dumps({written.path: path})}
        looked_at = table
        for _ in range(APPENDS_MAX):
            try:
                commit.append(table, [commit.data_file(written)], told)
                return
            except commit.RefusedError:
                table = load_table(self._catalog, table.name()[-1])
                if not _is_only_loaded_since(looked_at, table):
                    raise
        raise commit.RefusedError(f"a load committed {APPENDS_MAX} times meanwhile")

    def _replace(self, path: str, rest: WrittenFile | None) -> bool:
        """Put what is left of a file in its place; False where the file is there no longer."""
        files = [] if rest is None else [commit.data_file(rest)]
        for _ in range(COMMIT_ATTEMPTS_MAX):
            letters = load_table(self._catalog, DEAD_LETTER)
            planned = {item.file.file_path: item for item in letters.scan().plan_files()}
            task = planned.get(path)
            if task is None or task.delete_files:
                break
            try:
                commit.append(letters, files, {}, instead_of=task.file)
            except commit.RefusedError:
                continue
            self._seen |= {item.file_path for item in files}
            return True
        self._seen.discard(path)
        return False


def _is_only_loaded_since(before: Table, now: Table) -> bool:
    """Whether a table got nothing but what a load brought, whose offsets lie behind all letters that may have rows."""
    looked_at, item = before.current_snapshot(), now.current_snapshot()
    while item is not None and item != looked_at:
        if item.summary is None or item.summary[history.POSITIONS] is None:
            return False
        item = None if item.parent_snapshot_id is None else now.snapshot_by_id(item.parent_snapshot_id)
    return item is not None and before.schema().schema_id == now.schema().schema_id


def _outcome(letters: pa.Table, found: LookedAt) -> Outcome:
    reasons = letters.column(REASON).to_pylist()
    rows = Counter(reasons[found.decoded.kept[position]] for position in found.new)
    return Outcome(rows=rows, had_rows=len(found.had_rows))


def _slices(letters: Table, path: str) -> Iterator[pa.Table]:
    """Read a file of letters as the table's columns of today, no more at a time than a row group and a stated number."""
    columns = arrow_schema(letters)
    with letters.io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(LETTERS_PER_SLICE_MAX, row_groups=[group]):
                yield _as_columns(pa.Table.from_batches([batch]), columns)


def _as_columns(found: pa.Table, columns: pa.Schema) -> pa.Table:
    """Name the partition as today, and leave what older files lack empty."""
    former = partition_column(found.column_names)
    names = [TOPIC_PARTITION if name == former else name for name in found.column_names]
    return in_columns(found.rename_columns(names), columns)


def _by_source(letters: pa.Table) -> dict[Source, pa.Table]:
    found: dict[Source, list[int]] = {}
    pairs = zip(*(letters.column(name).to_pylist() for name in (DATACENTER, TOPIC)), strict=True)
    for index, pair in enumerate(pairs):
        found.setdefault(Source(*pair), []).append(index)
    return {source: letters.take(pa.array(indices)) for source, indices in found.items()}
