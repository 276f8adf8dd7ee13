"""Aggregates whose faults are known: live logs are brought into one topic, with losses and doubles, and counted.

The oracle: each live partition begins and ends with a range that arrives, so what was lost or doubled between is named exactly;
whatever is told on the way was so.
"""

from __future__ import annotations

import json
from collections import Counter as Multiset
from collections.abc import Iterator
from random import Random

import numpy as np

from headrace.audit.judging.reconcile import reconcile
from headrace.audit.ledger import state
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Outcome
from headrace.audit.records import Barrier, Counted, CounterTier, CountRecord
from headrace.audit.windows import WINDOW_SIZE_MS, Tally, tally
from headrace.broker.wire.partitions import TopicPartition

BEGIN_MS = 1_700_000_000_000
TOPIC = "pageviews"
Event = tuple[str, int]
Fault = tuple[str, str]
"""Kind and producer."""
Faults = dict[Fault, Multiset[int]]


class AggregateWorld:
    """Some datacenters' partitions, and the aggregate of each partition."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ledger = Ledger()
        self.now_ms = BEGIN_MS
        self.expected: Faults = {}
        self.datacenters = ("dc-east", "dc-west", "dc-south")[: self.random.randint(1, 3)]
        self.inputs = [
            step for partition in range(self.random.randint(1, 2)) for step in self._inputs(partition)
        ]

    def run(self) -> None:
        inputs = [iter(records) for records in self.inputs]
        while inputs:
            source = self.random.choice(inputs)
            record = next(source, None)
            if record is None:
                inputs.remove(source)
                continue
            self.ledger.on_count(record)
            if self.random.random() < 0.1:
                self._look()
            if self.random.random() < 0.05:
                self.ledger = state.from_json(json.loads(json.dumps(state.as_json(self.ledger))))
        self.now_ms = max(record.at_ms for records in self.inputs for record in records)
        for wait_ms in (60_000, 1_000_000, 1_000_000):
            self._barriers(wait_ms)
            assert self._look() == self.expected

    def _look(self) -> Faults:
        self.ledger.settle(self.now_ms)
        found = found_faults(reconcile(self.ledger, self.now_ms))
        for fault, sequences in found.items():
            surplus = sequences - self.expected.get(fault, Multiset())
            assert not surplus, f"{fault} is told wrongly: {surplus}"
        return found

    def _barriers(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        for datacenter in self.datacenters:
            self.ledger.on_count(
                Barrier(
                    tier="live",
                    datacenter=datacenter,
                    counted={},
                    monitoring={},
                    whole=frozenset({TOPIC}),
                    at_ms=self.now_ms,
                )
            )

    def _inputs(self, partition: int) -> Iterator[list[CountRecord]]:
        """Yield what the counters of a partition publish, in each cluster."""
        arriving: list[list[Event]] = []
        for datacenter in self.datacenters:
            producers = [f"{datacenter}-{partition}-{at}" for at in range(self.random.randint(1, 3))]
            ranges = self._live(producers)
            yield self._published("live", datacenter, partition, ranges)
            last = len(ranges) - 1
            arriving.append(
                [
                    event
                    for at, events in enumerate(ranges)
                    for event in events
                    for _ in range(1 if at in (0, last) else self._copies(event))
                ]
            )
        aggregate: list[Event] = []
        while any(arriving):
            source = self.random.choice([events for events in arriving if events])
            number = self.random.randint(1, 5)
            aggregate += source[:number]
            del source[:number]
        size = self.random.randint(3, 40)
        ranges = [aggregate[at : at + size] for at in range(0, len(aggregate), size)]
        yield self._published("offline", "offline", partition, ranges)

    def _live(self, producers: list[str]) -> list[list[Event]]:
        following = dict.fromkeys(producers, 0)
        ranges = []
        for _ in range(self.random.randint(2, 12)):
            events = []
            for _ in range(self.random.randint(1, 20)):
                name = self.random.choice(producers)
                events.append((name, following[name]))
                following[name] += 1
            ranges.append(events)
        return ranges

    def _copies(self, event: Event) -> int:
        fate = self.random.random()
        if fate < 0.04:
            self.expected.setdefault(("loss", event[0]), Multiset())[event[1]] += 1
            return 0
        if fate < 0.08:
            self.expected.setdefault(("duplicate", event[0]), Multiset())[event[1]] += 1
            return 2
        return 1

    def _published(
        self, tier: CounterTier, datacenter: str, partition: int, ranges: list[list[Event]]
    ) -> list[CountRecord]:
        records: list[CountRecord] = []
        first = 0
        for at, events in enumerate(ranges):
            found = _tallied(events)
            records.append(
                Counted(
                    tier=tier,
                    datacenter=datacenter,
                    partition=TopicPartition(TOPIC, partition),
                    first=first,
                    next=first + len(events),
                    tallies=tuple(found),
                    at_ms=BEGIN_MS + at * 1000,
                )
            )
            first += len(events)
            if self.random.random() < 0.2:
                records.append(self.random.choice(records))
        return records


def _tallied(events: list[Event]) -> list[Tally]:
    names = sorted({name for name, _ in events})
    return list(
        tally(
            names,
            np.array([names.index(name) for name, _ in events], dtype=np.intp),
            np.array([BEGIN_MS + at // 7 * WINDOW_SIZE_MS for _, at in events], dtype=np.int64),
            np.array([at for _, at in events], dtype=np.int64),
        )
    )


def found_faults(outcome: Outcome) -> Faults:
    found: Faults = {}
    for item in outcome.findings:
        assert item.hop == "live_to_aggregate", item
        each = item.count // (item.last_sequence - item.first_sequence + 1)
        entry = found.setdefault((item.kind, item.stream.producer), Multiset())
        entry.update(dict.fromkeys(range(item.first_sequence, item.last_sequence + 1), each))
    return found


def check_aggregates(seed: int) -> None:
    AggregateWorld(seed).run()
