"""What a table still needs: all that any snapshot names, of any of its metadata that is kept.

Kept metadata is the current file and those that its log names, to any of which the catalog can be set back. Their
snapshots are those of main, of every branch and tag, and those of neither (a rollback leaves such). Needed are their
manifest lists, manifests, data files and delete files, the statistics, the metadata files themselves, and the dead-letter
files that a snapshot's summary names. Invariant: where something of it cannot be read, nothing counts as unneeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import chain
from typing import Any, Final

import fastavro
from pyiceberg.catalog import Catalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.properties import property_as_bool

from headrace.load import history
from headrace.load.storage import REQUESTS_MAX, plain
from headrace.load.tables import NAMESPACE, UnreadableTableError, WarehouseError, load_table

TAKEN_OUT: Final = 2
"""The status of a manifest's entry whose file the snapshot took out: older snapshots name it themselves."""


class NeedsUnknownError(Exception):
    """A file that kept metadata names cannot be read, so nobody knows what the table needs."""


class Kept:
    """The kept metadata of a table, as it stands when this is made."""

    def __init__(self, table: Table, known_lists: dict[str, list[str]] | None = None) -> None:
        """Read the older metadata.

        Args:
            known_lists: manifests by manifest list, to spare reading a list again; what is read is added.

        Raises:
            OSError: the store does not answer.
        """
        self._io = table.io
        self._metadata = [table.metadata, *_older_metadata(table)]
        self._names = [
            table.metadata_location,
            *(entry.metadata_file for entry in table.metadata.metadata_log),
        ]
        self._known_lists = {} if known_lists is None else known_lists
        current = table.current_snapshot()
        self.snapshots: dict[int, Snapshot] = {} if current is None else {current.snapshot_id: current}
        """By id; the current one first, it names most."""
        for metadata in self._metadata:
            self.snapshots |= {item.snapshot_id: item for item in reversed(metadata.snapshots)}

    def unneeded(
        self, candidates: Iterable[str], also_needed: Iterable[str] = (), *, with_files: bool
    ) -> list[str]:
        """Return the candidates that nothing kept names.

        Args:
            also_needed: further names, only looked at when there are candidates.
            with_files: whether data and delete files are among the candidates, for which manifests must be read.

        Raises:
            NeedsUnknownError
            OSError: the store does not answer.
        """
        left = {plain(location): location for location in candidates}
        if left:
            for name in chain(self._metadata_names(), self._names_in_snapshots(with_files), also_needed):
                left.pop(plain(name), None)
                if not left:
                    break
        return list(left.values())

    def manifests_of(self, snapshots: Iterable[Snapshot], *, may_be_gone: bool = False) -> list[str]:
        """Return the manifests of snapshots, each once; a list that is gone names none where it may be.

        Raises:
            NeedsUnknownError
            OSError
        """
        lists = [item.manifest_list for item in snapshots]
        unread = [path for path in lists if path not in self._known_lists]
        for path, manifests in zip(unread, self._read_all(unread, _manifests_in, may_be_gone), strict=True):
            self._known_lists[path] = manifests
        return list(dict.fromkeys(manifest for path in lists for manifest in self._known_lists[path]))

    def files_of(self, manifests: Sequence[str], *, may_be_gone: bool = False) -> Iterator[str]:
        """Yield the files that manifests hold, without those that they took out.

        Raises:
            NeedsUnknownError
            OSError
        """
        for first in range(0, len(manifests), REQUESTS_MAX):
            members = manifests[first : first + REQUESTS_MAX]
            yield from chain.from_iterable(self._read_all(members, _files_in, may_be_gone))

    def _metadata_names(self) -> Iterator[str]:
        yield from self._names
        for metadata in self._metadata:
            for statistics in chain(metadata.statistics, metadata.partition_statistics):
                yield statistics.statistics_path
        for snapshot in self.snapshots.values():
            yield snapshot.manifest_list
            yield from history.dead_letter_files(snapshot)

    def _names_in_snapshots(self, with_files: bool) -> Iterator[str]:
        newest, *older = ([item] for item in self.snapshots.values()) if self.snapshots else ([],)
        seen: set[str] = set()
        for members in (newest, list(chain.from_iterable(older))):
            manifests = [path for path in self.manifests_of(members) if path not in seen]
            seen.update(manifests)
            yield from manifests
            if with_files:
                yield from self.files_of(manifests)

    def _read_all(
        self, paths: Sequence[str], parse: Callable[[bytes], list[str]], may_be_gone: bool
    ) -> list[list[str]]:
        def read(path: str) -> list[str]:
            try:
                with self._io.new_input(path).open() as stream:
                    return parse(stream.read())
            except FileNotFoundError as error:
                if may_be_gone:
                    return []
                raise NeedsUnknownError(f"a snapshot names {path}, which is gone") from error
            except ValueError as error:
                raise NeedsUnknownError(f"a snapshot names {path}, which cannot be read: {error}") from error

        with ThreadPoolExecutor(REQUESTS_MAX) as pool:
            return list(pool.map(read, paths))


def dead_letter_files(catalog: Catalog) -> Iterator[str]:
    """Yield the dead-letter files that any kept snapshot of any table names: a load, or one rolled back to, settles them.

    Raises:
        NeedsUnknownError: a table cannot be read.
    """
    for identifier in catalog.list_tables(NAMESPACE):
        try:
            table = load_table(catalog, identifier[-1])
        except UnreadableTableError as error:
            raise NeedsUnknownError(str(error)) from error
        except WarehouseError:
            continue
        for snapshot in Kept(table).snapshots.values():
            yield from history.dead_letter_files(snapshot)


def may_be_cleaned(table: Table) -> bool:
    """Return False where Iceberg's property `gc.enabled` says that other tables share the files."""
    return property_as_bool(table.properties, "gc.enabled", True)


def _older_metadata(table: Table) -> list[TableMetadata]:
    """Read what the log names; a file that is gone can be no place to go back to."""

    def read(location: str) -> TableMetadata | None:
        try:
            return FromInputFile.table_metadata(table.io.new_input(location))
        except FileNotFoundError:
            return None

    with ThreadPoolExecutor(REQUESTS_MAX) as pool:
        found = list(pool.map(read, (entry.metadata_file for entry in table.metadata.metadata_log)))
    return [metadata for metadata in reversed(found) if metadata is not None]


def _manifests_in(content: bytes) -> list[str]:
    return [entry["manifest_path"] for entry in _records(content, {"manifest_path": None})]


def _files_in(content: bytes) -> list[str]:
    wanted = {"status": None, "data_file": {"file_path": None}}
    return [
        entry["data_file"]["file_path"] for entry in _records(content, wanted) if entry["status"] != TAKEN_OUT
    ]


def _records(content: bytes, wanted: dict[str, Any]) -> Iterator[Any]:
    """Read the wanted fields of an Avro file's records and skip the others."""
    written = fastavro.reader(BytesIO(content)).writer_schema
    yield from fastavro.reader(BytesIO(content), reader_schema=_projected(written, wanted))


def _projected(schema: Any, wanted: dict[str, Any]) -> Any:
    fields = [
        item
        if wanted[item["name"]] is None
        else item | {"type": _projected(item["type"], wanted[item["name"]])}
        for item in schema["fields"]
        if item["name"] in wanted
    ]
    return schema | {"fields": fields}
