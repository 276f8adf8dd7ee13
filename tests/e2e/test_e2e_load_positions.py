"""A load goes on only in the log that it has read: a log that was cut, made anew or emptied stops its partition alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_world import DATACENTER, TOPIC, AuditWorld, end_offset
from commands import headrace
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from iceberg_spark import spark_sql
from load_helpers import EVENT, EVENT_ID, account, create_topic, every_offset_once, publish, schemas_served
from processes import DevCluster, eventually
from pyiceberg.catalog import Catalog
from zookeeper_process import ZooKeeperProcess

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.wire import partitions
from headrace.broker.wire.batches import iter_batches
from headrace.events.registry_address import RegistryAddress
from headrace.load import expiry, history, tables, task
from headrace.load.driver import LoadConfig, Loader, RoundReport
from headrace.load.leftovers import Run
from headrace.load.log_client import LogClient
from headrace.load.ranges import Limits

LIMITS = Limits()
HEADRACE = str(Path(sys.executable).with_name("headrace"))


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schemas_served({EVENT_ID: EVENT}) as url:
        yield url


def loader(broker: DevCluster, registry: str, warehouse: Path, topic: str, limits: Limits = LIMITS) -> Loader:
    config = LoadConfig(
        bootstrap=Bootstrap(broker.bootstrap),
        registry=RegistryAddress(registry),
        task_count_max=2,
        wanted=lambda name: name == topic,
        limits=limits,
    )
    return Loader(tables.open_catalog(str(warehouse)), config, lambda work: [task.run(item) for item in work])


def load(broker: DevCluster, registry: str, warehouse: Path, topic: str) -> RoundReport:
    """Load until nothing moves; returns the last round's report."""
    running = loader(broker, registry, warehouse, topic)
    while (report := running.round()).moved:
        pass
    running.close()
    assert report.failures == []
    return report


def segment(broker: DevCluster, topic: str, partition: int) -> Path:
    return broker.data / "broker-1" / "logs" / f"{topic}-{partition}" / f"{0:020}.log"


def cut(broker: DevCluster, topic: str, partition: int, end: int) -> None:
    """Do to a stopped broker's log what a power cut does: its end, from about this offset on, was never written."""
    path = segment(broker, topic, partition)
    kept = max(
        position + header.size
        for position, header in iter_batches(path.read_bytes())
        if header.base_offset < end
    )
    with path.open("r+b") as file:
        file.truncate(kept)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (broker.data / "broker-1" / "logs" / name).unlink(missing_ok=True)


def order(word: str, broker: DevCluster, warehouse: Path, *arguments: object, fails: bool = False) -> str:
    """Run `headrace load resume` or `skip`; returns what it prints, an error included."""
    command = ["load", word, *map(str, arguments), "--bootstrap", broker.bootstrap]
    done = headrace(*command, "--warehouse", str(warehouse))
    assert (done.returncode != 0) == fails, done.stderr
    return done.stdout + done.stderr


def page(word: str, broker: DevCluster, warehouse: Path, **variables: str) -> str:
    """Run the commands of docs/load.md; returns what they print."""
    script = Path(__file__).with_name("load_page.sh")
    environment = {
        **os.environ,
        **variables,
        "PATH": f"{Path(HEADRACE).parent}:{os.environ['PATH']}",
        "OFFLINE": broker.bootstrap,
        "WAREHOUSE": str(warehouse),
    }
    command = ["bash", str(script), word]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lives(warehouse: Path) -> Counter[tuple[int, int, int | None]]:
    """Count how often each (partition, offset, life) is among the rows."""
    columns = ("_topic_partition", "_offset", "_life")
    rows = tables.load_table(tables.open_catalog(str(warehouse)), "pageviews").scan(selected_fields=columns)
    return Counter(zip(*(rows.to_arrow().column(name).to_pylist() for name in columns), strict=True))


def span(partition: int, first: int, following: int) -> Counter[tuple[int, int]]:
    return Counter((partition, offset) for offset in range(first, following))


def log_end(broker: DevCluster, topic: str, partition: int) -> int:
    client, place = LogClient(Bootstrap(broker.bootstrap)), partitions.TopicPartition(topic, partition)
    client.partitions(lambda name: name == topic)
    end = client.log_offsets([place])[place].end
    client.close()
    return end


def ends_of(broker: DevCluster, topic: str) -> list[int]:
    return [log_end(broker, topic, partition) for partition in range(2)]


def settled(running: Loader) -> RoundReport:
    """Let a load that runs go on until nothing moves."""
    while (report := running.round()).moved:
        pass
    return report


