"""What a broker tells of its sources, in reports and metrics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.topic_requests import TopicResult
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.copy.copier import NOT_WRITTEN, TOO_FEW_IN_SYNC, Copier
from headrace.mirror.memory.findings import CopyFinding, Kind
from headrace.mirror.memory.reports import (
    GROUPS,
    REPORT_INTERVAL_MS,
    SILENT_AFTER_MS,
    PartitionReport,
    Report,
    SourceReport,
    SyncReport,
    TopicReport,
)
from headrace.mirror.memory.state import State
from headrace.mirror.metrics import MirrorMetrics
from headrace.mirror.questions import Located
from headrace.mirror.reporter import NOT_READ, Reporter
from headrace.mirror.source import Source, SourceTopic
from headrace.mirror.targets import Targets

SECOND = 1000


@dataclass
class Clock:
    ms: int = 100 * SECOND

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@dataclass
class Told:
    """The journal, as far as reports go."""

    reports: list[Report] = field(default_factory=list)

    def tell(self, report: Report) -> None:
        self.reports.append(report)


class Journal:
    is_away = False

    def write(self, state: State, findings: Sequence[CopyFinding], written: Callable[[], None]) -> None:
        if not self.is_away:
            written()


@dataclass
class Script:
    """One broker with one source, and a copy of one partition of it."""

    clock: Clock = field(default_factory=Clock)
    journal: Told = field(default_factory=Told)

    def __post_init__(self) -> None:
        config = SourceConfig(name="dc-east", bootstrap_servers=(("east", 9092),), topics=re.compile(".*"))
        self.source = Source(
            config,
            Tunables(),
            self.clock,
            cast("Any", None),
            "id",
            lambda now_ms: None,
            own_cluster="OWN",
            is_here=lambda name: False,
        )
        self.reporter = Reporter(3, cast("Any", self.journal), [self.source])
        self.target = SimpleNamespace(
            log_start_offset=0,
            log_end_offset=0,
            last_batch=lambda: None,
            is_committed=True,
            has_enough_in_sync=True,
        )
        self.copier_journal = Journal()
        self.copier = Copier(
            "dc-east",
            "events",
            0,
            target=cast("Any", self.target),
            journal=cast("Any", self.copier_journal),
            state=State(target_id=UUID(int=1)),
            now_ms=self.clock.ms,
        )
        self.source.copiers["events", 0] = self.copier

    def locate(self, leader: int = 1) -> None:
        found = Located(topic_id=UUID(int=5), leader=leader, leader_epoch=0, is_compacted=False)
        self.copier.located(found, self.clock.ms)

    def told(self) -> Report:
        self.reporter.tell(self.clock.ms)
        return self.journal.reports[-1]

    def metric(self, name: str, **labels: str) -> float | None:
        registry = CollectorRegistry()
        registry.register(MirrorMetrics([self.source], {}, self.clock))
        return registry.get_sample_value(f"headrace_mirror_{name}", {"source": "dc-east", **labels})

    def of_partition(self, name: str, **labels: str) -> float | None:
        return self.metric(name, topic="events", partition="0", **labels)


def test_a_report_is_written_when_something_changes_and_from_time_to_time() -> None:
    script = Script()
    assert script.told().sources == (
        SourceReport(name="dc-east", bootstrap="east:9092", answered_ms=None, problem=""),
    )
    script.source.heard(script.clock.ms)
    script.told()
    script.clock.ms += REPORT_INTERVAL_MS - 1
    script.source.heard(script.clock.ms)
    script.told()
    assert len(script.journal.reports) == 2
    script.source.problem = "connection refused"
    assert script.told().sources[0].problem == "connection refused"
    script.clock.ms += REPORT_INTERVAL_MS
    script.told()
    assert len(script.journal.reports) == 4


def test_the_last_answer_is_known_from_the_brokers_earlier_life() -> None:
    script = Script()
    told = SourceReport(name="dc-east", bootstrap="east:9092", answered_ms=7, problem="")
    script.reporter.remember(script.source, None)
    script.reporter.remember(script.source, Report(broker=3, at_ms=9, sources=(told,)))
    assert script.source.answered_ms == 7
    assert script.source.silent_ms(script.clock.ms) == script.clock.ms - 7


def test_a_partition_without_an_answer_is_told_once_its_source_answers() -> None:
    script = Script()
    script.clock.ms += SILENT_AFTER_MS + 1
    assert script.told().partitions == (), "of a silent source all partitions are"
    script.source.heard(script.clock.ms)
    not_listed = PartitionReport(
        topic="dc-east.events", partition=0, state="not listed", reason="dc-east does not list the partition"
    )
    assert script.told().partitions == (not_listed,)
    script.locate(leader=-1)
    (found,) = script.told().partitions
    assert (found.state, found.reason) == ("waiting", "the partition has no leader in dc-east")
    script.locate()
    script.copier.problem = "NOT_LEADER_OR_FOLLOWER"
    assert script.told().partitions[0].reason == "NOT_LEADER_OR_FOLLOWER"
    script.copier.progress.answered(5, script.clock.ms)
    assert script.told().partitions == ()


def test_a_copy_that_waits_for_its_own_cluster_says_for_what() -> None:
    script = Script()
    script.clock.ms += SILENT_AFTER_MS + 1
    script.source.heard(script.clock.ms)
    script.target.has_enough_in_sync = False
    assert script.told().partitions[0].reason == TOO_FEW_IN_SYNC
    script.target.has_enough_in_sync = True
    script.copier_journal.is_away = True
    script.locate()
    assert script.told().partitions[0].reason == NOT_WRITTEN


def test_a_copy_whose_state_is_not_there_yet_is_told_after_a_while() -> None:
    script = Script()
    script.source.heard(script.clock.ms)
    script.source.copiers.clear()
    script.source.awaited["events", 0] = script.clock.ms
    assert script.told().partitions == ()
    script.clock.ms += SILENT_AFTER_MS + 1
    script.source.heard(script.clock.ms)
    (found,) = script.told().partitions
    assert (found.topic, found.state, found.reason) == ("dc-east.events", "waiting", NOT_READ)


def test_what_is_not_known_is_not_0_in_the_metrics() -> None:
    script = Script()
    assert script.of_partition("lag_messages") != script.of_partition("lag_messages"), "NaN"
    assert script.of_partition("lag_seconds") != script.of_partition("lag_seconds"), "NaN"
    script.copier.progress.answered(5, script.clock.ms)
    assert script.of_partition("lag_messages") == 5
    script.copier.failed("connection refused", script.clock.ms)
    assert script.of_partition("lag_messages") != script.of_partition("lag_messages"), "NaN"


def test_a_silent_source_is_counted_in_seconds_from_the_start_on() -> None:
    script = Script()
    script.clock.ms += 40 * SECOND
    assert (script.metric("source_up"), script.metric("source_silent_seconds")) == (0, 40)
    script.source.heard(script.clock.ms)
    script.clock.ms += 3 * SECOND
    assert (script.metric("source_up"), script.metric("source_silent_seconds")) == (1, 3)
    script.clock.ms += SILENT_AFTER_MS
    assert script.metric("source_up") == 0


def test_a_rotten_partition_is_not_copying_in_the_metrics() -> None:
    script = Script()
    script.locate()
    rotten = CopyFinding(
        kind=Kind.ROT,
        datacenter="dc-east",
        topic="events",
        partition=0,
        first_offset=0,
        last_offset=4,
        detected_ms=1,
        reason="so it is",
    )
    assert script.of_partition("state", state="surveying") == 1
    script.copier._notes.state = State(target_id=UUID(int=1), rotten=rotten)
    assert (
        script.of_partition("state", state="surveying"),
        script.of_partition("state", state="rotten"),
    ) == (0, 1)
    assert script.of_partition("rotten") == 1


@pytest.mark.parametrize(
    ("partitions_known", "reason"),
    [(None, "cannot be created: too long"), (1, "cannot have 2 partitions: too long")],
)
def test_a_topic_that_cannot_be_brought_is_told_until_it_can(
    partitions_known: int | None, reason: str
) -> None:
    script = Script()
    answers = [
        TopicResult(name="dc-east.events", error=ErrorCode.INVALID_TOPIC_EXCEPTION, message="too long")
    ]

    async def create(new: list[Any], *, timeout_ms: int) -> list[TopicResult]:
        return list(answers)

    async def grow(name: str, count: int, *rest: Any, **options: Any) -> TopicResult:
        return answers[0]

    known = None if partitions_known is None else dict.fromkeys(range(partitions_known))

    async def stored_of_topics(names: list[str]) -> dict[str, dict[str, str]]:
        return {name: {"headrace.mirror.clusters": "EAST"} for name in names}

    host = SimpleNamespace(
        clock=script.clock,
        led=list,
        metadata=SimpleNamespace(topics=lambda name: known, topic_id=lambda name: UUID(int=6)),
        topics=SimpleNamespace(create=create, grow=grow),
        configurations=SimpleNamespace(stored_of_topics=stored_of_topics),
    )
    targets = Targets(cast("Any", host), cast("Any", None))
    script.source.cluster_id = "EAST"
    script.source.topics["events"] = SourceTopic(
        name="events",
        topic_id=UUID(int=5),
        partitions={0: (1, 0), 1: (1, 0)},
        configs={"cleanup.policy": "delete"},
    )
    asyncio.run(targets.keep_in_step(script.source))
    assert script.told().topics == (TopicReport(source="dc-east", topic="dc-east.events", reason=reason),)
    assert script.metric("topics_not_brought") == 1
    answers[0] = TopicResult(name="dc-east.events")
    asyncio.run(targets.keep_in_step(script.source))
    assert (script.told().topics, script.metric("topics_not_brought")) == ((), 0)


def test_what_else_is_brought_is_told_by_whoever_brings_it() -> None:
    script = Script()
    labels = {"what": GROUPS}
    assert (script.told().syncs, script.metric("sync_in_step", **labels)) == ((), None)
    found = SyncReport(source="dc-east", what=GROUPS, succeeded_ms=5_000, in_step=3, left_alone=1, behind=9)
    script.source.syncs[GROUPS] = found
    assert script.told().syncs == (found,)
    names = ("last_success_timestamp_seconds", "in_step", "left_alone", "behind_messages")
    assert [script.metric(f"sync_{name}", **labels) for name in names] == [5, 3, 1, 9]
    count = len(script.journal.reports)
    script.source.syncs[GROUPS] = replace(found, succeeded_ms=6_000)
    script.told()
    assert len(script.journal.reports) == count, "nothing new but the time"
