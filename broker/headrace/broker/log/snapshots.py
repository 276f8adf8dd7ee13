"""The producers' snapshots of one log: `<offset>.snapshot` holds the state before that offset.

They are written on roll and close without waiting for the disk; a torn one fails its checksum and an older one, plus the
batches behind it, gives the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import suppress

from headrace.broker.errors import CorruptMessageError
from headrace.broker.log import names
from headrace.broker.log.files import File, Files
from headrace.broker.log.producers import ProducerStates, SnapshotError
from headrace.broker.log.results import LogFinding
from headrace.broker.log.segment import Place, Segment
from headrace.broker.log.transactions import AbortedTransaction


class ProducerSnapshots:
    """The snapshot files in one log's directory. All methods may raise OSError."""

    __slots__ = ("_directory", "_files", "_unsynced")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._unsynced: list[File] = []

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{names.segment_file(offset, names.SNAPSHOT_SUFFIX)}"

    def offsets(self) -> list[int]:
        """Offsets of the snapshots there are, newest first."""
        snapshots = [
            name for name in self._files.list_files(self._directory) if name.endswith(names.SNAPSHOT_SUFFIX)
        ]
        return sorted(
            (offset for name in snapshots if (offset := names.offset_of(name)) is not None), reverse=True
        )

    def write(self, offset: int, states: ProducerStates) -> None:
        """Write one; it is on the disk after the next flush."""
        snapshot = self._files.open(self._path(offset), create=True)
        snapshot.truncate(0)
        snapshot.write_at(states.encode(), 0)
        self._unsynced.append(snapshot)

    def take_unsynced(self) -> list[File]:
        """Files written since the last call, to be synced by the caller."""
        unsynced, self._unsynced = self._unsynced, []
        return unsynced

    def remove(self, is_unwanted: Callable[[int], bool]) -> bool:
        """Remove those whose offset `is_unwanted`; whether there were any. It lasts once the directory is synced."""
        unwanted = [offset for offset in self.offsets() if is_unwanted(offset)]
        for offset in unwanted:
            self._files.remove(self._path(offset))
        return bool(unwanted)

    def restore(
        self, segments: Iterable[Segment], end_offset: int, unindexed: Container[int] = ()
    ) -> tuple[ProducerStates, list[LogFinding]]:
        """The state at the log's end: the newest sound snapshot and the batches behind it.

        Makes anew the transaction indexes of the segments whose base offsets are in `unindexed`, which must be empty:
        then the snapshot is one from before them.
        """
        segments = list(segments)
        self._forget_above(end_offset)
        upto = min((s.base_offset for s in segments if s.base_offset in unindexed), default=end_offset)
        states, offset, findings = self._newest(segments[0].base_offset, upto)
        for segment in segments:
            if segment.next_offset > offset:
                # Behind unreadable bytes, which recovery has reported, nobody can tell what producers wrote.
                with suppress(CorruptMessageError):
                    replay(states, segment, offset, is_unindexed=segment.base_offset in unindexed)
        return states, findings

    def _forget_above(self, end_offset: int) -> None:
        """Lasting before other batches get these offsets: then a power cut that brought one back would have it believed."""
        if self.remove(lambda offset: offset > end_offset):
            self._files.sync_directory(self._directory)

    def _newest(self, start_offset: int, upto: int) -> tuple[ProducerStates, int, list[LogFinding]]:
        findings: list[LogFinding] = []
        for offset in self.offsets():
            path = self._path(offset)
            if offset > upto:
                continue
            # Below the first segment it would miss batches that retention took.
            if start_offset <= offset:
                data = self._files.read(path)
                try:
                    return ProducerStates.decode(data), offset, findings
                except SnapshotError as error:
                    findings.append(LogFinding("discarded", path, 0, len(data), str(error)))
            self._files.remove(path)
        return ProducerStates(), 0, findings


def replay(states: ProducerStates, segment: Segment, offset: int, *, is_unindexed: bool = False) -> None:
    """Take in the segment's batches from `offset` on, and what they abort into its transaction index."""
    place = segment.find(offset)
    if place is None:
        return
    for found in segment.walk(place.position):
        if found.header.producer_id >= 0:
            aborted = _take_in(states, segment, found)
            if is_unindexed:
                segment.note_marker(aborted)


def _take_in(states: ProducerStates, segment: Segment, place: Place) -> AbortedTransaction | None:
    header = place.header
    batch = segment.log.read_at(header.size, place.position) if header.is_control else b""
    return states.note(batch, 0, header, header.base_offset)
