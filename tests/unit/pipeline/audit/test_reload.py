"""A window that is loaded again: its rows alone are replaced, in one commit, and nothing where the log may lack some of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform

from headrace.audit import reload
from headrace.audit.period import Period
from headrace.audit.reload import Log, NotReloadedError, Reload, RowPlace, reload_window
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.registry_address import RegistryAddress
from headrace.load import commit, history, tables
from headrace.load.log_client import LogClient
from headrace.load.ranges import LogOffsets, Passing
from headrace.load.task import RangeResult, TaskResult

TOPIC = "dc-east.pageviews"
PLACE = TopicPartition(TOPIC, 0)
SINCE_MS = 1_700_000_000_000
PERIOD = Period(SINCE_MS, SINCE_MS + 10_000)
OUTSIDE_MS = SINCE_MS + 10_000
POSITION = 10
HEADER = pa.struct([("time", pa.timestamp("us", "UTC")), ("sequence", pa.int64())])


class Cluster:
    """The offline cluster, as far as a reload asks it; `oldest_ms` is the time of the first record that is left."""

    def __init__(self) -> None:
        self.offsets = LogOffsets(0, 20)
        self.id: str | None = "one"
        self.oldest_ms = SINCE_MS
        self.settings = {"cleanup.policy": "delete"}

    def log_offsets(self, places: Any) -> dict[TopicPartition, LogOffsets]:
        return dict.fromkeys(places, self.offsets)

    def cluster_id(self) -> str | None:
        return self.id

    def topic_ids(self) -> dict[str, str]:
        return {}

    def topic_settings(self, topics: Any, name: str) -> dict[str, str]:
        return dict.fromkeys(topics, self.settings.get(name, ""))

    def chunks(self, *_: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(records=[SimpleNamespace(timestamp_ms=[self.oldest_ms])])


def rows(*offsets: int, time_ms: int = SINCE_MS) -> pa.Table:
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    own = {"_datacenter": "dc-east", "_topic": "pageviews", "_topic_partition": 0, "_timestamp": time}
    found = [{**own, "_offset": at, "header": {"time": time, "sequence": at}} for at in offsets]
    return pa.Table.from_pylist(found, schema=pa.schema([*tables.EVENT_TABLE, pa.field("header", HEADER)]))


def advance(table: Table, first: int, following: int) -> None:
    result = RangeResult(
        topic=TOPIC,
        partition=0,
        first_offset=first,
        next_offset=following,
        row_count=0,
        dead_letter_count=0,
        size_bytes=1,
    )
    commit.commit(
        table, [TaskResult(ranges=(result,), rows=None, dead_letters=None, worker_pid=1)], {}, "one"
    )


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A table at offset 10: of the window offset 1 is missing, 2 is there twice; 7 and 8 are of the next one."""
    catalog = tables.open_catalog(str(tmp_path / "warehouse"))
    table = tables.ensure_table(catalog, "pageviews", rows().schema)
    table.append(rows(0, 2, 2, 3))
    table.append(rows(7, 8, time_ms=OUTSIDE_MS))
    advance(table, 0, POSITION)
    return catalog


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(reload, "chunks", cluster.chunks)
    monkeypatch.setattr(reload, "_from_log", lambda *_: (rows(0, 1, 2, 3), set()))
    return cluster


def again(catalog: Catalog, cluster: Cluster, *, is_dry: bool = False) -> Reload:
    return reload_window(
        catalog,
        cast(LogClient, cluster),
        Log(Bootstrap("here:1"), RegistryAddress("http://there"), TOPIC),
        PERIOD,
        is_dry=is_dry,
    )


def offsets(catalog: Catalog) -> list[int]:
    return sorted(tables.load_table(catalog, "pageviews").scan().to_arrow().column("_offset").to_pylist())


def test_the_window_has_what_the_log_has_and_all_else_stays(catalog: Catalog, cluster: Cluster) -> None:
    before = len(tables.load_table(catalog, "pageviews").metadata.metadata_log)
    assert again(catalog, cluster) == Reload(rows_before=4, rows_after=4, added=1, removed=1)
    assert offsets(catalog) == [0, 1, 2, 3, 7, 8]
    table = tables.load_table(catalog, "pageviews")
    assert history.held(table).positions == {PLACE: POSITION}
    assert len(table.metadata.metadata_log) == before + 1
    last = table.current_snapshot()
    assert last is not None
    assert again(catalog, cluster) == Reload(rows_before=4, rows_after=4, added=0, removed=0)
    assert tables.load_table(catalog, "pageviews").current_snapshot() == last


