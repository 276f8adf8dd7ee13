"""What a log consists of in one directory: segments, leader epochs, producers, and how far all that is on the disk.

Invariants: `log_end_offset` of the log that has this body is where the active segment ends, or, after a truncation into a
gap, above; one at a time works on it, the event loop or a thread's job. A log that moves to another directory goes on in
the body that was made there. Must not know: topics, who may see what, who appends, cleans or truncates.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.files import Files, storage_errors
from headrace.broker.log.flushing import Flusher
from headrace.broker.log.index import INT32_MAX
from headrace.broker.log.recovery import LoadedLog
from headrace.broker.log.segments import Segments
from headrace.broker.log.snapshots import ProducerSnapshots


class LogBody:
    """See the module's text. `producers` is what the batches up to the end tell of them."""

    __slots__ = ("directory", "epochs", "files", "flusher", "producers", "segments", "snapshots")

    def __init__(self, files: Files, directory: str, loaded: LoadedLog) -> None:
        self.files = files
        self.directory = directory
        self.segments = Segments(files, directory, loaded.segments, loaded.checked)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = ProducerSnapshots(files, directory)
        self.flusher = Flusher(
            files, directory, self.segments, self.epochs, self.snapshots, loaded.recovery_point
        )

    def storage_errors(self) -> AbstractContextManager[None]:
        """Errors of the disk become StorageError, naming the directory."""
        return storage_errors(self.files, self.directory)

    def roll(self, first_offset: int, last_offset: int, config: LogConfig, now_ms: int) -> None:
        """Begin a segment for batches with these offsets. Raises OSError, StorageError.

        It is named after the end of the one before, so that recovery can tell a legal gap from a lost tail. Only a
        gap wider than 32 bits cannot be inside a segment: then the tail must not get lost.
        """
        base_offset = self.segments.active.next_offset
        if last_offset - base_offset > INT32_MAX:
            self.flusher.flush(base_offset)
            base_offset = first_offset
        self.snapshots.write(base_offset, self.producers)
        self.segments.roll(base_offset, config, now_ms)

    def close(self) -> None:
        """Write the producers' snapshot, complete the indexes, sync everything; nothing may be called afterwards.

        A log that never had a batch has nothing that an opening would miss.
        """
        end_offset = self.segments.active.next_offset
        self.flusher.check()
        with self.storage_errors():
            self.segments.close()
            if end_offset:
                self.snapshots.write(end_offset, self.producers)
                self.segments.names_changed()
        if end_offset or not self.epochs.is_written:
            self.flusher.flush(end_offset)
