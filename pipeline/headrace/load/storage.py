"""A table's files through the table's own FileIO, so that an endpoint, a key or a region given for the catalog holds here too.

Owns listing and removing, which pyiceberg's FileIO has in part, and when two locations are one file. Must not know what a
file is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlparse

from pyarrow import fs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

REQUESTS_MAX: Final = 8
"""Requests at a time: a store answers each in some ten milliseconds."""


class Found(NamedTuple):
    """A file below a folder."""

    location: str
    modified_at: float
    """Seconds since the epoch by the store's clock."""


class UnlistedStoreError(Exception):
    """The table's FileIO has no way to list a folder."""


def filesystem_of(io: FileIO, location: str) -> tuple[Any, str]:
    """Return the Arrow filesystem behind a FileIO, with all its properties, and the location's path in it.

    Raises:
        UnlistedStoreError: it is a FileIO of somebody else's.
    """
    if isinstance(io, PyArrowFileIO):
        scheme, host, path = io.parse_location(location, io.properties)
        return io.fs_by_scheme(scheme, host), path
    # It takes a fifth of what a load imports, and few tables have it.
    from pyiceberg.io.fsspec import FsspecFileIO

    if isinstance(io, FsspecFileIO):
        parsed = urlparse(location)
        filesystem = io.get_fs(parsed.scheme or "file", parsed.hostname)
        return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), filesystem._strip_protocol(location)
    raise UnlistedStoreError(f"{type(io).__name__} cannot list {location}")


def files_below(io: FileIO, folder: str) -> Iterator[Found]:
    """Yield the files below a folder, none where there is no such folder; a file without a time is passed over.

    Raises:
        UnlistedStoreError
        OSError: the store does not answer.
    """
    filesystem, path = filesystem_of(io, folder)
    for info in filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True)):
        if info.is_file and info.mtime is not None and info.path.startswith(path):
            yield Found(folder + info.path[len(path) :], info.mtime.timestamp())


def remove(io: FileIO, locations: Iterable[str]) -> None:
    """Remove files; those that are gone already are no error."""

    def remove_one(location: str) -> None:
        with suppress(FileNotFoundError):
            io.delete(location)

    with ThreadPoolExecutor(REQUESTS_MAX) as pool:
        list(pool.map(remove_one, locations))


def local_path(location: str) -> Path | None:
    """Return the path of a file: URL or a bare path, None for anything remote."""
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return Path(parsed.path)
    return Path(location) if not parsed.scheme else None


def plain(location: str) -> str:
    """Return what two ways to write one location have in common: s3a://b/x is s3://b/x, file:/x is file:///x is /x."""
    scheme, colon, rest = location.partition(":")
    path = rest if colon and "/" not in scheme else location
    return "/" + "/".join(part for part in path.split("/") if part)
