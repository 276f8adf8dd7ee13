"""Two live clusters and an offline one that mirrors them: copies survive every kill, and what cannot be copied is told."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions
from mirror_clusters import Cluster, copied, flip
from processes import eventually, free_port
from zookeeper_process import ZooKeeperProcess

from headrace.broker.client.blocking import BlockingLink
from headrace.broker.wire.api import k22_init_producer_id
from headrace.broker.wire.batches import decode_records, iter_batches, set_crc

GONE = f"127.0.0.1:{free_port()}"
LONG_NAME = "x" * 245
SOURCE_SETTINGS = {
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "100",
}


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess
) -> Iterator[tuple[Cluster, Cluster, Cluster]]:
    """(dc-east with two brokers, dc-west with one, offline with two); a third source is never there."""
    home = tmp_path_factory.mktemp("mirror")
    east = Cluster(home / "east", zookeeper, 2, SOURCE_SETTINGS)
    west = Cluster(home / "west", zookeeper, 1, SOURCE_SETTINGS)
    sources = {
        "mirror.sources": "dc-east,dc-west,dc-gone,dc-late,dc-since",
        "mirror.dc-east.bootstrap.servers": east.bootstrap,
        "mirror.dc-east.sync.groups": "followed",
        "mirror.sync.groups.interval.ms": "1000",
        "mirror.dc-late.bootstrap.servers": east.bootstrap,
        "mirror.dc-late.topics": "started",
        "mirror.dc-late.start": "latest",
        "mirror.dc-since.bootstrap.servers": east.bootstrap,
        "mirror.dc-since.topics": "started",
        "mirror.dc-since.start": "2026-01-01T00:00:00Z",
        "mirror.dc-west.bootstrap.servers": west.bootstrap,
        "mirror.dc-west.topics": "events|_schemas",
        "mirror.dc-gone.bootstrap.servers": GONE,
        "mirror.metadata.max.age.ms": "1000",
        "mirror.verify.max.bytes.per.second": "50000000",
    }
    offline = Cluster(home / "offline", zookeeper, 2, sources)
    yield east, west, offline
    for cluster in (offline, west, east):
        cluster.end()


@pytest.mark.acceptance
def test_kills_in_mid_copy_neither_lose_nor_repeat_a_batch(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("killed", 4)
    publisher = threading.Thread(target=east.publish, args=("killed", 60_000))
    publisher.start()
    for kill in (offline, east, offline, east):
        for number in (0, 1):
            time.sleep(0.7)
            kill.kill_and_start(number)
    publisher.join()
    copied(east, offline, "killed")


def test_topics_of_each_source_are_copied_under_its_name(clusters: tuple[Cluster, Cluster, Cluster]) -> None:
    east, west, offline = clusters
    for cluster, count in ((east, 300), (west, 200)):
        cluster.create("events", 2)
        cluster.create("_schemas", 1, cleanup_policy="compact")
        cluster.publish("events", count)
        cluster.publish("_schemas", 5)
    west.create("unwanted", 1)
    for cluster, source in ((east, "dc-east"), (west, "dc-west")):
        copied(cluster, offline, "events", source)
        copied(cluster, offline, "_schemas", source)
    names = set(offline.admin.list_topics(timeout=10).topics)
    assert "dc-west.unwanted" not in names
    assert not any("__consumer_offsets" in name for name in names - {"__consumer_offsets"})


def test_a_new_topic_and_a_grown_one_are_picked_up_in_ten_seconds(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("growing", 1)
    began = time.monotonic()
    eventually(
        lambda: "dc-east.growing" in offline.admin.list_topics(timeout=10).topics, what="the new topic"
    )
    assert time.monotonic() - began < 10
    east.admin.create_partitions([NewPartitions("growing", 3)])["growing"].result(20)
    eventually(
        lambda: len(east.batches("growing")) == 3, what="the broker that is asked hearing of the growth"
    )
    east.publish("growing", 90)
    copied(east, offline, "growing")


@pytest.mark.long
def test_a_recreated_topic_stops_with_a_finding_until_it_is_resumed(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("recreated", 1)
    east.publish("recreated", 100)
    copied(east, offline, "recreated")
    east.admin.delete_topics(["recreated"])["recreated"].result(20)
    eventually(lambda: _is_created(east, "recreated"), what="the deletion and the new topic")
    east.publish("recreated", 150)
    _stopped(offline, "recreated", "recreation")
    offline.kill_and_start(0)
    offline.kill_and_start(1)
    _stopped(offline, "recreated", "recreation")
    assert offline.end_offset("dc-east.recreated", 0) == 100
    _resume(offline, "recreated")
    eventually(lambda: offline.end_offset("dc-east.recreated", 0) == 150, what="the rest")
    new = east.batches("recreated")[0]
    assert offline.batches("dc-east.recreated")[0][-1] == new[-1]
    assert {f["kind"] for f in _findings(offline, "recreated")} == {"recreation", "loss"}


def test_a_truncated_source_stops_with_a_finding(clusters: tuple[Cluster, Cluster, Cluster]) -> None:
    _, west, offline = clusters
    before = west.end_offset("events", 0)
    west.publish("events", 500, partition=0)
    copied(west, offline, "events", "dc-west")
    west.brokers[0].kill()
    log = next((west.home / "broker-0" / "logs" / "events-0").glob("*.log"))
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 2000)
    west.start(0)
    west.publish("events", 700, partition=0)
    _stopped(offline, "events", "truncation", "dc-west")
    end = offline.end_offset("dc-west.events", 0)
    assert end == before + 500
    _resume(offline, "events", "dc-west")
    eventually(
        lambda: offline.end_offset("dc-west.events", 0) == west.end_offset("events", 0), what="the rest"
    )


@pytest.mark.long
def test_a_gap_behind_the_copys_end_stops_it_until_it_is_resumed(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("forgotten", 1, segment_bytes="20000")
    east.publish("forgotten", 200)
    copied(east, offline, "forgotten")
    for broker in offline.brokers.values():
        broker.kill()
    east.publish("forgotten", 2000)
    _shorten(east, "forgotten")
    start = east.batches("forgotten")[0][0][0]
    assert start > 200
    for number in (0, 1):
        offline.start(number)
    _stopped(offline, "forgotten", "gap")
    _resume(offline, "forgotten")
    eventually(lambda: offline.end_offset("dc-east.forgotten", 0) == 2200, what="the rest")
    assert offline.batches("dc-east.forgotten")[0][-1] == east.batches("forgotten")[0][-1]
    loss = next(f for f in _findings(offline, "forgotten") if f["kind"] == "loss")
    assert (loss["first_offset"], loss["last_offset"], loss["count"]) == (200, start - 1, start - 200)


@pytest.mark.long
def test_rot_blocks_its_partition_until_it_is_skipped(clusters: tuple[Cluster, Cluster, Cluster]) -> None:
    east, _, offline = clusters
    east.create("rotted", 1)
    east.publish("rotted", 100)
    copied(east, offline, "rotted")
    for broker in offline.brokers.values():
        broker.kill()
    east.publish("rotted", 300)
    whole = east.batches("rotted")[0]
    first, last, _ = rotten = next(entry for entry in whole if entry[0] > 150)
    flip(east, "rotted", first)
    for number in (0, 1):
        offline.start(number)
    eventually(lambda: _row(offline, "dc-east.rotted")["state"] == "rotten", what="the rot")
    reason = _row(offline, "dc-east.rotted")["reason"]
    assert f"--offsets {first}-{last}` gives them up" in reason
    assert _mirror("status", "--bootstrap", offline.bootstrap).returncode == 1
    assert "rotten at offsets" in _mirror("resume", *_place(offline, "rotted")).stderr
    wrong = _mirror("skip", *_place(offline, "rotted"), "--offsets", f"{first}-{last + 1}")
    assert (wrong.returncode, f"give --offsets {first}-{last}" in wrong.stderr) == (1, True)
    done = _mirror("skip", *_place(offline, "rotted"), "--offsets", f"{first}-{last}")
    assert (done.returncode, f"Offsets {first} to {last} " in done.stdout) == (0, True), done.stderr
    for number in (0, 1):
        offline.kill_and_start(number)
    kept = [entry for entry in whole if entry != rotten]
    eventually(lambda: _batches(offline, "dc-east.rotted") == kept, timeout_s=40, what="the rest")
    eventually(lambda: _row(offline, "dc-east.rotted")["state"] == "copying", what="the report")
    assert _row(offline, "dc-east.rotted")["lag"] == 0
    again = _mirror("skip", *_place(offline, "rotted"), "--offsets", f"{first}-{last}")
    assert (again.returncode, "skipped already" in again.stdout) == (0, True), again.stderr
    told = {(f["kind"], f["first_offset"], f["last_offset"]) for f in _findings(offline, "rotted")}
    assert told == {("rot", first, last), ("loss", first, last)}


@pytest.mark.long
def test_status_names_what_was_never_reached_and_what_cannot_be_created(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create(LONG_NAME, 1)
    eventually(lambda: _status(offline)["topics"], what="the topic without a copy")
    (topic,) = _status(offline)["topics"]
    assert topic["topic"] == f"dc-east.{LONG_NAME}"
    assert topic["reason"].startswith("cannot be created: Topic name is invalid: the length of ")
    gone = [row for row in _status(offline)["sources"] if row["source"] == "dc-gone"]
    assert {(row["broker"], row["state"], row["bootstrap"]) for row in gone} == {
        (0, "never reached", GONE),
        (1, "never reached", GONE),
    }
    there = [row for row in _status(offline)["sources"] if row["source"] == "dc-east"]
    assert all(row["state"] == "answers" and row["answered_seconds_ago"] < 30 for row in there)
    printed = _mirror("status", "--bootstrap", offline.bootstrap)
    assert (printed.returncode, "dc-gone" in printed.stdout) == (1, True)
    metrics = offline.metrics()
    assert 'headrace_mirror_source_up{source="dc-gone"} 0.0' in metrics
    assert 'headrace_mirror_topics_not_brought{source="dc-east"} 1.0' in metrics
    east.admin.delete_topics([LONG_NAME])[LONG_NAME].result(20)
    eventually(lambda: not _status(offline)["topics"], what="the end of it")


def test_nobody_but_the_mirror_writes_to_a_copy(clusters: tuple[Cluster, Cluster, Cluster]) -> None:
    east, _, offline = clusters
    east.create("owned", 2)
    east.publish("owned", 100)
    copied(east, offline, "owned")
    offline.create("dc-east.private", 1)
    for is_restarted in (False, True):
        if is_restarted:
            for number in (0, 1):
                offline.kill_and_start(number)
            copied(east, offline, "owned")
        assert _refusals(offline, "dc-east.owned") == ["POLICY_VIOLATION"] * 3
        offline.publish("dc-east.private", 5)
    east.publish("owned", 50)
    copied(east, offline, "owned")
    assert _findings(offline, "owned") == []


@pytest.mark.acceptance
def test_a_promoted_copy_is_written_by_clients_and_left_alone_by_the_mirror(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("failing", 1)
    east.publish("failing", 100)
    offline.create("dc-east.ours", 1)
    copied(east, offline, "failing")
    refused = _mirror("promote", "dc-east.failing", "dc-east.ours", "--bootstrap", offline.bootstrap)
    assert refused.returncode == 1
    assert "dc-east.ours is no copy" in refused.stderr
    assert "nothing was promoted" in refused.stderr
    done = _mirror("promote", "dc-east.failing", "--bootstrap", offline.bootstrap)
    assert done.returncode == 0, done.stderr
    eventually(lambda: _refusals(offline, "dc-east.failing") == [None] * 3, what="the copy's end")
    end = offline.end_offset("dc-east.failing", 0)
    east.publish("failing", 1000)
    east.create("witness", 1)
    east.publish("witness", 10)
    copied(east, offline, "witness")
    assert offline.end_offset("dc-east.failing", 0) == end
    told = _status(offline)
    assert [row["topic"] for row in told["partitions"] if row["topic"] == "dc-east.failing"] == []
    assert [row for row in told["promoted"] if row["topic"] == "dc-east.failing"] == [
        {"topic": "dc-east.failing", "source": "dc-east", "cluster": east.admin.list_topics().cluster_id}
    ]
    former = _mirror("verify", "dc-east.failing", "--bootstrap", offline.bootstrap)
    assert (former.returncode, "dc-east.failing was promoted" in former.stderr) == (1, True)


@pytest.mark.long
def test_a_copy_is_paused_goes_on_and_fails_over_and_a_dry_run_does_nothing(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("ordered", 1)
    east.publish("ordered", 100)
    copied(east, offline, "ordered")
    for arguments in (("--dry-run",), ()):
        done = _mirror("pause", "dc-east.ordered", *arguments, "--bootstrap", offline.bootstrap)
        assert done.returncode == 0, done.stderr
        assert ("would be paused" in done.stdout) == bool(arguments)
    eventually(lambda: _row(offline, "dc-east.ordered")["state"] == "paused", what="the pause in status")
    time.sleep(2)
    east.publish("ordered", 50)
    offline.kill_and_start(0)
    time.sleep(3)
    assert offline.end_offset("dc-east.ordered", 0) == 100
    refused = _mirror("promote", "dc-east.ordered", "--bootstrap", offline.bootstrap)
    assert (refused.returncode, "it is paused" in refused.stderr) == (1, True), refused.stderr
    said = _mirror("failover", "dc-east.ordered", "--dry-run", "--bootstrap", offline.bootstrap).stdout
    assert "dc-east.ordered-0 ends at 100, and lacks 50 messages (it is paused)" in said
    assert _refusals(offline, "dc-east.ordered") == ["POLICY_VIOLATION"] * 3
    assert _mirror("resume", "dc-east.ordered", "--bootstrap", offline.bootstrap).returncode == 0
    copied(east, offline, "ordered")
    done = _mirror("failover", "dc-east.ordered", "--bootstrap", offline.bootstrap)
    assert done.returncode == 0, done.stderr
    eventually(lambda: _refusals(offline, "dc-east.ordered") == [None] * 3, what="the copy's end")
    # Otherwise its first batch might be taken for one that a producer of the source has sent.
    assert abs(_producer_id(east) - _producer_id(offline)) > 1_000_000, "a producer has the id of one there"


def _producer_id(cluster: Cluster) -> int:
    """That of a new idempotent producer."""
    host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
    message = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    found: list[int] = []

    def is_told() -> bool:
        with BlockingLink((host, int(port)), "test", 10) as link:
            answer = link.ask(k22_init_producer_id.API, 4, message)
        if not answer["error_code"]:
            found.append(answer["producer_id"])
        return bool(found)

    eventually(is_told, what="a producer's id")
    return found[0]


def test_a_limit_holds_and_is_changed_while_the_brokers_run(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    done = _mirror("limit", "dc-east", "200000", "--bootstrap", offline.bootstrap)
    assert done.returncode == 0, done.stderr
    time.sleep(2)
    east.create("limited", 1)
    east.publish("limited", 4_000, size=1_000)
    began = time.monotonic()
    eventually(lambda: offline.end_offset("dc-east.limited", 0) > 0, what="the first of the copy")
    time.sleep(4)
    slow = offline.end_offset("dc-east.limited", 0)
    assert slow * 1_000 < 200_000 * (time.monotonic() - began + 2) * 1.5
    assert _mirror("limit", "dc-east", "--bootstrap", offline.bootstrap).returncode == 0
    copied(east, offline, "limited")


@pytest.mark.long
def test_a_copy_is_proved_equal_and_one_message_that_was_changed_is_found_at_its_offset(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("proved", 2)
    for partition in range(2):
        east.publish("proved", 300, partition)
    copied(east, offline, "proved")
    arguments = ("verify", "dc-east.proved", "--json", "--bootstrap", offline.bootstrap)
    done = _mirror(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)["partitions"]
    assert [(row["partition"], row["result"]) for row in rows] == [(0, "equal"), (1, "equal")]
    assert sum(row["end_offset"] for row in rows) == 600
    assert all(row["bytes"] > 0 for row in rows)
    nothing = json.loads(_mirror(*arguments, "--since", "2100-01-01").stdout)["partitions"]
    assert {row["result"] for row in nothing} == {"nothing to compare"}
    # Not in the last batch, which the copier compares before it goes on: what differs there stops it.
    offset = east.batches("proved")[0][-2][1] - 3
    for broker in offline.brokers.values():
        broker.kill()
    _change(offline, "dc-east.proved", offset)
    for number in (0, 1):
        offline.start(number)
    eventually(lambda: len(_batches(offline, "dc-east.proved")), what="the copy")
    found = _mirror(*arguments)
    assert found.returncode == 1
    first, second = json.loads(found.stdout)["partitions"]
    assert (first["result"], first["difference"]["offset"], second["result"]) == (
        "different",
        offset,
        "equal",
    )
    assert "value of 100 bytes" in first["difference"]["copy"]
    eventually(lambda: _row(offline, "dc-east.proved")["state"] == "different", what="the brokers' own check")
    (told,) = [f for f in _findings(offline, "proved") if f["kind"] == "difference"]
    assert (told["first_offset"], told["partition"]) == (offset, 0)
    assert 'headrace_mirror_different{partition="0",source="dc-east",topic="proved"} 1.0' in offline.metrics()
    printed = _mirror("verify", "--source", "dc-east", "--bootstrap", offline.bootstrap)
    assert printed.returncode == 1
    assert f"dc-east.proved-0 differs from dc-east from offset {offset} on:" in printed.stdout
    for topic, sentence in (
        ("nothing.here", "there is no topic nothing.here"),
        ("headrace.findings", "is no mirror's copy"),
    ):
        refused = _mirror("verify", topic, "--bootstrap", offline.bootstrap)
        assert (refused.returncode, sentence in refused.stderr) == (1, True), refused.stderr


@pytest.mark.long
def test_topics_are_chosen_while_the_brokers_run(clusters: tuple[Cluster, Cluster, Cluster]) -> None:
    east, _, offline = clusters
    east.create("chosen", 1)
    east.publish("chosen", 50)
    copied(east, offline, "chosen")
    arguments = ("topics", "dc-east", "(?!chosen|later).*", "--bootstrap", offline.bootstrap)
    line = "dc-east.chosen would be left out; it stays what it is."
    assert line in _mirror(*arguments, "--dry-run").stdout
    done = _mirror(*arguments)
    assert "dc-east.chosen is left out" in done.stdout, done.stderr
    eventually(lambda: _row(offline, "dc-east.chosen")["state"] == "left out", what="the status")
    time.sleep(2)
    east.publish("chosen", 50)
    east.create("later", 1)
    east.create("other", 1)
    eventually(lambda: "dc-east.other" in offline.topics, what="a topic that was chosen")
    assert "dc-east.later" not in offline.topics
    assert offline.end_offset("dc-east.chosen", 0) == 50
    assert _refusals(offline, "dc-east.chosen") == ["POLICY_VIOLATION"] * 3
    assert _mirror("topics", "dc-east", "--bootstrap", offline.bootstrap).returncode == 0
    copied(east, offline, "chosen")
    eventually(lambda: "dc-east.later" in offline.topics, what="a topic that was chosen again")
    assert _findings(offline, "chosen") == []


def test_groups_go_on_in_the_copies_but_not_those_with_members_there(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("grouped", 1)
    east.publish("grouped", 100)
    copied(east, offline, "grouped")
    _commit(east, "moving", "grouped", 60)
    _commit(east, "living", "grouped", 70)
    _commit(east, "ahead", "grouped", 130)
    _commit(offline, "living", "dc-east.grouped", 10)
    living = _consumer(offline, "living")
    living.subscribe(["dc-east.grouped"])
    eventually(lambda: bool(living.poll(0.2) and living.assignment()), what="the member")
    rehearsing = ("rehearse", "dc-east", "--groups", "moving|living|ahead", "--bootstrap", offline.bootstrap)
    rehearsed = json.loads(_mirror(*rehearsing, "--json").stdout)
    costs = {row["group"]: (row["read_twice"], row["lost"], row["not_copied"]) for row in rehearsed["groups"]}
    assert costs == {"ahead": (30, 0, 0), "living": (0, 0, 0), "moving": (0, 0, 0)}
    assert (rehearsed["totals"]["partitions"], rehearsed["totals"]["read_twice"]) == (3, 30)
    assert "living would be left alone: it has members" in _mirror(*rehearsing).stdout
    arguments = ("sync-groups", "dc-east", "--groups", "moving|living", "--bootstrap", offline.bootstrap)
    said = _mirror(*arguments, "--dry-run")
    assert "moving would go on in 1 partitions." in said.stdout, said.stderr
    assert _committed(offline, "moving", "dc-east.grouped") < 0
    done = _mirror(*arguments)
    assert "moving goes on in 1 partitions." in done.stdout, done.stderr
    assert "living is left alone: it has members" in done.stdout
    assert _committed(offline, "moving", "dc-east.grouped") == 60
    assert _committed(offline, "living", "dc-east.grouped") == 10
    living.close()
    assert "moving is where it is to be." in _mirror(*arguments).stdout


@pytest.mark.long
def test_groups_are_followed_by_the_brokers_until_they_commit_here_themselves(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("read", 1)
    east.publish("read", 100)
    copied(east, offline, "read")
    _commit(east, "followed", "read", 40)
    eventually(lambda: _committed(offline, "followed", "dc-east.read") == 40, what="the group's offset")
    _commit(east, "followed", "read", 70)
    eventually(lambda: _committed(offline, "followed", "dc-east.read") == 70, what="its next offset")
    eventually(
        lambda: _sync_rows(offline).get(("dc-east", "groups"), {}).get("state") == "brought",
        what="the status of the one broker that does it",
    )
    row = _sync_rows(offline)["dc-east", "groups"]
    assert (row["source"], row["what"], row["in_step"], row["left_alone"]) == ("dc-east", "groups", 1, 0)
    _commit(offline, "followed", "dc-east.read", 80)
    _commit(east, "followed", "read", 90)
    label = 'headrace_mirror_sync_left_alone{source="dc-east",what="groups"} 1.0'
    eventually(lambda: label in offline.metrics(), what="the round that leaves it alone")
    said = _mirror("sync-groups", "dc-east", "--groups", "followed", "--bootstrap", offline.bootstrap)
    assert (
        "followed is left alone: it committed offset 80 of dc-east.read-0 in the cluster of the copies"
        in said.stdout
    )
    assert _committed(offline, "followed", "dc-east.read") == 80


@pytest.mark.long
def test_a_copys_configuration_follows_its_source_but_not_its_retention(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    east.create("configured", 1, cleanup_policy="compact", retention_ms="123456789")
    east.publish("configured", 10)
    copied(east, offline, "configured")
    _configure(offline, "dc-east.configured", {"retention.ms": "-1"})
    arguments = ("sync-configs", "dc-east", "--bootstrap", offline.bootstrap)
    # Once a minute the brokers do the same, and that may be now: not again then.
    for before, codec in (("producer", "zstd"), ("zstd", "lz4")):
        _configure(east, "configured", {"compression.type": codec})
        line = f"dc-east.configured: compression.type {before} -> {codec}"
        said = _mirror(*arguments, "--dry-run")
        if line in said.stdout.splitlines():
            break
    assert line in said.stdout.splitlines(), said.stderr
    assert _configs(offline, "dc-east.configured")["compression.type"] == before
    assert line in _mirror(*arguments).stdout.splitlines()
    found = _configs(offline, "dc-east.configured")
    wanted = ("compact", codec, "-1")
    assert (found["cleanup.policy"], found["compression.type"], found["retention.ms"]) == wanted
    _configure(offline, "dc-east.configured", {"cleanup.policy": "delete"})
    _configure(east, "configured", {"max.message.bytes": "2000000"})
    # Brokers ask a source's topics for their configurations once a minute, and at their start.
    for number in (0, 1):
        offline.kill_and_start(number)
    eventually(
        lambda: _configs(offline, "dc-east.configured")["max.message.bytes"] == "2000000",
        timeout_s=30,
        what="the copy's configuration",
    )
    assert _configs(offline, "dc-east.configured")["cleanup.policy"] == "compact"
    eventually(
        lambda: _sync_rows(offline).get(("dc-east", "configs"), {}).get("state") == "brought",
        what="the status",
    )
    assert _sync_rows(offline)["dc-east", "configs"]["in_step"] >= 1


@pytest.mark.long
def test_new_copies_begin_where_they_are_told_to_and_tell_it(
    clusters: tuple[Cluster, Cluster, Cluster],
) -> None:
    east, _, offline = clusters
    for broker in offline.brokers.values():
        broker.kill()
    east.create("started", 1, retention_ms="-1")
    east.publish("started", 100, timestamp_ms=1_700_000_000_000)
    east.publish("started", 60)
    for number in (0, 1):
        offline.start(number)
    eventually(
        lambda: (
            [_row(offline, f"{source}.started").get("begins_at") for source in ("dc-late", "dc-since")]
            == [160, 100]
        ),
        timeout_s=40,
        what="the starts",
    )
    east.publish("started", 40)
    wanted = east.batches("started")[0]
    copied(east, offline, "started")
    for source, start in (("dc-late", 160), ("dc-since", 100)):
        left = [entry for entry in wanted if entry[0] >= start]
        eventually(
            lambda source=source, left=left: _batches(offline, f"{source}.started") == left,  # type: ignore[misc]
            what=f"the copy of {source}",
        )
        row = _row(offline, f"{source}.started")
        assert (row["state"], row["lag"], row["begins_at"]) == ("copying", 0, start)
    assert _findings(offline, "started") == []


@pytest.mark.long
def test_two_clusters_mirror_each_other_and_each_topic_is_copied_once(
    tmp_path: Path, zookeeper: ZooKeeperProcess
) -> None:
    here, there = Cluster(tmp_path / "here", zookeeper, 1), Cluster(tmp_path / "there", zookeeper, 1)
    try:
        for cluster, own in ((here, "orders"), (there, "invoices")):
            for topic in (own, "events", "headrace.monitoring", "__own"):
                cluster.create(topic, 1)
                cluster.publish(topic, 20)
        there.mirror({"dc-here": here})
        copied(here, there, "orders", "dc-here")
        here.mirror({"dc-there": there, "itself": here})
        copied(there, here, "invoices", "dc-there")
        for source, target, name in ((here, there, "dc-here"), (there, here, "dc-there")):
            # By the time that a later topic is there, each has looked at the other's copies.
            source.create("later", 1)
            source.publish("later", 20)
            copied(source, target, "later", name)
            copied(source, target, "events", name)
        both = {"events", "headrace.monitoring", "later"}
        assert here.topics == both | {"orders"} | {f"dc-there.{topic}" for topic in both | {"invoices"}}
        assert there.topics == both | {"invoices"} | {f"dc-here.{topic}" for topic in both | {"orders"}}
    finally:
        for cluster in (here, there):
            cluster.end()


def test_a_bad_setting_ends_the_broker_with_a_sentence(clusters: tuple[Cluster, Cluster, Cluster]) -> None:
    offline = clusters[2]
    config = offline.home / "bad.properties"
    config.write_text(
        f"zookeeper.connect={offline.zookeeper}\nmirror.sources=dc-east\n"
        "mirror.dc-east.bootstrap.servers=nowhere\n"
    )
    command = [sys.executable, "-m", "headrace.broker.command", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "mirror.dc-east.bootstrap.servers=nowhere is not allowed: give HOST:PORT" in done.stderr


def _refusals(cluster: Cluster, topic: str) -> list[str | None]:
    """What a client hears that publishes, deletes records and adds a partition: the error's name, or None."""
    told: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "delivery.timeout.ms": 10_000}
    )
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error and error.name()))
    producer.flush(30)
    count = len(cluster.admin.list_topics(topic, timeout=10).topics[topic].partitions)
    wanted = TopicPartition(topic, 0, 0)
    for future in (
        cluster.admin.delete_records([wanted])[wanted],
        cluster.admin.create_partitions([NewPartitions(topic, count + 1)])[topic],
    ):
        error = future.exception(20)
        told.append(None if error is None else error.args[0].name())
    return told


