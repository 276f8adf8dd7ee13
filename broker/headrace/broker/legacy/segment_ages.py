"""When the segments of a log were last written: what ListOffsets knew of time before messages had timestamps."""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.log import names
from headrace.broker.log.files import Files, storage_errors


class SegmentAge(NamedTuple):
    """One `.log` file."""

    base_offset: int
    size: int
    modified_ms: int


def segment_ages(files: Files, directory: str) -> list[SegmentAge]:
    """Every segment of the log in `directory`, by offset. Raises StorageError."""
    with storage_errors(files, directory):
        found = []
        for name in files.list_files(directory):
            base_offset = names.offset_of(name)
            if base_offset is not None and name.endswith(names.LOG_SUFFIX):
                path = f"{directory}/{name}"
                found.append(SegmentAge(base_offset, files.size(path), files.modified_ms(path)))
        return sorted(found)
