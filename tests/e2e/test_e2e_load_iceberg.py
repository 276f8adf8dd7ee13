"""Tables that a load fills are read and changed by Spark SQL with Iceberg's runtime, and loading and the audit go on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from iceberg_spark import spark_session, spark_sql
from load_helpers import EVENT, create_topic, event, framed, schemas_served
from processes import DevCluster
from test_e2e_load_schemas import answer, loader_of, publish_values, settle_down

from headrace.audit.archive import Archive
from headrace.audit.ledger.facts import Facts, TopicFacts
from headrace.audit.ledger.ledger import Ledger
from headrace.audit.outcome import Counts, Finding
from headrace.audit.warehouse import Warehouse
from headrace.audit.windows import ProducerName, Stream
from headrace.load import tables
from headrace.load.defaults import as_properties, read_defaults
from headrace.load.names import renamed_defaults
from headrace.load.upgrade import LAYOUT_PROPERTY

ODD = {
    **EVENT,
    "fields": [
        *EVENT["fields"],
        {"name": "Path", "type": "string", "default": "P"},
        {"name": "_file", "type": "string", "default": "f"},
        {
            "name": "inside",
            "type": {
                "type": "record",
                "name": "Inside",
                "fields": [{"name": "x", "type": "int"}, {"name": "X", "type": "int"}],
            },
            "default": {"x": 1, "X": 2},
        },
        {"name": "either", "type": ["string", "long"], "default": "x"},
    ],
}
TOPIC = "dc-spark-sql.pageviews"
PAGEVIEWS, LETTERS = "headrace.warehouse.pageviews", "headrace.warehouse.dead_letter"


def publish(bootstrap: str, first: int, following: int) -> None:
    """Publish events of both schemas by turns, one in ten of them junk."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(first, following):
        odd = {**event(number), "Path": "Q", "_file": "g", "inside": {"x": 3, "X": 4}, "either": number}
        value = framed(2, ODD, odd) if number % 2 else framed(1, EVENT, event(number))
        producer.produce(
            TOPIC, b"junk" if number % 10 == 5 else value, key=b"k", headers=[("trace", b"1")], partition=0
        )
    assert producer.flush(30) == 0


def as_an_older_release_left_it(warehouse: Path) -> None:
    """Give the tables the columns, properties and defaults that a load made before it knew of reserved names."""
    catalog = tables.open_catalog(str(warehouse))
    named = {"Path_capitals_1": "Path", "_file_": "_file", "inside.X_capitals_1": "X"}
    for name, added, renamed in (
        ("pageviews", ("_key", "_headers"), named),
        (tables.DEAD_LETTER, ("headers",), {}),
    ):
        table = tables.load_table(catalog, name)
        defaults = renamed_defaults(read_defaults(table.properties), renamed)
        with table.transaction() as transaction:
            with transaction.update_schema() as update:
                for column, former in {**renamed, "_topic_partition": "_partition"}.items():
                    update.rename_column(column, former)
                for column in added:
                    update.delete_column(column)
            transaction.set_properties(as_properties(defaults))
            transaction.remove_properties(LAYOUT_PROPERTY)


def keep_settled(warehouse: Path) -> None:
    """Write what an audit settled as it does, batch by batch, so that the small files are merged."""
    archive, facts = Archive(tables.open_catalog(str(warehouse))), Facts()
    facts.topics["dc-spark-sql", "pageviews"] = topic = TopicFacts()
    now_ms = time.time_ns() // 1_000_000
    for number in range(24):
        topic.add_window(
            now_ms + number * 10_000, Counts(live=3, lost=1), {"live_to_offline": Counts(lost=1)}
        )
        found = Finding(
            kind="loss",
            hop="live_to_offline",
            stream=Stream("dc-spark-sql", "pageviews", "p"),
            first_sequence=number,
            last_sequence=number,
            count=1,
            window_start=now_ms,
        )
        topic.add_found([found], [])
        facts.begin_batch()
        archive.write(facts, {"p": ProducerName("web-1", "shop")})
        archive.merge(facts)
    for name in (tables.AUDIT_WINDOWS, tables.AUDIT_FINDINGS):
        assert (
            len(list(tables.load_table(tables.open_catalog(str(warehouse)), name).scan().plan_files())) == 1
        )


