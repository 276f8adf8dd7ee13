"""`headrace check-logs`: whether every batch in data directories is what was written.

Changes no log, and reads a bounded piece at a time and at a bounded rate, so that it may run beside the broker whose
directories they are. What looks damaged is read once more before it is told: a broker may have cut or replaced it meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import click

from headrace.broker.clock import SystemClock
from headrace.broker.log import names
from headrace.broker.log.checking import Damage, SegmentAtRest, damages
from headrace.broker.log.checkpoints import (
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    CheckpointError,
    decode_offsets,
)
from headrace.broker.log.files import OsFiles, advice
from headrace.broker.log.scrub_outcome import ScrubOutcome, read_outcome, write_outcome
from headrace.broker.log.throttle import Throttle
from headrace.broker.wire.partitions import PartitionKey

_PIECE_SIZE = 1024 * 1024
_PROGRESS_MS = 10_000
_MIB, _GIB = 2**20, 2**30
RecoveryPoints = Mapping[PartitionKey, int]
_ADVICE = (
    "If another replica is in sync, make this one anew, else keep it "
    "(docs/replication.md, When a replica is damaged)."
)


class SegmentPlace(NamedTuple):
    """Where a segment lies, and what its neighbours and the checkpoint say of it."""

    path: Path
    base_offset: int
    following_offset: int | None
    synced_offset: int


class Pace:
    """What has been read, not faster than allowed, and a line about it now and then."""

    def __init__(self, bytes_per_second: int, size_total: int) -> None:
        self._clock = SystemClock()
        self._throttle = Throttle()
        self._throttle.bytes_per_second = bytes_per_second
        self._size_total = size_total
        self._told_ms = self._clock.monotonic_ms()
        self.size_read = 0

    def read(self, size: int) -> None:
        """So many bytes more; returns when the next may be read."""
        self.size_read += size
        self._throttle.spend(size, self._clock.monotonic_ms())
        while wait_ms := self._throttle.wait_ms(self._clock.monotonic_ms()):
            time.sleep(wait_ms / 1000)
        if self._clock.monotonic_ms() - self._told_ms >= _PROGRESS_MS:
            self._told_ms = self._clock.monotonic_ms()
            told = f"{self.size_read / _GIB:,.1f} of {self._size_total / _GIB:,.1f} GiB read"
            click.echo(told, err=True)


class Recorder:
    """Keeps outcomes in the data directories as they are found, where that `is_wanted`."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        self._files = OsFiles()

    def checked(self, folder: Path, rotten_places: int) -> None:
        """A log was looked through."""
        self._keep(folder.parent, lambda known: known.checked(folder.name, rotten_places))

    def finished(self, directory: Path, folders: Sequence[Path]) -> None:
        """All logs of a directory were."""
        names_of_logs = {folder.name for folder in folders}
        self._keep(directory, lambda known: known.finished(time.time(), names_of_logs))

    def _keep(self, directory: Path, change: Callable[[ScrubOutcome], ScrubOutcome]) -> None:
        if not self._is_wanted:
            return
        with _reaching(directory):
            known = read_outcome(self._files, str(directory))
            found = change(known)
            if found != known:
                write_outcome(self._files, str(directory), found)


class PiecewiseFile:
    """A file of which one piece is in memory."""

    def __init__(self, descriptor: int, pace: Pace) -> None:
        self._descriptor = descriptor
        self._pace = pace
        self._piece, self._start = b"", 0

    def read_at(self, size: int, position: int) -> bytes:
        """As `Bytes.read_at`, but exactly `size` bytes. Raises OSError."""
        if not self._start <= position <= position + size <= self._start + len(self._piece):
            self._piece, self._start = os.pread(self._descriptor, max(size, _PIECE_SIZE), position), position
            self._pace.read(len(self._piece))
        at = position - self._start
        found = self._piece[at : at + size]
        if len(found) < size:
            raise OSError("the file became shorter")
        return found


@click.command(
    "check-logs",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: headrace check-logs /var/lib/headrace/data",
)
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    metavar="DIRECTORY...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--mib-per-second",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How much is read in a second, so that a broker on the same disk is not held up.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Keep the outcome in the data directories, where their broker's metrics tell of it.",
)
def check_logs(directories: tuple[Path, ...], mib_per_second: int, record: bool) -> None:
    """Check every batch in data directories, or in folders of partitions; exit 1 where one is damaged.

    No log is changed, and brokers may run meanwhile. Prints a line for each damaged place.
    """
    folders = {directory.absolute(): _folders(directory.absolute()) for directory in directories}
    places = _places_in([folder for logs in folders.values() for folder in logs])
    segments = [place for found in places.values() for place in found]
    pace = Pace(mib_per_second * _MIB, sum(_size(place.path) for place in segments))
    recorder, damaged = Recorder(is_wanted=record), 0
    for directory, logs in folders.items():
        for folder in logs:
            counts = [_tell_damage(place, pace) for place in places[folder]]
            recorder.checked(folder, sum(counts))
            damaged += sum(count > 0 for count in counts)
        if logs != [directory]:
            recorder.finished(directory, logs)
    click.echo(
        f"{pace.size_read / _MIB:,.1f} MiB read, {len(segments):,} segments of {len(places):,} logs: "
        f"{damaged:,} damaged."
    )
    if damaged:
        raise click.exceptions.Exit(1)


