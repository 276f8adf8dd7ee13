"""A log of values in memory, with real leader epochs, in the place of a partition's log for simulations of the machines alone.

Owns what of it survives a power cut: all up to `recovery_point`, and a random part of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from headrace.broker.errors import InvalidRecordError, StorageError
from headrace.broker.log.epochs import LeaderEpochs
from headrace.broker.log.results import AppendResult, EpochEndOffset


class Entry(NamedTuple):
    """A message, and the epoch of the leader that appended it."""

    epoch: int
    value: bytes


class _NoDisk:
    """Of the epochs' file; memory holds the same."""

    def replace_file(self, path: str, data: bytes) -> None:
        pass


@dataclass(slots=True)
class StubConfig:
    min_insync_replicas: int = 2
    unclean_leader_election_enable: bool = False


@dataclass
class StubLog:
    """A replica's log; `is_full` while its disk is."""

    config: StubConfig = field(default_factory=StubConfig)
    entries: list[Entry] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=lambda: LeaderEpochs(_NoDisk(), "", []))  # type: ignore[arg-type]
    high_watermark: int = 0
    recovery_point: int = 0
    checkpoint: int = 0
    lost_end: int | None = None
    is_full: bool = False
    log_start_offset: int = 0
    awaits_sync: bool = False
    is_sync_due: bool = False
    is_mirror_copy: bool = False

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def epoch_end_offset(self, epoch: int) -> EpochEndOffset:
        return self.epochs.end_offset(epoch, self.log_end_offset)

    def assign_epoch(self, epoch: int) -> None:
        self._check_room()
        self.epochs.assign(epoch, self.log_end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))

    def sync(self) -> None:
        self.recovery_point = self.log_end_offset

    def truncate_to(self, offset: int) -> None:
        del self.entries[offset:]
        self.epochs.truncate_from_end(offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.checkpoint = min(self.checkpoint, offset)

    def reopened(self, power_cut: Random | None) -> StubLog:
        """What the next process finds."""
        end = self.log_end_offset
        if power_cut is not None:
            end = power_cut.randint(self.recovery_point, end)
        epochs = LeaderEpochs(_NoDisk(), "", self.epochs.entries)  # type: ignore[arg-type]
        epochs.opened(end)
        return StubLog(
            config=self.config,
            entries=self.entries[:end],
            epochs=epochs,
            high_watermark=min(self.checkpoint, end),
            recovery_point=min(self.recovery_point, end),
            checkpoint=self.checkpoint,
            lost_end=self.checkpoint if self.checkpoint > end else self.lost_end,
        )

    def append(self, values: list[bytes], epoch: int) -> AppendResult:
        """As a leader."""
        self._check_room()
        first = self.log_end_offset
        self.epochs.assign(epoch, first)
        self.entries += [Entry(epoch, value) for value in values]
        return AppendResult(first, self.log_end_offset - 1, -1, self.log_start_offset, 1)

    def append_fetched(self, offset: int, entries: list[Entry]) -> None:
        """As a follower: what lies at `offset` in the leader's log."""
        self._check_room()
        if offset != self.log_end_offset:
            raise InvalidRecordError(f"the log ends at {self.log_end_offset}, not at {offset}")
        for entry in entries:
            self.epochs.assign(entry.epoch, self.log_end_offset)
            self.entries.append(entry)

    def _check_room(self) -> None:
        if self.is_full:
            raise StorageError("No space left on device")
