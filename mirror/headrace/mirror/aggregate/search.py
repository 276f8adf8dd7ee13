"""How far a producer came, by its committed batches that lie in the target: where it may have more than is known, or has
forgotten the producer itself.

Apache Kafka, as headrace, forgets a producer `producer.id.expiration.ms` after its last message's timestamp, so also one that has
just brought old messages; from then on it takes whatever sequence number comes. The batches stay for as long as retention keeps
them. All up to `log_end`, the log's end once that is asked, is looked at as it becomes committed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.wire.batches import BatchHeader
from headrace.mirror.aggregate.position import SEQUENCE_COUNT


class Search:
    """From `begin` on, where the last known of its batches may lie, -1: from the log's start.

    `next_sequence` is what follows the producer's last batch, None where there is none of it; `lost` why that says nothing.
    """

    def __init__(self, producer_id: int, begin: int, *, log_start: int, log_end: int) -> None:
        self.next_offset = max(begin, log_start)
        self.next_sequence: int | None = None
        self._producer_id = producer_id
        self._begin = begin
        self._start, self._end = log_start, log_end

    @property
    def is_over(self) -> bool:
        return self.next_offset >= self._end

    @property
    def lost(self) -> str:
        if self._begin > self._end:
            return f"loss: the target's log ends at {self._end}, and had acknowledged messages up to {self._begin}"
        if self.next_sequence is None and 0 <= self._begin < self._start:
            return (
                f"forgotten: the target no longer knows how far it is, and its log, which begins at {self._start}, no longer has "
                f"what came from offset {self._begin} on, which would tell"
            )
        return ""

    def take(self, headers: Iterable[BatchHeader]) -> None:
        """What comes next in the log."""
        for header in headers:
            self.next_offset = header.next_offset
            if header.producer_id == self._producer_id and header.base_sequence >= 0:
                self.next_sequence = (header.base_sequence + header.record_count) % SEQUENCE_COUNT
