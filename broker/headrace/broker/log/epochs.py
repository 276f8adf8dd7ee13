"""The leader epochs of one partition: from which offset on which leader wrote (KIP-101).

Owns `leader-epoch-checkpoint`. Invariant: epochs and start offsets grow together; the file holds what memory holds, and
until the first change epochs that begin at or behind the end of the log that was opened, which every opening drops.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from headrace.broker.log.checkpoints import LEADER_EPOCH_FILE, encode_epochs
from headrace.broker.log.files import Files
from headrace.broker.log.names import TEMPORARY_SUFFIX
from headrace.broker.log.results import EpochEndOffset

UNDEFINED_EPOCH = -1


class LeaderEpochs:
    """See the module's text. Changes are on the disk when the call returns; raises OSError, nothing being changed.
    `latest` is the newest epoch, -1 when none is known.

    Only the name of a prepared file may not be there yet. It comes with the next segment or a clean stop, which sync the
    directory; until then every batch of that epoch lies in the last segment, which recovery reads.
    """

    __slots__ = ("_directory", "_entries", "_files", "_prepared", "_written", "latest")

    def __init__(self, files: Files, directory: str, entries: list[tuple[int, int]]) -> None:
        self._files = files
        self._directory = directory
        self._written = entries
        self._prepared: list[tuple[int, int]] | None = None
        self._have(entries)

    def _have(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        # The newest epoch; each append asks.
        self.latest = entries[-1][0] if entries else UNDEFINED_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Batches from `start_offset` on have this epoch; entries that contradict it go."""
        if epoch >= 0 and epoch != self.latest:
            self._write(self._with(epoch, start_offset))
        elif self._written is not self._entries:
            self._write(self._entries)

    def preparation(self, epoch: int, start_offset: int) -> Callable[[], None] | None:
        """A job for a thread, after which the same `assign` waits for no disk; None when there is nothing to assign."""
        if epoch < 0 or epoch == self.latest:
            return None
        entries = self._with(epoch, start_offset)
        if entries == self._written:
            return None

        def write() -> None:
            file = self._files.open(self._prepared_path, create=True)
            file.truncate(0)
            file.write_at(encode_epochs(entries), 0)
            file.sync()
            self._prepared = entries

        return write

    @property
    def _prepared_path(self) -> str:
        return f"{self._directory}/{LEADER_EPOCH_FILE}.prepared{TEMPORARY_SUFFIX}"

    def _with(self, epoch: int, start_offset: int) -> list[tuple[int, int]]:
        kept = [entry for entry in self._entries if entry[0] < epoch and entry[1] < start_offset]
        return [*kept, (epoch, start_offset)]

    def opened(self, log_end_offset: int) -> None:
        """The log that was opened ends there; writes nothing, as most logs get a new epoch there at once."""
        if self._entries and self._entries[-1][1] >= log_end_offset:
            self._have([entry for entry in self._entries if entry[1] < log_end_offset])

    def truncate_from_end(self, offset: int) -> None:
        """The log ends at `offset` now."""
        self._replace([entry for entry in self._entries if entry[1] < offset])

    def truncate_from_start(self, offset: int) -> None:
        """The log begins at `offset` now; the epoch that holds there begins there."""
        before = [entry for entry in self._entries if entry[1] <= offset]
        after = [entry for entry in self._entries if entry[1] > offset]
        self._replace([(before[-1][0], offset), *after] if before else after)

    def clear(self) -> None:
        """Forget all epochs."""
        self._replace([])

    def epoch_at(self, offset: int) -> int:
        """The epoch of the batch at `offset`; -1 when none is known."""
        found = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[found - 1][0] if found else UNDEFINED_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The largest epoch at most `epoch` and the offset where the next one begins (KIP-279)."""
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self.latest:
            return EpochEndOffset(UNDEFINED_EPOCH, -1)
        if epoch == self.latest:
            return EpochEndOffset(epoch, log_end_offset)
        found = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        next_start = self._entries[found][1]
        return EpochEndOffset(self._entries[found - 1][0] if found else epoch, next_start)

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        if entries != self._entries:
            self._write(entries)

    def _write(self, entries: list[tuple[int, int]]) -> None:
        """Have these entries, in the file too."""
        if entries != self._written:
            prepared, self._prepared = self._prepared, None
            path = f"{self._directory}/{LEADER_EPOCH_FILE}"
            if entries == prepared:
                self._files.rename(self._prepared_path, path)
            else:
                self._files.replace_file(path, encode_epochs(entries))
        self._written = entries
        self._have(entries)
