"""Starting, stopping and crashing: what `headrace dev` and `headrace broker` promise about themselves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import psutil
import pytest
from confluent_kafka.admin import AdminClient
from processes import BrokerProcess, DevCluster, DevProcess, eventually
from test_e2e_broker_clients import consume_all, produce

Start = Callable[..., DevCluster]
StartDev = Callable[..., DevProcess]


def run_headrace(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def test_dev_says_where_it_serves_and_stops_cleanly(dev_process: StartDev) -> None:
    cluster = dev_process(own_zookeeper=True)
    address = r"127\.0\.0\.1:\d+"
    assert re.fullmatch(rf"ready {address} zookeeper {address}", " ".join(cluster.ready))
    children = psutil.Process(cluster.process.pid).children()
    assert cluster.stop() == 0
    assert not any(child.is_running() for child in children)
    assert (cluster.data / "broker-1" / "logs" / ".kafka_cleanshutdown").exists()


def test_a_closed_terminal_is_an_orderly_stop(
    dev_process: StartDev, broker_process: Callable[..., BrokerProcess]
) -> None:
    cluster = dev_process()
    other = broker_process(broker_id=2, zookeeper=cluster.zookeeper)
    for process, logs in ((other, other.home / "logs"), (cluster, cluster.data / "broker-1" / "logs")):
        process.process.send_signal(signal.SIGHUP)
        assert process.wait() == 0
        assert (logs / ".kafka_cleanshutdown").exists()


def test_a_process_that_ignores_hanging_up_goes_on(tmp_path: Path) -> None:
    with subprocess.Popen(
        [
            "nohup",
            sys.executable,
            "-m",
            "headrace.broker.dev",
            "--listen",
            "127.0.0.1:0",
            "--data",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        assert process.wait(40) == 0


def test_two_brokers_do_not_advertise_one_address(
    dev_cluster: Start, broker_process: Callable[..., BrokerProcess]
) -> None:
    cluster = dev_cluster()
    same = {
        "advertised.listeners": f"PLAINTEXT://{cluster.bootstrap}",
        "zookeeper.session.timeout.ms": "2000",
    }
    with pytest.raises(AssertionError) as refused:
        broker_process(broker_id=2, zookeeper=cluster.zookeeper, set=same)
    assert (
        f"Configured end points {cluster.bootstrap} in advertised listeners are already registered by broker 1"
        in str(refused.value)
    )
    assert len(AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=20).brokers) == 1


@pytest.mark.acceptance
def test_of_two_brokers_that_come_at_once_with_one_address_one_stays() -> None:
    both = (
        "--set",
        "advertised.listeners=PLAINTEXT://127.0.0.1:9",
        "--set",
        "zookeeper.session.timeout.ms=2000",
    )
    result = run_headrace("headrace.broker.dev", "--brokers", "2", "--listen", "127.0.0.1:0", *both)
    assert result.returncode == 1
    assert "are already registered by broker" in result.stderr


def test_an_ipv6_address_is_told_in_brackets(dev_cluster: Start) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no address ::1 ({error})")
    cluster = dev_cluster(listen="[::1]:0")
    assert re.fullmatch(r"\[::1\]:\d+", cluster.bootstrap)
    assert AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=20).brokers


def test_dev_runs_several_brokers_that_know_each_other(dev_process: StartDev) -> None:
    cluster = dev_process(brokers=2)
    assert len(cluster.addresses) == 2
    for address in cluster.bootstrap.split(","):
        listing = subprocess.run(
            ["kcat", "-b", address, "-L"], capture_output=True, text=True, check=True, timeout=30
        )
        assert "2 brokers:" in listing.stdout
    assert cluster.stop() == 0


def test_brokers_share_the_partitions_of_a_topic_and_serve_a_group_together(dev_cluster: Start) -> None:
    cluster = dev_cluster(brokers=3, set={"num.partitions": "6"})
    values = [str(i).encode() for i in range(3000)]
    produce(cluster.bootstrap, "spread", values, **{"sticky.partitioning.linger.ms": 0})
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("spread", timeout=20)
    leaders = [partition.leader for partition in metadata.topics["spread"].partitions.values()]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert sorted(consume_all(cluster.bootstrap, "spread", 3000)) == sorted(values)
    positions = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("__consumer_offsets")
    (partition, *_) = positions.topics["__consumer_offsets"].partitions.values()
    assert sorted(partition.replicas) == [1, 2, 3]


def test_dev_ends_with_its_brokers_when_it_is_killed(dev_process: StartDev) -> None:
    cluster = dev_process(own_zookeeper=True)
    children = psutil.Process(cluster.process.pid).children()
    assert len(children) == 2
    cluster.kill()
    eventually(lambda: not any(c.is_running() and c.status() != psutil.STATUS_ZOMBIE for c in children))


def test_dev_fails_when_a_broker_dies(dev_process: StartDev) -> None:
    cluster = dev_process()
    assert cluster.kill_broker() == 1
    assert "exit code -9" in cluster.log.read_text()


def test_acknowledged_messages_survive_kill_9(dev_cluster: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = dev_cluster(data=data)
    values = [f"value {i}".encode() for i in range(5000)]
    produce(first.bootstrap, "durable", values, **{"enable.idempotence": True})
    first.kill_broker()
    second = dev_cluster(data=data)
    assert consume_all(second.bootstrap, "durable", 5000) == values
    produce(second.bootstrap, "durable", [b"after"])
    assert consume_all(second.bootstrap, "durable", 5001)[-1] == b"after"


def test_a_clean_restart_keeps_topics_messages_and_committed_offsets(
    dev_process: StartDev, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    first = dev_process(data=data, own_zookeeper=True)
    other = run_headrace("headrace.broker.dev", "--listen", "127.0.0.1:0", "--data", str(data))
    assert other.returncode == 1
    assert other.stderr.endswith(f"runs on {data}: end it, or give another --data.\n")
    produce(first.bootstrap, "kept", [str(i).encode() for i in range(100)])
    settings = {"group.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": first.bootstrap, **settings})
    consumer.subscribe(["kept"])
    assert len(consumer.consume(40, timeout=20)) == 40
    consumer.commit(asynchronous=False)
    consumer.close()
    assert first.stop() == 0
    second = dev_process(data=data, own_zookeeper=True)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": second.bootstrap, **settings})
    consumer.subscribe(["kept"])
    rest = consumer.consume(60, timeout=20)
    consumer.close()
    assert [message.value() for message in rest] == [str(i).encode() for i in range(40, 100)]


def test_retention_deletes_whole_segments_while_a_reader_goes_on(dev_cluster: Start) -> None:
    cluster = dev_cluster(
        set={
            "log.retention.check.interval.ms": "200",
            "log.segment.bytes": "20000",
            "log.retention.bytes": "60000",
            "log.segment.delete.delay.ms": "0",
        }
    )
    for _ in range(20):
        produce(cluster.bootstrap, "short", [b"x" * 1000] * 15)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    partition = confluent_kafka.TopicPartition("short", 0)
    eventually(lambda: consumer.get_watermark_offsets(partition, timeout=20)[0] > 200, what="retention")
    low, high = consumer.get_watermark_offsets(partition, timeout=20)
    consumer.close()
    assert high == 300
    assert len(consume_all(cluster.bootstrap, "short", high - low)) == high - low


def test_messages_are_flushed_when_the_configuration_asks_for_it(dev_cluster: Start) -> None:
    cluster = dev_cluster(set={"log.flush.interval.ms": "100"})
    produce(cluster.bootstrap, "flushed", [b"x"] * 10)
    checkpoint = cluster.data / "broker-1" / "logs" / "recovery-point-offset-checkpoint"
    eventually(lambda: checkpoint.exists() and "flushed 0 10" in checkpoint.read_text(), what="a flush")
    assert cluster.stop() == 0


def test_dev_says_which_address_is_taken(dev_cluster: Start) -> None:
    port = dev_cluster().addresses[0][1]
    result = run_headrace("headrace.broker.dev", "--listen", f"127.0.0.1:{port}")
    assert result.returncode == 1
    assert result.stderr.count("Error") == 1
    assert f"listeners=PLAINTEXT://127.0.0.1:{port}" in result.stderr
    (log,) = re.findall(r"\((/\S+/broker.log)\)", result.stderr)
    assert f"127.0.0.1:{port}" in Path(log).read_text(), "the log that it speaks of is there"
    shutil.rmtree(Path(log).parents[1])


def test_dev_says_that_no_zookeeper_answers_and_leaves_nothing(tmp_path: Path) -> None:
    result = run_headrace("headrace.broker.dev", "--zookeeper", "127.0.0.1:1/chroot", TMPDIR=str(tmp_path))
    assert result.returncode == 1
    assert (
        result.stderr
        == "Error: no ZooKeeper answers at 127.0.0.1:1/chroot: start it, or correct --zookeeper.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_dev_says_that_its_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run_headrace("headrace.broker.dev", "--data", str(tmp_path / "file" / "data"))
    assert result.returncode == 2
    assert f"{tmp_path}/file/data cannot be made: Not a directory." in result.stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("log.segment.bytes=ten", ["log.segment.bytes", "ten", "whole number"]),
        ("message.max.bytes=-4", ["message.max.bytes", "-4", "from 0 to"]),
        ("nonsense", ["nonsense", "KEY=VALUE"]),
        ("num.partitons=4", ["num.partitons is no key", "the nearest is num.partitions."]),
    ],
)
def test_dev_refuses_a_bad_setting_before_it_starts_anything(setting: str, words: list[str]) -> None:
    result = run_headrace("headrace.broker.dev", "--set", setting)
    assert result.returncode == 2
    assert all(word in result.stderr for word in words)


def test_a_bad_value_in_server_properties_is_named_with_what_is_allowed(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("zookeeper.connect=127.0.0.1:1\nlog.message.timestamp.type=Whenever\n")
    result = run_headrace("headrace.broker.command", "--config", str(config))
    assert result.returncode == 2
    assert "log.message.timestamp.type=Whenever" in result.stderr
    assert "one of CreateTime, LogAppendTime" in result.stderr


def test_a_broker_without_zookeeper_says_so(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\n"
        "zookeeper.connect=127.0.0.1:1\nzookeeper.connection.timeout.ms=500\n"
    )
    result = run_headrace("headrace.broker.command", "--config", str(config))
    assert result.returncode == 1
    logged, sentence = result.stderr.splitlines()[-2:]
    assert "127.0.0.1:1" in sentence
    assert re.match(r'time=\S+Z level=error logger=\S+ event="cannot go on" ', logged)
