"""The loop of a load: settle, plan, run tasks, commit, tell the group, tidy up.

Owns the order of a round's steps. Invariants: no row passes through this process, only descriptions of ranges and files; a
round plans on the very snapshot that its commit must replace; whatever dies between two steps, the next round goes on from
what the table says. Must not know Avro or Parquet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import KafkaError
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.registry_address import RegistryAddress
from headrace.load import commit, expiry, history, leftovers, ranges, tables
from headrace.load.avro_types import UnsupportedSchemaError
from headrace.load.growth import grow
from headrace.load.kept import NeedsUnknownError, dead_letter_files
from headrace.load.log_client import LogClient, named
from headrace.load.ranges import Limits, LoadFinding, OffsetRange, Plan
from headrace.load.registry import RegistryUnreachableError, SchemaRegistry, UnknownSchemaError
from headrace.load.schema_waits import SchemaWaits
from headrace.load.spark import RunTasks
from headrace.load.storage import UnlistedStoreError
from headrace.load.task import Assignment, RangeResult, TaskResult
from headrace.load.write import target_of

GROUP: Final = "headrace-load"
SCHEMA_WAIT_SECONDS: Final = 60.0

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    bootstrap: Bootstrap
    registry: RegistryAddress
    task_count_max: int
    wanted: Callable[[str], bool]
    """Whether a topic of this name is to be loaded."""
    limits: Limits = field(default_factory=Limits)
    schema_wait_seconds: float = SCHEMA_WAIT_SECONDS
    """How long a record waits for its schema to appear in the registry before it becomes a dead letter."""
    snapshot_age_ms: int = expiry.AGE_MS
    """How far back tables answer as of a time, where their properties do not say otherwise."""


@dataclass(slots=True, kw_only=True)
class RoundReport:
    """What a round did, over all tables."""

    rows: int = 0
    dead_letters: int = 0
    size_bytes: int = 0
    lag: int = 0
    """Offsets that were readable and are still not in the table."""
    commits: int = 0
    refused: int = 0
    commit_seconds: float = 0.0
    moved: bool = False
    """True when something changed, so that another round at once may find more to do."""
    findings: list[LoadFinding] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    refused_topics: list[str] = field(default_factory=list)
    """Sentences on topics that have no table; they are left out, and the others loaded."""
    waiting_for_schemas: list[int] = field(default_factory=list)
    worker_pids: set[int] = field(default_factory=set)
    reached: int = 0
    """Partitions whose leader answered."""


class Loader:
    """Runs rounds; keeps no offsets of its own, only the partitions that stand still and schemas waited for."""

    def __init__(
        self,
        catalog: Catalog,
        config: LoadConfig,
        run_tasks: RunTasks,
        went_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalog = catalog
        self._config = config
        self._run_tasks = run_tasks
        self._went_on = went_on
        self._client = LogClient(config.bootstrap, client_id="headrace-load")
        self._registry = SchemaRegistry(config.registry)
        self._run = leftovers.Run()
        self._stopped: dict[TopicPartition, tuple[LoadFinding, int]] = {}
        """Why partitions stand still that the brokers' offsets say nothing against, and in which life of theirs."""
        self._told: frozenset[LoadFinding] = frozenset()
        self._told_refused: frozenset[str] = frozenset()
        self._has_topics = True
        self._waits = SchemaWaits(config.schema_wait_seconds)
        self._log_ends: dict[TopicPartition, int] = {}
        self._expiry = expiry.Expiry(catalog, self._run, config.snapshot_age_ms)
        self._commits_since_expiry: dict[str, int] = {}
        self._cleaned_at: dict[str, float] = {}
        self._is_upgraded = False

    def round(self) -> RoundReport:
        """Load what is there now, within the limits, one commit a table."""
        report = RoundReport()
        self._upgrade_once()
        try:
            for name, partitions in self._partitions_by_table(report).items():
                self._round_of(name, partitions, report)
        except (ConnectionFailedError, KafkaError) as error:
            report.failures.append(str(error))
        report.findings.extend(finding for finding, _ in self._stopped.values())
        self._tell(frozenset(report.findings))
        self._tell_refused(frozenset(report.refused_topics))
        return report

    def close(self) -> None:
        self._client.close()
        self._run.close()

    def _upgrade_once(self) -> None:
        """Give older releases' tables today's columns, before anything is read or written."""
        if self._is_upgraded:
            return
        changed = tables.upgrade_all(self._catalog)
        self._is_upgraded = True
        if changed:
            logger.info("tables of an older release got today's columns", tables=changed)

    def _partitions_by_table(self, report: RoundReport) -> dict[str, list[TopicPartition]]:
        grouped: dict[str, list[TopicPartition]] = {}
        reasons: set[str] = set()
        partitions = self._client.partitions(self._config.wanted)
        self._tell_topics(bool(partitions))
        for partition in partitions:
            try:
                grouped.setdefault(tables.table_of_topic(partition.topic), []).append(partition)
            except tables.WarehouseError as error:
                reasons.add(str(error))
        report.refused_topics.extend(sorted(reasons))
        return grouped

    def _round_of(self, name: str, partitions: list[TopicPartition], report: RoundReport) -> None:
        try:
            table = commit.settle(self._catalog, name)
            self._clean(name, table)
            plan = self._plan(table, self._of_the_table(name, table, partitions, report), report)
            report.lag += plan.lag
            report.findings.extend(plan.findings)
            if plan.ranges:
                self._load(name, table, plan, report)
        except (commit.RefusedError, CommitFailedException) as error:
            logger.info("commit refused, planning anew", table=name, reason=error)
            report.refused += 1
            report.moved = True
        except tables.WarehouseError as error:
            report.failures.append(str(error))

    def _of_the_table(
        self, name: str, table: Table, partitions: list[TopicPartition], report: RoundReport
    ) -> list[TopicPartition]:
        """Return the partitions of topics that the table belongs to, as the snapshot to commit on says."""
        loaded = {place.topic for place in history.positions(table)}
        found = tables.strangers(name, {place.topic for place in partitions}, loaded)
        report.refused_topics.extend(found[topic] for topic in sorted(found))
        return [place for place in partitions if place.topic not in found]

    def _plan(self, table: Table, partitions: list[TopicPartition], report: RoundReport) -> Plan:
        """Plan what the brokers that answer have; the others' partitions are a failure of this round alone."""
        held = history.held(table)
        self._let_go_on(held, partitions)
        offsets = self._client.reachable_log_offsets(partitions)
        self._log_ends |= {place: offsets[place].end for place in offsets}
        report.reached += len(offsets)
        missing = [partition for partition in partitions if partition not in offsets]
        if missing:
            report.failures.append(f"no leader answers for {named(missing)}")
        ids = self._client.topic_ids()
        plan = ranges.plan(
            held.positions,
            offsets,
            self._config.limits,
            self._stopped,
            held.strangers(self._client.cluster_id(), ids, partitions),
            held.fences,
            ids,
            held.lives,
        )
        for finding in plan.findings:
            self._stopped.pop(TopicPartition(finding.topic, finding.partition), None)
        return plan

    def _let_go_on(self, held: history.Held, partitions: Sequence[TopicPartition]) -> None:
        """Forget why partitions stood still that a person has since moved in the table."""
        for place in partitions:
            if place not in self._stopped:
                continue
            finding, life = self._stopped[place]
            moved = held.positions.get(place, finding.offset) != finding.offset
            if moved or held.lives.get(place, 0) != life:
                del self._stopped[place]

    def _load(self, name: str, table: Table, plan: Plan, report: RoundReport) -> None:
        """Run the tasks of a plan and make their work visible."""
        results = self._run_tasks(self._assignments(table, plan.ranges))
        started = time.monotonic()
        snapshot = self._commit(table, results)
        if snapshot is not None:
            settled = self._settle(name)
            report.commit_seconds += time.monotonic() - started
            report.commits += 1
            report.moved = True
            self._went_on()
            self._tell_group(settled)
        self._count(results, report)
        self._look_into(name, results, report)
        if snapshot is not None:
            self._tidy(name)

    def _assignments(self, table: Table, planned: Sequence[OffsetRange]) -> list[Assignment]:
        dead_letters = tables.ensure_table(self._catalog, tables.DEAD_LETTER, tables.DEAD_LETTER_TABLE)
        rows = target_of(table, self._run.folder_of(table))
        letters = target_of(dead_letters, self._run.folder_of(dead_letters))
        shape = tables.shape_of(table)
        now = time.monotonic()
        given_up = self._waits.given_up(now)
        return [
            Assignment(
                ranges=members,
                bootstrap=self._config.bootstrap,
                registry=self._config.registry,
                rows=rows,
                dead_letters=letters,
                shape=shape,
                limits=self._config.limits,
                given_up=given_up,
                given_up_before={
                    each.topic_partition: before
                    for each in members
                    if (before := self._waits.given_up_before(each.topic_partition, now))
                },
            )
            for members in ranges.assign(planned, self._config.task_count_max)
        ]

    def _commit(self, table: Table, results: Sequence[TaskResult]) -> Snapshot | None:
        return commit.commit(table, results, self._client.topic_ids(), self._client.cluster_id())

    def _settle(self, name: str) -> Table:
        return commit.settle(self._catalog, name)

    def _tell_group(self, table: Table) -> None:
        """Commit the positions as a consumer group, for lag tools alone: nothing here reads them or waits for them."""
        try:
            self._client.commit_offsets(GROUP, history.positions(table), attempts_max=2)
        except (ConnectionFailedError, KafkaError) as error:
            logger.warning("group offsets not committed", group=GROUP, reason=error)

    def _count(self, results: Sequence[TaskResult], report: RoundReport) -> None:
        for result in results:
            report.worker_pids.add(result.worker_pid)
            for item in result.ranges:
                report.rows += item.row_count
                report.dead_letters += item.dead_letter_count
                report.size_bytes += item.size_bytes
                report.lag -= item.next_offset - item.first_offset

    def _look_into(self, name: str, results: Sequence[TaskResult], report: RoundReport) -> None:
        """Act on why ranges ended early: stop the partition, grow the table, wait for a schema, try again."""
        for item in (item for result in results for item in result.ranges):
            if item.finding is not None:
                self._stop(item, item.finding, report)
            if item.failure is not None:
                report.failures.append(item.failure)
            self._wait_for(item, report)
        grown = {(i.topic, i.new_schema) for r in results for i in r.ranges if i.new_schema is not None}
        for topic, schema_id in sorted(grown):
            self._grow(name, topic, schema_id, report)

    def _stop(self, item: RangeResult, finding: LoadFinding, report: RoundReport) -> None:
        """Leave a partition alone from now on, unless the next plan can say more of why it stands still."""
        if finding.kind == "retention":
            report.failures.append(f"{finding.topic}-{finding.partition}: {finding.detail}")
        else:
            place = TopicPartition(finding.topic, finding.partition)
            self._stopped[place] = (finding, item.life)

    def _tell(self, findings: frozenset[LoadFinding]) -> None:
        """Log each standstill once."""
        for finding in sorted(findings - self._told, key=lambda item: (item.topic, item.partition)):
            logger.error("partition stands still", reason=finding.sentence)
        self._told = findings

    def _tell_refused(self, sentences: frozenset[str]) -> None:
        """Log each topic without a table once."""
        for sentence in sorted(sentences - self._told_refused):
            logger.error("topic left out", reason=sentence)
        self._told_refused = sentences

    def _tell_topics(self, has_topics: bool) -> None:
        """Log once that there is nothing to load, as long as that is so."""
        if self._has_topics and not has_topics:
            logger.warning("no topic of the cluster matches, it is looked for each round")
        self._has_topics = has_topics

    def _wait_for(self, item: RangeResult, report: RoundReport) -> None:
        """Let what a range met and the registry does not know wait, unless it has waited long enough."""
        now, place = time.monotonic(), TopicPartition(item.topic, item.partition)
        self._waits.passed(place, item.next_offset)
        if not item.unknown_schemas:
            return
        new = self._waits.note(place, item.unknown_schemas, self._log_ends[place], now)
        if new:
            logger.warning("waiting for schemas", topic=item.topic, count=len(new), schema_id=new[0])
        given_up = self._waits.given_up(now)
        waiting = {each for each in item.unknown_schemas if (item.topic, each) not in given_up}
        if len(waiting) < len(item.unknown_schemas) or item.next_offset < self._waits.given_up_before(
            place, now
        ):
            report.moved = True
        else:
            report.waiting_for_schemas.extend(sorted(waiting))

    def _grow(self, name: str, topic: str, schema_id: int, report: RoundReport) -> None:
        try:
            grow(self._catalog, name, self._registry, topic, schema_id)
        except (RegistryUnreachableError, UnknownSchemaError, UnsupportedSchemaError) as error:
            report.failures.append(str(error))
            return
        logger.info("table grew", table=name, topic=topic, schema_id=schema_id)
        report.moved = True

    def _clean(self, name: str, table: Table) -> None:
        """Remove what dead attempts left behind, at this run's first look at a table and once a day."""
        now = time.monotonic()
        if now - self._cleaned_at.get(name, -leftovers.GRACE_SECONDS) < leftovers.GRACE_SECONDS:
            return
        self._cleaned_at[name] = now
        dead_letters = tables.ensure_table(self._catalog, tables.DEAD_LETTER, tables.DEAD_LETTER_TABLE)
        known = tables.ensure_history(self._catalog)
        try:
            removed = leftovers.remove_dead_data(table)
            removed += leftovers.remove_dead_data(dead_letters, dead_letter_files(self._catalog))
            removed += leftovers.remove_dead_data(known)
            for looked_at in (table, dead_letters, known):
                removed += leftovers.remove_old_metadata(looked_at)
        except (NeedsUnknownError, UnlistedStoreError, OSError) as error:
            logger.warning("leftovers of dead attempts stay", table=name, reason=error)
            return
        if removed:
            logger.info("removed files of dead attempts", table=name, count=len(removed))

    def _tidy(self, name: str) -> None:
        """Expire snapshots now and then: also where no run commits often enough, as with `--once`."""
        before = self._commits_since_expiry.get(name)
        count = self._expiry.overdue(name) if before is None else before + 1
        if count >= expiry.EVERY_COMMITS:
            count = 0
            self._expiry.tidy(name)
        self._commits_since_expiry[name] = count
