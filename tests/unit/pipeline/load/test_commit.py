"""Commits of a load on a real catalog in a temporary folder: what is refused, what follows, what stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from load_kit import TOPIC, attempt, letter_at, load, offsets_in, own, written
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from headrace.broker.wire.partitions import TopicPartition
from headrace.load import commit, history, query, tables
from headrace.load.avro_types import writer_schema
from headrace.load.leftovers import Run
from headrace.load.task import TaskResult


def test_rows_and_positions_appear_together(catalog: Catalog, run: Run) -> None:
    table = commit.settle(catalog, "pageviews")
    assert history.positions(table) == {}
    results = attempt(catalog, run, 0, 10)
    assert history.positions(tables.load_table(catalog, "pageviews")) == {}
    commit.commit(table, results)
    assert history.positions(tables.load_table(catalog, "pageviews")) == {TopicPartition(TOPIC, 0): 10}
    assert offsets_in(catalog, "pageviews") == list(range(10))


def test_a_range_without_rows_moves_the_position(catalog: Catalog, run: Run) -> None:
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 0, 3, dead=(0, 1, 2)))
    assert history.positions(tables.load_table(catalog, "pageviews")) == {TopicPartition(TOPIC, 0): 3}
    assert offsets_in(catalog, "pageviews") == []


def test_the_slower_of_two_drivers_is_refused_and_changes_nothing(catalog: Catalog, run: Run) -> None:
    slow, fast = commit.settle(catalog, "pageviews"), commit.settle(catalog, "pageviews")
    slow_results, fast_results = (
        attempt(catalog, run, 0, 10, dead=(3,)),
        attempt(catalog, run, 0, 6, dead=(3,)),
    )
    commit.commit(fast, fast_results)
    with pytest.raises(commit.RefusedError):
        commit.commit(slow, slow_results)
    commit.settle(catalog, "pageviews")
    assert offsets_in(catalog, "pageviews") == [0, 1, 2, 4, 5]
    assert offsets_in(catalog, tables.DEAD_LETTER) == [3]


def test_a_refused_commit_is_not_repeated_however_often_others_repeat_theirs(
    catalog: Catalog, run: Run
) -> None:
    ours = tables.ensure_table(catalog, "pageviews")
    ours.transaction().set_properties({tables.COMMIT_RETRIES: "4"}).commit_transaction()
    planned = commit.settle(catalog, "pageviews")
    results = attempt(catalog, run, 0, 1)
    tables.load_table(catalog, "pageviews").append(
        tables.EVENT_TABLE.empty_table(), snapshot_properties={"by": "an analyst"}
    )
    with pytest.raises(commit.RefusedError):
        commit.commit(planned, results)
    assert offsets_in(catalog, "pageviews") == []
    assert tables.load_table(catalog, "pageviews").properties[tables.COMMIT_RETRIES] == "4"


def test_dead_letters_follow_their_table_once_however_often_they_are_settled(
    catalog: Catalog, run: Run
) -> None:
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 0, 5, dead=(1, 2)))
    assert offsets_in(catalog, tables.DEAD_LETTER) == []
    for _ in range(3):
        commit.settle(catalog, "pageviews")
    assert offsets_in(catalog, tables.DEAD_LETTER) == [1, 2]
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 5, 9, dead=(6,)))
    commit.settle(catalog, "pageviews")
    assert offsets_in(catalog, tables.DEAD_LETTER) == [1, 2, 6]
    assert offsets_in(catalog, "pageviews") == [0, 3, 4, 5, 7, 8]


def test_a_settling_driver_that_slept_does_not_repeat_what_another_did(
    catalog: Catalog, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 0, 5, dead=(1,)))
    real = commit.append
    slept: list[bool] = []

    def append_after_the_other(*arguments: Any) -> Any:
        if not slept:
            slept.append(True)
            commit.settle(catalog, "pageviews")
            commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 5, 8, dead=(7,)))
            commit.settle(catalog, "pageviews")
        return real(*arguments)

    monkeypatch.setattr(commit, "append", append_after_the_other)
    commit.settle(catalog, "pageviews")
    assert offsets_in(catalog, tables.DEAD_LETTER) == [1, 7]


def test_dead_letters_of_two_tables_do_not_shadow_each_other(catalog: Catalog, run: Run) -> None:
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 0, 2, dead=(0,)))
    tables.ensure_table(catalog, "clicks")
    results = attempt(catalog, run, 0, 3, dead=(2,))
    clicks = commit.settle(catalog, "clicks")
    rows = written(clicks, run, [own(0), own(1)])
    replaced = TaskResult(
        ranges=results[0].ranges, rows=rows, dead_letters=results[0].dead_letters, worker_pid=1
    )
    commit.commit(clicks, [replaced])
    commit.settle(catalog, "clicks")
    commit.settle(catalog, "pageviews")
    commit.settle(catalog, "clicks")
    assert offsets_in(catalog, tables.DEAD_LETTER) == [0, 2]


def test_what_others_commit_to_the_tables_takes_no_position_and_repeats_no_letter(
    catalog: Catalog, run: Run
) -> None:
    table = commit.settle(catalog, "pageviews")
    commit.commit(table, attempt(catalog, run, 0, 5, dead=(2,)))
    tables.load_table(catalog, "pageviews").delete("_offset < 2")
    settled = commit.settle(catalog, "pageviews")
    assert history.positions(settled) == {TopicPartition(TOPIC, 0): 5}
    letters = tables.load_table(catalog, tables.DEAD_LETTER)
    assert letters.scan().to_arrow().num_rows == 1
    letters.delete("_offset == 2")
    again = commit.settle(catalog, "pageviews")
    assert tables.load_table(catalog, tables.DEAD_LETTER).scan().to_arrow().num_rows == 0
    commit.commit(again, attempt(catalog, run, 5, 7))
    rows = tables.load_table(catalog, "pageviews").scan().to_arrow()
    assert sorted(rows["_offset"].to_pylist()) == [3, 4, 5, 6]


def test_a_table_that_others_gave_partition_fields_is_loaded_on_and_all_of_it_is_found(
    catalog: Catalog, run: Run
) -> None:
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 0, 2))
    tables.ensure_table(catalog, tables.DEAD_LETTER, tables.DEAD_LETTER_TABLE)
    for name in ("pageviews", tables.DEAD_LETTER):
        with tables.load_table(catalog, name).update_spec() as update:
            update.add_field("_datacenter", IdentityTransform(), "datacenter")
    table = tables.load_table(catalog, "pageviews")
    table.append(table.scan().to_arrow().cast(table.schema().as_arrow()))
    for first in range(2, 50, 2):
        load(catalog, run, first, first + 2, dead=(first,))
    for name, offsets in (
        ("pageviews", [0, 0, 1, 1, *range(3, 50, 2)]),
        (tables.DEAD_LETTER, [*range(2, 50, 2)]),
    ):
        found = tables.load_table(catalog, name).scan(row_filter="_datacenter = 'dc-east'").to_arrow()
        assert sorted(found.column("_offset").to_pylist()) == offsets


def test_a_table_whose_specs_all_have_partition_fields_is_refused(catalog: Catalog, run: Run) -> None:
    columns = tables.ensure_table(catalog, "pageviews").schema()
    catalog.drop_table("warehouse.pageviews")
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "datacenter"))
    catalog.create_table("warehouse.pageviews", columns, partition_spec=spec)
    results = attempt(catalog, run, 0, 2)
    with pytest.raises(tables.WarehouseError, match="DROP PARTITION FIELD"):
        commit.commit(commit.settle(catalog, "pageviews"), results)


def test_a_table_grows_with_defaults_and_old_files_stay_readable(catalog: Catalog, run: Run) -> None:
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 0, 2))
    first = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "int"}]}
    tables.evolve(tables.load_table(catalog, "pageviews"), writer_schema(1, first))
    part = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int", "default": 3}]}
    second = {
        "type": "record",
        "name": "E",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "p", "type": part},
            {"name": "s", "type": "string", "default": "d"},
        ],
    }
    tables.evolve(tables.load_table(catalog, "pageviews"), writer_schema(2, second))
    shape = tables.shape_of(tables.load_table(catalog, "pageviews"))
    assert [(item.name, str(item.type)) for item in shape.columns] == [
        ("n", "int64"),
        ("p", "struct<x: int32>"),
        ("s", "string"),
    ]
    assert {path: default.to_pylist() for path, default in shape.defaults.items()} == {"p.x": [3], "s": ["d"]}
    answer = query.connect(catalog).sql("SELECT _offset, n, s FROM warehouse.pageviews ORDER BY 1").fetchall()
    assert answer == [(0, None, None), (1, None, None)]


def test_a_query_answers_over_every_table_and_joins_a_table_with_itself(catalog: Catalog, run: Run) -> None:
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 0, 5, dead=(1,)))
    commit.settle(catalog, "pageviews")
    connection = query.connect(catalog)
    assert connection.sql(
        "SELECT count(*) FROM warehouse.pageviews a JOIN warehouse.pageviews b USING (_offset)"
    ).fetchall() == [(4,)]
    assert connection.sql("SELECT _offset, _reason FROM warehouse.dead_letter").fetchall() == [(1, "bad")]


def test_a_query_lists_tables_by_the_names_that_one_types_and_keeps_hints(
    catalog: Catalog, run: Run, tmp_path: Path
) -> None:
    commit.commit(commit.settle(catalog, "pageviews"), attempt(catalog, run, 0, 5))
    connection = query.connect(catalog)
    assert [name for (name,) in connection.sql("SHOW TABLES").fetchall()] == ["dead_letter", "pageviews"]
    assert connection.sql("SELECT count(*) FROM pageviews").fetchall() == [(5,)]
    asked = ["--warehouse", str(tmp_path / "a warehouse, né Ünit"), "SELECT * FROM warehouse.pageview"]
    refused = CliRunner().invoke(query.query, asked)
    assert (refused.exit_code, refused.output.splitlines()[1]) == (1, 'Did you mean "pageviews"?')


def test_a_folder_that_no_file_url_can_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tables.WarehouseError, match="# \\? %"):
        tables.open_catalog(str(tmp_path / "50%"))


@pytest.mark.parametrize(
    ("topic", "split", "table"),
    [
        ("dc-east.pageviews", ("dc-east", "pageviews"), "pageviews"),
        ("dc-east.headrace.monitoring", ("dc-east", "headrace.monitoring"), "headrace_monitoring"),
        ("pageviews", ("", "pageviews"), "pageviews"),
    ],
)
def test_topics_have_a_datacenter_and_a_table(topic: str, split: tuple[str, str], table: str) -> None:
    assert tables.split_topic(topic) == split
    assert tables.table_of_topic(topic) == table


def test_a_topic_cannot_take_the_name_of_headraces_own_table() -> None:
    with pytest.raises(tables.WarehouseError, match="a table of headrace itself"):
        tables.table_of_topic("dc-east.dead_letter")


@pytest.mark.parametrize(
    ("topics", "loaded", "refused"),
    [
        ({"east.a-b"}, set(), set()),
        ({"east.a-b", "west.a-b"}, set(), set()),
        ({"east.a-b", "west.A.b"}, set(), {"east.a-b", "west.A.b"}),
        ({"east.a-b", "west.a_b"}, set(), {"east.a-b"}),
        ({"east.a-b", "west.a_b"}, {"north.a-b"}, {"west.a_b"}),
        ({"east.a.b"}, {"north.a-b"}, {"east.a.b"}),
        ({"east.a-b", "east.a.b", "east.a_b"}, {"east.a-b", "west.a.b"}, {"east.a_b"}),
    ],
)
def test_a_table_belongs_to_one_topic_of_whatever_datacenter(
    topics: set[str], loaded: set[str], refused: set[str]
) -> None:
    assert {tables.table_of_topic(topic) for topic in topics} == {"a_b"}
    found = tables.strangers("a_b", topics, loaded)
    assert found.keys() == refused
    assert all(f"topic {topic} cannot be loaded" in sentence for topic, sentence in found.items())


def letter_offsets(catalog: Catalog) -> list[int]:
    commit.settle(catalog, "pageviews")
    return offsets_in(catalog, tables.DEAD_LETTER)


def rolled_back(catalog: Catalog, snapshot_id: int) -> None:
    with tables.load_table(catalog, "pageviews").manage_snapshots() as change:
        change.rollback_to_snapshot(snapshot_id)


def test_dead_letters_that_a_rollback_took_back_come_again_once(catalog: Catalog, run: Run) -> None:
    load(catalog, run, 0, 5, dead=(1, 2))
    kept = tables.load_table(catalog, "pageviews").current_snapshot()
    assert kept is not None
    load(catalog, run, 5, 9, dead=(6,))
    load(catalog, run, 9, 12, dead=(9, 11))
    for _ in range(2):
        rolled_back(catalog, kept.snapshot_id)
        assert letter_offsets(catalog) == [1, 2]
        assert letter_offsets(catalog) == [1, 2]
        load(catalog, run, 5, 12, dead=(6, 9, 11))
        assert letter_offsets(catalog) == [1, 2, 6, 9, 11]


def test_a_rollback_takes_back_letters_of_its_table_alone(catalog: Catalog, run: Run) -> None:
    load(catalog, run, 0, 2)
    kept = tables.load_table(catalog, "pageviews").current_snapshot()
    assert kept is not None
    letters = tables.ensure_table(catalog, tables.DEAD_LETTER, tables.DEAD_LETTER_TABLE)
    theirs = [
        {**letter_at(7, b"v", "r"), "_topic": "clicks"},
        {**letter_at(7, b"v", "r"), "_topic_partition": 1},
    ]
    file = written(letters, run, theirs)
    assert file is not None
    commit.append(letters, [commit.data_file(file)], {})
    load(catalog, run, 2, 9, dead=(7, 8))
    rolled_back(catalog, kept.snapshot_id)
    assert letter_offsets(catalog) == [7, 7]
    load(catalog, run, 2, 9, dead=(8,))
    assert letter_offsets(catalog) == [7, 7, 8]


def test_a_rollback_past_a_new_life_takes_back_its_letters_at_any_offset(catalog: Catalog, run: Run) -> None:
    load(catalog, run, 0, 5, dead=(1,))
    kept = tables.load_table(catalog, "pageviews").current_snapshot()
    assert kept is not None
    letters = tables.ensure_table(catalog, tables.DEAD_LETTER, tables.DEAD_LETTER_TABLE)
    tables.ensure_life(letters)
    file = written(letters, run, [letter_at(0, b"v", "r", _life=1)])
    assert file is not None
    commit.append(letters, [commit.data_file(file)], {})
    load(catalog, run, 5, 7, dead=(6,))
    rolled_back(catalog, kept.snapshot_id)
    assert letter_offsets(catalog) == [1]
