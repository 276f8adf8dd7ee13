"""What the tests of the mirror share: findings, topics of the cluster, partitions that are led, copies' logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from headrace.broker.log.results import AppendResult
from headrace.broker.wire.batches import BatchHeader, Record, encode_batch, iter_batches, read_header
from headrace.mirror.equality.difference import Batch
from headrace.mirror.memory.findings import CopyFinding, Kind
from headrace.mirror.memory.journal import Journal, Pair
from headrace.mirror.memory.lead import Lead


def finding(kind: Kind, first: int, last: int) -> CopyFinding:
    """One of partition 0 of `t` in dc-east."""
    return CopyFinding(
        kind=kind,
        datacenter="dc-east",
        topic="t",
        partition=0,
        first_offset=first,
        last_offset=last,
        detected_ms=5,
        reason="so it is",
    )


class CopiedHeaders:
    """A copy's log of its batches' headers alone, from offset 0; every batch has to follow the one before."""

    log_start_offset = 0
    is_committed = has_enough_in_sync = True

    def __init__(self, appended: Callable[[], None] = lambda: None) -> None:
        self.headers: list[BatchHeader] = []
        self._appended = appended

    @property
    def log_end_offset(self) -> int:
        return self.headers[-1].next_offset if self.headers else 0

    def last_batch(self) -> BatchHeader | None:
        return self.headers[-1] if self.headers else None

    def append(self, records: memoryview) -> AppendResult:
        for _, header in iter_batches(records):
            assert header.base_offset == self.log_end_offset, "a gap, or a batch twice"
            self.headers.append(header)
        self._appended()
        return cast("AppendResult", None)

    def start_at(self, offset: int) -> None:
        raise AssertionError("nothing was deleted at the source")


class SharedTopic:
    """A topic of the cluster in memory: what is appended is committed at once, or, while it is `away`, at `commit`.

    Journals that `follow` it read what is committed, at once too, unless they do so by themselves (`read`).
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.away: list[tuple[Sequence[Pair], Callable[[int], None]]] = []
        self.is_away = False
        self.now_ms = 0
        self.followers: list[Journal] = []
        self.elsewhere: list[tuple[int, bytes, bytes | None]] = []

    @property
    def pairs(self) -> list[Pair]:
        return [(record.key or b"", record.value) for record in self.records]

    def append(
        self,
        pairs: Sequence[Pair],
        committed: Callable[[int], None] = lambda _: None,
        *,
        partition: int = 0,
    ) -> None:
        if partition:
            self.elsewhere += [(partition, key, value) for key, value in pairs]
            return
        self.away.append((list(pairs), committed))
        if not self.is_away:
            self.commit()

    def commit(self, count: int = 1_000_000) -> None:
        """What was appended is committed, the first `count` appends of it."""
        while self.away and count:
            pairs, committed = self.away.pop(0)
            count -= 1
            self.commit_one(pairs, committed)

    def commit_one(self, pairs: Sequence[Pair], committed: Callable[[int], None]) -> None:
        """These are committed, whenever they were appended."""
        for key, value in pairs:
            self.now_ms += 1
            self.records.append(Record(len(self.records), self.now_ms, key, value, []))
        committed(len(self.records) - 1)
        for journal in self.followers:
            self.read(journal)

    def read(self, journal: Journal) -> None:
        """All of it, once more."""
        journal.read(0, self.records, len(self.records))


class LedPartition:
    """A led partition of a copy, of which `committed` offsets are."""

    def __init__(self, topic: str = "dc-east.t", number: int = 0, *, end: int = 0, epoch: int = 1) -> None:
        self.topic, self.partition, self.topic_id = topic, number, UUID(int=9)
        self.is_leader, self.leader_epoch = True, epoch
        self.is_under_min_isr = False
        self.high_watermark = end
        self.log = SimpleNamespace(
            log_start_offset=0, log_end_offset=end, is_mirror_copy=True, directory="/nowhere"
        )


def lead(partition: LedPartition, epoch: int | None = None) -> Lead:
    """Its present leadership, or that of another epoch."""
    return Lead(cast("Any", partition), partition.leader_epoch if epoch is None else epoch)


def batch(at: int, size: int, text: bytes = b"same", epoch: int = 0) -> Batch:
    """One batch of so many messages."""
    records = [Record(0, 1, None, text, []) for _ in range(size)]
    data = encode_batch(records, base_offset=at, leader_epoch=epoch)
    return Batch(read_header(data), memoryview(data))


def log(*batches: tuple[int, bytes], begin: int = 0, epoch: int = 0) -> list[Batch]:
    """Batches of (size, text), one behind the other."""
    found: list[Batch] = []
    for size, text in batches:
        found.append(batch(found[-1].header.next_offset if found else begin, size, text, epoch))
    return found


SHARED = [(number % 3 + 1, b"%d" % number) for number in range(500)]
"""Batches that two logs have in common."""
