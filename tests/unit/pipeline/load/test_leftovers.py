"""Leftovers: what dead attempts wrote goes, and whatever any snapshot, tag, branch or older metadata names stays."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from load_kit import attempt, existing, file_of, files_of, load, offsets_in, rows_by_snapshot
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.load import commit, history, leftovers, tables
from headrace.load.kept import NeedsUnknownError, dead_letter_files
from headrace.load.leftovers import Run
from headrace.load.storage import local_path, plain


def compact(table: Table) -> None:
    """Write all rows anew, into one file, as `rewrite_data_files` does."""
    table.overwrite(table.scan().to_arrow())


def delete(table: Table) -> None:
    table.delete("_offset < 7")


def roll_back(table: Table) -> None:
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[4].snapshot_id).commit()


def change_a_branch(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_branch(snapshot.snapshot_id, "work").commit()
    table.delete("_offset < 9", branch="work")


def tag_and_compact(table: Table) -> None:
    """Leave a snapshot that only a tag still names, apart from the newest ones."""
    tagged, *others, _ = (item.snapshot_id for item in table.snapshots())
    table.manage_snapshots().create_tag(tagged, "as it was").commit()
    compact(table)
    table.maintenance.expire_snapshots().by_ids(others).commit()


def age(catalog: Catalog) -> None:
    """Make every file look as old as the epoch."""
    for name in ("pageviews", tables.DEAD_LETTER):
        for path in files_of(tables.load_table(catalog, name)):
            os.utime(path, (0, 0))


def restart(catalog: Catalog) -> list[str]:
    """Look for leftovers in every table as a start does."""
    removed = []
    for name in ("pageviews", tables.DEAD_LETTER):
        table = tables.load_table(catalog, name)
        removed += leftovers.remove_dead_data(table, dead_letter_files(catalog))
        removed += leftovers.remove_old_metadata(table)
    return removed


@pytest.mark.parametrize("change", [compact, delete, roll_back, change_a_branch, tag_and_compact])
@pytest.mark.acceptance
def test_a_restart_takes_nothing_from_any_snapshot(
    catalog: Catalog, run: Run, change: Callable[[Table], None]
) -> None:
    dead = Run()
    for number in range(6):
        load(catalog, dead, 2 * number, 2 * number + 2, dead=(2 * number,) if number % 3 == 0 else ())
    change(tables.load_table(catalog, "pageviews"))
    table = tables.load_table(catalog, "pageviews")
    before, kept = rows_by_snapshot(table), files_of(table)
    lost = attempt(catalog, dead, 12, 16, dead=(13,))
    dead.close()
    age(catalog)
    removed = restart(catalog)
    table = tables.load_table(catalog, "pageviews")
    assert lost[0].dead_letters is not None
    assert {plain(file_of(lost)), plain(lost[0].dead_letters.path)} == {
        plain(path) for path in removed if path.endswith(".parquet")
    }
    assert files_of(table) == kept
    assert rows_by_snapshot(table) == before
    (following,) = history.positions(table).values()
    load(catalog, run, following, following + 1)


def test_after_a_rollback_and_without_their_table_the_dead_letters_of_the_snapshot_are_still_there(
    catalog: Catalog, run: Run
) -> None:
    dead = Run()
    first = load(catalog, dead, 0, 3, dead=(1,))
    load(catalog, dead, 3, 6, dead=(4,))
    tables.load_table(catalog, tables.DEAD_LETTER).delete()
    dead.close()
    age(catalog)
    restart(catalog)
    assert first[0].dead_letters is not None
    path = local_path(first[0].dead_letters.path)
    assert path is not None
    assert path.exists()
    table = tables.load_table(catalog, "pageviews")
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    catalog.drop_table(f"{tables.NAMESPACE}.{tables.DEAD_LETTER}")
    commit.settle(catalog, "pageviews")
    assert offsets_in(catalog, tables.DEAD_LETTER) == [1]


def test_files_of_dead_attempts_go_and_those_of_the_living_stay(catalog: Catalog) -> None:
    dead, living = Run(), Run()
    committed = load(catalog, dead, 0, 5)
    lost = attempt(catalog, dead, 0, 5)
    in_flight = attempt(catalog, living, 5, 6)
    dead.close()
    removed = leftovers.remove_dead_data(tables.load_table(catalog, "pageviews"))
    assert [local_path(path) for path in removed] == [local_path(file_of(lost))]
    assert all(existing(results) for results in (committed, in_flight))
    assert offsets_in(catalog, "pageviews") == list(range(5))
    living.close()


def test_what_a_run_committed_and_died_on_after_the_table_was_loaded_stays(catalog: Catalog) -> None:
    other = Run()
    seen_before = commit.settle(catalog, "pageviews")
    committed = load(catalog, other, 0, 5)
    other.close()
    assert leftovers.remove_dead_data(seen_before) == []
    assert existing(committed)


def test_dead_letters_that_still_have_to_follow_are_not_taken_for_leftovers(catalog: Catalog) -> None:
    dead = Run()
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, dead, 0, 5, dead=(1,)))
    dead.close()
    letters = tables.load_table(catalog, tables.DEAD_LETTER)
    assert leftovers.remove_dead_data(letters, dead_letter_files(catalog)) == []
    commit.settle(catalog, "pageviews")
    assert offsets_in(catalog, tables.DEAD_LETTER) == [1]


def test_metadata_of_attempts_goes_and_what_others_put_there_stays(catalog: Catalog, run: Run) -> None:
    for number in range(3):
        load(catalog, run, number, number + 1)
    table = tables.load_table(catalog, "pageviews")
    folder = local_path(f"{table.location()}/metadata")
    assert folder is not None
    uuid = "0b0f5a9c-3a1d-4d3e-9f55-0d6a5f0e7a11"
    attempts = [f"00007-{uuid}.metadata.json", f"{uuid}-m0.avro", f"snap-77-0-{uuid}.avro"]
    others = ["version-hint.text", f"20261122-{uuid}.stats", "optimized-m-1.avro", "note.json"]
    young = f"{uuid}-m1.avro"
    for name in (*attempts, *others, young):
        (folder / name).write_bytes(b"x")
    for path in folder.iterdir():
        if path.name != young:
            os.utime(path, (0, 0))
    removed = leftovers.remove_old_metadata(table)
    assert sorted(path.rpartition("/")[2] for path in removed) == sorted(attempts)
    assert all((folder / name).exists() for name in (*others, young))
    assert offsets_in(catalog, "pageviews") == [0, 1, 2]


def test_where_a_needed_manifest_list_is_gone_nothing_is_removed(catalog: Catalog) -> None:
    dead = Run()
    load(catalog, dead, 0, 2)
    load(catalog, dead, 2, 4)
    lost = attempt(catalog, dead, 4, 5)
    dead.close()
    table = tables.load_table(catalog, "pageviews")
    first = local_path(table.snapshots()[0].manifest_list)
    assert first is not None
    first.unlink()
    with pytest.raises(NeedsUnknownError, match="which is gone"):
        leftovers.remove_dead_data(table)
    assert existing(lost)


def test_a_table_whose_files_others_share_is_left_alone(catalog: Catalog) -> None:
    dead = Run()
    load(catalog, dead, 0, 2)
    lost = attempt(catalog, dead, 2, 3)
    dead.close()
    table = tables.load_table(catalog, "pageviews")
    table.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    age(catalog)
    assert restart(catalog) == []
    assert existing(lost)
    assert history.positions(table)


def test_leftovers_of_no_run_are_never_touched(catalog: Catalog) -> None:
    table = tables.ensure_table(catalog, "pageviews")
    data = local_path(f"{table.location()}/data")
    assert data is not None
    for place in ("somebody-elses.parquet", "run-7/mine.parquet", "run-7/deeper/mine.parquet"):
        (data / place).parent.mkdir(parents=True, exist_ok=True)
        (data / place).write_bytes(b"x")
    assert leftovers.remove_dead_data(table) == []
