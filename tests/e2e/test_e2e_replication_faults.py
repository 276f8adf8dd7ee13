"""Three brokers, three replicas, two in sync at least: whatever happens to one of them, nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from commands import headrace
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from processes import eventually, free_port
from raw_client import FETCH, RawClient
from replicated_cluster import (
    PARTITION_COUNT,
    SESSION_TIMEOUT_MS,
    TOPIC,
    GroupReader,
    NetworkNamespaces,
    ReplicatedCluster,
    Writer,
    check,
    full,
    small_disk,
)

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import ErrorCode
from headrace.cli.cluster import look
from headrace.cli.cluster_status import stopping

Harm = Callable[[ReplicatedCluster, Writer], None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ReplicatedCluster]:
    cluster = ReplicatedCluster(tmp_path)
    yield cluster
    cluster.end()


def killed_leaders(cluster: ReplicatedCluster, writer: Writer) -> None:
    """Each in turn dies while it leads, and comes back."""
    for partition in range(PARTITION_COUNT):
        leader = cluster.leader(partition)
        cluster.brokers[leader].kill()
        eventually(lambda p=partition, n=leader: cluster.leader(p) != n, what="another leader")  # type: ignore[misc]
        writer.wait_for_more()
        seen = look(Bootstrap(cluster.bootstrap))
        assert seen.absent() == [leader]
        assert stopping(seen, leader % 3 + 1).hindered, "two of three are in sync, and two are needed"
        cluster.start(leader)
        cluster.wait_until_in_sync()


def a_rolling_restart(cluster: ReplicatedCluster, writer: Writer) -> None:
    for number in cluster.addresses:
        assert cluster.brokers[number].stop() == 0
        writer.wait_for_more()
        cluster.start(number)
        cluster.wait_until_in_sync()


def a_leader_that_sleeps_through_its_session(cluster: ReplicatedCluster, writer: Writer) -> None:
    leader = cluster.leader()
    cluster.pause(leader, SESSION_TIMEOUT_MS / 1000 + 3)
    writer.wait_for_more()


def a_leader_that_sleeps_while_its_partitions_move_away(cluster: ReplicatedCluster, writer: Writer) -> None:
    """Nobody tells it to stop when it is back, and clients that know of no other leader ask it as before."""
    leader = cluster.leader()
    others = [number for number in cluster.addresses if number != leader]
    cluster.brokers[leader].process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: cluster.leader() != leader, what="another leader")
        cluster.begin_move(others, others[0])
        eventually(lambda: cluster.has_moved(others), what="replicas on the others")
    finally:
        cluster.brokers[leader].process.send_signal(signal.SIGCONT)
    eventually(lambda: fetch_error(cluster, leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER, what="a refusal")
    writer.wait_for_more()
    cluster.begin_move([leader, *others], others[0])
    cluster.wait_until_in_sync()


def fetch_error(cluster: ReplicatedCluster, number: int) -> ErrorCode:
    """What a broker answers to who would read partition 0."""
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    client = RawClient(cluster.addresses[number])
    with client.socket:
        answer = client.ask(FETCH, 4, {"topics": [{"topic": TOPIC, "partitions": [wanted]}]})
    return ErrorCode(answer["responses"][0]["partitions"][0]["error_code"])


def a_log_cut_back_while_its_broker_is_down(cluster: ReplicatedCluster, writer: Writer) -> None:
    follower = next(number for number in cluster.addresses if number != cluster.leader())
    log = max(cluster.directory(follower, 0).glob("*.log"))
    eventually(lambda: log.stat().st_size > 0, what="the follower's first batches")
    cluster.brokers[follower].kill()
    writer.wait_for_more()
    os.truncate(log, random.Random(7).randrange(log.stat().st_size))
    cluster.start(follower)
    cluster.wait_until_in_sync()


def a_broker_whose_data_is_gone(cluster: ReplicatedCluster, writer: Writer) -> None:
    leader = cluster.leader()
    cluster.brokers[leader].kill()
    eventually(lambda: cluster.leader() != leader, what="another leader")
    subprocess.run(["rm", "-r", str(cluster.home / f"broker-{leader}" / "logs")], check=True)
    cluster.start(leader)
    cluster.wait_until_in_sync()
    writer.wait_for_more()


def a_log_that_ends_below_its_watermark(cluster: ReplicatedCluster, writer: Writer) -> None:
    """Of the only one in sync, after a crash: it refuses to lead, whoever has all leads by an operator's word."""
    leader = cluster.leader()
    first, last = (number for number in cluster.addresses if number != leader)
    for number in (first, last):
        assert cluster.brokers[number].stop() == 0
    eventually(lambda: cluster.state(0)["isr"] == [leader], what="a leader alone in sync")
    checkpoint = cluster.home / f"broker-{leader}" / "logs" / "replication-offset-checkpoint"
    committed = re.compile(rf"^{TOPIC} 0 [1-9]", re.MULTILINE)
    eventually(
        lambda: checkpoint.exists() and committed.search(checkpoint.read_text()),
        what="a watermark on the disk",
    )
    cluster.brokers[leader].kill()
    (log,) = cluster.directory(leader, 0).glob("*.log")
    os.truncate(log, 0)
    port = free_port()
    cluster.own_settings[leader] = {"headrace.metrics.listener": f"127.0.0.1:{port}"}
    cluster.start(leader)
    told = cluster.home / f"broker-{leader}" / "broker.log"
    eventually(lambda: "not leading: the log lost what was committed" in told.read_text(), what="a refusal")
    eventually(lambda: cluster.leader() == -1, what="a partition that nobody leads")
    assert "headrace_leaderships_refused_total 1.0" in page(port)
    cluster.start(last)
    allowed = ConfigEntry(
        "unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET
    )
    topic = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[allowed])
    admin = cluster.admin()
    admin.incremental_alter_configs([topic])[topic].result(30)
    eventually(lambda: cluster.leader() == last, what="a leader that has all")
    cluster.start(first)
    cluster.wait_until_in_sync()


