"""A partition's log as a load sees it, from a script of batches."""

from __future__ import annotations

import struct

from headrace.broker.errors import OffsetOutOfRangeError
from headrace.broker.wire.batches import HEADER_SIZE, Record, encode_batch
from headrace.broker.wire.partitions import TopicPartition
from headrace.load.fences import EpochEnd
from headrace.load.log_client import Fetched


class ScriptedLog:
    """Serves whole batches from the one that holds the offset on, at most `size_max` bytes but at least one.

    One that `parts_headers` gives their headers alone to who wants these; `whole` are the offsets that others were asked for.
    """

    def __init__(
        self,
        batches: list[tuple[int, int, bytes]],
        *,
        end: int,
        aborted: tuple[tuple[int, int], ...] = (),
        parts_headers: bool = False,
    ):
        self.batches = batches
        self.end = end
        self.aborted = aborted
        self.parts_headers = parts_headers
        self.start = 0
        self.whole: list[int] = []

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        size_max: int = 1 << 23,
        wait_ms: int = 0,
        topic_id: str | None = None,
        wants_headers: bool = False,
    ) -> Fetched:
        if offset < self.start:
            raise OffsetOutOfRangeError("gone")
        is_headers = wants_headers and self.parts_headers
        if not is_headers:
            self.whole.append(offset)
        served = b""
        for _, last, batch in self.batches:
            if last >= offset and (not served or len(served) + len(batch) <= size_max):
                served += batch[:HEADER_SIZE] if is_headers else batch
        return Fetched(
            records=memoryview(served),
            high_watermark=self.end,
            last_stable_offset=self.end,
            log_start_offset=self.start,
            aborted=self.aborted,
            is_headers=is_headers,
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
