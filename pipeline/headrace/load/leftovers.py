"""Files that dead attempts left behind: found at the next start and removed, those of the living never touched.

Owns a run's folder for its data files and the proof that the run is alive. Invariants: a file is removed only when its
run is dead and no snapshot, and no pending dead letter, names it; a metadata file only when it is older than
`METADATA_GRACE_SECONDS` and nothing that is current leads to it. In a local warehouse a run holds a lock on a file in its
folder, which its death releases; elsewhere a run counts as dead when its folder's files are older than
`REMOTE_GRACE_SECONDS`, longer than any round. Must not know offsets.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

from pyarrow import fs
from pyiceberg.table import Table

METADATA_GRACE_SECONDS: Final = 3600
REMOTE_GRACE_SECONDS: Final = 24 * 3600
LOCK_NAME: Final = "run.lock"


class Run:
    """One life of a loading process; `folder_of(table)` is where its files go."""

    def __init__(self) -> None:
        self.name = f"run-{uuid.uuid4()}"
        self._locks: dict[str, int] = {}

    def folder_of(self, table: Table) -> str:
        """Return the folder for this run's data files, locked before the first of them is written."""
        folder = f"{table.location()}/data/{self.name}"
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


def remove_dead_data(table: Table, needed: Iterable[str]) -> list[str]:
    """Remove data files of dead runs that the table does not name; `needed` are paths to keep besides.

    Returns:
        the removed paths.
    """
    root = f"{table.location()}/data"
    local = local_path(root)
    candidates = list(_dead_local(local)) if local is not None else list(_old_remote(root))
    if not candidates:
        return []
    kept = {_plain(path) for path in needed} | {_plain(path) for path in _data_files(table)}
    removed = [path for path in candidates if _plain(path) not in kept]
    for path in removed:
        _delete(path)
    return removed


def remove_old_metadata(table: Table, grace_seconds: float = METADATA_GRACE_SECONDS) -> list[str]:
    """Remove metadata files, manifests and manifest lists that nothing current leads to (local warehouses)."""
    folder = local_path(f"{table.location()}/metadata")
    if folder is None or not folder.is_dir():
        return []
    limit = time.time() - grace_seconds
    old = [path for path in folder.iterdir() if path.is_file() and path.stat().st_mtime < limit]
    if not old:
        return []
    kept = {_plain(path) for path in _metadata_files(table)}
    removed = [path for path in old if str(path) not in kept]
    for path in removed:
        path.unlink(missing_ok=True)
    return [str(path) for path in removed]


def local_path(location: str) -> Path | None:
    """Return the path of a file: URL or a bare path, None for anything remote."""
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return Path(parsed.path)
    return Path(location) if not parsed.scheme else None


def _plain(location: str) -> str:
    local = local_path(location)
    return str(local) if local is not None else location


def _data_files(table: Table) -> Iterator[str]:
    """Yield the files of the current snapshot: loads only append, so it names all that any snapshot names."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file.file_path


def _metadata_files(table: Table) -> Iterator[str]:
    yield table.metadata_location
    for entry in table.metadata.metadata_log:
        yield entry.metadata_file
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path


def _dead_local(root: Path) -> Iterator[str]:
    """Yield the files of runs whose lock is free, and remove folders of dead runs that are empty."""
    for folder in sorted(root.glob("run-*")) if root.is_dir() else ():
        lock = folder / LOCK_NAME
        if lock.exists() and _is_held(lock):
            continue
        files = list(folder.glob("*.parquet"))
        yield from map(str, files)
        if not files and folder.stat().st_mtime < time.time() - METADATA_GRACE_SECONDS:
            lock.unlink(missing_ok=True)
            folder.rmdir()


def _is_held(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _old_remote(root: str) -> Iterator[str]:
    filesystem, path = fs.FileSystem.from_uri(root)
    limit = time.time() - REMOTE_GRACE_SECONDS
    selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
    scheme = root.split("://", 1)[0]
    for info in filesystem.get_file_info(selector):
        if (
            "/run-" in info.path
            and info.is_file
            and info.mtime is not None
            and info.mtime.timestamp() < limit
        ):
            yield f"{scheme}://{info.path}"


def _delete(path: str) -> None:
    local = local_path(path)
    if local is not None:
        local.unlink(missing_ok=True)
        return
    filesystem, inside = fs.FileSystem.from_uri(path)
    filesystem.delete_file(inside)