def _folders(directory: Path) -> list[Path]:
    """The folders of logs that a person means by `directory`."""
    with _reaching(directory):
        is_whole = (directory / META_PROPERTIES_FILE).exists()
        if not is_whole and names.partition_of(directory.name) is not None:
            return [directory]
        if not is_whole:
            raise click.UsageError(
                f"{directory} holds no logs: give a directory of log.dirs, or a partition's folder in one."
            )
        return sorted(
            path
            for path in directory.iterdir()
            if names.partition_of(path.name) is not None and path.is_dir()
        )


def _places_in(folders: Sequence[Path]) -> dict[Path, list[SegmentPlace]]:
    """The segments of each of these logs."""
    points = {directory: _recovery_points(directory) for directory in {folder.parent for folder in folders}}
    return {folder: _places(folder, points[folder.parent]) for folder in folders}


def _places(folder: Path, points: RecoveryPoints) -> list[SegmentPlace]:
    """The segments of a log; where `points` do not have it, nothing of the last one is vouched for."""
    with _reaching(folder):
        found = _segment_files(folder)
    key = names.parse_partition_directory(folder.name)
    synced_offset = points.get(key, 0) if key is not None else 0
    offsets = [(path, offset) for path in found if (offset := names.offset_of(path.name)) is not None]
    following = [offset for _, offset in offsets[1:]]
    return [
        SegmentPlace(path, offset, following_offset, synced_offset)
        for (path, offset), following_offset in zip_longest(offsets, following)
    ]


def _segment_files(folder: Path) -> list[Path]:
    """In offset order; none of a log that was deleted meanwhile."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == names.LOG_SUFFIX)
    except FileNotFoundError:
        return []


def _recovery_points(directory: Path) -> RecoveryPoints:
    """Those on the disk; none where a data directory's checkpoint is missing or cannot be understood."""
    with _reaching(directory):
        try:
            return decode_offsets((directory / RECOVERY_POINT_FILE).read_bytes())
        except (FileNotFoundError, CheckpointError):
            return {}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _tell_damage(place: SegmentPlace, pace: Pace) -> int:
    """Print what is wrong with a segment, if it is so twice; returns in how many places it is."""
    if not any(True for _ in _damages(place, pace)):
        return 0
    found = list(_damages_now(place, pace))
    for damage in found:
        click.echo(_sentence(place, damage))
    return len(found)


def _damages_now(place: SegmentPlace, pace: Pace) -> Iterator[Damage]:
    """The same beside its neighbours of now: a cleaning puts several segments into the first one's place."""
    folder = place.path.parent
    for found in _places(folder, _recovery_points(folder.parent)):
        if found.path == place.path:
            yield from _damages(found, pace)


def _damages(place: SegmentPlace, pace: Pace) -> Iterator[Damage]:
    """What is wrong with a segment; nothing, once retention has taken it."""
    try:
        descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        yield Damage(0, _size(place.path), place.base_offset, f"it cannot be opened: {error.strerror}")
        return
    try:
        _drop_cached(descriptor, place)
        yield from damages(_at_rest(descriptor, place, pace))
        _drop_cached(descriptor, place)
    finally:
        os.close(descriptor)


def _drop_cached(descriptor: int, place: SegmentPlace) -> None:
    """Have the disk asked, and the broker's own cache left alone; the last segment is what its clients read."""
    if place.following_offset is not None:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _at_rest(descriptor: int, place: SegmentPlace, pace: Pace) -> SegmentAtRest:
    return SegmentAtRest(
        base_offset=place.base_offset,
        size=os.fstat(descriptor).st_size,
        log=PiecewiseFile(descriptor, pace),
        following_offset=place.following_offset,
        synced_offset=place.synced_offset,
        next_offset=place.base_offset,
    )


def _sentence(place: SegmentPlace, damage: Damage) -> str:
    return (
        f"{place.path}: {damage.size:,} bytes at byte {damage.position:,}, from offset {damage.offset} on: "
        f"{damage.reason}. {_ADVICE}"
    )


@contextmanager
def _reaching(directory: Path) -> Iterator[None]:
    """One sentence for a directory that cannot be read or written."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"{directory}: {error.strerror}. {advice(error)}".rstrip()) from error
