"""Batches that go to the log with one write: new pages of a file are the dearest part of an append, and fewer, larger
writes make them for less than half.

Invariant: the batches lie side by side, each with the offsets behind those of the one before. Must not know: segments,
whether a batch is good.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.log.results import AppendResult
from headrace.broker.wire.batches import BatchHeader

_SEQUENCE_COUNT = 2**31


class Placed(NamedTuple):
    """A batch at `position` of `records`, and its base offset in the log, whatever its header says."""

    records: memoryview
    position: int
    header: BatchHeader
    base_offset: int


class AppendRun:
    """A leader's batches that were found good and wait to be written; `results` has the answer to each."""

    __slots__ = ("batches", "buffers", "end_offset", "results", "size")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.batches: list[Placed] = []
        self.buffers: list[memoryview] = []
        self.results: list[AppendResult] = []
        self.size = 0
        self.end_offset = -1

    def add(self, records: memoryview, header: BatchHeader, result: AppendResult) -> None:
        """Take the one batch in `records`."""
        # Half the time of a call of the class.
        self.batches.append(tuple.__new__(Placed, (records, 0, header, result[0])))
        self.buffers.append(records)
        self.results.append(result)
        self.size += len(records)
        self.end_offset = result[1] + 1

    def is_continued_by(self, header: BatchHeader) -> bool:
        """Whether `header` is the next batch of the idempotent producer that wrote the last one."""
        if not self.batches:
            return False
        last = self.batches[-1].header
        return (
            header.producer_id == last.producer_id
            and header.producer_epoch == last.producer_epoch
            and header.base_sequence == (last.base_sequence + last.last_offset_delta + 1) % _SEQUENCE_COUNT
        )
