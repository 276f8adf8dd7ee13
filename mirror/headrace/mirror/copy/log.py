"""A copy's log: as the copier uses it (`Target`), and as a leadership of this broker's offers it (`LedTarget`).

Of its end it says the last batch, which is compared with the source's, and when it was written to last.
"""

from __future__ import annotations

from typing import Protocol

from headrace.broker.errors import KafkaError, NotLeaderOrFollowerError
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import AppendResult
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.wire.batches import HEADER_SIZE, BatchHeader, read_header
from headrace.mirror.memory.lead import Lead


class Target(Protocol):
    """The local log as the copier uses it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def is_committed(self) -> bool:
        """Whether all of it is: the next leader has it, too."""
        ...

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether `min.insync.replicas` replicas are in sync, of what is a copy; otherwise it takes nothing."""
        ...

    def append(self, records: memoryview) -> AppendResult:
        """Append whole batches with their own offsets; raises KafkaErrors and then changes nothing."""
        ...

    def start_at(self, offset: int) -> None:
        """Begin the empty log at `offset`."""
        ...

    def last_batch(self) -> BatchHeader | None:
        """The header of the batch that ends at the log's end; None when none does."""
        ...


class LedTarget:
    """The local log behind a copier's `Target`, for as long as the leadership lasts."""

    def __init__(self, host: EmbeddingHost, lead: Lead) -> None:
        self._host = host
        self._lead = lead
        self._partition = lead.partition
        self._log = lead.partition.log

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def is_committed(self) -> bool:
        return self._partition.high_watermark >= self._log.log_end_offset

    @property
    def has_enough_in_sync(self) -> bool:
        # Clients write to it once it was promoted, which the mirror looks for every few seconds only.
        return self._log.is_mirror_copy and not self._partition.is_under_min_isr

    def append(self, records: memoryview) -> AppendResult:
        self._check()
        return self._host.append_mirrored(self._partition, records)

    def start_at(self, offset: int) -> None:
        self._check()
        self._host.start_mirrored_at(self._partition, offset)

    def _check(self) -> None:
        if not self._lead.holds:
            raise NotLeaderOrFollowerError(
                f"this broker does not lead {self._partition.topic}-{self._partition.partition} in epoch "
                f"{self._lead.leader_epoch} any more"
            )

    def last_batch(self) -> BatchHeader | None:
        return last_batch(self._log)


def last_batch(own_log: PartitionLog) -> BatchHeader | None:
    """Its header; None for an empty log or one that ends in a gap."""
    end = own_log.log_end_offset
    if end <= own_log.log_start_offset:
        return None
    found = own_log.read(end - 1, size_max=1, upper_offset=end)
    if found.file is None or found.size < HEADER_SIZE:
        return None
    header = read_header(found.file.read_at(HEADER_SIZE, found.position))
    return header if header.next_offset == end else None


def changed_ms(log: PartitionLog) -> int:
    """When a log was last written to."""
    try:
        return log.body.segments.active.modified_ms()
    except OSError as error:
        raise KafkaError(f"{log.directory} has no log file: {error}") from error
