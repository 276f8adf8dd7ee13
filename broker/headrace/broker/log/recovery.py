"""Opening a log: which files belong to it, what a crash left of them, and what must go.

After a clean stop the files are believed. After any other, every batch of the segments that were not wholly synced is
checked: length, checksum, offsets that increase. In data that was never synced the log ends at the first bad batch, and
what lies behind it is cut. Bad bytes in synced data are rot: reported and kept, for cutting there would destroy what is
still good behind them; only an unreadable end of the log, with nothing behind it, is cut there too. Indexes are made
anew on the way. Producers come from the newest sound snapshot and the batches behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import CorruptMessageError
from headrace.broker.log import names
from headrace.broker.log.checkpoints import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    CheckpointError,
    decode_epochs,
    decode_partition_metadata,
    encode_partition_metadata,
)
from headrace.broker.log.epochs import LeaderEpochs
from headrace.broker.log.files import Files
from headrace.broker.log.index import INT32_MAX
from headrace.broker.log.producers import ProducerStates
from headrace.broker.log.progress import OpeningProgress
from headrace.broker.log.remembered_rot import recall
from headrace.broker.log.results import LogFinding, RecoveryReport
from headrace.broker.log.segment import Segment
from headrace.broker.log.segments import new_segment
from headrace.broker.log.snapshots import ProducerSnapshots
from headrace.broker.log.soundness import after_damage, check_batch
from headrace.broker.log.swaps import finish_swaps
from headrace.broker.wire.batches import BatchHeader


@dataclass(slots=True)
class LoadedLog:
    """What opening found: ready to be read from and appended to."""

    segments: list[Segment]
    checked: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    topic_id: UUID | None
    log_start_offset: int
    recovery_point: int


def load(
    files: Files,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    recovery_point: int,
    clean_shutdown: bool,
    log_start_offset: int,
    topic_id: UUID | None,
    progress: OpeningProgress,
) -> tuple[LoadedLog, RecoveryReport]:
    """Open or make the log in `directory`. Raises OSError."""
    report = RecoveryReport(directory)
    topic_id = _make_directory(files, directory, topic_id, report)
    finish_swaps(files, directory, config, now_ms)
    segments = _find_segments(files, directory, config, now_ms, log_start_offset)
    loading = _Loading(files, directory, config, recovery_point, report, progress)
    segments = loading.recover(segments, clean_shutdown)
    recall(files, directory, segments, loading.walked, report)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    if log_start_offset > segments[-1].next_offset:
        segments = _restart(files, directory, config, now_ms, log_start_offset, segments)
    end_offset = segments[-1].next_offset
    if not clean_shutdown and recovery_point <= segments[-1].base_offset:
        _sync_truncation(files, directory, segments)
    segments[-1].become_active()
    epochs = _load_epochs(files, directory, segments, loading.epochs, report)
    epochs.opened(end_offset)
    epochs.truncate_from_start(log_start_offset)
    snapshots = ProducerSnapshots(files, directory)
    unindexed = [segment for segment in loading.unindexed if segment in segments]
    producers, findings = snapshots.restore(segments, end_offset, {s.base_offset for s in unindexed})
    _sync_transactions(files, directory, unindexed)
    report.findings += findings
    report.log_start_offset, report.log_end_offset = log_start_offset, end_offset
    report.segments = len(segments)
    loaded = LoadedLog(
        segments=segments,
        checked=[segment for segment in loading.checked if segment in segments[:-1]],
        epochs=epochs,
        producers=producers,
        topic_id=topic_id,
        log_start_offset=log_start_offset,
        recovery_point=min(recovery_point, end_offset),
    )
    return loaded, report


def _sync_truncation(files: Files, directory: str, segments: list[Segment]) -> None:
    """A kill may have kept a truncation from the disk: what it took must not come back in the place of other batches."""
    if segments[-1].size or len(segments) > 1:
        segments[-1].log.sync()
        files.sync_directory(directory)


def _sync_transactions(files: Files, directory: str, segments: list[Segment]) -> None:
    """Indexes that were made anew last before the log is used: the next start may not check these segments again."""
    made = [file for segment in segments for file in segment.transactions.files_to_sync()]
    for file in made:
        file.sync()
    if made:
        files.sync_directory(directory)


def _make_directory(
    files: Files, directory: str, topic_id: UUID | None, report: RecoveryReport
) -> UUID | None:
    files.make_directory(directory)
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    if files.exists(path):
        try:
            return decode_partition_metadata(files.read(path))
        except CheckpointError as error:
            report.findings.append(LogFinding("discarded", path, 0, files.size(path), str(error)))
    if topic_id is not None:
        files.replace_file(path, encode_partition_metadata(topic_id))
    return topic_id


def _find_segments(
    files: Files, directory: str, config: LogConfig, now_ms: int, log_start_offset: int
) -> list[Segment]:
    by_suffix: dict[str, set[int]] = {}
    for name in files.list_files(directory):
        offset = names.offset_of(name)
        if offset is not None:
            by_suffix.setdefault(name[20:], set()).add(offset)
    bases = by_suffix.get(names.LOG_SUFFIX, set())
    for suffix in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TRANSACTION_INDEX_SUFFIX):
        for orphan in by_suffix.get(suffix, set()) - bases:
            files.remove(f"{directory}/{names.segment_file(orphan, suffix)}")
    segments = []
    for base_offset in sorted(bases) or [log_start_offset]:
        segment = new_segment(files, directory, base_offset, config, now_ms)
        segment.size = segment.log.size()
        segment.transactions.exists = base_offset in by_suffix.get(names.TRANSACTION_INDEX_SUFFIX, ())
        segments.append(segment)
    return segments


def _restart(
    files: Files, directory: str, config: LogConfig, now_ms: int, offset: int, segments: list[Segment]
) -> list[Segment]:
    """All that is left lies below the log start offset: begin there."""
    for segment in segments:
        for path in segment.mark_deleted():
            files.remove(path)
    files.sync_directory(directory)
    return [new_segment(files, directory, offset, config, now_ms)]


class _Loading:
    """One pass over the segments, oldest first."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        recovery_point: int,
        report: RecoveryReport,
        progress: OpeningProgress,
    ) -> None:
        self._progress = progress
        self._files = files
        self._directory = directory
        self._config = config
        self._is_compacted = "compact" in config.cleanup_policy
        self._recovery_point = recovery_point
        self._report = report
        self.checked: list[Segment] = []
        self.walked: list[Segment] = []
        # Those whose transaction indexes, cleared now, are to be made anew.
        self.unindexed: list[Segment] = []
        # (epoch, start offset) as the checked batches tell it.
        self.epochs: list[tuple[int, int]] = []

    def recover(self, segments: list[Segment], clean_shutdown: bool) -> list[Segment]:
        """Make every segment's size, end and indexes right; returns those that remain."""
        for number, segment in enumerate(segments):
            following = segments[number + 1] if number + 1 < len(segments) else None
            if self._is_trusted(segment, following, clean_shutdown):
                self._trust(segment, following)
                self._trust_transactions(segment)
                continue
            size = segment.size
            reaches_end = self._check(segment, following is None)
            self._progress.checking(self._directory, size)
            if following is not None and not (reaches_end and self._continues(segment, following)):
                self._drop(segments[number + 1 :])
                return segments[: number + 1]
        return segments

    def _is_trusted(self, segment: Segment, following: Segment | None, clean_shutdown: bool) -> bool:
        if following is not None:
            return clean_shutdown or following.base_offset <= self._recovery_point
        return clean_shutdown and self._ends_well(segment)

    def _ends_well(self, segment: Segment) -> bool:
        """Whether the last segment's file ends with a whole batch, as far as headers tell."""
        if not self._has_indexes(segment) or not segment.index.looks_valid(segment.size):
            return False
        position, next_offset = 0, segment.base_offset
        try:
            last_entry = segment.index.last()
            for position, header in segment.walk(0 if last_entry is None else last_entry[1]):
                if (
                    not next_offset
                    <= header.base_offset
                    <= header.last_offset
                    <= segment.base_offset + INT32_MAX
                ):
                    return False
                position, next_offset = position + header.size, header.next_offset
        except CorruptMessageError:
            return False
        segment.next_offset = next_offset
        return position == segment.size and segment.time_index.looks_valid(next_offset)

    def _has_indexes(self, segment: Segment) -> bool:
        return all(
            self._files.exists(segment.path(suffix))
            for suffix in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
        )

    def _trust(self, segment: Segment, following: Segment | None) -> None:
        if following is None:
            return
        segment.next_offset = following.base_offset
        has_indexes = self._has_indexes(segment)
        is_long = segment.size > 4 * (self._config.index_interval_bytes + 4096)
        is_sound = (
            has_indexes
            and segment.index.is_trimmed()
            and segment.index.looks_valid(segment.size)
            and segment.time_index.is_trimmed()
        )
        if not is_sound or (is_long and segment.index.last() is None):
            segment.rebuild_indexes()
            self.checked.append(segment)
            if not is_sound or segment.index.last() is not None:
                self._report_rebuilt(
                    segment, "it was missing, empty, not cut to its entries or not of this log"
                )

    def _trust_transactions(self, segment: Segment) -> None:
        if not segment.transactions.looks_valid(segment.base_offset, segment.next_offset):
            segment.transactions.clear()
            self.unindexed.append(segment)
            self.checked.append(segment)
            self._report_rebuilt(segment, "its entries cannot be right", names.TRANSACTION_INDEX_SUFFIX)

    def _report_rebuilt(self, segment: Segment, reason: str, suffix: str = names.INDEX_SUFFIX) -> None:
        path = segment.path(suffix)
        self._report.findings.append(LogFinding("rebuilt", path, 0, 0, reason))

    def _continues(self, segment: Segment, following: Segment) -> bool:
        """Whether `following` begins where `segment` ends: a hole between them is a lost tail of unsynced data."""
        if segment.next_offset > following.base_offset:
            return False
        is_sound = (
            segment.next_offset == following.base_offset
            or following.base_offset <= self._recovery_point
            or following.base_offset - segment.base_offset > INT32_MAX
        )
        return is_sound or self._is_compacted

    def _drop(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            path = segment.path(names.LOG_SUFFIX)
            reason = "it lies beyond the end of the sound data"
            self._report.findings.append(LogFinding("dropped", path, 0, segment.size, reason))
            for deleted in segment.mark_deleted():
                self._files.remove(deleted)
        # Lasting before the log grows again: it must not find them behind its new end after a power cut.
        self._files.sync_directory(self._directory)

    def _check(self, segment: Segment, is_last: bool) -> bool:
        """Walk one segment batch by batch; returns whether its file is sound to the end, rot apart."""
        self._report.segments_walked += 1
        self.walked.append(segment)
        self.checked.append(segment)
        segment.begin_rebuild()
        if not segment.transactions.is_empty:
            segment.transactions.clear()
            self.unindexed.append(segment)
        position, rot_end = 0, -1
        while position < segment.size:
            header, problem = check_batch(segment, position)
            if header is not None and problem is None and position != rot_end:
                problem = self._displacement(segment, position, header, is_last)
            if header is not None and problem is None:
                self._take(segment, position, header)
                position += header.size
                continue
            following = self._after_rot(segment, position, header, is_last)
            if following is None:
                self._cut(segment, position, problem or "")
                segment.end_rebuild()
                return False
            self._report_rot(segment, position, following - position, problem or "")
            position = rot_end = following
        segment.end_rebuild()
        return True

    def _displacement(
        self, segment: Segment, position: int, header: BatchHeader, is_last: bool
    ) -> str | None:
        """What is wrong with the base offset of a sound batch in synced data; no checksum covers it.

        It has rotted where the batches behind go on below it, or where it skips the end of what was synced, unless
        compaction took what lay there.
        """
        if header.base_offset == segment.next_offset or segment.next_offset >= self._recovery_point:
            return None
        end = position + header.size
        following, problem = check_batch(segment, end) if end < segment.size else (None, None)
        is_displaced = (
            following.base_offset <= header.last_offset
            if following is not None and problem is None
            else header.base_offset >= self._recovery_point and (is_last or not self._is_compacted)
        )
        return f"the base offset {header.base_offset} is not where it belongs" if is_displaced else None

    def _take(self, segment: Segment, position: int, header: BatchHeader) -> None:
        segment.note(position, header)
        if header.is_control and segment not in self.unindexed[-1:]:
            self.unindexed.append(segment)
        if header.leader_epoch >= 0 and (not self.epochs or header.leader_epoch > self.epochs[-1][0]):
            self.epochs.append((header.leader_epoch, header.base_offset))

    def _after_rot(
        self, segment: Segment, position: int, header: BatchHeader | None, is_last: bool
    ) -> int | None:
        """Where to go on after bad bytes in synced data; None where the log has to end at `position`."""
        if segment.next_offset >= self._recovery_point:
            return None
        following = after_damage(segment, position, header)
        if following == segment.size and is_last:
            segment.next_offset = self._recovery_point
        return following if following is not None or is_last else segment.size

    def _cut(self, segment: Segment, position: int, problem: str) -> None:
        size = segment.size - position
        path = segment.path(names.LOG_SUFFIX)
        self._report.findings.append(LogFinding("cut", path, position, size, problem))
        segment.log.truncate(position)
        segment.log.sync()
        segment.size = position

    def _report_rot(self, segment: Segment, position: int, size: int, problem: str) -> None:
        path = segment.path(names.LOG_SUFFIX)
        self._report.findings.append(LogFinding("rot", path, position, size, problem))


def _load_epochs(
    files: Files,
    directory: str,
    segments: list[Segment],
    checked: list[tuple[int, int]],
    report: RecoveryReport,
) -> LeaderEpochs:
    path = f"{directory}/{LEADER_EPOCH_FILE}"
    entries: list[tuple[int, int]] = []
    if files.exists(path):
        try:
            entries = decode_epochs(files.read(path))
        except CheckpointError as error:
            report.findings.append(LogFinding("discarded", path, 0, files.size(path), str(error)))
            checked = _epochs_in(segments)
    epochs = LeaderEpochs(files, directory, entries)
    for epoch, start_offset in checked:
        if epoch > epochs.latest:
            epochs.assign(epoch, start_offset)
    return epochs


def _epochs_in(segments: list[Segment]) -> list[tuple[int, int]]:
    """The epochs that the batches themselves tell, for a log whose checkpoint is unreadable."""
    found: list[tuple[int, int]] = []
    for segment in segments:
        try:
            for _, header in segment.walk():
                if header.leader_epoch >= 0 and (not found or header.leader_epoch > found[-1][0]):
                    found.append((header.leader_epoch, header.base_offset))
        except CorruptMessageError:
            continue
    return found
