"""Which batches of an answer hold committed messages: not those of aborted transactions, not markers (KIP-98). Pure.

An answer names the aborted transactions that reach into it, each by its producer and first offset; the marker that ends one is
the producer's next. Whether a batch is committed does not depend on where an answer begins.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.log.producers import ABORT, read_marker
from headrace.broker.log.segment import Place

Aborted = tuple[int, int]
"""Producer id and first offset of a transaction that was aborted."""


class Committed:
    """Goes through one answer, batch by batch."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._to_come = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()

    def holds(self, records: memoryview, place: Place) -> bool:
        """Whether the messages of the answer's next batch are committed."""
        header = place.header
        while self._to_come and self._to_come[-1][1] <= header.last_offset:
            self._aborting.add(self._to_come.pop()[0])
        if header.is_control:
            marker = read_marker(records, place.position, header)
            if marker is not None and marker.kind == ABORT:
                self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)
