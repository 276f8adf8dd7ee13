"""Files that dead attempts left behind: found at a run's first look at a table and removed, those of the living never touched.

Owns a run's folder for its data files and the proof that the run is alive. Invariants: only files with the names that a
load gives are ever removed, and only those that nothing kept names (see `kept`), as it stands after they were listed; a
data file only when its run is dead; a metadata file only when it is older than `GRACE_SECONDS`. In a local warehouse a run
holds a lock on a file in its folder, which its death releases; elsewhere a file's attempt counts as dead after
`GRACE_SECONDS`, longer than any round. A table with `gc.enabled=false` is left alone. Must not know offsets.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pyiceberg.table import Table

from headrace.load.kept import Kept, may_be_cleaned
from headrace.load.storage import Found, files_below, local_path, remove

GRACE_SECONDS: Final = 24 * 3600
LOCK_NAME: Final = "run.lock"
UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
RUN_FOLDER: Final = re.compile(f"run-{UUID}")
DATA_FILE: Final = re.compile(rf"/(?P<run>run-{UUID})/{UUID}\.parquet")
METADATA_FILE: Final = re.compile(
    rf"/(?:\d+-{UUID}(?:\.gz)?\.metadata\.json|{UUID}-m\d+\.avro|snap-\d+-\d+-{UUID}\.avro)"
)
"""Metadata, manifests and manifest lists, as pyiceberg and Iceberg's own library name them."""


class Run:
    """One life of a loading process; `folder_of(table)` is where its files go."""

    def __init__(self) -> None:
        self.name = f"run-{uuid.uuid4()}"
        self._locks: dict[str, int] = {}

    def folder_of(self, table: Table) -> str:
        """Return the folder for this run's data files, locked before the first of them is written."""
        folder = f"{_data_folder(table)}/{self.name}"
        local = local_path(folder)
        if local is not None and folder not in self._locks:
            local.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(local / LOCK_NAME, os.O_CREAT | os.O_RDWR, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._locks[folder] = descriptor
        return folder

    def close(self) -> None:
        for descriptor in self._locks.values():
            os.close(descriptor)
        self._locks.clear()


def remove_dead_data(
    table: Table, also_needed: Iterable[str] = (), grace_seconds: float = GRACE_SECONDS
) -> list[str]:
    """Remove data files of dead runs that nothing kept names; `also_needed` is read after they were listed.

    Returns:
        the removed paths.

    Raises:
        NeedsUnknownError: what the table needs cannot be read; nothing was removed.
        UnlistedStoreError: the table's FileIO cannot list.
        OSError: the store does not answer.
    """
    folder = _data_folder(table)
    local = local_path(folder)
    dead = (
        _dead_local(table, folder, local) if local is not None else _old_remote(table, folder, grace_seconds)
    )
    candidates = list(dead)
    return _remove_unneeded(table, candidates, also_needed, with_files=True)


def remove_old_metadata(table: Table, grace_seconds: float = GRACE_SECONDS) -> list[str]:
    """Remove metadata files, manifests and manifest lists that nothing kept leads to.

    Raises:
        NeedsUnknownError
        UnlistedStoreError
        OSError
    """
    folder = table.location_provider().new_metadata_location("").rstrip("/")
    limit = time.time() - grace_seconds
    old = [
        found.location
        for found in files_below(table.io, folder)
        if found.modified_at < limit and METADATA_FILE.fullmatch(found.location[len(folder) :])
    ]
    return _remove_unneeded(table, old, (), with_files=False)


def _remove_unneeded(
    table: Table, candidates: list[str], also_needed: Iterable[str], *, with_files: bool
) -> list[str]:
    """Look at the table anew, for a run may have committed and died since it was loaded."""
    if not candidates or not may_be_cleaned(table):
        return []
    fresh = table.catalog.load_table(table.name())
    unneeded = Kept(fresh).unneeded(candidates, also_needed, with_files=with_files)
    remove(fresh.io, unneeded)
    return unneeded


def _data_folder(table: Table) -> str:
    return f"{table.location()}/data"


def _run_files(table: Table, folder: str) -> Iterator[tuple[str, Found]]:
    """Yield (run, file) of all that loads wrote."""
    for found in files_below(table.io, folder):
        match = DATA_FILE.fullmatch(found.location[len(folder) :])
        if match is not None:
            yield match["run"], found


def _dead_local(table: Table, folder: str, root: Path) -> Iterator[str]:
    """Yield the files of runs whose lock is free, and remove folders of dead runs that are empty."""
    runs = [path for path in sorted(root.glob("run-*")) if RUN_FOLDER.fullmatch(path.name)]
    dead = {path.name for path in runs if not _is_held(path / LOCK_NAME)}
    for run, found in _run_files(table, folder):
        if run in dead:
            yield found.location
    limit = time.time() - GRACE_SECONDS
    for path in runs:
        if path.name in dead and path.stat().st_mtime < limit and os.listdir(path) in ([], [LOCK_NAME]):
            (path / LOCK_NAME).unlink(missing_ok=True)
            path.rmdir()


def _is_held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _old_remote(table: Table, folder: str, grace_seconds: float) -> Iterator[str]:
    limit = time.time() - grace_seconds
    for _, found in _run_files(table, folder):
        if found.modified_at < limit:
            yield found.location
