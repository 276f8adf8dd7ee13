"""The segments of one log, oldest first: rolling on, looking up, taking away.

Invariants: at least one segment, the last one active; each begins where the one before ends, or (after a gap wider than
32 bits, or a cleaning) above. A new segment's name is not on the disk before a flush has synced the directory.
Must not know: producers, epochs, who asks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from zlib import crc32

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.deleted import Deleted
from headrace.broker.log.files import File, Files
from headrace.broker.log.results import DeletedSegment, LogSlice
from headrace.broker.log.retention import SegmentFacts
from headrace.broker.log.segment import Segment
from headrace.broker.log.transactions import AbortedTransaction

EMPTY_SLICE = LogSlice(None, 0, 0)


def new_segment(
    files: Files, directory: str, base_offset: int, config: LogConfig, now_ms: int, suffix: str = ""
) -> Segment:
    """A segment object for files that exist or are about to."""
    return Segment(
        files,
        directory,
        base_offset,
        index_size_max=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        now_ms=now_ms,
        preallocated_size=config.segment_bytes if config.preallocate and not suffix else 0,
        suffix=suffix,
    )


class Segments:
    """See the module's text. All methods may raise OSError."""

    __slots__ = (
        "_deleted",
        "_directory",
        "_files",
        "_has_unsynced_names",
        "_rolled",
        "_segments",
        "active",
        "generation",
        "limits",
    )

    def __init__(
        self, files: Files, directory: str, segments: list[Segment], unsynced: list[Segment]
    ) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._deleted = Deleted()
        self._has_unsynced_names = True
        # Rolled or checked since the last flush: their indexes were changed after their data was synced, maybe.
        self._rolled = unsynced
        self.active = segments[-1]
        # How many bytes, and for how long, the active segment takes; see `use_config`.
        self.limits = (0, 0)
        # Grows when segments are taken away: whoever works on some of them finds out.
        self.generation = 0

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def size(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.size for segment in self._segments)

    def roll(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        """Make a new active segment that begins at `base_offset`."""
        if self.active.size == 0 and self.active.base_offset == base_offset:
            return
        segment = new_segment(self._files, self._directory, base_offset, config, now_ms)
        try:
            segment.log.truncate(0)
            segment.begin_rebuild()
            segment.become_active()
            self.active.become_inactive()
        except OSError:
            with suppress(OSError):
                self._remove_files([segment])
            raise
        self._has_unsynced_names = True
        self._rolled.append(self.active)
        self._segments.append(segment)
        self.active = segment
        self.use_config(config)

    def use_config(self, config: LogConfig) -> None:
        """Take the limits from it: the time less a part of segment.jitter.ms that differs by partition and segment."""
        segment_ms = config.segment_ms
        if "compact" in config.cleanup_policy:
            # What lies in the active segment is not compacted.
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        jitter_ms = min(config.segment_jitter_ms, segment_ms)
        # No accident, yet another one for each.
        seed = f"{self._directory}-{self.active.base_offset}".encode()
        less_ms = crc32(seed) % jitter_ms if jitter_ms else 0
        self.limits = (config.segment_bytes, segment_ms - less_ms)

    @property
    def has_rolled(self) -> bool:
        """Whether a segment was rolled, or checked by recovery, since the last flush."""
        return bool(self._rolled)

    def read(self, offset: int, size_max: int, upper_offset: int, at_least_one: bool) -> LogSlice:
        """See PartitionLog.read; `offset` lies inside the log and below `upper_offset`."""
        for number in range(self._number(offset), len(self._segments)):
            segment = self._segments[number]
            position = segment.position_of(offset)
            if position is not None:
                found = _slice(segment, position, size_max, upper_offset, at_least_one)
                is_behind = (
                    segment is not self.active and upper_offset >= self._segments[number + 1].base_offset
                )
                return found._replace(is_behind=True) if is_behind else found
        return EMPTY_SLICE

    def aborted(self, offset: int, found: LogSlice) -> list[AbortedTransaction]:
        """The aborted transactions in a slice that was read from `offset`, and perhaps some behind it."""
        later = self._segments[self._number(offset) :]
        candidates = [segment for segment in later if not segment.transactions.is_empty]
        if not candidates:
            return []
        end_offset = _end_of_slice(later, found)
        transactions: list[AbortedTransaction] = []
        for segment in candidates:
            more, is_whole = segment.transactions.overlapping(offset, end_offset)
            transactions += more
            if is_whole:
                break
        return transactions

    def _number(self, offset: int) -> int:
        """Number of the segment that holds `offset`, or would."""
        if offset >= self.active.base_offset:
            return len(self._segments) - 1
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    def base_offset_at(self, offset: int) -> int:
        """Base offset of the segment that holds `offset`, or the one before where it begins one."""
        return self._segments[self._number(offset - 1)].base_offset

    def end_at(self, offset: int) -> int:
        """Where the segment that holds `offset` ends."""
        return self._segments[self._number(offset)].next_offset

    def facts(self) -> list[SegmentFacts]:
        """What retention wants to know; an empty active segment is left out."""
        return [
            SegmentFacts(
                segment.base_offset, segment.next_offset, segment.size, segment.retention_timestamp_ms()
            )
            for segment in self._segments
            if segment.size or segment is not self.active
        ]

    def take_first(self, reasons: list[str], now_ms: int, delay_ms: int) -> list[DeletedSegment]:
        """Rename the files of the first segments, one for each reason; `remove_due` removes them after the delay."""
        deleted = []
        self.generation += 1
        for reason in reasons:
            segment = self._segments[0]
            self._delete(segment, now_ms, delay_ms)
            del self._segments[0]
            self._has_unsynced_names = True
            deleted.append(DeletedSegment(segment.base_offset, segment.next_offset, segment.size, reason))
        return deleted

    def replace(self, old: list[Segment], cleaned: Segment, now_ms: int, delay_ms: int) -> None:
        """Put `cleaned`, whose files end with `.swap`, in the place of neighbours; see `take_first` for their files."""
        start = self._segments.index(old[0])
        for segment in old:
            self._delete(segment, now_ms, delay_ms)
        cleaned.rename_files("")
        self._segments[start : start + len(old)] = [cleaned]
        self._has_unsynced_names = True

    def remove_due(self, now_ms: int) -> None:
        """Remove the deleted files whose delay is over."""
        for path in self._deleted.due(now_ms):
            self._files.remove(path)

    def _delete(self, segment: Segment, now_ms: int, delay_ms: int) -> None:
        for path in segment.mark_deleted():
            self._deleted.add(path, now_ms, delay_ms)

    def part_from(self, offset: int) -> None:
        """`truncate_to` is about to drop everything at and above `offset`: see Segment.part_from."""
        self._segments[self._number(offset - 1)].part_from(offset)

    def truncate_to(self, offset: int) -> None:
        """Drop everything at and above `offset`, which lies above the first segment's base offset."""
        self.generation += 1
        kept = [segment for segment in self._segments if segment.base_offset < offset] or self._segments[:1]
        dropped = self._segments[len(kept) :]
        # Newest first: a crash in between must leave no hole in the log.
        self._remove_files(dropped[::-1])
        kept[-1].truncate_to(offset)
        self._segments = kept
        self.active = kept[-1]
        self.active.become_active()
        # What was dropped must not come back after a crash, behind other batches with the same offsets.
        self.active.log.sync()
        self._files.sync_directory(self._directory)

    def restart_at(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        """Drop everything and begin anew with an empty segment at `base_offset`."""
        self.generation += 1
        self._remove_files(self._segments[::-1])
        segment = new_segment(self._files, self._directory, base_offset, config, now_ms)
        segment.log.truncate(0)
        segment.begin_rebuild()
        segment.become_active()
        self._segments = [segment]
        self.active = segment
        self._files.sync_directory(self._directory)

    def _remove_files(self, segments: list[Segment]) -> None:
        for segment in segments:
            for path in segment.mark_deleted():
                self._files.remove(path)
        self._has_unsynced_names = True

    def unsynced(self, recovery_point: int) -> tuple[list[File], bool]:
        """Files with data above `recovery_point`, and whether the directory has to be synced too.

        The answer about the directory is given once: whoever asks has to sync it, or ask for it again with
        `names_changed`.
        """
        files: list[File] = []
        for segment in self._segments:
            if segment.next_offset > recovery_point or segment is self.active or segment in self._rolled:
                files += segment.files_to_sync()
        self._rolled.clear()
        has_unsynced_names, self._has_unsynced_names = self._has_unsynced_names, False
        return files, has_unsynced_names

    def names_changed(self) -> None:
        """The directory has to be synced with the next flush."""
        self._has_unsynced_names = True

    def close(self) -> None:
        """Complete and trim the active segment's indexes."""
        self.active.become_inactive()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _end_of_slice(segments: list[Segment], found: LogSlice) -> int:
    """An offset above all that lie in a slice of one of `segments`; its index tells it, if not exactly."""
    segment = next(segment for segment in segments if segment.log is found.file)
    behind = segment.index.offset_behind(found.position + found.size)
    return segment.next_offset if behind is None else behind


def _slice(segment: Segment, position: int, size_max: int, upper_offset: int, at_least_one: bool) -> LogSlice:
    end = segment.size if upper_offset >= segment.next_offset else segment.position_of(upper_offset)
    available = (segment.size if end is None else end) - position
    if available <= 0:
        return EMPTY_SLICE
    if available > size_max:
        first_size = segment.batch_size_at(position)
        if size_max < first_size:
            size_max = first_size if at_least_one else 0
        available = min(available, size_max)
    return LogSlice(segment.log, position, available)
