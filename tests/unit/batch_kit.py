"""Batches of a topic in a live cluster and its copy, counted by their headers into a ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.audit.batch_counts import census
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.modes import Mode
from headrace.audit.outcome import Outcome
from headrace.audit.period import ALWAYS, Period
from headrace.audit.records import Barrier, Counted, CounterTier
from headrace.audit.report import as_json
from headrace.audit.windows import WINDOW_SIZE_MS
from headrace.broker.wire.batches import BatchHeader, Record, encode_batch, read_header
from headrace.broker.wire.partitions import TopicPartition

DATACENTER, TOPIC = "dc-east", "clicks"
NOW = 1_700_000_000_000


def batch(base: int, count: int = 10, *, time_ms: int = NOW, text: str = "v", **fields: Any) -> BatchHeader:
    """The header of a batch of some records."""
    records = [Record(base + at, time_ms, None, f"{text}{base + at}".encode(), []) for at in range(count)]
    return read_header(encode_batch(records, base_offset=base, **fields))


def batches(*bases: int, count: int = 10, **fields: Any) -> list[BatchHeader]:
    return [batch(base, count, **fields) for base in bases]


@dataclass
class Clicks:
    """One partition of a topic; each cluster's counter goes on where it was."""

    ledger: Ledger = field(default_factory=Ledger)
    positions: dict[CounterTier, int] = field(default_factory=lambda: {"live": 0, "offline": 0})
    at_ms: int = NOW

    def count(
        self,
        tier: CounterTier,
        headers: Sequence[BatchHeader],
        *,
        first: int | None = None,
        is_compacted: bool = False,
    ) -> None:
        """Let a cluster's counter count batches that follow its position, or another offset."""
        begin = self.positions[tier] if first is None else first
        following = max(header.next_offset for header in headers)
        self.ledger.on_count(
            Counted(
                tier=tier,
                datacenter=DATACENTER if tier == "live" else "offline",
                partition=self.partition(tier),
                first=begin,
                next=following,
                tallies=(),
                at_ms=self.at_ms,
                is_compacted=is_compacted,
                batches=census(headers, (), begin, WINDOW_SIZE_MS),
            )
        )
        self.positions[tier] = following

    def copy(self, headers: Sequence[BatchHeader]) -> None:
        """Let both clusters have batches."""
        self.count("live", headers)
        self.count("offline", headers)

    def tell(self, modes: Mapping[str, Mode], at_ms: int = NOW, *, counted: Collection[str] = ()) -> None:
        """Let the live counter say how topics are audited, and which it counts."""
        self.ledger.on_count(
            Barrier(
                tier="live",
                datacenter=DATACENTER,
                counted={},
                monitoring={},
                whole=frozenset(counted),
                at_ms=at_ms,
                modes=modes,
            )
        )

    def partition(self, tier: CounterTier) -> TopicPartition:
        return TopicPartition(TOPIC if tier == "live" else f"{DATACENTER}.{TOPIC}", 0)

    def outcome(self, period: Period = ALWAYS) -> Outcome:
        self.ledger.settle(self.at_ms)
        return reconcile(self.ledger, self.at_ms, period=period)

    def report(self, period: Period = ALWAYS) -> dict[str, Any]:
        return as_json(self.outcome(period), self.ledger, self.at_ms)
