"""Expiry: which snapshots stay, that tags and branches always do, and that what only expired ones named goes in the end."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from load_kit import TOPIC, files_of, load, offsets_in, rows_by_snapshot
from pyiceberg.catalog import Catalog
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.types import StringType

from headrace.audit.ledger.ledger import ForeignLedgerError, Ledger
from headrace.audit.ledger.state import as_json, from_json
from headrace.audit.warehouse import Warehouse
from headrace.broker.wire.partitions import TopicPartition
from headrace.load import commit, expiry, history, tables
from headrace.load.expiry import DAY_MS, NEWEST_KEPT, Expiry, Retention, due
from headrace.load.leftovers import Run

OWN = history.POSITIONS
NOW_MS = 1_795_000_000_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def snapshot(number: int, at_ms: int, *, is_load: bool = True, parent: int | None = None) -> Snapshot:
    fields: dict[str, Any] = {
        "snapshot-id": number,
        "parent-snapshot-id": number - 1 if parent is None else parent,
        "sequence-number": number,
        "timestamp-ms": at_ms,
        "manifest-list": f"snap-{number}",
    }
    operation = Operation.APPEND if is_load else Operation.REPLACE
    return Snapshot(summary=Summary(operation, **({OWN: "{}"} if is_load else {})), **fields)


def reference(number: int, kind: SnapshotRefType = SnapshotRefType.BRANCH) -> SnapshotRef:
    return SnapshotRef.model_validate({"snapshot-id": number, "type": kind})


def kept(
    snapshots: list[Snapshot], now_ms: int, *, named: int | None = None, days: float = 5
) -> list[Snapshot]:
    references = [reference(snapshots[-1].snapshot_id)] + ([reference(named)] if named is not None else [])
    gone = {
        item.snapshot_id
        for item in due(snapshots, references, now_ms, OWN, Retention(age_ms=int(days * DAY_MS)))
    }
    return [item for item in snapshots if item.snapshot_id not in gone]


def life(span_days: float, every_ms: int, **named: Any) -> tuple[list[Snapshot], int]:
    """Commit for some days and expire every 20 commits; returns what is there then, and the most there ever was."""
    there: list[Snapshot] = []
    most = 0
    for number in range(1, int(span_days * DAY_MS / every_ms) + 1):
        there.append(snapshot(number, NOW_MS + number * every_ms))
        if number % expiry.EVERY_COMMITS == 0:
            most = max(most, len(there))
            there = kept(there, there[-1].timestamp_ms, **named)
    return there, most


def test_days_of_commits_leave_some_two_hundred_snapshots_near_any_time() -> None:
    there, most = life(5.2, 30_000)
    assert most <= NEWEST_KEPT + expiry.EVERY_COMMITS + 61 + 121
    now_ms = there[-1].timestamp_ms
    times = [item.timestamp_ms for item in there]
    for age_ms, gap_ms in (
        (0, MINUTE_MS),
        (HOUR_MS, MINUTE_MS),
        (2 * HOUR_MS, HOUR_MS),
        (5 * DAY_MS, HOUR_MS),
    ):
        asked = now_ms - age_ms
        assert asked - max(at for at in times if at <= asked) <= gap_ms


def test_a_longer_time_costs_one_snapshot_a_day() -> None:
    there, most = life(60, HOUR_MS, days=50)
    assert most <= NEWEST_KEPT + expiry.EVERY_COMMITS + 121 + 50
    assert there[-1].timestamp_ms - there[0].timestamp_ms >= 50 * DAY_MS


def test_the_snapshot_that_was_current_when_the_kept_time_begins_stays() -> None:
    there = [snapshot(1, NOW_MS - 40 * DAY_MS), snapshot(2, NOW_MS - 30 * DAY_MS)]
    there += [snapshot(number, NOW_MS + number) for number in range(3, 60)]
    assert [item.snapshot_id for item in kept(there, NOW_MS + 100)][:2] == [2, 40]


def test_what_a_tag_or_a_branch_names_never_expires() -> None:
    there, _ = life(7, 60_000, named=20)
    assert there[0].snapshot_id == 20
    assert there[0].timestamp_ms < there[-1].timestamp_ms - 5 * DAY_MS


def test_what_others_made_stays_with_what_says_how_far_it_is_loaded() -> None:
    there = [snapshot(number, NOW_MS + number, is_load=number != 11) for number in range(1, 61)]
    assert [item.snapshot_id for item in kept(there, NOW_MS + 60)] == [10, 11, *range(41, 61)]
    assert [item.snapshot_id for item in kept(there, NOW_MS + 6 * DAY_MS)][:1] == [41]


def test_the_last_load_stays_however_often_others_commit_above_it() -> None:
    there = [snapshot(1, NOW_MS)] + [snapshot(number, NOW_MS, is_load=False) for number in range(2, 100)]
    assert kept(there, NOW_MS + 9 * DAY_MS)[0].snapshot_id == 1


def fill(
    catalog: Catalog,
    run: Run,
    count: int,
    expirer: Expiry | None = None,
    every: int = expiry.EVERY_COMMITS,
) -> None:
    """Load one offset a commit, on top of what there is, and expire every so many."""
    held = history.positions(tables.ensure_table(catalog, "pageviews"))
    first = held.get(TopicPartition(TOPIC, 0), 0)
    for number in range(first, first + count):
        load(catalog, run, number, number + 1)
        if expirer is not None and (number + 1) % every == 0:
            expirer.tidy("pageviews")


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """Let the expiry see a clock that is some days ahead."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + days * 24 * 3600)


