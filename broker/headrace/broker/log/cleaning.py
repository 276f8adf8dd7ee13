"""Cleaning one log: the order of work between the loop and a thread, and the swap of cleaned segments for old ones.

A thread reads old segments and writes `.cleaned` files, which it syncs; the loop renames them to `.swap`, the old files
to `.deleted` and `.swap` to the real names. Recovery finishes a swap that a crash interrupted and forgets a cleaning
that had not come so far (`swaps.py`). Invariants: nothing above the recovery point is cleaned, for a power cut must not
take the newer record whose presence cost the older one its place; a log truncated or retired meanwhile is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Protocol

from headrace.broker.config.topics import LogConfig
from headrace.broker.log import names
from headrace.broker.log.body import LogBody
from headrace.broker.log.compaction import (
    CleanerLimits,
    Dirt,
    OffsetMap,
    Rules,
    Source,
    Transactions,
    clean_batch,
    find_dirt,
    group,
    index_dirt,
)
from headrace.broker.log.results import Job
from headrace.broker.log.segment import Segment
from headrace.broker.log.segments import new_segment
from headrace.broker.outage import Outage
from headrace.broker.wire.batches import read_header


class CleanedLog(Protocol):
    """What is asked of the log whose body is cleaned."""

    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    is_truncating: bool

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def recovery_point(self) -> int: ...

    def flush_task(self) -> Callable[[], int] | None: ...

    def flushed(self, recovery_point: int | None) -> None: ...


class LogCleaner:
    """See the module's text; it cleans one body, whose log is given to each call.

    `clean_offset` is what cleaner-offset-checkpoint says of the log; `uncleanable` why it is left alone until it is
    opened again, or None; `outage` are the times that its disk had no room; `is_paused` while the log moves to another
    data directory.
    """

    __slots__ = ("_body", "_segments", "clean_offset", "is_paused", "outage", "uncleanable")

    def __init__(self, body: LogBody) -> None:
        self._body = body
        self._segments = body.segments
        self.clean_offset: int | None = None
        self.uncleanable: str | None = None
        self.outage = Outage()
        self.is_paused = False

    def log_ends_at(self, offset: int) -> None:
        """The log was truncated: what will lie above is dirty."""
        if self.clean_offset is not None:
            self.clean_offset = min(self.clean_offset, offset)

    def dirt(self, log: CleanedLog, now_ms: int) -> Dirt | None:
        """What a cleaning would go through, or None when there is no need of one."""
        found = self.find(log, now_ms)
        return found if found is not None and found.is_worth_it(log.config) else None

    def find(self, log: CleanedLog, now_ms: int) -> Dirt | None:
        """The same whether it is worth the work or not; None where nothing can be cleaned."""
        is_left_alone = self.uncleanable is not None or self.is_paused or log.is_truncating
        if "compact" not in log.config.cleanup_policy or is_left_alone or len(self._segments) == 1:
            return None
        return find_dirt(
            list(self._segments),
            log.config,
            clean_offset=self.clean_offset,
            log_start_offset=log.log_start_offset,
            upper_offset=min(log.last_stable_offset, log.recovery_point),
            now_ms=now_ms,
        )

    def clean(self, log: CleanedLog, dirt: Dirt, limits: CleanerLimits, now_ms: int) -> Generator[Job]:
        """Jobs for a thread, one after the other; what one has cleaned is swapped in when the next is asked for.

        Closing the iterator gives up what is not swapped in. A job raises CorruptMessageError, StorageError and what
        `limits.pace` raises.
        """
        generation = self._segments.generation
        old = [segment for segment in list(self._segments)[:-1] if segment.next_offset <= dirt.end_offset]
        latest: list[OffsetMap] = []
        sources = [Source.of(segment) for segment in old]

        if log.recovery_point < log.log_end_offset and not (yield from self._sync(log)):
            return
        aborted = [transaction for segment in self._segments for transaction in segment.transactions.all()]

        def index() -> None:
            latest.append(index_dirt(sources, dirt, aborted, limits))

        yield self._guarded(index)
        end_offset = latest[0].latest_offset + 1
        rules = Rules(
            latest[0],
            now_ms,
            log.config.delete_retention_ms,
            self._body.producers.last_batches(),
            Transactions(aborted, old[0].base_offset if old else 0),
            end_offset,
        )
        for segments in group([segment for segment in old if segment.base_offset < end_offset], log.config):
            if not self._may_swap(generation):
                return
            yield from self._clean_group(log, segments, rules, limits, generation)
        if self._may_swap(generation):
            yield self._guarded(lambda: self._body.files.sync_directory(self._body.directory))
            self.clean_offset = end_offset

    def _sync(self, log: CleanedLog) -> Generator[Job, None, bool]:
        """Bring the log to the disk; False when somebody else is at it.

        A marker decides what becomes of records far below it: it must not get lost with the power once they are gone.
        """
        task = log.flush_task()
        if task is None:
            return False
        answers: list[int] = []
        try:
            yield lambda: answers.append(task())
        finally:
            log.flushed(answers[0] if answers else None)
        return True

    def _may_swap(self, generation: int) -> bool:
        """Whether the log is still what it was at that generation, and where it was."""
        return self._segments.generation == generation and not self.is_paused

    def _guarded(self, job: Job) -> Job:
        def guarded() -> None:
            with self._body.storage_errors():
                job()

        return guarded

    def _clean_group(
        self,
        log: CleanedLog,
        segments: list[Segment],
        rules: Rules,
        limits: CleanerLimits,
        generation: int,
    ) -> Generator[Job]:
        with self._body.storage_errors():
            cleaned = new_segment(
                self._body.files,
                self._body.directory,
                segments[0].base_offset,
                log.config,
                segments[0].created_ms,
                names.CLEANED_SUFFIX,
            )
            cleaned.log.truncate(0)
            cleaned.begin_rebuild()
        sources = [Source.of(segment) for segment in segments]
        try:
            yield self._guarded(lambda: _fill(cleaned, sources, rules, limits))
            if self._may_swap(generation):
                with self._body.storage_errors():
                    self._swap(segments, cleaned, rules.now_ms, log.config.file_delete_delay_ms)
        finally:
            if cleaned.suffix == names.CLEANED_SUFFIX:
                with suppress(OSError):
                    cleaned.remove_files()

    def _swap(self, old: list[Segment], cleaned: Segment, now_ms: int, delay_ms: int) -> None:
        cleaned.next_offset = old[-1].next_offset
        cleaned.rename_files(names.SWAP_SUFFIX)
        self._segments.replace(old, cleaned, now_ms, delay_ms)
        vanished = {segment.base_offset for segment in old[1:]}
        self._body.snapshots.remove(lambda offset: offset in vanished)


def _fill(cleaned: Segment, sources: Sequence[Source], rules: Rules, limits: CleanerLimits) -> None:
    """Write what stays of `sources`, and bring it to the disk."""
    for source in sources:
        for header, batch in source.batches(limits):
            kept = clean_batch(header, batch, rules)
            if kept is not None:
                position = cleaned.write([kept])
                limits.pace(len(kept))
                cleaned.note(position, read_header(kept))
    for aborted in rules.transactions.still_aborted:
        cleaned.note_marker(aborted)
    rules.transactions.still_aborted.clear()
    cleaned.become_inactive()
    for file in cleaned.files_to_sync():
        file.sync()