def test_a_log_that_lost_its_end_and_grew_past_the_position_is_not_loaded_on(
    broker: DevCluster, registry: str, tmp_path: Path
) -> None:
    topic = "dc-cut.pageviews"
    create_topic(broker.bootstrap, topic, 2)
    for _ in range(5):
        for _ in range(2):
            publish(broker.bootstrap, topic, 2, 20)
        assert load(broker, registry, tmp_path, topic).findings == []
    assert broker.stop() == 0
    cut(broker, topic, 0, 50)
    broker.start()
    publish(broker.bootstrap, topic, 2, 200)

    report = load(broker, registry, tmp_path, topic)
    (finding,) = report.findings
    assert (finding.kind, finding.partition, finding.offset) == ("truncation", 0, 100)
    assert account(tmp_path) == span(0, 0, 100) + span(1, 0, 200)

    (told,) = json.loads(order("resume", broker, tmp_path, topic, 0, "--json"))
    kept = told["go_on_at"]
    assert kept == 40
    order("resume", broker, tmp_path, topic, 0, "--from", 100, "--at", kept)
    assert load(broker, registry, tmp_path, topic).findings == []
    former = {(partition, offset, None): 1 for partition, offset in span(0, 0, 100) + span(1, 0, 200)}
    end = log_end(broker, topic, 0)
    assert lives(tmp_path) == former | {(0, offset, 1): 1 for offset in range(kept, end)}
    assert end > 100


@pytest.mark.acceptance
def test_what_retention_took_is_passed_over_once_a_person_says_so(
    broker: DevCluster, registry: str, tmp_path: Path
) -> None:
    topic = "dc-kept.pageviews"
    create_topic(broker.bootstrap, topic, 2)
    publish(broker.bootstrap, topic, 2, 200)
    running = loader(broker, registry, tmp_path, topic)
    assert settled(running).findings == []
    publish(broker.bootstrap, topic, 2, 200)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 150)]).values()
    assert deleted.result(20).low_watermark == 150
    (finding,) = settled(running).findings
    assert f"`headrace load resume {topic} 0 --from 100 --at 150` lets it go on" in finding.sentence
    assert account(tmp_path) == span(0, 0, 100) + span(1, 0, 200)

    assert finding.sentence in order("resume", broker, tmp_path, topic)
    for wrong in (("resume", 100, 160), ("resume", 90, 150), ("skip", 100, 150)):
        word, position, at = wrong
        refusal = order(word, broker, tmp_path, topic, 0, "--from", position, "--at", at, fails=True)
        assert "--from 100 --at 150" in refusal
    assert "nothing stops" in order(
        "resume", broker, tmp_path, topic, 1, "--from", 200, "--at", 200, fails=True
    )
    assert account(tmp_path) == span(0, 0, 100) + span(1, 0, 200)

    said = page("resume", broker, tmp_path)
    assert finding.sentence in said
    assert "goes on at offset 150: offsets 100 to 149 were passed over" in said
    assert "had gone on before" in order("resume", broker, tmp_path, topic, 0, "--from", 100, "--at", 150)
    assert settled(running).findings == []
    running.close()
    assert account(tmp_path) == span(0, 0, 100) + span(0, 150, 200) + span(1, 0, 200)
    (passing,) = history.passings(tables.open_catalog(str(tmp_path)), "pageviews")
    assert (passing.kind, passing.first_offset, passing.next_offset) == ("retention", 100, 150)


def test_a_topic_made_anew_is_loaded_into_a_life_of_its_own(
    broker: DevCluster, registry: str, tmp_path: Path
) -> None:
    topic = "dc-anew.pageviews"
    create_topic(broker.bootstrap, topic, 2)
    publish(broker.bootstrap, topic, 2, 60, garbage_every=10)
    running = loader(broker, registry, tmp_path, topic)
    assert settled(running).findings == []
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, what="the deletion")
    create_topic(broker.bootstrap, topic, 2)
    publish(broker.bootstrap, topic, 2, 100, garbage_every=10)

    report = settled(running)
    assert [(item.kind, item.partition, item.go_on_at) for item in report.findings] == [
        ("recreation", 0, 0),
        ("recreation", 1, 0),
    ]
    order("resume", broker, tmp_path, topic, 0, "--from", 30, "--at", 0)
    assert [item.partition for item in settled(running).findings] == [1]
    order("resume", broker, tmp_path, topic, 1, "--from", 30, "--at", 0)
    assert settled(running).findings == []
    running.close()
    assert account(tmp_path) == every_offset_once(2, 60) + every_offset_once(2, 100)
    assert max(lives(tmp_path).values()) == 1
    assert len(lives(tmp_path)) == 160 - 16


