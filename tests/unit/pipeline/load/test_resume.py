"""What a person may say to a partition that stands still, and what the table holds afterwards."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from headrace.broker.wire.partitions import TopicPartition
from headrace.load import commit, expiry, history, tables
from headrace.load.fences import Fence
from headrace.load.history import Held
from headrace.load.leftovers import Run
from headrace.load.ranges import FindingKind, LoadFinding, LogOffsets, Passing
from headrace.load.resume import NotPassedError, Order, Standing, passing_of
from headrace.load.task import RangeResult, TaskResult

TOPIC = "dc-east.pageviews"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
FENCE = Fence(3, 30, 40, 4711)


def standing(kind: FindingKind | None, *, go_on_at: int | None = None, life: int = 0) -> Standing:
    finding = None
    if kind is not None:
        finding = LoadFinding(
            kind=kind, topic=TOPIC, partition=0, offset=40, detail="it is so", go_on_at=go_on_at
        )
    return Standing(
        table="pageviews", place=P0, position=40, log=LogOffsets(20, 100), life=life, finding=finding
    )


@pytest.mark.parametrize(
    ("order", "kind", "go_on_at", "at", "life"),
    [
        ("resume", "retention", 60, 60, 0),
        ("resume", "recreation", 20, 20, 1),
        ("resume", "recreation", 20, 100, 1),
        ("resume", "truncation", None, 40, 1),
        ("skip", "corruption", 50, 50, 0),
        ("skip", "corruption", None, 77, 0),
        ("skip", "unsupported", None, 41, 0),
    ],
)
def test_what_may_be_passed(
    order: Order, kind: FindingKind, go_on_at: int | None, at: int, life: int
) -> None:
    passing = passing_of(standing(kind, go_on_at=go_on_at), order, 40, at)
    assert (passing.first_offset, passing.next_offset, passing.life) == (40, at, life)
    assert (passing.kind, passing.reason) == (kind, "it is so")


@pytest.mark.parametrize(
    ("order", "kind", "go_on_at", "position", "at", "sentence"),
    [
        ("resume", None, None, 40, 50, "nothing stops"),
        ("resume", "retention", 60, 39, 60, "stands at offset 40 .* not at 39; .*--from 40 --at 60"),
        ("resume", "retention", 60, 40, 61, "can be loaded from offset 60 on"),
        ("resume", "retention", 60, 40, 40, "41 to 100"),
        ("resume", "recreation", 20, 40, 19, "20 to 100"),
        ("resume", "truncation", None, 40, 101, "20 to 100"),
        ("resume", "corruption", 50, 40, 50, "headrace load skip .* --from 40 --at 50"),
        ("skip", "retention", 60, 40, 60, "headrace load resume .* --from 40 --at 60"),
        ("skip", "corruption", 50, 40, 51, "--from 40 --at 50"),
    ],
)
def test_what_may_not(
    order: Order, kind: FindingKind | None, go_on_at: int | None, position: int, at: int, sentence: str
) -> None:
    with pytest.raises(NotPassedError, match=sentence):
        passing_of(standing(kind, go_on_at=go_on_at), order, position, at)


def passing(kind: FindingKind, first: int, following: int, life: int = 0, partition: int = 0) -> Passing:
    return Passing(
        topic=TOPIC,
        partition=partition,
        first_offset=first,
        next_offset=following,
        kind=kind,
        reason=f"{kind} it was",
        life=life,
    )


HELD = Held(
    positions={P0: 40, P1: 7},
    fences={P0: FENCE, P1: FENCE},
    topic_ids={TOPIC: "old"},
    clusters={TOPIC: "here"},
)


def test_offsets_that_are_passed_over_leave_the_log_the_same() -> None:
    after = HELD.after(passing("retention", 40, 60), "here", "old")
    assert after.positions == {P0: 60, P1: 7}
    assert after.fences == HELD.fences
    assert after.lives == {}


def test_partitions_of_a_topic_made_anew_go_on_one_by_one() -> None:
    assert set(HELD.strangers("here", {TOPIC: "new"}, [P0, P1])) == {P0, P1}
    after = HELD.after(passing("recreation", 40, 0, 1), "here", "new")
    assert (after.positions, after.lives) == ({P0: 0, P1: 7}, {P0: 1})
    assert after.fences == {P1: FENCE}
    assert set(after.strangers("here", {TOPIC: "new"}, [P0, P1])) == {P1}
    assert "its id was old, now it is new" in after.strangers("here", {TOPIC: "new"}, [P1])[P1]
    done = after.after(passing("recreation", 7, 0, 1, partition=1), "here", "new")
    assert done.strangers("here", {TOPIC: "new"}, [P0, P1]) == {}
    assert set(done.strangers("here", {TOPIC: "newer"}, [P0, P1])) == {P0, P1}


def test_another_cluster_is_another_log_even_where_the_ids_agree() -> None:
    assert set(HELD.strangers("there", {TOPIC: "old"}, [P0])) == {P0}
    assert HELD.strangers(None, {}, [P0]) == {}
    after = HELD.after(passing("recreation", 40, 40, 1), "there", "old")
    assert after.strangers("there", {TOPIC: "old"}, [P0]) == {}
    assert set(after.strangers("there", {TOPIC: "old"}, [P0, P1])) == {P1}


def load(catalog: Catalog, first: int, following: int) -> None:
    """Commit a range without rows."""
    result = RangeResult(
        topic=TOPIC,
        partition=0,
        first_offset=first,
        next_offset=following,
        row_count=0,
        dead_letter_count=0,
        size_bytes=1,
        fence=Fence(3, first, following, following),
    )
    results = [TaskResult(ranges=(result,), rows=None, dead_letters=None, worker_pid=1)]
    commit.commit(commit.settle(catalog, "pageviews"), results, {TOPIC: "old"}, "here")


def test_a_table_holds_what_it_was_loaded_from_and_what_was_passed(catalog: Catalog) -> None:
    load(catalog, 0, 40)
    commit.let_go_on(commit.settle(catalog, "pageviews"), passing("retention", 40, 60), "here", "old")
    load(catalog, 60, 70)
    commit.let_go_on(commit.settle(catalog, "pageviews"), passing("recreation", 70, 0, 1), "there", "new")
    load(catalog, 0, 10)
    assert history.held(tables.load_table(catalog, "pageviews")) == Held(
        positions={P0: 10},
        fences={P0: Fence(3, 0, 10, 10)},
        topic_ids={TOPIC: "new"},
        clusters={TOPIC: "there"},
        lives={P0: 1},
    )
    assert history.passings(catalog, "pageviews") == [
        passing("retention", 40, 60),
        passing("recreation", 70, 0, 1),
    ]
    rows = history.arrivals(catalog, "pageviews").to_pylist()
    spans = [(row["first_offset"], row["next_offset"], row["life"], row["kind"]) for row in rows]
    assert spans == [
        (0, 40, 0, None),
        (40, 60, 0, "retention"),
        (60, 70, 0, None),
        (70, 0, 1, "recreation"),
        (0, 10, 1, None),
    ]


def test_a_load_that_was_planned_before_is_refused(catalog: Catalog) -> None:
    load(catalog, 0, 40)
    planned = commit.settle(catalog, "pageviews")
    commit.let_go_on(commit.settle(catalog, "pageviews"), passing("retention", 40, 60), "here", "old")
    with pytest.raises(commit.RefusedError):
        commit.let_go_on(planned, passing("retention", 40, 61), "here", "old")


def test_what_was_passed_outlives_the_snapshots(catalog: Catalog, run: Run) -> None:
    load(catalog, 0, 40)
    commit.let_go_on(commit.settle(catalog, "pageviews"), passing("retention", 40, 60), "here", "old")
    expiry.archive(catalog, "pageviews", run)
    load(catalog, 60, 70)
    table = tables.load_table(catalog, "pageviews")
    current = table.current_snapshot()
    doomed = [item.snapshot_id for item in table.snapshots() if item != current]
    table.maintenance.expire_snapshots().by_ids(doomed).commit()
    assert history.passings(catalog, "pageviews") == [passing("retention", 40, 60)]
    expiry.archive(catalog, "pageviews", run)
    assert len(history.arrivals(catalog, "pageviews")) == 3


def test_the_history_of_an_older_release_gets_the_columns_of_passings(catalog: Catalog, run: Run) -> None:
    old = pa.schema(list(tables.LOAD_HISTORY_TABLE)[:6])
    history_table = tables.ensure_table(catalog, tables.LOAD_HISTORY, old)
    row = {"table": "pageviews", "topic": TOPIC, "partition": 0, "committed_at_ms": 1}
    history_table.append(pa.Table.from_pylist([row | {"first_offset": 0, "next_offset": 5}], schema=old))
    load(catalog, 5, 40)
    assert len(history.arrivals(catalog, "pageviews")) == 2
    commit.let_go_on(commit.settle(catalog, "pageviews"), passing("retention", 40, 60), "here", "old")
    expiry.archive(catalog, "pageviews", run)
    kinds = history.arrivals(catalog, "pageviews").column("kind").to_pylist()
    assert sorted(kinds, key=str) == [None, None, "retention"]


def test_a_position_of_an_older_release_has_no_fence_until_its_next_load(catalog: Catalog) -> None:
    table = commit.settle(catalog, "pageviews")
    old = {
        history.POSITIONS: history.nested({P0: 40}),
        history.TOPICS: f'{{"{TOPIC}":"{history.NO_TOPIC_ID}"}}',
    }
    commit.append(table, [], old)
    assert history.held(table) == Held(positions={P0: 40})
    load(catalog, 40, 50)
    held = history.held(tables.load_table(catalog, "pageviews"))
    assert (held.fences, held.topic_ids) == ({P0: Fence(3, 40, 50, 50)}, {TOPIC: "old"})
