"""A ledger of many topics and short lives of producers, without any cluster: what a round of the auditor costs in the long run.

Run as a process of its own, `python -m bench.audit_scale`, whose memory is the ledger's: it prints one JSON object. Producers
come and go at the rate of a day's lives; each publishes to one topic in several windows, and all arrives in every tier.
"""

from __future__ import annotations

import json
import random
import resource
import time
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headrace.audit.judging.book import Book
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.judging.settling import settle
from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.garbage import collect_seldom
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.records import Barrier, Counted, CounterTier
from headrace.audit.windows import WINDOW_SIZE_MS, Tally, tally
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.envelope import Header
from headrace.events.monitoring import MonitoringEvent, WindowLedger

DATACENTERS: Final = 5
TOPICS: Final = 1_000
LIVES_A_DAY: Final = 1_000_000
LIFE_MS: Final = 60_000
EVENTS_A_WINDOW: Final = 10
ROUND_MS: Final = 10_000
WARM_UP_MS: Final = 900_000
"""Longer than windows stay open: then as many lives end as begin."""
MEASURED_ROUNDS: Final = 30
DAY_MS: Final = 86_400_000
BEGIN_MS: Final = 1_700_000_000_000


@dataclass
class Life:
    """A producer with its topic; `events` are those of the round that are still to be counted."""

    name: str
    datacenter: str
    topic: str
    book: WindowLedger
    ends_ms: int
    sequence: int = 0
    told: list[MonitoringEvent] = field(default_factory=list)


class World:
    """Feeds a ledger what the counters, the mirror and the load of a round say."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.book = Book()
        self.now_ms = BEGIN_MS
        self._random = random.Random(18)
        self._lives: list[Life] = []
        self._offsets: dict[tuple[str, str], int] = {}
        self._accounts: dict[str, int] = {}
        self._born = 0.0
        self._number = 0

    def round(self) -> float:
        """Let ten seconds pass; returns the CPU seconds that the auditor works for them."""
        self.now_ms += ROUND_MS
        self._born += LIVES_A_DAY * ROUND_MS / DAY_MS
        while self._born >= 1:
            self._born -= 1
            self._lives.append(self._begin())
        records = [record for life in self._lives for record in self._publish(life)]
        accounts = [(life.datacenter, event) for life in self._lives for event in self._account(life)]
        self._lives = [life for life in self._lives if life.ends_ms > self.now_ms]
        begun = time.process_time()
        for datacenter, event in accounts:
            at = self._accounts.get(datacenter, 0)
            self._accounts[datacenter] = at + 1
            log = TopicPartition(f"{datacenter}.headrace.monitoring", 0)
            self.ledger.on_account(log, at, event)
            self.ledger.read[log] = at + 1
        for place, record in records:
            self.ledger.on_count(record)
            if record.tier == "offline":
                self.ledger.on_loaded(place, record.first, record.next, self.now_ms)
                table = f"{place.datacenter}.{place.topic}"
                self.ledger.on_file(
                    table, str(record.first), [(place, record.first, record.next, record.tallies)]
                )
        for number in range(DATACENTERS):
            self.ledger.on_count(self._barrier(f"dc-{number}"))
        self.ledger.settle(self.now_ms)
        settle(self.ledger, self.book, self.now_ms)
        outcome = reconcile(self.ledger, self.now_ms, book=self.book)
        took = time.process_time() - begun
        assert not outcome.findings, "all arrives in every tier, once and in time"
        return took

    def _begin(self) -> Life:
        self._number += 1
        name = f"00000000-0000-4000-8000-{self._number:012d}"
        datacenter = f"dc-{self._random.randrange(DATACENTERS)}"
        topic = f"topic-{self._random.randrange(TOPICS)}"
        begun_ms = self.now_ms - ROUND_MS
        book = WindowLedger(name, window_size_ms=WINDOW_SIZE_MS, now_ms=begun_ms)
        life = Life(name, datacenter, topic, book, begun_ms + LIFE_MS)
        life.told.append(self._event(life, book.opened(begun_ms)))
        return life

    def _publish(self, life: Life) -> list[tuple[SourcePartition, Counted]]:
        at_ms = self.now_ms - 1
        first = life.sequence
        life.sequence += EVENTS_A_WINDOW
        for sequence in range(first, life.sequence):
            life.book.on_sent(sequence, at_ms)
            life.book.on_acknowledged(sequence, at_ms, self.now_ms)
        numbers = np.arange(first, life.sequence, dtype=np.int64)
        tallies = tally(
            [life.name],
            np.zeros(len(numbers), dtype=np.intp),
            np.full(len(numbers), at_ms, dtype=np.int64),
            numbers,
            WINDOW_SIZE_MS,
        )
        key = (life.datacenter, life.topic)
        offset = self._offsets.get(key, 0)
        self._offsets[key] = offset + EVENTS_A_WINDOW
        place = SourcePartition(*key, 0)
        tiers: tuple[CounterTier, CounterTier] = ("live", "offline")
        return [(place, self._counted(tier, key, offset, tallies)) for tier in tiers]

    def _counted(self, tier: CounterTier, key: tuple[str, str], offset: int, tallies: list[Tally]) -> Counted:
        datacenter, topic = key
        return Counted(
            tier=tier,
            datacenter=datacenter if tier == "live" else "offline",
            partition=TopicPartition(topic if tier == "live" else f"{datacenter}.{topic}", 0),
            first=offset,
            next=offset + EVENTS_A_WINDOW,
            tallies=tuple(tallies),
            at_ms=self.now_ms,
        )

    def _account(self, life: Life) -> list[MonitoringEvent]:
        is_over = life.ends_ms <= self.now_ms
        found = life.book.closed(self.now_ms) if is_over else life.book.finished(self.now_ms - 1000)
        told, life.told = life.told, []
        return [*told, *(self._event(life, account) for account in found)]

    def _event(self, life: Life, account: object) -> MonitoringEvent:
        header = Header(self.now_ms, f"web-{self._number % 100}", "shop", life.name, 0)
        return MonitoringEvent(header=header, topic=life.topic, datacenter=life.datacenter, account=account)  # type: ignore[arg-type]

    def _barrier(self, datacenter: str) -> Barrier:
        counted = {
            TopicPartition(topic, 0): end
            for (place, topic), end in self._offsets.items()
            if place == datacenter
        }
        return Barrier(
            tier="live",
            datacenter=datacenter,
            counted=counted,
            monitoring={0: self._accounts.get(datacenter, 0)},
            whole=frozenset(partition.topic for partition in counted),
            at_ms=self.now_ms,
        )

    def written(self) -> None:
        """Forget what the tables would have."""
        if self.ledger.facts.begin_batch():
            self.ledger.facts.batch += 1
            self.ledger.facts.pending = None
            for facts in self.ledger.facts.topics.values():
                facts.forget_written()


def main() -> None:
    """Print what the rounds of the steady state took, and the memory at the end."""
    collect_seldom()
    world = World()
    seconds: list[float] = []
    rounds = WARM_UP_MS // ROUND_MS + MEASURED_ROUNDS
    for number in range(rounds):
        took = world.round()
        if number % 60 == 59:
            world.written()
        if number >= rounds - MEASURED_ROUNDS:
            seconds.append(took)
    print(
        json.dumps(
            {
                "seconds": seconds,
                "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "open_streams": len(world.ledger.streams()),
                "lives": world._number,
            }
        )
    )


if __name__ == "__main__":
    main()
