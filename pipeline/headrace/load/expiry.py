"""How long the tables answer as of an earlier time, and what goes afterwards.

Owns the expiry of snapshots and the removal of the files that only expired ones named. A commit costs more with every
snapshot that a table keeps, so of those that loads made history grows thin with age (`SPACING`); those that others made
(a delete, a compaction) stay for the whole time. Invariants:
- what a tag or a branch names never expires; neither do the newest snapshots, nor what a kept one needs to say how far the
  table is loaded, nor the one that was current where the time that is kept begins;
- a snapshot expires only after its arrivals are in the history;
- a file is removed only when nothing kept names it (see `kept`), so at the earliest when the metadata that still knew its
  snapshot has left the table's log. What a restart forgets to remove is found as a leftover, if a load wrote it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.properties import property_as_int

from headrace.broker.structured_log import get_logger
from headrace.load import history
from headrace.load.commit import APPLIED, RefusedError, append, data_file
from headrace.load.kept import Kept, NeedsUnknownError, dead_letter_files, may_be_cleaned
from headrace.load.leftovers import Run
from headrace.load.storage import plain, remove
from headrace.load.tables import (
    AUDIT_BATCH,
    AUDIT_FINDINGS,
    AUDIT_WINDOWS,
    DEAD_LETTER,
    DEAD_LETTER_TABLE,
    NAMESPACE,
    arrow_schema,
    ensure_history,
    ensure_table,
    in_columns,
    load_table,
)
from headrace.load.write import FileWriter, target_of

EVERY_COMMITS: Final = 20
DAY_MS: Final = 24 * 3600 * 1000
AGE_MS: Final = 5 * DAY_MS
NEWEST_KEPT: Final = 20
SPACING: Final = ((3_600_000, 60_000), (5 * DAY_MS, 3_600_000), (None, DAY_MS))
"""(up to this age, one snapshot in so many milliseconds): each span is a multiple of the one before, so what is kept of a
span is also what was kept of its parts."""
AGE_PROPERTY: Final = "history.expire.max-snapshot-age-ms"
COUNT_PROPERTY: Final = "history.expire.min-snapshots-to-keep"

logger = get_logger(__name__)


class Retention(NamedTuple):
    age_ms: int = AGE_MS
    newest: int = NEWEST_KEPT


class _Expired(NamedTuple):
    snapshot: Snapshot
    statistics: tuple[str, ...]


@dataclass(slots=True)
class _Memory:
    """What a run remembers of a table between two looks."""

    expired: dict[int, _Expired] = field(default_factory=dict)
    """Expired snapshots whose files are still there."""
    manifests: dict[str, list[str]] = field(default_factory=dict)
    """Manifests by manifest list."""


class Expiry:
    """Expires what one run's tables no longer keep; remembers whose files are still to be removed."""

    def __init__(self, catalog: Catalog, run: Run, age_ms: int = AGE_MS) -> None:
        self._catalog = catalog
        self._run = run
        self._default = Retention(age_ms)
        self._memory: dict[str, _Memory] = {}

    def tidy(self, name: str) -> int:
        """Expire snapshots of an event table and of headrace's own tables, and remove files that nothing needs.

        Returns:
            how many snapshots of the event table expired.
        """
        known = ensure_history(self._catalog)
        letters = ensure_table(self._catalog, DEAD_LETTER, DEAD_LETTER_TABLE)
        table = ensure_table(self._catalog, name)
        count = self._expire(table, history.POSITIONS, known)
        self._expire(letters, APPLIED)
        self._expire(known.refresh(), history.ARCHIVED)
        for audited in (AUDIT_WINDOWS, AUDIT_FINDINGS):
            with suppress(NoSuchTableError):
                self._expire(self._catalog.load_table(f"{NAMESPACE}.{audited}"), AUDIT_BATCH)
        return count

    def overdue(self, name: str) -> int:
        """Return how many snapshots of an event table would expire now: those that earlier runs left."""
        return len(self._due(load_table(self._catalog, name), history.POSITIONS))

    def _expire(self, table: Table, own: str, history_table: Table | None = None) -> int:
        """Expire what is due; another driver that does the same at the same time is let go first."""
        if not may_be_cleaned(table):
            return 0
        self._remove_files(table)
        doomed = self._due(table, own)
        try:
            if history_table is not None:
                _archive(history_table, table, _newest(doomed), self._run)
            protected = {ref.snapshot_id for ref in table.refresh().metadata.refs.values()}
            there = {item.snapshot_id for item in table.snapshots()}
            doomed = [item for item in doomed if item.snapshot_id in there - protected]
            return self._commit(table, doomed)
        except (CommitFailedException, RefusedError) as error:
            logger.info("snapshots expire later", table=table.name()[-1], reason=error)
            return 0

    def _due(self, table: Table, own: str) -> list[Snapshot]:
        properties = table.properties
        retention = Retention(
            property_as_int(properties, AGE_PROPERTY, self._default.age_ms) or 0,
            max(property_as_int(properties, COUNT_PROPERTY, 0) or 0, self._default.newest),
        )
        return due(table.snapshots(), table.metadata.refs.values(), int(time.time() * 1000), own, retention)

    def _commit(self, table: Table, doomed: Sequence[Snapshot]) -> int:
        if not doomed:
            return 0
        metadata = table.metadata
        table.maintenance.expire_snapshots().by_ids([item.snapshot_id for item in doomed]).commit()
        memory = self._memory.setdefault(table.name()[-1], _Memory())
        for item in doomed:
            memory.expired[item.snapshot_id] = _Expired(item, _statistics(metadata, item.snapshot_id))
        return len(doomed)

    def _remove_files(self, table: Table) -> None:
        """Remove the files of snapshots that no kept metadata knows any longer."""
        memory = self._memory.setdefault(table.name()[-1], _Memory())
        if not memory.expired:
            return
        try:
            self._remove_unneeded(table, memory)
        except NeedsUnknownError as error:
            logger.warning("files of expired snapshots stay", table=table.name()[-1], reason=error)
        except OSError as error:
            logger.warning(
                "files of expired snapshots are removed later", table=table.name()[-1], reason=error
            )

    def _remove_unneeded(self, table: Table, memory: _Memory) -> None:
        kept = Kept(table, memory.manifests)
        forgotten = [item for key, item in memory.expired.items() if key not in kept.snapshots]
        if not forgotten:
            return
        metadata = kept.unneeded(_metadata_files(kept, forgotten), with_files=False)
        theirs = set(_manifests(kept, forgotten))
        manifests = [path for path in metadata if path in theirs]
        below = plain(table.location()) + "/"
        named = kept.files_of(manifests, may_be_gone=True)
        files = (path for path in named if plain(path).startswith(below))
        letters = dead_letter_files(self._catalog) if table.name()[-1] == DEAD_LETTER else ()
        unneeded = kept.unneeded(files, letters, with_files=True)
        remove(table.io, unneeded)
        remove(table.io, metadata)
        for item in forgotten:
            memory.expired.pop(item.snapshot.snapshot_id)
            memory.manifests.pop(item.snapshot.manifest_list, None)
        logger.info(
            "files of expired snapshots removed",
            table=table.name()[-1],
            data=len(unneeded),
            metadata=len(metadata),
        )