def test_a_window_of_a_table_with_partition_fields_is_loaded_again(
    catalog: Catalog, cluster: Cluster
) -> None:
    with tables.load_table(catalog, "pageviews").update_spec() as update:
        update.add_field("header.time", DayTransform(), "day")
    assert again(catalog, cluster) == Reload(rows_before=4, rows_after=4, added=1, removed=1)
    assert offsets(catalog) == [0, 1, 2, 3, 7, 8]


def test_a_dry_run_says_the_same_and_changes_nothing(catalog: Catalog, cluster: Cluster) -> None:
    before = tables.load_table(catalog, "pageviews").current_snapshot()
    assert again(catalog, cluster, is_dry=True) == Reload(rows_before=4, rows_after=4, added=1, removed=1)
    assert tables.load_table(catalog, "pageviews").current_snapshot() == before


def test_what_the_load_brings_meanwhile_stays(
    catalog: Catalog, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any) -> tuple[pa.Table, set[RowPlace]]:
        table = tables.load_table(catalog, "pageviews")
        table.append(rows(12))
        advance(table, POSITION, 15)
        return rows(0, 1, 2, 3), set()

    monkeypatch.setattr(reload, "_from_log", read)
    again(catalog, cluster)
    assert offsets(catalog) == [0, 1, 2, 3, 7, 8, 12]
    assert history.held(tables.load_table(catalog, "pageviews")).positions == {PLACE: 15}


def test_a_dead_letter_stays_one_unless_a_redrive_gave_it_its_row(
    catalog: Catalog, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "_from_log", lambda *_: (rows(0, 1, 2, 3), {(0, 1), (0, 3)}))
    again(catalog, cluster)
    assert offsets(catalog) == [0, 2, 3, 7, 8]


def retention(cluster: Cluster, _: Catalog) -> None:
    cluster.offsets = LogOffsets(1, 20)


def retention_of_rows(cluster: Cluster, _: Catalog) -> None:
    cluster.offsets, cluster.oldest_ms = LogOffsets(1, 20), SINCE_MS - 60_000


def cut(cluster: Cluster, _: Catalog) -> None:
    cluster.offsets = LogOffsets(0, 9)


def compaction(cluster: Cluster, _: Catalog) -> None:
    cluster.settings["cleanup.policy"] = "compact,delete"


def another_cluster(cluster: Cluster, _: Catalog) -> None:
    cluster.id = "two"


def another_log(_: Cluster, catalog: Catalog) -> None:
    passing = Passing(
        kind="recreation", topic=TOPIC, partition=0, first_offset=10, next_offset=0, life=1, reason="anew"
    )
    commit.let_go_on(tables.load_table(catalog, "pageviews"), passing, "one", None)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (retention, "retention has taken the offsets below 1"),
        (retention_of_rows, "has rows of this window that dc-east.pageviews-0 has no longer"),
        (compaction, "the topic is compacted"),
        (cut, "is loaded up to offset 10, but its log ends at 9"),
        (another_cluster, "loaded from cluster one, and these brokers are of cluster two"),
        (another_log, "was let go on in another log"),
    ],
)
def test_a_window_that_the_log_may_not_have_whole_is_left_as_it_is(
    catalog: Catalog, cluster: Cluster, change: Callable[[Cluster, Catalog], None], sentence: str
) -> None:
    change(cluster, catalog)
    before = offsets(catalog)
    with pytest.raises(NotReloadedError, match=sentence):
        again(catalog, cluster)
    assert offsets(catalog) == before


def test_what_retention_took_of_older_windows_does_not_matter(catalog: Catalog, cluster: Cluster) -> None:
    tables.load_table(catalog, "pageviews").delete("_offset = 0")
    cluster.offsets, cluster.oldest_ms = LogOffsets(1, 20), SINCE_MS - 60_000
    assert again(catalog, cluster).added == 2
