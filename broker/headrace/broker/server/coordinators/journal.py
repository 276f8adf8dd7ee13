"""A partition that this broker leads as the journal of a coordinator's shard: appends, and waiting until they are committed.

Writes that a disk refuses are noted as those of producers are. Knows nothing of what is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.broker.clock import Clock
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.replication.partition import Partition
from headrace.broker.waiting.parking import Waiting

if TYPE_CHECKING:
    from headrace.broker.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class PartitionJournal:
    """Two journals are one when their partition is: in a new leader epoch it goes on."""

    partition: Partition
    waiting: Waiting
    refused_writes: RefusedWrites
    clock: Clock

    @property
    def index(self) -> int:
        return self.partition.partition

    @property
    def leader_epoch(self) -> int:
        return self.partition.leader_epoch

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    def append(self, batch: bytearray, now_ms: int) -> None:
        """A batch, in a producer's transaction or not. Raises KafkaError when it is refused."""
        directory, committed_before = self.partition.log.directory, self.partition.high_watermark
        self.refused_writes.noted(
            directory, self.clock, lambda: self.partition.append_own(memoryview(batch), now_ms=now_ms)
        )
        self.waiting.wake_end(self.partition.topic, self.index)
        if self.partition.high_watermark > committed_before:
            self.waiting.wake(self.partition.topic, self.index)

    @property
    def is_committed(self) -> bool:
        """Whether the high watermark has passed all that the log holds."""
        log = self.partition.log
        return log.high_watermark >= log.log_end_offset

    def when_committed(self, told: Callable[[bool], None], timeout_ms: int) -> None:
        """`told(True)` once the high watermark has passed what the log holds now, `told(False)` after `timeout_ms`, or
        once the leadership that appended it is over.
        """
        partition = self.partition
        leadership, needed = partition.leadership, partition.log.log_end_offset
        if partition.high_watermark >= needed:
            told(True)
            return

        def attempt(moved: Collection[tuple[str, int]] | None) -> bool | None:
            if partition.leadership is not leadership:
                return False
            return True if partition.high_watermark >= needed else (False if moved is None else None)

        self.waiting.park([(partition.topic, self.index)], timeout_ms, attempt).then(told)