def test_a_tag_and_a_branch_outlive_the_expiry_and_its_files(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    expirer = Expiry(catalog, run)
    expirer._default = Retention(newest=5)
    fill(catalog, run, 5)
    table = tables.load_table(catalog, "pageviews")
    second, fourth = (table.snapshots()[index].snapshot_id for index in (1, 3))
    table.manage_snapshots().create_tag(second, "audited").create_branch(fourth, "work").commit()
    table.overwrite(table.scan().to_arrow())
    later(monkeypatch, 6)
    fill(catalog, run, 15, expirer, every=5)
    table = tables.load_table(catalog, "pageviews")
    assert set(table.refs()) == {"main", "audited", "work"}
    assert [item.snapshot_id for item in table.snapshots()][:2] == [second, fourth]
    current_when_the_time_begins = [5, 6, 7]
    numbers = [item.sequence_number for item in table.snapshots()]
    assert numbers == [2, 4, *current_when_the_time_begins, *range(18, 23)]
    rows = rows_by_snapshot(table)
    counts = [len(rows[item.snapshot_id]) for item in table.snapshots()]
    assert counts == [2, 4, 5, 0, 5, *range(16, 21)]
    assert history.positions(table) == {TopicPartition(TOPIC, 0): 20}


def test_expired_snapshots_leave_positions_rows_and_arrivals(catalog: Catalog, run: Run) -> None:
    fill(catalog, run, 25)
    before = history.arrivals(catalog, "pageviews").sort_by("first_offset")
    tables.load_table(catalog, "pageviews").manage_snapshots().create_tag(
        tables.load_table(catalog, "pageviews").snapshots()[2].snapshot_id, "third"
    ).commit()
    assert Expiry(catalog, run, age_ms=0).tidy("pageviews") == 25 - NEWEST_KEPT - 1
    table = tables.load_table(catalog, "pageviews")
    assert history.positions(table) == {TopicPartition(TOPIC, 0): 25}
    assert offsets_in(catalog, "pageviews") == list(range(25))
    assert history.arrivals(catalog, "pageviews").sort_by("first_offset").equals(before)
    assert before.column("first_offset").to_pylist() == list(range(25))


def test_an_audit_that_slept_over_an_expiry_knows_every_arrival(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    class Watched(Ledger):
        def on_loaded(self, place: Any, first: int, *_: Any) -> None:
            seen.add(first)

    ledger = Watched()
    warehouse = Warehouse(catalog)
    fill(catalog, run, 1)
    warehouse._read_arrivals(ledger, "pageviews")
    table = tables.load_table(catalog, "pageviews")
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "first").commit()
    fill(catalog, run, 25)
    later(monkeypatch, 0.001)
    assert Expiry(catalog, run).tidy("pageviews") > 0
    warehouse._read_arrivals(ledger, "pageviews")
    assert seen == set(range(26))


def test_arrivals_archived_before_a_crash_are_counted_once(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(catalog, run, 25)

    class Crash(BaseException):
        pass

    def crash(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr("pyiceberg.table.update.snapshot.ExpireSnapshots.commit", crash)
        with pytest.raises(Crash):
            Expiry(catalog, run, age_ms=0).tidy("pageviews")
    assert len(history.arrivals(catalog, "pageviews")) == 25
    assert Expiry(catalog, run, age_ms=0).tidy("pageviews") > 0
    assert len(history.arrivals(catalog, "pageviews")) == 25


def test_a_table_that_was_dropped_and_loaded_anew_has_arrivals_of_its_own(catalog: Catalog, run: Run) -> None:
    for _ in range(2):
        fill(catalog, run, 25)
        Expiry(catalog, run, age_ms=0).tidy("pageviews")
        known = history.arrivals(catalog, "pageviews").column("first_offset").to_pylist()
        assert sorted(known) == list(range(25))
        catalog.drop_table("warehouse.pageviews")


def test_an_audit_takes_a_table_that_was_dropped_and_loaded_anew_for_another(
    catalog: Catalog, run: Run
) -> None:
    ledger, warehouse = Ledger(), Warehouse(catalog)
    fill(catalog, run, 2)
    warehouse.read_into(ledger)
    kept = from_json(as_json(ledger))
    catalog.drop_table("warehouse.pageviews")
    fill(catalog, run, 3)
    with pytest.raises(ForeignLedgerError, match="dropped"):
        warehouse.read_into(kept)


def test_arrivals_that_an_older_release_archived_are_counted_once(catalog: Catalog, run: Run) -> None:
    fill(catalog, run, 25)
    Expiry(catalog, run, age_ms=0).tidy("pageviews")
    archive = tables.load_table(catalog, tables.LOAD_HISTORY)
    number = history.archived_up_to(archive, tables.load_table(catalog, "pageviews"))
    commit.append(archive, [], {history.ARCHIVED: json.dumps({"pageviews": number})})
    fill(catalog, run, 5)
    Expiry(catalog, run, age_ms=0).tidy("pageviews")
    known = history.arrivals(catalog, "pageviews").column("first_offset").to_pylist()
    assert (number, sorted(known)) == (5, list(range(30)))


def test_a_column_that_somebody_gave_the_history_is_left_empty(catalog: Catalog, run: Run) -> None:
    fill(catalog, run, 1)
    with tables.ensure_history(catalog).update_schema() as update:
        update.add_column("team", StringType())
    fill(catalog, run, 24)
    Expiry(catalog, run, age_ms=0).tidy("pageviews")
    archive = tables.load_table(catalog, tables.LOAD_HISTORY).scan().to_arrow()
    assert archive.column("team").to_pylist() == [None] * 5
    assert len(history.arrivals(catalog, "pageviews")) == 25


@pytest.mark.acceptance
def test_files_that_a_compaction_replaced_go_once_no_kept_metadata_names_them(
    catalog: Catalog, run: Run
) -> None:
    every = newest = 5
    expirer = Expiry(catalog, run)
    expirer._default = Retention(age_ms=0, newest=newest)
    fill(catalog, run, 5)
    table = tables.load_table(catalog, "pageviews")
    replaced = files_of(table, ".parquet")
    table.overwrite(table.scan().to_arrow())
    fill(catalog, run, 5, expirer, every)
    table = tables.load_table(catalog, "pageviews")
    before = rows_by_snapshot(table)
    assert [len(before[item.snapshot_id]) for item in table.snapshots()] == list(range(6, 11))
    assert min(map(len, before.values())) < 5
    assert replaced < files_of(table, ".parquet")
    fill(catalog, run, 20, expirer, every)
    table = tables.load_table(catalog, "pageviews")
    assert not replaced & files_of(table, ".parquet")
    assert set(map(len, rows_by_snapshot(table).values())) == set(range(6, 31))
    assert len(files_of(table, ".parquet")) == 1 + 25
    lists = {path for path in files_of(table, ".avro") if path.name.startswith("snap-")}
    assert len(lists) == 25


def test_a_tables_own_properties_say_how_long_its_history_is(catalog: Catalog, run: Run) -> None:
    fill(catalog, run, NEWEST_KEPT + 8)
    table = tables.load_table(catalog, "pageviews")
    wanted = {expiry.AGE_PROPERTY: "0", expiry.COUNT_PROPERTY: str(NEWEST_KEPT + 5)}
    table.transaction().set_properties(wanted).commit_transaction()
    assert Expiry(catalog, run).tidy("pageviews") == 3
    assert len(tables.load_table(catalog, "pageviews").snapshots()) == NEWEST_KEPT + 5


def test_a_table_whose_files_others_share_keeps_its_snapshots(catalog: Catalog, run: Run) -> None:
    fill(catalog, run, NEWEST_KEPT + 2)
    table = tables.load_table(catalog, "pageviews")
    table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    assert Expiry(catalog, run, age_ms=0).tidy("pageviews") == 0
    assert len(tables.load_table(catalog, "pageviews").snapshots()) == NEWEST_KEPT + 2
