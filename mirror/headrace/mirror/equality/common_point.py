"""Where what was a copy and its source part: the end of the last batch that both have, found by asking for few of them.

    point.wants → an offset → point.served(the source's batch there, the copy's)    until it wants nothing more

A log goes on from what it held, so where batches are the same all before them are: halving finds the end. Pure.
"""

from __future__ import annotations

from headrace.broker.wire.batches import BatchHeader
from headrace.mirror.equality.comparison import is_same
from headrace.mirror.equality.difference import Batch


class CommonPoint:
    """Both sides have offsets from `first` up to `end`. `offset` is, at last, where the common part ends, and `last` the
    header of the source's batch that ends there; None where no batch is the same.
    """

    def __init__(self, first: int, end: int) -> None:
        self.offset = first
        self.last: BatchHeader | None = None
        self._parted = end

    @property
    def wants(self) -> int | None:
        """The offset at which both sides are to be read next."""
        return (self.offset + self._parted) // 2 if self.offset < self._parted else None

    def served(self, source: Batch | None, copy: Batch | None) -> None:
        """The batches of either side that hold the wanted offset, or come behind it; None where there is none."""
        wanted = self.wants
        assert wanted is not None, "nothing was asked for"
        if source is not None and copy is not None and is_same(source, copy):
            self.offset, self.last = source.header.next_offset, source.header
        else:
            self._parted = wanted
