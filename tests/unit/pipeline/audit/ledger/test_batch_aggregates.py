"""Aggregates that are counted by batch headers: their messages are those of their sources, or the report says why not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from batch_kit import batch

from headrace.audit import report, topic_names
from headrace.audit.batch_counts import BLOCK_SIZE, census
from headrace.audit.judging.reconcile import reconcile
from headrace.audit.ledger import state
from headrace.audit.ledger.ledger import HELD_MS, Ledger
from headrace.audit.modes import TopicModes, parse
from headrace.audit.outcome import Outcome
from headrace.audit.page import offline
from headrace.audit.page.markup import whole_parts
from headrace.audit.period import ALWAYS, BEGIN_MS, Period
from headrace.audit.records import Counted, CounterTier
from headrace.audit.windows import WINDOW_SIZE_MS
from headrace.broker.wire.partitions import TopicPartition

NOW = 1_700_000_000_000
TOPIC = "clicks"
EAST, WEST = "dc-east", "dc-west"


@dataclass
class Sources:
    """Two datacenters and their aggregate, one partition each; of each log the next offset."""

    ledger: Ledger = field(default_factory=Ledger)
    ends: dict[tuple[CounterTier, str], int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    at_ms: int = NOW

    def count(
        self,
        tier: CounterTier,
        topic: str,
        datacenter: str,
        messages: int,
        *,
        time_ms: int = NOW,
        **header: Any,
    ) -> None:
        first = self.ends.get((tier, datacenter + topic), 0)
        self.ends[tier, datacenter + topic] = first + messages
        compacted = header.pop("is_compacted", False)
        found = batch(first, messages, time_ms=time_ms, **header)
        self.ledger.on_count(
            Counted(
                tier=tier,
                datacenter=datacenter,
                partition=TopicPartition(topic, 0),
                first=first,
                next=first + messages,
                tallies=(),
                at_ms=self.at_ms,
                is_compacted=compacted,
                batches=census([found], (), first, WINDOW_SIZE_MS),
            )
        )

    def live(self, datacenter: str, messages: int, **header: Any) -> None:
        self.count("live", TOPIC, datacenter, messages, **header)

    def bring(self, producer: int, messages: int, *, skip: int = 0, time_ms: int = NOW) -> None:
        """Let a source partition's messages arrive in the aggregate; `skip` of them get lost before."""
        sequence = self.sequences.get(producer, 0) + skip
        self.sequences[producer] = sequence + messages
        numbers = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        self.count("offline", TOPIC, "offline", messages, time_ms=time_ms, **numbers)

    def outcome(self, period: Period = ALWAYS) -> Outcome:
        self.ledger.settle(self.at_ms)
        return reconcile(self.ledger, self.at_ms, period=period)

    def told(self) -> dict[str, Any]:
        return report.as_json(self.outcome(), self.ledger, self.at_ms)


@pytest.fixture
def sources() -> Sources:
    """Each datacenter has sent something."""
    sources = Sources()
    sources.live(EAST, 30)
    sources.live(WEST, 20)
    return sources


def row(told: dict[str, Any]) -> dict[str, Any]:
    (found,) = told["aggregate_topics"]
    assert (found["datacenter"], found["topic"]) == ("", TOPIC)
    return found  # type: ignore[no-any-return]


def test_it_is_complete_where_its_sources_add_up_to_it(sources: Sources) -> None:
    sources.bring(1, 10)
    sources.bring(2, 20)
    sources.bring(1, 20)
    told = sources.told()
    found = row(told)
    assert (found["live"], found["aggregate"], found["verdict"]) == (50, 50, "complete")
    assert (told["verdict"], told["findings"], told["incomplete"]) == ("complete", [], [])
    sides = {item["datacenter"]: (item["live"], item["offline"]) for item in told["header_topics"]}
    assert sides == {"": (0, 50), EAST: (30, None), WEST: (20, None)}
    shown = offline.tables(told, whole_parts)["topics"]
    assert "in an aggregate" in shown
    assert "all together" in shown


def test_what_is_missing_at_its_end_is_on_its_way_and_nobody_knows_whose_it_is(sources: Sources) -> None:
    sources.bring(1, 30)
    sources.bring(2, 12)
    told = sources.told()
    assert (row(told)["under_way"], row(told)["lost"], told["verdict"]) == (8, 0, "incomplete")
    (item,) = told["incomplete"]
    assert (
        item["reason"]
        == "partition 0: 8 messages are on their way to the aggregate topic, from dc-east or dc-west"
    )


def test_what_is_missing_in_the_middle_is_lost(sources: Sources) -> None:
    sources.bring(1, 10)
    sources.bring(1, 15, skip=5)
    sources.bring(2, 20)
    told = sources.told()
    found = row(told)
    assert (found["lost"], found["under_way"], found["unknown"]) == (5, 0, 0)
    assert (found["verdict"], told["verdict"]) == ("loss", "loss")
    assert told["incomplete"] == []