def test_a_rotten_batch_is_skipped_and_nothing_else(
    broker: DevCluster, registry: str, tmp_path: Path
) -> None:
    topic = "dc-rot.pageviews"
    create_topic(broker.bootstrap, topic, 1)
    for _ in range(5):
        publish(broker.bootstrap, topic, 1, 20)
    assert broker.stop() == 0
    path = segment(broker, topic, 0)
    content = bytearray(path.read_bytes())
    position, rotten = next(
        item for item in iter_batches(content) if item[1].base_offset >= 20 and item[1].record_count > 1
    )
    content[position + rotten.size - 3] ^= 1
    path.write_bytes(content)
    broker.start()
    running = loader(broker, registry, tmp_path, topic)
    (finding,) = settled(running).findings
    first, following = rotten.base_offset, rotten.next_offset
    assert (finding.kind, finding.offset, finding.go_on_at) == ("corruption", first, following)
    inside = order("skip", broker, tmp_path, topic, 0, "--from", first, "--at", following - 1, fails=True)
    assert f"--from {first} --at {following}" in inside
    assert "were passed over" in page("skip", broker, tmp_path, FROM=str(first), AT=str(following))
    assert settled(running).findings == []
    running.close()
    assert account(tmp_path) == span(0, 0, first) + span(0, following, 100)


@pytest.mark.acceptance
def test_the_audit_calls_lost_what_was_passed_over_and_nothing_is_on_its_way(
    tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    world = AuditWorld(tmp_path, zookeeper)
    try:
        world.publish(100)
        world.count("live")
        world.copy()
        world.load()
        topic = f"{DATACENTER}.{TOPIC}"
        loaded = ends_of(world.offline, topic)
        producer = world.publish(100)
        world.count("live")
        world.copy()
        world.count("offline")
        # The producer may have sent all of them to one partition.
        ends = ends_of(world.offline, topic)
        partition = 0 if ends[0] > loaded[0] else 1
        end = ends[partition]
        assert end_offset(world.live.bootstrap, TOPIC, partition) == end
        admin = AdminClient({"bootstrap.servers": world.offline.bootstrap})
        (deleted,) = admin.delete_records([TopicPartition(topic, partition, end)]).values()
        deleted.result(20)
        world.load()
        before = world.report()
        place = (world.offline, world.warehouse, topic, partition)
        (told,) = json.loads(order("resume", *place, "--json"))
        assert (told["finding"], told["go_on_at"]) == ("retention", end)
        lost = sum(item["under_way"] for item in before["hops"])
        assert lost == end - told["position"] > 0

        order("resume", *place, "--from", told["position"], "--at", end)
        report = world.report()
        assert (report["verdict"], report["totals"]["lost"]) == ("loss", lost)
        assert sum(item["under_way"] for item in report["hops"]) == 0
        findings = [item for item in report["findings"] if item["kind"] == "loss"]
        assert sum(item["count"] for item in findings) == lost
        for item in findings:
            assert (item["producer"], item["hop"]) == (producer, "offline_to_warehouse")
            assert item["partition"] == partition
            assert "retention" in item["reason"]
    finally:
        world.end()


def load_some(world: AuditWorld, catalog: Catalog, commits: int) -> int:
    """Load in small commits, not all there is; returns how many rows."""
    limits = Limits(records_per_range_max=5)
    running = loader(world.offline, world.registry.url, world.warehouse, f"{DATACENTER}.{TOPIC}", limits)
    rows = 0
    while not catalog.table_exists(f"warehouse.{TOPIC}") or (
        len(tables.load_table(catalog, TOPIC).snapshots()) < commits
    ):
        rows += running.round().rows
    running.close()
    return rows


@pytest.mark.acceptance
def test_what_was_archived_of_a_dropped_table_is_nothing_of_the_one_in_its_place(
    tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    world, run = AuditWorld(tmp_path, zookeeper), Run()
    state = ("--state", str(tmp_path / "state"))
    try:
        world.publish(100)
        world.count("live")
        world.copy()
        world.count("offline")
        world.load()
        catalog = tables.open_catalog(str(world.warehouse))
        expiry.archive(catalog, TOPIC, run)
        assert world.report(*state)["verdict"] == "complete"
        spark_sql(world.warehouse, [f"DROP TABLE headrace.warehouse.{TOPIC}"])
        there = load_some(world, catalog, commits=4)
        expiry.archive(catalog, TOPIC, run)
        table = tables.load_table(catalog, TOPIC)
        first, *_ = table.snapshots()
        table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
        for arguments in (state, ()):
            report = world.report(*arguments)
            assert (report["verdict"], report["findings"]) == ("incomplete", [])
            assert sum(item["under_way"] for item in report["hops"]) == 100 - there
        world.load()
        for arguments in (state, ()):
            assert world.report(*arguments)["verdict"] == "complete"
    finally:
        run.close()
        world.end()