def a_log_that_rots(cluster: ReplicatedCluster, writer: Writer) -> None:
    """In data that was synced: the replica keeps the bad batch, is in sync and leads; made anew it is sound."""
    damaged = next(number for number in cluster.addresses if number != cluster.leader())
    port = free_port()
    synced = {"log.flush.interval.messages": "1", "log.flush.offset.checkpoint.interval.ms": "0"}
    cluster.own_settings[damaged] = {"headrace.metrics.listener": f"127.0.0.1:{port}", **synced}
    restart(cluster, damaged)
    writer.wait_for_more()
    points = cluster.home / f"broker-{damaged}" / "logs" / "recovery-point-offset-checkpoint"
    synced_some = re.compile(rf"^{TOPIC} 0 [1-9]\d", re.MULTILINE)
    eventually(lambda: points.exists() and synced_some.search(points.read_text()), what="a recovery point")
    cluster.brokers[damaged].kill()
    flip(min(cluster.directory(damaged, 0).glob("*.log")), 65)
    cluster.start(damaged)
    cluster.wait_until_in_sync()
    told = f'headrace_log_rotten_places{{partition="0",topic="{TOPIC}"}} 1.0'
    restart(cluster, damaged)
    assert told in page(port), "a clean stop makes nobody forget it"
    codes = {number: scrub(cluster, number) for number in cluster.addresses}
    assert codes == {number: int(number == damaged) for number in cluster.addresses}
    scrubbed = f'headrace_scrub_rotten_places{{partition="0",topic="{TOPIC}"}} 1.0'
    eventually(lambda: scrubbed in page(port), what="what the scrub found")
    for number in cluster.addresses.keys() - {damaged}:
        cluster.brokers[number].kill()
        eventually(lambda n=number: cluster.leader() != n, what="another leader")  # type: ignore[misc]
    eventually(lambda: cluster.leader() == damaged, what="the damaged replica leading")
    with pytest.raises(KafkaException, match="CRC32C"):
        first_message(cluster, damaged)
    for number in cluster.addresses.keys() - {damaged}:
        cluster.start(number)
    cluster.wait_until_in_sync()
    assert cluster.brokers[damaged].stop() == 0
    shutil.rmtree(cluster.directory(damaged, 0))
    cluster.start(damaged)
    cluster.wait_until_in_sync()
    assert told not in page(port)
    assert scrub(cluster, damaged) == 0
    eventually(lambda: scrubbed not in page(port), what="what the scrub of the new copy found")