def test_what_is_there_again_hides_nothing_that_is_missing(sources: Sources) -> None:
    sources.bring(1, 30)
    sources.sequences[1] = 20
    sources.bring(1, 10)
    sources.bring(2, 10)
    told = sources.told()
    found = row(told)
    assert found["aggregate"] == found["live"]
    assert (found["duplicated"], found["under_way"], told["verdict"]) == (10, 10, "duplicates")


def test_what_no_live_count_tells_of_yet_is_unknown(sources: Sources) -> None:
    sources.bring(1, 30)
    sources.bring(2, 25)
    told = sources.told()
    assert (row(told)["unknown"], told["verdict"]) == (5, "incomplete")
    assert (
        "5 messages of the aggregate topic are in no count of a live cluster yet"
        in told["incomplete"][0]["reason"]
    )


def test_windows_before_what_is_on_its_way_are_complete() -> None:
    sources = Sources()
    later = NOW + 100 * WINDOW_SIZE_MS
    for producer, datacenter in enumerate((EAST, WEST)):
        sources.live(datacenter, BLOCK_SIZE)
        sources.bring(producer, BLOCK_SIZE)
    for producer, datacenter in enumerate((EAST, WEST)):
        sources.live(datacenter, 30, time_ms=later)
        sources.bring(producer, 20, time_ms=later)
    assert sources.outcome(Period(BEGIN_MS, later)).verdict == "complete"
    assert sources.outcome(Period(later, later + WINDOW_SIZE_MS)).verdict == "incomplete"


def test_a_source_that_is_copied_as_well_may_be_none(sources: Sources) -> None:
    sources.count("offline", f"{WEST}.{TOPIC}", "offline", 20)
    sources.bring(1, 30)
    sources.bring(2, 20)
    told = sources.told()
    assert (row(told)["verdict"], told["verdict"]) == ("incomplete", "incomplete")
    (item,) = told["incomplete"]
    assert "copies of the topic of dc-west as well" in item["reason"]


def test_logs_that_are_not_known_from_their_beginning_do_not_add_up() -> None:
    sources = Sources(ends={("live", WEST + TOPIC): 1000})
    sources.live(EAST, 30)
    sources.live(WEST, 20)
    sources.bring(1, 50)
    (item,) = sources.told()["incomplete"]
    assert "dc-west did not count it by batch headers from the first offset on" in item["reason"]


def test_a_compacted_topic_does_not_add_up(sources: Sources) -> None:
    sources.live(EAST, 10, is_compacted=True)
    sources.bring(1, 60)
    (item,) = sources.told()["incomplete"]
    assert "compacted" in item["reason"]


def test_without_a_source_nobody_knows_what_it_must_have() -> None:
    sources = Sources()
    sources.bring(1, 10)
    told = sources.told()
    assert told["verdict"] == "incomplete"
    assert "no datacenter counts this topic by its batch headers" in told["incomplete"][0]["reason"]


def test_a_source_that_nobody_brings_is_said_to_be_uncounted_where_there_is_no_aggregate() -> None:
    sources = Sources()
    sources.live(EAST, 10)
    told = sources.told()
    assert told["aggregate_topics"] == []
    assert (
        "no counter counts it by its batch headers in the offline cluster" in told["incomplete"][0]["reason"]
    )


@pytest.mark.parametrize("is_saved", [False, True])
def test_what_is_folded_adds_up_as_before(sources: Sources, is_saved: bool) -> None:
    sources.bring(1, 10)
    sources.bring(1, 10, skip=5)
    sources.bring(2, 12)
    before = sources.told()
    sources.at_ms += HELD_MS + 1
    assert sources.told()["aggregate_topics"] == before["aggregate_topics"]
    assert not sources.ledger.copies.held
    if is_saved:
        sources.ledger = state.from_json(json.loads(json.dumps(state.as_json(sources.ledger))))
    after = sources.told()
    for name in ("aggregate_topics", "header_topics", "findings", "verdict"):
        assert after[name] == before[name]
    sources.bring(2, 8)
    sources.bring(1, 5)
    assert row(sources.told())["under_way"] == 0


def test_the_offline_counter_takes_an_aggregate_by_name_and_counts_it_as_a_rule_says() -> None:
    rules = parse("clicks=headers,debug=off,.*=headers")
    modes = TopicModes(topic_names.parse("clicks,pageviews,debug"), rules, is_copies=True)
    assert [modes.mode(name) for name in ("clicks", "debug", "orders")] == ["headers", "off", None]
    assert modes.mode("dc-east.orders") == "headers"