def run_page(warehouse: Path) -> str:
    """Run the commands of docs/querying.md about these tables; returns what they print."""
    script = Path(__file__).with_name("audit_tables.sh")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(warehouse), "WAREHOUSE": str(warehouse)}
    done = subprocess.run(
        ["bash", str(script)], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def counted(warehouse: Path) -> dict[str, int]:
    """How many events the audit finds, in the table and among the dead letters."""
    ledger = Ledger()
    Warehouse(tables.open_catalog(str(warehouse))).read_into(ledger)
    parcels = (parcel for parcels in ledger.copies.backlog.values() for parcel in parcels)
    rows = sum(copies.count for parcel in parcels for copies in parcel.copies.values())
    return {"events": rows, "no events": sum(ledger.foreign.values())}


@pytest.mark.acceptance
def test_spark_sql_reads_and_changes_the_tables_and_loading_goes_on(
    broker: DevCluster, tmp_path: Path
) -> None:
    create_topic(broker.bootstrap, TOPIC, 1)
    with schemas_served({1: EVENT, 2: ODD}) as url:
        publish(broker.bootstrap, 0, 20)
        settle_down(loader_of(broker.bootstrap, url, tmp_path, TOPIC))
        as_an_older_release_left_it(tmp_path)
        publish(broker.bootstrap, 20, 40)
        settle_down(loader_of(broker.bootstrap, url, tmp_path, TOPIC))
        keep_settled(tmp_path)
        changed = spark_sql(
            tmp_path,
            [
                f"SELECT * FROM {PAGEVIEWS} ORDER BY _offset",
                f"SELECT _offset, _topic_partition, _spec_id, _pos FROM {LETTERS} ORDER BY _offset",
                "SELECT topic, sum(live), sum(lost_live_to_offline) FROM headrace.warehouse.audit_windows GROUP BY topic",
                "SELECT kind, server, first_sequence, count FROM headrace.warehouse.audit_findings ORDER BY first_sequence",
                f"SELECT count(*) FROM {PAGEVIEWS} WHERE header.time >= TIMESTAMP '2023-11-14 22:13:20.030 UTC'",
                "SELECT min(readable_metrics.`header.time`.lower_bound) = TIMESTAMP '2023-11-14 22:13:20 UTC' "
                f"FROM {PAGEVIEWS}.files",
                f"SELECT coalesce(either.string, string(either.long + 1)) FROM {PAGEVIEWS} WHERE _offset > 37 ORDER BY _offset",
                f"ALTER TABLE {PAGEVIEWS} ADD PARTITION FIELD days(header.time)",
                f"UPDATE {PAGEVIEWS} SET path = '/updated' WHERE _offset = 0",
                f"MERGE INTO {PAGEVIEWS} t USING (SELECT 1L AS o) s ON t._offset = s.o "
                "WHEN MATCHED THEN UPDATE SET path = '/merged'",
                f"DELETE FROM {PAGEVIEWS} WHERE _offset = 2",
                "CALL headrace.system.rewrite_data_files(table => 'warehouse.pageviews', "
                "options => map('rewrite-all', 'true'))",
                f"ALTER TABLE {PAGEVIEWS} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')",
                f"DELETE FROM {PAGEVIEWS} WHERE _offset = 3",
                f"DELETE FROM {LETTERS} WHERE _offset = 5",
                "CALL headrace.system.expire_snapshots(table => 'warehouse.pageviews', "
                "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)",
                "CREATE TABLE headrace.warehouse.theirs (v variant) TBLPROPERTIES ('format-version'='3')",
                "CREATE VIEW headrace.warehouse.paths AS SELECT DISTINCT path FROM headrace.warehouse.pageviews",
                f"SELECT count(*) FROM {PAGEVIEWS} WHERE path IN ('/updated', '/merged')",
            ],
        )
        publish(broker.bootstrap, 40, 60)
        report = settle_down(loader_of(broker.bootstrap, url, tmp_path, TOPIC))
    read = changed[0]
    assert len(read) == 36
    assert changed[1] == [
        ["5", "0", "0", "0"],
        ["15", "0", "0", "1"],
        ["25", "0", "0", "0"],
        ["35", "0", "0", "1"],
    ]
    assert changed[2] == [["pageviews", "72", "24"]]
    assert changed[3] == [["loss", "web-1", str(number), "1"] for number in range(24)]
    assert changed[4:7] == [[["9"]], [["True"]], [["x"], ["40"]]]
    told = run_page(tmp_path)
    assert "web-1" in told
    assert "72" in told
    assert changed[-1] == [["2"]]
    assert (report.lag, report.findings, report.failures) == (0, [], [])
    rows = answer(
        tmp_path,
        "SELECT _offset, path, Path_capitals_1, _file_, inside.x, inside.X_capitals_1, _key, len(_headers) "
        "FROM warehouse.pageviews ORDER BY 1",
    )
    assert [row[0] for row in rows] == [
        number for number in range(60) if number % 10 != 5 and number not in (2, 3)
    ]
    assert counted(tmp_path) == {"events": 52, "no events": 5}
    in_time = "SELECT count(*) FROM warehouse.pageviews WHERE header.time >= '2023-11-14 22:13:20.030Z'::TIMESTAMPTZ"
    assert answer(tmp_path, in_time) == [(27,)]
    assert rows[0][:2] == (0, "/updated")
    assert rows[1][1:6] == ("/merged", "Q", "g", 3, 4)
    assert rows[-1] == (59, "/", "Q", "g", 3, 4, b"k", 1)
    assert rows[-2] == (58, "/", "P", "f", 1, 2, b"k", 1)
    letters: list[Any] = answer(tmp_path, "SELECT _offset FROM warehouse.dead_letter ORDER BY 1")
    assert letters == [(15,), (25,), (35,), (45,), (55,)]


@pytest.mark.acceptance
def test_a_spark_session_as_the_page_sets_it_up_sees_each_commit(broker: DevCluster, tmp_path: Path) -> None:
    topic = "dc-session.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    page = Path(__file__).parents[2] / "docs" / "querying.md"
    assert "spark.sql.catalog.headrace.cache-enabled=false" in page.read_text(encoding="utf-8")
    found = []
    with schemas_served({1: EVENT}) as url:
        loader = loader_of(broker.bootstrap, url, tmp_path, topic)
        publish_values(broker.bootstrap, topic, [framed(1, EVENT, event(0))])
        settle_down(loader)
        with spark_session(tmp_path) as run:
            for number in range(1, 4):
                found += run([f"SELECT count(*) FROM {PAGEVIEWS}"])
                publish_values(broker.bootstrap, topic, [framed(1, EVENT, event(number))])
                settle_down(loader)
    assert found == [[["1"]], [["2"]], [["3"]]]