def restart(cluster: ReplicatedCluster, number: int) -> None:
    cluster.brokers[number].stop()
    cluster.start(number)
    cluster.wait_until_in_sync()


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def scrub(cluster: ReplicatedCluster, number: int) -> int:
    """The exit code of `headrace check-logs` beside the running broker."""
    return headrace("check-logs", "--record", str(cluster.home / f"broker-{number}" / "logs")).returncode


def page(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as metrics:
        found: str = metrics.read().decode()
        return found


def first_message(cluster: ReplicatedCluster, number: int) -> bytes | None:
    """Read by a client that checks checksums, as Kafka's own does; raises KafkaException."""
    host, port = cluster.addresses[number]
    settings = {"bootstrap.servers": f"{host}:{port}", "group.id": "first", "log_level": 0}
    consumer = Consumer({**settings, "check.crcs": True})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(20)
        assert message is not None
        if message.error() is not None:
            raise KafkaException(message.error())
        return message.value()
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "harm",
    [
        killed_leaders,
        pytest.param(a_rolling_restart, marks=pytest.mark.long),
        pytest.param(a_leader_that_sleeps_through_its_session, marks=pytest.mark.long),
        pytest.param(a_leader_that_sleeps_while_its_partitions_move_away, marks=pytest.mark.long),
        a_log_cut_back_while_its_broker_is_down,
        pytest.param(a_broker_whose_data_is_gone, marks=pytest.mark.long),
        pytest.param(a_log_that_ends_below_its_watermark, marks=pytest.mark.long),
        pytest.param(a_log_that_rots, marks=pytest.mark.long),
    ],
)
def test_nothing_acknowledged_is_lost_by(cluster: ReplicatedCluster, harm: Harm) -> None:
    writer, reader = Writer(cluster), GroupReader(cluster)
    writer.wait_for_more()
    harm(cluster, writer)
    writer.wait_for_more()
    check(cluster, writer, reader)


@pytest.mark.long
def test_nothing_acknowledged_is_lost_by_a_disk_that_fills(tmp_path: Path) -> None:
    with small_disk(tmp_path / "broker-2" / "logs") as disk:
        cluster = ReplicatedCluster(tmp_path)
        try:
            writer, reader = Writer(cluster), GroupReader(cluster)
            writer.wait_for_more()
            with full(disk):
                eventually(
                    lambda: 2 not in cluster.leaders(), what="others that lead what the full disk held"
                )
                time.sleep(6)
                writer.wait_for_more()
                assert 2 not in cluster.leaders()
            cluster.wait_until_in_sync()
            check(cluster, writer, reader)
        finally:
            cluster.end()


@pytest.mark.long
@pytest.mark.skipif(os.getuid() != 0, reason="network namespaces need root")
def test_a_leader_that_reaches_clients_alone_acknowledges_nothing_that_is_lost(tmp_path: Path) -> None:
    with NetworkNamespaces() as network:
        cluster = ReplicatedCluster(
            tmp_path, hosts=network.hosts, zookeeper_host=network.ZOOKEEPER, inside=network.inside
        )
        try:
            writer, reader = Writer(cluster), GroupReader(cluster)
            writer.wait_for_more()
            leader = cluster.leader()
            network.cut(leader)
            eventually(lambda: cluster.leader() != leader, what="another leader")
            writer.wait_for_more()
            network.heal(leader)
            check(cluster, writer, reader)
        finally:
            cluster.end()
