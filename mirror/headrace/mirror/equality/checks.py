"""In which order a broker compares the copies that it leads of one source with that source, and how fast. Pure.

    plan.next(partitions, now_ms)      → the partition whose turn it is, None while nothing is due
    plan.ended(partition, …)           its turn is over, compared or not

A pass is one turn of each partition, by name; it is over when each that is there has had its turn. What was never compared has
a turn between two passes, too. Invariant: a step reads of the source what the rate allows in `STEP_SECONDS`, or one batch, and
lasts as long as the rate asks for. A rate that is not set is a share of what is copied, so that comparing takes a share of the
processor time that copying does, and `BYTES_PER_SECOND_MIN` where little is.
"""

from __future__ import annotations

from collections.abc import Set

from headrace.broker.wire.partitions import PartitionKey

STEP_BYTES, STEP_SECONDS = 1024 * 1024, 4
"""The most that a step reads, and lasts: few large ones cost less than many small ones."""
COPIED_SHARE = 1 / 100
"""Of what is copied so much is compared: a byte costs what it costs to copy, where batches are large up to twice that."""
BYTES_PER_SECOND_MIN = 64 * 1024
BY_WHAT_IS_COPIED = -1
PASS_MS_MIN = 60_000
"""From the begin of one pass to that of the next: what there is little of is not compared over and over."""


class CheckPlan:
    """`completed_ms` is when the last pass was over, `left_out_count` how many partitions could not be compared in it;
    `verified` says up to which offset a partition's newest turn found the copy equal, `problem` why it does not go on.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self.is_following = bytes_per_second == BY_WHAT_IS_COPIED
        self.bytes_per_second = BYTES_PER_SECOND_MIN if self.is_following else bytes_per_second
        self.bytes_compared = 0
        self.completed_ms: int | None = None
        self.left_out_count = 0
        self.verified: dict[PartitionKey, int] = {}
        self.problem = ""
        self._done: set[PartitionKey] = set()
        self._left_out = 0
        self._began_ms: int | None = None
        self._is_under_way = False
        self._copied: tuple[int, int] | None = None

    def follow(self, bytes_copied: int, now_ms: int) -> None:
        """So much was copied by now, since whenever: what was copied since the last time says how fast to compare."""
        if not self.is_following:
            return
        before, self._copied = self._copied, (bytes_copied, now_ms)
        if before is not None and now_ms > before[1]:
            rate = 1000 * (bytes_copied - before[0]) / (now_ms - before[1])
            self.bytes_per_second = max(BYTES_PER_SECOND_MIN, int(rate * COPIED_SHARE))

    @property
    def size(self) -> int:
        """What to ask for in a step."""
        return min(self.bytes_per_second * STEP_SECONDS, STEP_BYTES)

    def pause_seconds(self, size: int) -> float:
        """How long a step that read so many bytes of the source is to last; one that read little costs as a full one."""
        return max(size, self.size) / self.bytes_per_second

    def next(self, partitions: Set[PartitionKey], now_ms: int) -> PartitionKey | None:
        """Of those that are there and can be compared now."""
        if not self._is_under_way:
            is_early = self._began_ms is not None and now_ms - self._began_ms < PASS_MS_MIN
            if not partitions:
                return None
            if is_early:
                return min(partitions - self.verified.keys() - self._done, default=None)
            self._is_under_way, self._began_ms = True, now_ms
        waiting = partitions - self._done
        if waiting:
            return min(waiting)
        if self._done:
            self.completed_ms, self.left_out_count = now_ms, self._left_out
        self._is_under_way, self._done, self._left_out = False, set(), 0
        return None

    def ended(self, partition: PartitionKey, *, is_compared: bool) -> None:
        """The turn of a partition is over."""
        self._done.add(partition)
        self._left_out += not is_compared

    def forget(self, partition: PartitionKey) -> None:
        """It is another broker's to compare."""
        self.verified.pop(partition, None)
