"""A partition's log as a load sees it, from a script of batches."""

from __future__ import annotations

import struct

from headrace.broker.errors import OffsetOutOfRangeError
from headrace.broker.wire.batches import Record, encode_batch
from headrace.broker.wire.partitions import TopicPartition
from headrace.load.fences import EpochEnd
from headrace.load.log_client import Fetched


class ScriptedLog:
    """Serves whole batches from the one that holds the offset on, at most `size_max` bytes but at least one."""

    def __init__(
        self, batches: list[tuple[int, int, bytes]], *, end: int, aborted: tuple[tuple[int, int], ...] = ()
    ):
        self.batches = batches
        self.end = end
        self.aborted = aborted
        self.start = 0

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        size_max: int = 1 << 23,
        wait_ms: int = 0,
        topic_id: str | None = None,
    ) -> Fetched:
        if offset < self.start:
            raise OffsetOutOfRangeError("gone")
        served = b""
        for _, last, batch in self.batches:
            if last >= offset and (not served or len(served) + len(batch) <= size_max):
                served += batch
        return Fetched(
            records=memoryview(served),
            high_watermark=self.end,
            last_stable_offset=self.end,
            log_start_offset=self.start,
            aborted=self.aborted,
        )

    def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd:
        raise AssertionError("nothing here has a fence")


def control(first: int, producer_id: int, kind: int) -> tuple[int, int, bytes]:
    marker = Record(0, 1000, struct.pack(">hh", 0, kind), b"\x00" * 6, [])
    encoded = encode_batch(
        [marker],
        base_offset=first,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    return first, first, bytes(encoded)
