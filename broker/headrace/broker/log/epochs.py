"""The leader epochs of one partition: from which offset on which leader wrote (KIP-101).

Owns `leader-epoch-checkpoint`. Invariants: epochs and start offsets grow together; memory is what the file holds and the
batches that recovery reads after an unclean stop make of it. So a new epoch reaches the file when the recovery point is to
pass it (`writing`), while an entry of the file that no longer holds is taken out of it before a batch comes that recovery
would not correct it by.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress

from headrace.broker.log.checkpoints import LEADER_EPOCH_FILE, encode_epochs
from headrace.broker.log.files import Files
from headrace.broker.log.names import TEMPORARY_SUFFIX
from headrace.broker.log.results import EpochEndOffset

UNDEFINED_EPOCH = -1


class LeaderEpochs:
    """See the module's text. Raises OSError, nothing being changed. `latest` is the newest epoch, -1 when none is known.

    An epoch that no batch has is lost in an unclean stop, and in a clean one: every opening drops it.
    """

    __slots__ = (
        "_directory",
        "_entries",
        "_files",
        "_is_contradicted",
        "_under_way",
        "_written",
        "is_written",
        "latest",
    )

    def __init__(self, files: Files, directory: str, entries: list[tuple[int, int]]) -> None:
        self._files = files
        self._directory = directory
        # What the file holds.
        self._written = entries
        # What a job is writing, if one is out; None instead of it once something else was written.
        self._under_way: list[list[tuple[int, int]] | None] = []
        self._have(entries)

    def _have(self, entries: list[tuple[int, int]]) -> None:
        self._entries = entries
        # The newest epoch; each append asks.
        self.latest = entries[-1][0] if entries else UNDEFINED_EPOCH
        # Whether no epoch is known that the file does not hold.
        self.is_written = self.latest <= _latest(self._written)
        # Recovery believes the batches of newer epochs than the file's, and else the file.
        self._is_contradicted = self.is_written and entries != self._written

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Batches from `start_offset` on have this epoch; entries that contradict it go."""
        if epoch >= 0 and epoch != self.latest:
            entries = self._with(epoch, start_offset)
            if epoch > _latest(self._written):
                self._have(entries)
            else:
                self._write(entries)
        elif self._is_contradicted:
            self._write(self._entries)

    def _with(self, epoch: int, start_offset: int) -> list[tuple[int, int]]:
        kept = [entry for entry in self._entries if entry[0] < epoch and entry[1] < start_offset]
        return [*kept, (epoch, start_offset)]

    # -- the file

    def write(self) -> None:
        """Have the file hold all epochs."""
        if not self.is_written:
            self._write(self._entries)

    @property
    def is_being_written(self) -> bool:
        """Whether a job is out."""
        return bool(self._under_way)

    def writing(self) -> Callable[[], None] | None:
        """A job for a thread that does `write`, but for the sync of the directory; None when there is nothing to do.

        Call `job_done` on the loop when it has ended, however. One job is out at a time.
        """
        if self.is_written:
            return None
        assert not self._under_way, "one job at a time"
        entries = self._entries
        under_way = self._under_way = [entries]

        def write() -> None:
            # The folder of a partition that was deleted meanwhile has another name.
            with suppress(FileNotFoundError):
                file = self._files.open(self._temporary, create=True)
                file.truncate(0)
                file.write_at(encode_epochs(entries), 0)
                file.sync()
                # Whoever writes meanwhile says so first, and then takes the file away.
                if under_way[0] is not None:
                    self._files.rename(self._temporary, self._path)
                    under_way.append(entries)

        return write

    def job_done(self) -> None:
        """The job of `writing` has ended, well or not."""
        before, *after = self._under_way
        self._under_way = []
        if before is not None and after:
            self._written = before
            self._have(self._entries)

    @property
    def _path(self) -> str:
        return f"{self._directory}/{LEADER_EPOCH_FILE}"

    @property
    def _temporary(self) -> str:
        return f"{self._path}.prepared{TEMPORARY_SUFFIX}"

    def _write(self, entries: list[tuple[int, int]]) -> None:
        """Have these entries, in the file too."""
        if self._under_way:
            self._under_way[0] = None
            self._files.remove(self._temporary)
        # What a job has written, if it has, nobody knows before it is done.
        if self._under_way or entries != self._written:
            self._files.replace_file(self._path, encode_epochs(entries))
        self._written = entries
        self._have(entries)

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


def _latest(entries: list[tuple[int, int]]) -> int:
    return entries[-1][0] if entries else UNDEFINED_EPOCH