def archive(catalog: Catalog, name: str, run: Run) -> None:
    """Copy all arrivals and passings of a table to the history now, whoever may expire its snapshots.

    Raises:
        RefusedError, CommitFailedException: another driver did that at the same time.
    """
    known = ensure_history(catalog)
    table = ensure_table(catalog, name)
    _archive(known, table, _newest(table.snapshots()), run)


def due(
    snapshots: Iterable[Snapshot],
    references: Iterable[SnapshotRef],
    now_ms: int,
    own: str,
    retention: Retention,
) -> list[Snapshot]:
    """Return the snapshots that are to expire, oldest first.

    Args:
        references: the table's branches and tags.
        own: the property that snapshots of loads have, and every other leads back to.
    """
    ordered = sorted(snapshots, key=lambda item: item.sequence_number or 0)
    by_id = {item.snapshot_id: item for item in ordered}
    kept = {ref.snapshot_id for ref in references}
    kept |= {item.snapshot_id for item in ordered[max(0, len(ordered) - retention.newest) :]}
    kept |= _kept_by_age(ordered, now_ms, own, retention.age_ms)
    for key in list(kept):
        item = by_id.get(key)
        while item is not None and not _has(item, own):
            item = by_id.get(item.parent_snapshot_id) if item.parent_snapshot_id is not None else None
            if item is not None:
                kept.add(item.snapshot_id)
    return [item for item in ordered if item.snapshot_id not in kept]


def _kept_by_age(ordered: Sequence[Snapshot], now_ms: int, own: str, age_ms: int) -> set[int]:
    """Return all that others made, the newest of each span that loads made, and the one current when the time begins."""
    kept: set[int] = set()
    spans: set[tuple[int, int]] = set()
    for item in reversed(ordered):
        age = now_ms - item.timestamp_ms
        width = next(width for limit, width in SPACING if limit is None or age <= limit)
        span = (width, item.timestamp_ms // width)
        if span not in spans or age > age_ms or not _has(item, own):
            kept.add(item.snapshot_id)
        if age > age_ms:
            break
        spans.add(span)
    return kept


def _has(snapshot: Snapshot, name: str) -> bool:
    return snapshot.summary is not None and snapshot.summary[name] is not None


def _archive(known: Table, table: Table, up_to: int, run: Run) -> None:
    """Copy what all snapshots up to a sequence number say to the history, also those that stay."""
    name = table.name()[-1]
    done = history.archived_up_to(known, table)
    missing = [item for item in table.snapshots() if done < (item.sequence_number or 0) <= up_to]
    if not missing:
        return
    archived = history.summary_json(history.newest_with(known, history.ARCHIVED), history.ARCHIVED)
    archived.pop(name, None)
    archived[history.uuid_of(table)] = up_to
    writer = FileWriter(target_of(known, run.folder_of(known)))
    writer.write(in_columns(history.rows_of(table, missing), arrow_schema(known)))
    written = writer.close()
    files = [data_file(written)] if written is not None else []
    append(known, files, {history.ARCHIVED: json.dumps(archived)})


def _newest(snapshots: Iterable[Snapshot]) -> int:
    return max((item.sequence_number or 0 for item in snapshots), default=0)


def _statistics(metadata: TableMetadata, snapshot_id: int) -> tuple[str, ...]:
    every = chain(metadata.statistics, metadata.partition_statistics)
    return tuple(item.statistics_path for item in every if item.snapshot_id == snapshot_id)


def _manifests(kept: Kept, expired: Sequence[_Expired]) -> list[str]:
    return kept.manifests_of((item.snapshot for item in expired), may_be_gone=True)


def _metadata_files(kept: Kept, expired: Sequence[_Expired]) -> list[str]:
    lists = [item.snapshot.manifest_list for item in expired]
    statistics = chain.from_iterable(item.statistics for item in expired)
    return [*lists, *_manifests(kept, expired), *statistics]
