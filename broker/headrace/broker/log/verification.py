"""Producers whose transactions a coordinator is asked about, before their first batch in a partition (KIP-890, part 1).

A partition's leader takes the first batch of a transaction only from who holds the entry that was made before the coordinator
was asked. Invariant: an entry is gone once its producer's transaction has begun in the log, or a marker ended one, so that an
answer from before that marker lets nothing in. Must not know: who is asked, and how.
"""

from __future__ import annotations

# Beyond it the oldest is forgotten: its batch is refused, and a transaction aborted.
VERIFICATIONS_MAX = 10_000


class Verification:
    """That a coordinator is asked, or has answered; no other entry is the same one.

    No batch above `lowest_sequence`, the first that waited in that epoch, comes in before it.
    """

    __slots__ = ("began_ms", "epoch", "lowest_sequence")

    def __init__(self, began_ms: int, sequence: int, epoch: int) -> None:
        self.began_ms = began_ms
        self.lowest_sequence = sequence
        self.epoch = epoch

    def wait_with(self, sequence: int, epoch: int) -> None:
        """Another batch of the producer waits, too."""
        if epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence


class Verifications:
    """The entries of a partition, by producer id, oldest first, and how many batches of each producer wait."""

    __slots__ = ("_entries", "_waiting")

    def __init__(self) -> None:
        self._entries: dict[int, Verification] = {}
        self._waiting: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, producer_id: int, sequence: int, epoch: int, now_ms: int) -> Verification:
        """The producer's entry, which is made unless it is there."""
        known = self._entries.get(producer_id)
        if known is not None:
            known.wait_with(sequence, epoch)
            return known
        if len(self._entries) >= VERIFICATIONS_MAX:
            del self._entries[next(iter(self._entries))]
        made = self._entries[producer_id] = Verification(now_ms, sequence, epoch)
        return made

    def is_waited_in(self, producer_id: int) -> bool:
        """Whether a batch of the producer waits, be its transaction open here by now or not."""
        return producer_id in self._waiting

    def wait(self, producer_id: int) -> None:
        """A batch waits until `go_on`."""
        self._waiting[producer_id] = self._waiting.get(producer_id, 0) + 1

    def go_on(self, producer_id: int) -> None:
        """A batch waits no longer, whatever becomes of it."""
        left = self._waiting.pop(producer_id, 0) - 1
        if left > 0:
            self._waiting[producer_id] = left

    def get(self, producer_id: int) -> Verification | None:
        return self._entries.get(producer_id)

    def forget(self, producer_id: int) -> None:
        """The producer's transaction has begun here, or ended."""
        self._entries.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget what nobody came back with."""
        self._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if now_ms - entry.began_ms < expiration_ms
        }

    def clear(self) -> None:
        self._entries.clear()
