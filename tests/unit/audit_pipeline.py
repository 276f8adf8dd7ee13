"""A pipeline in memory whose producers tell the truth: what they send is in all tiers at once, unless a test says not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.audit.judging.reconcile import reconcile
from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.modes import Mode
from headrace.audit.outcome import Outcome
from headrace.audit.records import Barrier, Counted, CounterTier
from headrace.audit.windows import Tally, tally
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.envelope import Header
from headrace.events.monitoring import Account, MonitoringEvent, WindowLedger

DATACENTER, TOPIC = "dc-east", "pageviews"
NOW = 1_700_000_000_000
WINDOW_MS = 10_000
ACCOUNTS = TopicPartition(f"{DATACENTER}.headrace.monitoring", 0)
ACCOUNTING_DELAY_MS = 1000


class NoTopics:
    """An offline cluster whose topics say nothing, or nothing any more."""

    reached = 1

    def __init__(self, *_: object) -> None:
        pass

    def read_into(self, _: object) -> int:
        return 0


@dataclass
class Pipeline:
    """One partition a topic, one event an offset; `now_ms` is everybody's clock."""

    ledger: Ledger = field(default_factory=Ledger)
    now_ms: int = NOW
    offsets: dict[str, int] = field(default_factory=dict)
    books: dict[tuple[str, str], WindowLedger] = field(default_factory=dict)
    accounts: int = 0
    modes: dict[str, Mode] = field(default_factory=dict)
    """How topics are audited, but by their events."""

    def open(self, producer: str, topic: str = TOPIC) -> None:
        book = self.books[producer, topic] = WindowLedger(
            producer, window_size_ms=WINDOW_MS, now_ms=self.now_ms
        )
        self.tell(producer, topic, book.opened(self.now_ms))

    def send(
        self,
        producer: str,
        topic: str = TOPIC,
        *,
        time_ms: int | None = None,
        tiers: tuple[str, ...] = ("live", "offline", "warehouse"),
    ) -> int:
        """Send an event that is acknowledged; `tiers` are those that it reaches. Returns its sequence."""
        book = self.books[producer, topic]
        sequence, happened = book._next_sequence, self.now_ms if time_ms is None else time_ms
        book.on_sent(sequence, happened)
        book.on_acknowledged(sequence, happened, self.now_ms)
        self.arrive(producer, sequence, topic, time_ms=happened, tiers=tiers)
        return sequence

    def arrive(
        self,
        producer: str,
        sequence: int,
        topic: str = TOPIC,
        *,
        time_ms: int,
        tiers: tuple[str, ...] = ("live", "offline", "warehouse"),
    ) -> None:
        """Let an event be counted in all tiers, as nothing where it is not among `tiers`."""
        offset = self.offsets.get(topic, 0)
        self.offsets[topic] = offset + 1
        found = {tier: tallies_of(producer, time_ms, sequence) if tier in tiers else () for tier in TIERS}
        for tier in ("live", "offline"):
            self.ledger.on_count(self._counted(tier, topic, offset, found[tier]))
        place = SourcePartition(DATACENTER, topic, 0)
        self.ledger.on_loaded(place, offset, offset + 1, self.now_ms)
        self.ledger.on_file(topic, f"{topic}-{offset}", [(place, offset, offset + 1, found["warehouse"])])

    def pass_time(self, milliseconds: int, *, kill: tuple[str, ...] = ()) -> None:
        """Let time go by: producers account each second, but for those that were killed; the counter says how far it is."""
        for name in kill:
            self.books = {key: book for key, book in self.books.items() if key[0] != name}
        for _ in range(0, milliseconds, 1000):
            self.now_ms += 1000
            for (producer, topic), book in self.books.items():
                for account in book.finished(self.now_ms - ACCOUNTING_DELAY_MS):
                    self.tell(producer, topic, account)
        self.barrier()

    def close(self, producer: str, topic: str = TOPIC) -> None:
        for account in self.books.pop((producer, topic)).closed(self.now_ms):
            self.tell(producer, topic, account)
        self.barrier()

    def tell(self, producer: str, topic: str, account: Account) -> None:
        header = Header(self.now_ms, "web-1", "shop", producer, self.accounts)
        event = MonitoringEvent(header=header, topic=topic, datacenter=DATACENTER, account=account)
        self.ledger.on_account(ACCOUNTS, self.accounts, event)
        self.accounts += 1
        self.ledger.read[ACCOUNTS] = self.accounts

    def barrier(self, *, unread: int = 0) -> None:
        """Say how far is counted; `unread` accounts are in the log that the auditor has not read."""
        self.ledger.on_count(
            Barrier(
                tier="live",
                datacenter=DATACENTER,
                counted={TopicPartition(topic, 0): end for topic, end in self.offsets.items()},
                monitoring={0: self.accounts + unread},
                whole=frozenset(self.offsets),
                at_ms=self.now_ms,
                modes=self.modes,
            )
        )

    def outcome(self, **arguments: Any) -> Outcome:
        self.ledger.settle(self.now_ms)
        return reconcile(self.ledger, self.now_ms, **arguments)

    def told(self) -> Mapping[tuple[str, str], int]:
        """Return the watermarks, and remember that they were told."""
        outcome = self.outcome()
        self.ledger.promise(outcome.watermarks)
        return outcome.watermarks

    def _counted(self, tier: CounterTier, topic: str, offset: int, tallies: tuple[Tally, ...]) -> Counted:
        return Counted(
            tier=tier,
            datacenter=DATACENTER if tier == "live" else "offline",
            partition=TopicPartition(topic if tier == "live" else f"{DATACENTER}.{topic}", 0),
            first=offset,
            next=offset + 1,
            tallies=tallies,
            at_ms=self.now_ms,
        )


TIERS = ("live", "offline", "warehouse")


def tallies_of(producer: str, time_ms: int, sequence: int) -> tuple[Tally, ...]:
    times, sequences = (np.array([value], dtype=np.int64) for value in (time_ms, sequence))
    return tuple(tally([producer], np.zeros(1, dtype=np.intp), times, sequences))
