"""What the log answers: plain values that cross its border. No behaviour but reading a slice."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.broker.log.files import File

Job = Callable[[], None]
"""What waits for the disk, for a thread to do; raises StorageError unless it says otherwise."""


class AppendResult(NamedTuple):
    """Where a leader's append went; for a repeated idempotent batch, where it went the first time.

    `log_append_time_ms` is -1 unless the topic stamps LogAppendTime. `batch_count` is 0 for a repeated batch.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    batch_count: int


class LogSlice(NamedTuple):
    """Bytes of one segment file: `size` bytes from `position`, the first of which begins a batch.

    The last batch may be cut, as in Kafka. The file stays open while the slice is referenced, even when retention
    has deleted it. `is_behind`: what may be read goes on in a later segment.
    """

    file: File | None
    position: int
    size: int
    is_behind: bool = False

    def read(self) -> bytes:
        """The bytes themselves; for a sendfile take `file.fileno()`, `position` and `size`."""
        return self.file.read_at(self.size, self.position) if self.file is not None and self.size else b""


NOTHING_YET = LogSlice(None, 0, 0)
"""What a read at the end of what may be read gives: this very object, until there is more."""


class TimestampOffset(NamedTuple):
    """A place in the log found by time. `leader_epoch` is -1 where none is known."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEndOffset(NamedTuple):
    """Answer to OffsetForLeaderEpoch (KIP-101, KIP-279): both -1 when the epoch is unknown."""

    leader_epoch: int
    end_offset: int


class DeletedSegment(NamedTuple):
    """A segment that retention or DeleteRecords took away."""

    base_offset: int
    next_offset: int
    size: int
    reason: str


class LogFinding(NamedTuple):
    """Something a person should know about one file of a log.

    `kind` is one of: `cut` (an unreadable tail removed), `rot` (bad bytes in flushed data, kept), `dropped` (a file
    beyond a cut tail removed), `rebuilt` (an index made anew), `discarded` (an unreadable snapshot or checkpoint),
    `retired` (a segment that retention took), `failed` (work on a log that its disk did not allow).
    """

    kind: str
    path: str
    position: int
    size: int
    reason: str


@dataclass(slots=True)
class RecoveryReport:
    """What opening one log found and did. `segments_walked` counts those that were checked batch by batch."""

    directory: str
    log_start_offset: int = 0
    log_end_offset: int = 0
    segments: int = 0
    segments_walked: int = 0
    findings: list[LogFinding] = field(default_factory=list)

    @property
    def bytes_cut(self) -> int:
        """Bytes of log (not of indexes) that recovery removed."""
        return sum(finding.size for finding in self.findings if finding.kind in ("cut", "dropped"))

    @property
    def rotten_places(self) -> int:
        """Stretches of bad bytes that recovery kept."""
        return sum(finding.kind == "rot" for finding in self.findings)
