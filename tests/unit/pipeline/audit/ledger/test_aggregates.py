"""Aggregate topics: what of each datacenter arrived in the topic that they share, by the order of their partitions alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from headrace.audit import report
from headrace.audit.acceptances import accepted
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.ledger import state
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.metrics import AuditMetrics
from headrace.audit.outcome import Outcome
from headrace.audit.page.markup import whole_parts
from headrace.audit.page.offline import tables
from headrace.audit.period import ALWAYS, Period
from headrace.audit.records import Barrier, Counted, CounterTier, Standstill
from headrace.audit.windows import WINDOW_SIZE_MS, tally
from headrace.broker.wire.partitions import TopicPartition

NOW = 1_700_000_000_000
TOPIC = "pageviews"
EAST, WEST = "dc-east", "dc-west"


@dataclass
class Clusters:
    """Two datacenters whose producers have their names, one partition each; ranges are of five events, a window each."""

    ledger: Ledger = field(default_factory=Ledger)
    ends: dict[str, int] = field(default_factory=dict)
    now_ms: int = NOW

    def counted(self, tier: CounterTier, datacenter: str, events: list[tuple[str, int]]) -> None:
        """Count a range of one cluster: events by producer and sequence; every five sequences are a window."""
        self.now_ms += 1000
        first = self.ends.get(datacenter, 0)
        self.ends[datacenter] = first + len(events)
        names = sorted({name for name, _ in events})
        found = tally(
            names,
            np.array([names.index(name) for name, _ in events], dtype=np.intp),
            np.array([NOW + at // 5 * WINDOW_SIZE_MS for _, at in events], dtype=np.int64),
            np.array([at for _, at in events], dtype=np.int64),
        )
        self.ledger.on_count(
            Counted(
                tier=tier,
                datacenter=datacenter,
                partition=TopicPartition(TOPIC, 0),
                first=first,
                next=first + len(events),
                tallies=tuple(found),
                at_ms=self.now_ms,
            )
        )

    def live(self, datacenter: str, *sequences: int) -> None:
        self.counted("live", datacenter, [(datacenter, at) for at in sequences])

    def arrive(self, *events: tuple[str, int]) -> None:
        self.counted("offline", "offline", list(events))

    def pass_time(self, milliseconds: int = 60_000) -> None:
        """Let time go by; the live counters say that they are at their ends."""
        self.now_ms += milliseconds
        for datacenter in (EAST, WEST):
            self.ledger.on_count(
                Barrier(
                    tier="live",
                    datacenter=datacenter,
                    counted={TopicPartition(TOPIC, 0): self.ends.get(datacenter, 0)},
                    monitoring={},
                    whole=frozenset({TOPIC}),
                    at_ms=self.now_ms,
                )
            )
        self.ledger.settle(self.now_ms)

    def outcome(self, period: Period = ALWAYS) -> Outcome:
        self.ledger.settle(self.now_ms)
        return reconcile(self.ledger, self.now_ms, period=period)


@pytest.fixture
def clusters() -> Clusters:
    return Clusters()


def found(outcome: Outcome) -> list[tuple[str, str, int, int, int]]:
    return [
        (item.kind, item.stream.datacenter, item.first_sequence, item.last_sequence, item.count)
        for item in outcome.findings
        if item.hop == "live_to_aggregate"
    ]


def counts(outcome: Outcome, datacenter: str) -> tuple[int, ...]:
    item = outcome.aggregates[datacenter, TOPIC].counts
    return item.live, item.offline, item.lost, item.duplicated, item.under_way, item.unknown


def of(datacenter: str, *sequences: int) -> list[tuple[str, int]]:
    return [(datacenter, at) for at in sequences]


def three_ranges(clusters: Clusters) -> None:
    for datacenter in (EAST, WEST):
        for begin in (0, 5, 10):
            clusters.live(datacenter, *range(begin, begin + 5))


def test_all_that_arrived_in_any_order_between_datacenters_is_complete(clusters: Clusters) -> None:
    three_ranges(clusters)
    clusters.arrive(*of(WEST, *range(9)), *of(EAST, *range(15)))
    clusters.arrive(*of(WEST, *range(9, 15)))
    outcome = clusters.outcome()
    assert found(outcome) == []
    assert [counts(outcome, name) for name in (EAST, WEST)] == [(15, 15, 0, 0, 0, 0)] * 2
    assert {item.verdict for item in outcome.aggregates.values()} == {"complete"}


def test_what_is_missing_before_a_later_range_that_arrived_is_lost_and_named(clusters: Clusters) -> None:
    three_ranges(clusters)
    clusters.arrive(*of(WEST, *range(15)), *of(EAST, *range(5), 5, 8, 9, *range(10, 13)))
    outcome = clusters.outcome()
    assert found(outcome) == [("loss", EAST, 6, 7, 2)]
    assert counts(outcome, EAST) == (15, 11, 2, 0, 2, 0)
    assert [outcome.aggregates[name, TOPIC].verdict for name in (EAST, WEST)] == ["loss", "complete"]
    (item,) = [item for item in outcome.findings if item.kind == "loss"]
    assert (item.window_start, item.window_end) == (NOW + WINDOW_SIZE_MS, NOW + 2 * WINDOW_SIZE_MS)
    assert any("2 events are on their way to the aggregate" in item.reason for item in outcome.incomplete)
    before = clusters.outcome(Period(NOW, NOW + WINDOW_SIZE_MS))
    assert (before.aggregates[EAST, TOPIC].verdict, counts(before, EAST)) == ("complete", (5, 5, 0, 0, 0, 0))


def test_what_follows_the_last_arrival_is_on_its_way_and_never_lost(clusters: Clusters) -> None:
    three_ranges(clusters)
    clusters.arrive(*of(EAST, *range(5)))
    clusters.pass_time(3_600_000)
    outcome = clusters.outcome()
    assert found(outcome) == []
    assert counts(outcome, EAST) == (15, 5, 0, 0, 10, 0)
    assert (WEST, TOPIC) not in outcome.aggregates


def test_an_aggregate_that_began_later_lacks_nothing_of_before(clusters: Clusters) -> None:
    three_ranges(clusters)
    clusters.arrive(*of(EAST, 7, 8, 9, *range(10, 15)))
    outcome = clusters.outcome()
    assert found(outcome) == []
    assert counts(outcome, EAST) == (10, 8, 0, 0, 0, 2)


def test_what_came_twice_is_doubled_once_the_live_log_is_known_to_be_counted(clusters: Clusters) -> None:
    three_ranges(clusters)
    clusters.arrive(*of(EAST, *range(15), 7, 7))
    assert found(clusters.outcome()) == []
    clusters.pass_time()
    outcome = clusters.outcome()
    assert found(outcome) == [("duplicate", EAST, 7, 7, 2)]
    assert counts(outcome, EAST) == (15, 17, 0, 2, 0, 0)


def test_what_the_live_log_has_twice_is_no_double(clusters: Clusters) -> None:
    clusters.live(EAST, 0, 1, 2, 3, 4)
    clusters.live(EAST, 5, 6, 1)
    clusters.arrive(*of(EAST, 0, 1, 2, 3, 4, 5, 6, 1))
    clusters.pass_time()
    assert found(clusters.outcome()) == []


def test_offsets_that_nobody_counted_excuse_what_arrived_there(clusters: Clusters) -> None:
    three_ranges(clusters)
    clusters.arrive(*of(EAST, *range(5)))
    hole = Standstill(
        tier="offline",
        datacenter="offline",
        partition=TopicPartition(TOPIC, 0),
        first=5,
        next=10,
        reason="deleted",
        at_ms=clusters.now_ms,
    )
    clusters.ledger.on_count(hole)
    clusters.ends["offline"] = 10
    clusters.arrive(*of(EAST, *range(10, 15)))
    assert found(clusters.outcome()) == []


@pytest.mark.parametrize("is_saved", [False, True])
def test_what_is_compared_for_good_becomes_facts_and_says_the_same(
    clusters: Clusters, is_saved: bool
) -> None:
    three_ranges(clusters)
    clusters.arrive(*of(WEST, *range(15)), *of(EAST, *range(5), 5, 8, 9, *range(10, 15), 12))
    clusters.pass_time()
    before = clusters.outcome()
    for _ in range(3):
        clusters.pass_time(700_000)
    ledger = clusters.ledger
    if is_saved:
        ledger = clusters.ledger = state.from_json(json.loads(json.dumps(state.as_json(ledger))))
    outcome = clusters.outcome()
    assert found(outcome) == found(before) == [("loss", EAST, 6, 7, 2), ("duplicate", EAST, 12, 12, 1)]
    assert outcome.aggregates == before.aggregates
    facts = ledger.aggregates.facts[EAST, TOPIC]
    assert facts.windows[NOW + WINDOW_SIZE_MS].lost == 2
    clusters.arrive(*of(EAST, 3))
    assert ("duplicate", EAST, 3, 3, 1) in found(clusters.outcome())


def test_an_aggregate_is_no_topic_of_the_other_tiers_and_is_told_apart(clusters: Clusters) -> None:
    three_ranges(clusters)
    clusters.arrive(*of(WEST, *range(15)), *of(EAST, *range(4), *range(5, 15)))
    clusters.live(EAST, *range(15, 20))
    clusters.arrive(*of(EAST, *range(15, 20)))
    outcome = clusters.outcome()
    told = report.as_json(outcome, clusters.ledger, clusters.now_ms)
    assert [row["datacenter"] for row in told["topics"]] == [EAST, WEST]
    assert not [row for row in told["partitions"] if not row["datacenter"]]
    row = told["aggregate_topics"][0]
    assert (row["datacenter"], row["live"], row["aggregate"], row["unknown"]) == (EAST, 20, 19, 1)
    shown = tables(told, whole_parts)["topics"]
    assert "Aggregates" in shown


def test_alerts_hear_of_what_an_aggregate_lacks_until_it_is_accepted(
    clusters: Clusters, tmp_path: Path
) -> None:
    three_ranges(clusters)
    clusters.arrive(*of(WEST, *range(15)), *of(EAST, *range(5), 5, 8, 9, *range(10, 15)))
    outcome, acceptances = clusters.outcome(), clusters.ledger.acceptances
    outcome.topics[EAST, TOPIC].lost = 1
    metrics = AuditMetrics(tmp_path)

    def told() -> list[float | None]:
        metrics.observe(outcome, clusters.ledger, clusters.now_ms)
        labels = {"datacenter": EAST, "topic": TOPIC}
        names = ("headrace_audit_lost", "headrace_audit_open_lost")
        return [metrics.registry.get_sample_value(name, labels) for name in names]

    assert told() == [3, 3]
    (item,) = [item for item in outcome.findings if item.kind == "loss"]
    acceptances.take(accepted(item, by="ada", reason="known", at_ms=clusters.now_ms))
    assert told() == [3, 1]
    assert acceptances.sums() == {}
