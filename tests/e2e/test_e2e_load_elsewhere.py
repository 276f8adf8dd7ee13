"""Warehouses in an object store and Spark masters that are given from outside: the catalog's properties and the master hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import confluent_kafka
import pytest
from load_driver import load
from load_helpers import EVENT, EVENT_ID, account, create_topic, every_offset_once, publish, schemas_served
from moto.server import ThreadedMotoServer
from processes import DevCluster

from headrace.load import leftovers, tables
from headrace.load.write import FileWriter, target_of

PROGRAMS = Path(sys.executable).parent
BUCKET = "lake"
KEY, SECRET, REGION = "an-access-key", "a-secret-key", "eu-north-1"


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schemas_served({EVENT_ID: EVENT}) as url:
        yield url


@pytest.fixture
def store() -> Iterator[str]:
    """A real S3 server with a bucket; gives its URL."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION
    )
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield url
    server.stop()


def properties_of(store: str, folder: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "s3.endpoint": store,
        "s3.access-key-id": KEY,
        "s3.secret-access-key": SECRET,
        "s3.region": REGION,
    }


def without_aws(home: Path) -> dict[str, str]:
    """An environment in which nothing but the catalog's properties says where the store is."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    return inherited | {"HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"}


def run(environment: dict[str, str], *arguments: str, statuses: tuple[int, ...] = (0,)) -> Any:
    done = subprocess.run(
        [str(PROGRAMS / "headrace"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode in statuses, done.stderr
    assert "leftovers of dead attempts stay" not in done.stderr
    return json.loads(done.stdout)


PROGRAM = """
from headrace.cli.main import main
from headrace.load.spark import spark_session

print("master", spark_session(3).sparkContext.master)
main()
"""


def submitted(master: str, environment: dict[str, str], folder: Path, *arguments: str) -> tuple[str, str]:
    """Run the command `headrace` by spark-submit; the line that says its master, and what it prints."""
    program = folder / "load.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [str(PROGRAMS / "spark-submit"), "--master", master, str(program), *arguments],
        env=environment | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "leftovers of dead attempts stay" not in done.stderr
    said, _, printed = done.stdout.partition("\n")
    return said, printed


@pytest.mark.long
def test_only_the_catalogs_properties_say_where_the_store_is(
    broker: DevCluster, registry: str, store: str, tmp_path: Path
) -> None:
    """Load once more what a load began, tell the group, query and audit, all without one AWS_ variable.

    The load's Spark has the master of spark-submit.
    """
    topic, environment, properties = "dc-s3.pageviews", without_aws(tmp_path), properties_of(store, tmp_path)
    warehouse = f"s3://{BUCKET}/warehouse"
    where = ["--warehouse", warehouse]
    # One of them as an option, which comes before what the file says; the others in the file, keys among them.
    option = "s3.endpoint"
    file = tmp_path / "catalog.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in (properties | {option: "nowhere"}).items()))
    where += ["--catalog-properties", str(file), "--catalog-property", f"{option}={properties[option]}"]
    loading = ["load", "--once", "--json", "--bootstrap", broker.bootstrap, "--registry", registry, *where]
    loading += ["--topics", topic]
    create_topic(broker.bootstrap, topic, 2)
    publish(broker.bootstrap, topic, 2, 60, garbage_every=10)
    load(broker.bootstrap, registry, tables.open_catalog(warehouse, properties), topic)
    publish(broker.bootstrap, topic, 2, 40, garbage_every=10)
    master, said = submitted("local[2]", environment, tmp_path, *loading)
    assert master == "master local[2]"
    totals = json.loads(said)
    assert (totals["rows"], totals["dead_letters"], totals["lag"]) == (36, 4, 0)
    assert committed(broker, topic) == [50, 50]
    question = "SELECT _datacenter, _topic, count(*) AS n, count(DISTINCT (_topic_partition, _offset)) AS d "
    question += "FROM warehouse.pageviews GROUP BY ALL"
    assert run(environment, "query", "--json", *where, question) == [
        {"_datacenter": "dc-s3", "_topic": "pageviews", "n": 90, "d": 90}
    ]
    reporting = ["--bootstrap", broker.bootstrap, "--output", str(tmp_path / "report"), "--json"]
    reporting += ["--since", "2023-11-14T00:00:00Z"]
    report = run(environment, "audit", "report", *reporting, *where, statuses=(0, 1))
    assert report["totals"]["warehouse"] == 90
    table = tables.load_table(tables.open_catalog(warehouse, properties), "pageviews")
    lost = left_over(table)
    assert leftovers.remove_dead_data(table) == []
    assert leftovers.remove_dead_data(table, grace_seconds=-60) == [lost]
    assert leftovers.remove_old_metadata(table, grace_seconds=-60) == []
    counts = [table.scan(snapshot_id=item.snapshot_id).to_arrow().num_rows for item in table.snapshots()]
    assert counts[-2:] == [54, 90]


def committed(broker: DevCluster, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "headrace-load"})
    wanted = [confluent_kafka.TopicPartition(topic, number) for number in range(2)]
    offsets = [item.offset for item in consumer.committed(wanted, timeout=20)]
    consumer.close()
    return offsets


def left_over(table: Any) -> str:
    """Leave a file behind as an attempt does that died before its commit."""
    dead = leftovers.Run()
    writer = FileWriter(target_of(table, dead.folder_of(table)))
    writer.write(table.scan().to_arrow().cast(writer._target.columns))
    written = writer.close()
    dead.close()
    assert written is not None
    return written.path


# The test of the store has the first of these in short.
@pytest.mark.long
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,2,1024]"])
def test_the_master_of_spark_submit_wins(
    broker: DevCluster, registry: str, tmp_path: Path, master: str
) -> None:
    topic = "dc-submit.pageviews" if master == "local[2]" else "dc-cluster.pageviews"
    create_topic(broker.bootstrap, topic, 2)
    publish(broker.bootstrap, topic, 2, 40)
    loading = ["load", "--once", "--bootstrap", broker.bootstrap, "--registry", registry, "--topics", topic]
    loading += ["--warehouse", str(tmp_path / "warehouse")]
    assert submitted(master, dict(os.environ), tmp_path, *loading)[0] == f"master {master}"
    assert account(tmp_path / "warehouse") == every_offset_once(2, 40)


# test_e2e_load_spark.py asks the same of the session that its tests share.
@pytest.mark.long
@pytest.mark.parametrize(("given", "master"), [({}, "local[3,4]"), ({"MASTER": "local[1]"}, "local[1]")])
def test_a_load_brings_a_master_that_retries_where_none_is_given(given: dict[str, str], master: str) -> None:
    asked = "from headrace.load.spark import spark_session; print(spark_session(3).sparkContext.master)"
    environment = {key: value for key, value in os.environ.items() if key != "MASTER"} | given
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == [master]
