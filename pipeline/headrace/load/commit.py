"""One Iceberg snapshot holds a round's files and its offsets; nothing else decides what is loaded.

Owns the commits of a load. Invariants:
- the files and the new positions of a table appear in one snapshot, whose parent is the snapshot that the round was
  planned on: if somebody else committed in between, the commit is refused (`RefusedError`) and the round is planned anew;
- dead letters follow their table: the table's snapshot names the dead-letter files of its commit, and the dead-letter
  table's snapshot names (`headrace.applied`) the last snapshot of each table whose files it has. `settle` closes the gap
  between the two, and no round is planned before it has. So an offset is a row or a dead letter, once, whatever dies;
- after a rollback of the table the dead letters that the load reads again are taken out first (see `rollback`).
Must not know brokers, schemas or Spark.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from headrace.broker.wire.partitions import TopicPartition
from headrace.load import history
from headrace.load.names import LIFE
from headrace.load.ranges import Passing
from headrace.load.rollback import letters_taken_back
from headrace.load.tables import (
    COMMIT_ATTEMPTS_MAX,
    COMMIT_RETRIES,
    DEAD_LETTER,
    DEAD_LETTER_TABLE,
    WarehouseError,
    ensure_table,
)
from headrace.load.task import RangeResult, TaskResult
from headrace.load.write import WrittenFile, describe_again

APPLIED: Final = "headrace.applied"


class RefusedError(Exception):
    """Somebody else committed to the table since the round was planned; plan it anew."""


class WarehouseTransaction(Transaction):
    """A transaction that adds files without partitions, whatever partition fields others gave the table, and commits once.

    It works out its metadata once a change: pyiceberg's copies every snapshot at each look, 16 times.
    """

    _worked_out: tuple[Any, Any, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        known = self._worked_out
        if known is None or known[0] is not self._table.metadata or known[1] is not self._updates:
            known = (self._table.metadata, self._updates, _unpartitioned(super().table_metadata))
            self._worked_out = known
        return known[2]

    def commit_transaction(self) -> Table:
        """Commit, or fail where others did meanwhile: pyiceberg would repeat it on what they left, which doubles rows."""
        once = {**self._table.metadata.properties, COMMIT_RETRIES: "0"}
        self._table.metadata = self._table.metadata.model_copy(update={"properties": once})
        return super().commit_transaction()


def _unpartitioned(metadata: TableMetadata) -> TableMetadata:
    """Return metadata under which files are added by the spec without fields, which a table of a load begins with.

    Raises:
        WarehouseError: the table has no such spec.
    """
    if metadata.spec().is_unpartitioned():
        return metadata
    for spec in metadata.partition_specs:
        if not spec.fields:
            return metadata.model_copy(update={"default_spec_id": spec.spec_id})
    raise WarehouseError(
        f"the table at {metadata.location} has only specs with partition fields, and a load writes files without: "
        "drop the table's partition fields (`ALTER TABLE ... DROP PARTITION FIELD`); they may be added again behind it"
    )


def commit(
    table: Table,
    results: Sequence[TaskResult],
    topic_ids: Mapping[str, str] = MappingProxyType({}),
    cluster: str | None = None,
) -> Snapshot | None:
    """Commit a round on the snapshot that `table` was loaded with; None when no range went forward.

    `topic_ids` and `cluster` are what the brokers say of the topics; a topic whose identity the table knows keeps that.

    Raises:
        RefusedError: the table has changed since; nothing of the round is visible.
    """
    held = history.held(table)
    ranges = _forward(held, results)
    if not ranges:
        return None
    loaded = {place.topic for place in ranges}
    ids = {topic: known for topic, known in topic_ids.items() if topic in loaded}
    clusters = {} if cluster is None else dict.fromkeys(loaded, cluster)
    after = replace(
        held,
        positions={**held.positions, **{place: item.next_offset for place, item in ranges.items()}},
        fences={
            **held.fences,
            **{place: item.fence for place, item in ranges.items() if item.fence is not None},
        },
        topic_ids=ids | dict(held.topic_ids),
        clusters=clusters | dict(held.clusters),
    )
    properties = {
        **after.summary(),
        history.HOST: platform.node(),
        history.OFFSETS: history.nested(
            {place: [item.first_offset, item.next_offset] for place, item in ranges.items()}
        ),
        history.DEAD_LETTER_FILES: json.dumps(
            [r.dead_letters.path for r in results if r.dead_letters is not None]
        ),
    }
    return append(
        table, [data_file(result.rows) for result in results if result.rows is not None], properties
    )


def let_go_on(table: Table, passing: Passing, cluster: str | None, topic_id: str | None) -> Snapshot:
    """Commit that a partition goes on elsewhere, on the snapshot that `table` was loaded (and seen to be settled) with.

    `cluster` and `topic_id` are what the brokers say of the log in which it goes on.

    Raises:
        RefusedError: the table has changed since.
    """
    after = history.held(table).after(passing, cluster, topic_id)
    properties = {**after.summary(), **history.passing_property(passing), history.DEAD_LETTER_FILES: "[]"}
    return append(table, [], properties)


def settle(catalog: Catalog, name: str) -> Table:
    """Put the dead letters of the table's last load where they belong, if they are not there yet.

    The dead-letter table is read first: when it does not name the last load's snapshot although that one is newer,
    its files are still to be added; any other commit to it since makes this one refused and looked at again.

    Returns:
        the table as it was seen to be settled: the one to plan and to commit on.
    """
    for _ in range(COMMIT_ATTEMPTS_MAX):
        dead_letters = ensure_table(catalog, DEAD_LETTER, DEAD_LETTER_TABLE)
        table = ensure_table(catalog, name)
        snapshot = history.newest_with(table, history.POSITIONS)
        applied = _applied(dead_letters)
        if snapshot is None or applied.get(name) == snapshot.snapshot_id:
            return table
        again = letters_taken_back(table, snapshot, has_lives=LIFE in dead_letters.schema().column_names)
        has_its_own = again is not None and name in applied
        paths = [] if has_its_own else history.dead_letter_files(snapshot)
        if again is None and not paths:
            return table
        files = [data_file(describe_again(dead_letters.io, path, dead_letters.properties)) for path in paths]
        try:
            if again is not None:
                _take_out(dead_letters, again)
            append(dead_letters, files, {APPLIED: json.dumps({**applied, name: snapshot.snapshot_id})})
        except RefusedError:
            continue
        return table
    raise RefusedError(f"warehouse.{DEAD_LETTER} changed {COMMIT_ATTEMPTS_MAX} times while it was written")


def _take_out(dead_letters: Table, chosen: str) -> None:
    """Remove letters that come again.

    Raises:
        RefusedError
    """
    if not list(dead_letters.scan(row_filter=chosen).plan_files()):
        return
    try:
        with WarehouseTransaction(dead_letters) as transaction:
            transaction.delete(chosen)
    except CommitFailedException as error:
        raise RefusedError(str(error)) from error


def append(
    table: Table,
    files: Iterable[DataFile],
    properties: Mapping[str, str],
    *,
    instead_of: DataFile | None = None,
) -> Snapshot:
    """Add files in one snapshot, whose parent is the table's current one as it was loaded.

    Args:
        instead_of: a file of that snapshot that the new one has no longer.

    Raises:
        RefusedError
    """
    try:
        with WarehouseTransaction(table) as transaction:
            update = transaction.update_snapshot(snapshot_properties=dict(properties))
            with update.merge_append() if instead_of is None else update.overwrite() as snapshot:
                if instead_of is not None:
                    snapshot.delete_data_file(instead_of)
                for file in files:
                    snapshot.append_data_file(file)
    except CommitFailedException as error:
        raise RefusedError(str(error)) from error
    committed = table.current_snapshot()
    assert committed is not None
    return committed


def data_file(written: WrittenFile) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=written.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=written.size_bytes,
        sort_order_id=None,
        spec_id=0,
        equality_ids=None,
        key_metadata=None,
        **written.statistics,
    )


def unsettled_paths(table: Table, dead_letters: Table | None = None) -> list[str]:
    """Return the dead-letter files of the table's last load that `dead_letters` did not get yet; all while there is none."""
    snapshot = history.newest_with(table, history.POSITIONS)
    applied = {} if dead_letters is None else _applied(dead_letters)
    if snapshot is None or applied.get(table.name()[-1]) == snapshot.snapshot_id:
        return []
    return history.dead_letter_files(snapshot)


def _applied(dead_letters: Table) -> dict[str, int]:
    """Return by table the last load whose dead letters are there."""
    found: dict[str, int] = history.summary_json(history.newest_with(dead_letters, APPLIED), APPLIED)
    return found


def _forward(held: history.Held, results: Sequence[TaskResult]) -> dict[TopicPartition, RangeResult]:
    """Return the ranges that went forward, and check that each goes on where the table stands."""
    ranges: dict[TopicPartition, RangeResult] = {}
    for item in (item for result in results for item in result.ranges):
        place = TopicPartition(item.topic, item.partition)
        assert place not in ranges, f"two ranges of {place} in one round"
        position = held.positions.get(place, item.first_offset)
        assert position == item.first_offset, f"{place} does not go on at {position}"
        if item.next_offset > item.first_offset:
            ranges[place] = item
    return ranges