def _is_created(cluster: Cluster, topic: str) -> bool:
    """Whether creating it succeeds: not before its namesake is gone everywhere."""
    try:
        cluster.create(topic, 1)
    except KafkaException:
        return False
    return True


def _shorten(cluster: Cluster, topic: str) -> None:
    """Retention by size takes all but the last segments away."""
    _configure(cluster, topic, {"retention.bytes": "30000"})
    eventually(lambda: cluster.log_start(topic) > 200, what="retention")


def _consumer(cluster: Cluster, group: str) -> Consumer:
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    return Consumer(settings)


def _commit(cluster: Cluster, group: str, topic: str, offset: int) -> None:
    consumer = _consumer(cluster, group)
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def _committed(cluster: Cluster, group: str, topic: str) -> int:
    consumer = _consumer(cluster, group)
    (found,) = consumer.committed([TopicPartition(topic, 0)], 20)
    consumer.close()
    offset: int = found.offset
    return offset


def _mirror(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli", "mirror", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _status(offline: Cluster) -> dict[str, list[dict[str, Any]]]:
    done = _mirror("status", "--bootstrap", offline.bootstrap, "--json")
    found: dict[str, list[dict[str, Any]]] = json.loads(
        done.stdout or '{"topics": [], "partitions": [], "syncs": []}'
    )
    return found


def _sync_rows(offline: Cluster) -> dict[tuple[str, str], dict[str, Any]]:
    """What status says of what else is brought, by source and what it is."""
    return {(row["source"], row["what"]): row for row in _status(offline)["syncs"]}


def _configure(cluster: Cluster, topic: str, values: dict[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    cluster.admin.incremental_alter_configs([resource])[resource].result(20)


def _configs(cluster: Cluster, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = cluster.admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in found.items()}


def _row(offline: Cluster, topic: str) -> dict[str, Any]:
    """What status says of a copy's partition 0."""
    rows = _status(offline)["partitions"]
    return next((r for r in rows if (r["topic"], r["partition"]) == (topic, 0)), {"state": "not there"})


def _place(offline: Cluster, topic: str) -> tuple[str, ...]:
    return f"dc-east.{topic}", "0", "--bootstrap", offline.bootstrap


def _batches(offline: Cluster, topic: str) -> list[tuple[int, int, int]]:
    try:
        return offline.batches(topic).get(0, [])
    except Exception:
        return []


def _change(offline: Cluster, topic: str, offset: int) -> None:
    """Change the value of one message of partition 0 in the copy's segment, and make the batch's checksum right again."""
    (path,) = offline.home.glob(f"broker-*/logs/{topic}-0/*.log")
    data = bytearray(path.read_bytes())
    position, header = next(
        entry for entry in iter_batches(data) if entry[1].base_offset <= offset <= entry[1].last_offset
    )
    records = decode_records(data, position, header)
    at = data.index(records[offset - header.base_offset].value or b"", position)
    data[at] ^= 1
    set_crc(data, position)
    path.write_bytes(data)


def _stopped(offline: Cluster, topic: str, kind: str, source: str = "dc-east") -> None:
    def is_stopped() -> bool:
        row = _row(offline, f"{source}.{topic}")
        return bool(row["state"] == "stopped" and row["reason"].startswith(kind))

    eventually(is_stopped, timeout_s=30, what=f"the stop of {topic}")
    label = f'headrace_mirror_state{{partition="0",source="{source}",state="stopped",topic="{topic}"}} 1.0'
    eventually(lambda: label in offline.metrics(), what="the metric")
    found = [f for f in _findings(offline, topic) if f["kind"] == kind and f["datacenter"] == source]
    assert len(found) == 1, "told once, whatever is restarted"


def _findings(offline: Cluster, topic: str) -> list[dict[str, object]]:
    return [f for f in offline.records("headrace.findings") if f["topic"] == topic]


def _resume(offline: Cluster, topic: str, source: str = "dc-east") -> None:
    done = _mirror("resume", f"{source}.{topic}", "0", "--bootstrap", offline.bootstrap)
    assert done.returncode == 0, done.stderr
