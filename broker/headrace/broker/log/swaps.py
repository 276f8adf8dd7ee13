"""What a crash left of a cleaning, made whole when the log is opened, in Apache Kafka's way.

`.cleaned` files were not finished: they go, and with them every `.swap` at or above the first of them (a cleaning whose
files were not all renamed). Any other `.swap` replaces the segments that it was made from, even when none of those was
taken away yet. `.deleted` files are forgotten, and `.tmp` files, but for those that somebody made of
a segment's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import CorruptMessageError
from headrace.broker.log import names
from headrace.broker.log.files import Files
from headrace.broker.log.segments import new_segment

_LEFTOVERS = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX, names.TEMPORARY_SUFFIX)


def finish_swaps(files: Files, directory: str, config: LogConfig, now_ms: int) -> None:
    """Bring the names in `directory` to a state without leftovers. Raises OSError."""
    found = files.list_files(directory)
    if not any(name.endswith(_LEFTOVERS) for name in found):
        return
    for name in found:
        if name.endswith(names.DELETED_SUFFIX) or _is_unfinished(name):
            files.remove(f"{directory}/{name}")
    cleaned = list(_offsets(files, directory, names.CLEANED_SUFFIX))
    first_cleaned = min((offset for offset, _ in cleaned), default=None)
    for offset, name in list(_offsets(files, directory, names.SWAP_SUFFIX)):
        if first_cleaned is not None and offset >= first_cleaned:
            files.remove(f"{directory}/{name}")
    for _, name in cleaned:
        files.remove(f"{directory}/{name}")
    swaps = list(_offsets(files, directory, names.SWAP_SUFFIX))
    if not swaps:
        return
    for offset, name in swaps:
        if name.endswith(names.LOG_SUFFIX + names.SWAP_SUFFIX):
            end_offset = _end_of(files, directory, offset, config, now_ms)
            _remove_segments(files, directory, offset, end_offset)
    for _, name in swaps:
        path = f"{directory}/{name}"
        files.rename(path, path.removesuffix(names.SWAP_SUFFIX))
    files.sync_directory(directory)


def _is_unfinished(name: str) -> bool:
    return name.endswith(names.TEMPORARY_SUFFIX) and names.offset_of(name) is None


def _offsets(files: Files, directory: str, suffix: str) -> Iterator[tuple[int, str]]:
    for name in files.list_files(directory):
        offset = names.offset_of(name)
        if name.endswith(suffix) and offset is not None:
            yield offset, name


def _end_of(files: Files, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> int:
    """Where the last batch of a `.swap` ends."""
    segment = new_segment(files, directory, base_offset, config, now_ms, names.SWAP_SUFFIX)
    segment.size = segment.log.size()
    end_offset = base_offset
    with suppress(CorruptMessageError):
        for _, header in segment.walk():
            end_offset = header.next_offset
    return end_offset


def _remove_segments(files: Files, directory: str, base_offset: int, end_offset: int) -> None:
    for name in files.list_files(directory):
        offset = names.offset_of(name)
        if offset is not None and base_offset <= offset < end_offset and name[20:] in names.SEGMENT_SUFFIXES:
            files.remove(f"{directory}/{name}")
