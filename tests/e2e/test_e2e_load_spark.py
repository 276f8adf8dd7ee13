"""Loads as Spark jobs: work happens in workers, a worker may die, and the command does what it says."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from commands import headrace
from load_driver import load
from load_helpers import (
    EVENT,
    EVENT_ID,
    GARBAGE,
    account,
    create_topic,
    event,
    every_offset_once,
    framed,
    publish,
    schemas_served,
)
from processes import DevCluster, eventually

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire.partitions import TopicPartition
from headrace.load import history, tables, task
from headrace.load.log_client import LogClient
from headrace.load.spark import RunTasks, spark_session, spark_tasks
from headrace.load.task import Assignment, TaskResult

YEAR_50000_MS = 1_515_731_616_000_000
YEAR_300000_MS = 9_405_000_000_000_000
HEADRACE = Path(sys.executable).with_name("headrace")


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    session = spark_session(2)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schemas_served({EVENT_ID: EVENT}) as url:
        yield url


def load_all(broker: DevCluster, registry: str, warehouse: Path, topic: str, run_tasks: RunTasks) -> None:
    load(broker.bootstrap, registry, tables.open_catalog(str(warehouse)), topic, run_tasks)


def test_a_session_brings_a_master_that_retries_where_none_is_given(session: Any) -> None:
    assert session.sparkContext.master == "local[2,4]"


def test_two_workers_decode_and_no_row_reaches_the_driver(
    broker: DevCluster, registry: str, session: Any, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, "dc-spark.pageviews", 2)
    publish(broker.bootstrap, "dc-spark.pageviews", 2, 20_000)
    rounds: list[list[TaskResult]] = []

    def observed(assignments: Sequence[Assignment]) -> list[TaskResult]:
        rounds.append(spark_tasks(session)(assignments))
        return rounds[-1]

    load_all(broker, registry, tmp_path, "dc-spark.pageviews", observed)
    decoding = [result for results in rounds for result in results if result.rows is not None]
    assert sum(result.rows.row_count for result in decoding if result.rows) == 20_000
    workers = {result.worker_pid for result in decoding}
    assert len(workers) == 2
    assert os.getpid() not in workers
    assert sum(len(pickle.dumps(result)) for result in decoding) < 20_000
    assert account(tmp_path) == every_offset_once(2, 20_000)


def killed_once(marker: str) -> Any:
    """A task that does all its work and dies before it can tell, the first time."""

    def run_and_die(assignment: Assignment) -> TaskResult:
        result = task.run(assignment)
        if not os.path.exists(marker):
            with open(marker, "w"):
                os.kill(os.getpid(), signal.SIGKILL)
        return result

    return run_and_die


@pytest.mark.acceptance
def test_a_killed_worker_is_run_again_and_its_file_is_removed_at_the_next_start(
    broker: DevCluster, registry: str, session: Any, tmp_path: Path
) -> None:
    topic = "dc-worker.pageviews"
    create_topic(broker.bootstrap, topic, 2)
    publish(broker.bootstrap, topic, 2, 400, garbage_every=40)
    load_all(broker, registry, tmp_path, topic, spark_tasks(session))
    publish(broker.bootstrap, topic, 2, 400, garbage_every=40)
    dying = killed_once(str(tmp_path / "died"))

    def run_tasks(assignments: Sequence[Assignment]) -> list[TaskResult]:
        rdd = session.sparkContext.parallelize(assignments, len(assignments))
        results: list[TaskResult] = rdd.map(dying).collect()
        return results

    load_all(broker, registry, tmp_path, topic, run_tasks)
    assert (tmp_path / "died").exists()
    assert account(tmp_path) == every_offset_once(2, 800)
    before = len(data_files(tmp_path))
    load_all(broker, registry, tmp_path, topic, spark_tasks(session))
    assert len(data_files(tmp_path)) < before
    assert account(tmp_path) == every_offset_once(2, 800)


def data_files(warehouse: Path) -> list[Path]:
    return list(warehouse.rglob("run-*/*.parquet"))


@pytest.mark.acceptance
def test_a_dataframe_reads_topics_with_and_without_the_registry(
    broker: DevCluster, registry: str, session: Any
) -> None:
    from headrace.load.datasource import HeadraceDataSource

    topic = "dc-frame.pageviews"
    create_topic(broker.bootstrap, topic, 2)
    publish(broker.bootstrap, topic, 2, 100, garbage_every=25)
    # A tombstone ends one partition, an id that nobody knows the other.
    ends: list[bytes | None] = [None, framed(99, EVENT, event(0))]
    publish_ends(broker.bootstrap, topic, ends)
    session.dataSource.register(HeadraceDataSource)
    bootstrap, topics = broker.bootstrap, topic
    reader = session.read.format("headrace").option("bootstrap", bootstrap).option("topics", topics)
    # Each question starts Python again to plan it, for two CPU-seconds.
    raw = reader.load().collect()
    assert len(raw) == 102
    assert {bytes(row.value) for row in raw if row._offset == row._topic_partition == 0} == {GARBAGE}
    events = reader.option("registry", registry).load()
    told = (
        events.where("_error IS NOT NULL OR header.sequence > 0")
        .select("_error", "header.sequence")
        .collect()
    )
    assert sum(row._error is not None for row in told) == 6
    assert sorted(row.sequence for row in told if row._error is None) == [
        number for number in range(100) if number % 25
    ]


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topics": "nosuchtopic"}, "matches 'nosuchtopic'"),
        ({"topics": "("}, "no regular expression"),
        (
            {"topics": "dc-odd.*", "startingOffsets": "latest"},
            "only bootstrap, topics, registry, command.config; it reads each",
        ),
    ],
)
def test_a_dataframe_of_unknown_options_or_no_topic_is_refused(
    broker: DevCluster, session: Any, options: dict[str, str], sentence: str
) -> None:
    from headrace.load.datasource import HeadraceDataSource

    session.dataSource.register(HeadraceDataSource)
    with pytest.raises(Exception, match=sentence):
        session.read.format("headrace").options(bootstrap=broker.bootstrap, **options).load().collect()


@pytest.mark.long
def test_a_time_that_python_lacks_is_told_by_a_dataframe_and_loaded_and_answered_as_a_number(
    broker: DevCluster, registry: str, session: Any, tmp_path: Path
) -> None:
    from headrace.load.datasource import HeadraceDataSource

    topic = "dc-odd.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    session.dataSource.register(HeadraceDataSource)
    reader = session.read.format("headrace").options(bootstrap=broker.bootstrap, topics=topic)
    assert reader.load().collect() == []
    assert reader.load().columns[-3:] == ["key", "value", "headers"]
    header = event(0)["header"]
    times = [YEAR_50000_MS, YEAR_300000_MS, header["time"]]
    odd = [{**event(0), "header": {**header, "time": time}} for time in times]
    for item in odd:
        publish_ends(broker.bootstrap, topic, [framed(EVENT_ID, EVENT, item)])
    rows = reader.option("registry", registry).load().orderBy("_offset").collect()
    assert [row._error is None for row in rows] == [False, False, True]
    assert rows[0]._error.startswith(f"header.time is {YEAR_50000_MS} milliseconds since 1970")
    assert rows[2].header.time.timestamp() * 1000 == header["time"]
    load_all(broker, registry, tmp_path, topic, spark_tasks(session))
    sql = "SELECT header, _reason FROM (SELECT header, NULL AS _reason, _offset FROM pageviews UNION ALL "
    sql += "SELECT NULL, _reason, _offset FROM dead_letter) ORDER BY _offset"
    asked = ["query", "--warehouse", str(tmp_path), "--json", sql]
    answer = json.loads(headrace(*asked).stdout)
    assert answer[0]["header"]["time"] == YEAR_50000_MS
    assert "out of bounds" in answer[1]["_reason"]
    assert answer[2]["header"]["time"] == "2023-11-14T22:13:20+00:00"


def test_a_dataframe_places_a_field_of_several_types_as_a_table_does(
    broker: DevCluster, session: Any
) -> None:
    from headrace.load.datasource import HeadraceDataSource

    topic = "dc-what.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    session.dataSource.register(HeadraceDataSource)
    alone, several = (
        {**EVENT, "fields": [*EVENT["fields"], {"name": "what", "type": kind}]}
        for kind in ("string", ["null", "string", "long"])
    )
    text, number = framed(1, alone, {**event(0), "what": "a"}), framed(2, several, {**event(1), "what": 5})
    for latest, newest, expected in (
        (None, number, [("a", None), (None, 5)]),
        (2, text, [("a", None), (None, 5), ("a", None)]),
    ):
        publish_ends(broker.bootstrap, topic, [text] if latest is None else [])
        publish_ends(broker.bootstrap, topic, [newest])
        with schemas_served({1: alone, 2: several}, newest=latest) as url:
            reader = session.read.format("headrace").options(bootstrap=broker.bootstrap, topics=topic)
            rows = reader.option("registry", url).load().orderBy("_offset").collect()
        assert [(row.what.string, row.what.long) for row in rows] == expected


def publish_ends(bootstrap: str, topic: str, values: Sequence[bytes | None]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for partition, value in enumerate(values):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def command(broker: DevCluster, registry: str, warehouse: Path, topics: str, *more: str) -> list[str]:
    where = ["--bootstrap", broker.bootstrap, "--registry", registry, "--warehouse", str(warehouse)]
    return [str(HEADRACE), "load", *where, "--topics", topics, *more]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_continuous_command_follows_the_log_and_ends_cleanly_on_a_signal(
    broker: DevCluster, registry: str, tmp_path: Path, number: signal.Signals
) -> None:
    topic = f"dc-{number.name}.pageviews"
    create_topic(broker.bootstrap, topic, 2)
    process = subprocess.Popen(command(broker, registry, tmp_path, topic, "--interval", "0.2"))
    try:
        for total in (50, 100, 150):
            publish(broker.bootstrap, topic, 2, 50)
            loaded_all = partial(has_loaded, tmp_path, total)
            eventually(loaded_all, timeout_s=180, what=f"{total} offsets loaded", every_s=0.5)
        process.send_signal(number)
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert account(tmp_path) == every_offset_once(2, 150)
    arrivals = history.arrivals(tables.open_catalog(str(tmp_path)), "pageviews")
    assert sum(row["next_offset"] - row["first_offset"] for row in arrivals.to_pylist()) == 150
    now_ms = time.time() * 1000
    assert all(now_ms - 600_000 < row["committed_at_ms"] <= now_ms for row in arrivals.to_pylist())


def has_loaded(warehouse: Path, count: int) -> bool:
    return loaded(warehouse) == count


def loaded(warehouse: Path) -> int:
    try:
        table = tables.load_table(tables.open_catalog(str(warehouse)), "pageviews")
    except tables.WarehouseError:
        return 0
    return sum(history.positions(table).values())


@pytest.mark.long
def test_rot_in_the_log_stops_its_partition_alone_and_is_said(
    dev_cluster: Any, registry: str, tmp_path: Path
) -> None:
    data, topic, warehouse = tmp_path / "cluster", "dc-rot.pageviews", tmp_path / "warehouse"
    cluster = dev_cluster(data=data)
    create_topic(cluster.bootstrap, topic, 2)
    for _ in range(3):
        publish(cluster.bootstrap, topic, 2, 100)
    assert cluster.stop() == 0
    (segment,) = data.rglob(f"{topic}-1/00000000000000000000.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0x10
    segment.write_bytes(content)
    cluster = dev_cluster(data=data)
    done = subprocess.run(
        command(cluster, registry, warehouse, r"dc-rot\..*", "--once"),
        stderr=subprocess.PIPE,
        timeout=120,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "checksum" in done.stderr
    found = account(warehouse)
    assert sorted(offset for partition, offset in found if partition == 0) == list(range(150))
    before_rot = sorted(offset for partition, offset in found if partition == 1)
    assert before_rot == list(range(len(before_rot)))
    assert len(before_rot) < 150
    client = LogClient(Bootstrap(cluster.bootstrap))
    ends = client.log_offsets(client.partitions(lambda name: name == topic))
    assert ends[TopicPartition(topic, 1)].end == 150
    client.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["load", "--bootstrap", "nowhere", "--registry", "http://x"], "is no HOST:PORT"),
        (["load", "--bootstrap", "h:1", "--registry", "http://x", "--topics", "("], "no regular expression"),
        (["load", "--bootstrap", "h:1"], "--registry"),
        (["query", "--json", "--csv", "SELECT 1"], "exclude each other"),
        (["query", "--catalog-property", "glue", "SELECT 1"], "no KEY=VALUE"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(arguments: list[str], sentence: str) -> None:
    done = headrace(*arguments)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_query_of_a_warehouse_that_is_not_there_makes_none(tmp_path: Path) -> None:
    done = headrace("query", "--warehouse", str(tmp_path / "none"), "SELECT 1")
    assert done.returncode == 1
    assert "there is no warehouse" in done.stderr
    assert not (tmp_path / "none").exists()
