"""Several data directories beside Apache Kafka's: where logs go, what a failed one does, who may use one (KIP-112, 113)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka_oracle import KafkaBroker
from pairs import chroots
from processes import BrokerProcess, eventually, free_port
from sessions import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    Message,
    Pair,
    Session,
    batch,
    create_topic,
    produce_message,
)
from zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.acceptance

METRICS = "headrace.metrics.listener"
STOP_REPLICA, ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS = 5, 34, 35
STORAGE_ERROR = 56
PARTITIONS = 4
# Both notice a failed disk when they write the next checkpoint.
SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
}
LOGGING = """log4j.rootLogger=ERROR, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.SimpleLayout
"""


class Directories(Pair):
    """A pair with two data directories each, `a` and `b` below its home."""

    def home(self, session: Session) -> Path:
        return self.kafka.home if session._address == self.kafka.address else self.headrace.home

    def directory_of(self, session: Session, topic: str, partition: int) -> str:
        (found,) = [d.parent.name for d in self.home(session).glob(f"[ab]/{topic}-{partition}")]
        return found

    def folders(self, session: Session, topic: str, partition: int) -> list[str]:
        """Where there is a folder of this partition, copies included and deleted ones not."""
        found = self.home(session).glob(f"[ab]/{topic}-{partition}*")
        return sorted(d.parent.name for d in found if not d.name.endswith("-delete"))

    def file_sizes(self, session: Session, topic: str, partition: int) -> dict[str, int]:
        (folder,) = self.home(session).glob(f"[ab]/{topic}-{partition}")
        return {file.name: file.stat().st_size for file in folder.glob("*.log")}

    def break_directory(self, session: Session, name: str) -> None:
        directory = self.home(session) / name
        directory.rename(directory.with_name(f"{name}-away"))
        directory.touch()


def directories(home: Path, *names: str) -> dict[str, str]:
    return {**SETTINGS, "log.dirs": ",".join(str(home / name) for name in names)}


@pytest.fixture
def place(zookeeper: ZooKeeperProcess, tmp_path: Path) -> str:
    """HOST:PORT/CHROOT of a ZooKeeper."""
    return zookeeper.under_chroot(tmp_path)


def start_headrace(home: Path, place: str) -> BrokerProcess:
    address = f"{place}/headrace"
    settings = directories(home, "a", "b") | {METRICS: f"127.0.0.1:{free_port()}"}
    return BrokerProcess(home, broker_id=1, zookeeper=address, set=settings)


def metrics_of(broker: BrokerProcess) -> str:
    properties = (broker.home / "server.properties").read_text().splitlines()
    address = next(line for line in properties if line.startswith(METRICS)).partition("=")[2]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        return str(page.read().decode())


@pytest.fixture
def both(kafka_jars: Path, tmp_path: Path, place: str) -> Iterator[Directories]:
    with ExitStack() as stack:
        znodes = stack.enter_context(chroots(place))
        home = tmp_path / "kafka"
        settings = directories(home, "a", "b")
        kafka = KafkaBroker(kafka_jars, home, broker_id=1, zookeeper=f"{place}/kafka", set=settings)
        stack.callback(kafka.end)
        headrace = start_headrace(tmp_path / "headrace", place)
        stack.callback(headrace.end)
        kafka.wait_until_serving()
        pair = Directories(headrace=headrace, kafka=kafka, znodes=znodes)
        pair.wait_for_producer_ids()
        yield pair


def described(session: Session, pair: Directories, topic: str) -> Message:
    """DescribeLogDirs with the partitions' numbers replaced by how many they are: which goes where first is chance."""
    wanted = [{"topic": topic, "partitions": list(range(PARTITIONS))}]
    answer = session.look(DESCRIBE_LOG_DIRS, 4, {"topics": wanted}, noted=True)
    for result in answer["results"]:
        result["log_dir"] = Path(result["log_dir"]).name
        for name in ("total_bytes", "usable_bytes"):
            result[name] = "bytes" if result[name] > 0 else result[name]
        for found in result["topics"]:
            assert {pair.directory_of(session, topic, p["partition_index"]) for p in found["partitions"]} == {
                result["log_dir"]
            }
            found["partitions"].sort(key=lambda p: p["partition_size"])
            for number, partition in enumerate(found["partitions"]):
                partition["partition_index"] = number
    return answer


def code_of(session: Session, topic: str, partition: int) -> int:
    """What ListOffsets says of a partition."""
    wanted = [{"partition_index": partition, "timestamp": -1}]
    answer = session.look(
        LIST_OFFSETS, 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": wanted}]}
    )
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def test_a_failed_directory_takes_its_partitions_along_and_no_others(both: Directories) -> None:
    def script(session: Session) -> None:
        create_topic(session, "spread", PARTITIONS)
        for partition in range(PARTITIONS):
            session.ask(PRODUCE, 9, produce_message("spread", batch(b"x"), partition=partition))
        session.note("before", described(session, both, "spread"))
        places = {p: both.directory_of(session, "spread", p) for p in range(PARTITIONS)}
        lost, kept = (sorted(p for p in places if places[p] == name) for name in "ab")
        both.break_directory(session, "a")
        eventually(lambda: code_of(session, "spread", lost[0]) == STORAGE_ERROR, what="the failure")
        for partition in (*lost, *kept):
            ask_everything(session, partition)
        no_leader = partial(has_leaders, session, "spread", dict.fromkeys(lost, -1) | dict.fromkeys(kept, 1))
        eventually(no_leader, what="partitions without a leader")
        note_metadata(session, "spread", (*lost, *kept))
        session.note("after", described(session, both, "spread"))
        for partition in (lost[0], kept[0]):
            alter(session, both.home(session) / "a", ("spread", partition))
            alter(session, both.home(session) / "b", ("spread", partition), version=1)
            stop_replica(session, "spread", lost[0])
        create_topic(session, "later", 2)
        session.note("new partitions", {both.directory_of(session, "later", p) for p in (0, 1)})
        chroot = "/kafka" if session._address == both.kafka.address else "/headrace"
        for partition in (lost[0], kept[0]):
            state = both.znodes.get(f"{chroot}/brokers/topics/spread/partitions/{partition}/state")[0]
            session.note("state", state)
        session.note("events", both.znodes.get_children(f"{chroot}/log_dir_event_notification"))

    both.compare(script)
    metrics = metrics_of(both.headrace)
    assert "headrace_offline_log_directories 1.0" in metrics
    offline_count = re.search(r"^headrace_offline_replicas (\d+)", metrics, re.MULTILINE)
    assert offline_count is not None
    assert int(offline_count[1]) > 0
    # The last directory gone, neither goes on.
    for home in (both.kafka.home, both.headrace.home):
        (home / "b").rename(home / "b-away")
        (home / "b").touch()
    assert both.headrace.process.wait(30) == 1
    assert "All data directories have failed" in both.headrace.log.read_text()
    assert both.kafka.process.wait(30) == 1


def stop_replica(session: Session, topic: str, partition: int) -> None:
    """As the first controller of the cluster would, without deleting anything."""
    state = {"partition_index": partition, "leader_epoch": 100, "delete_partition": False}
    message = {
        "controller_id": 1,
        "controller_epoch": 1,
        "broker_epoch": -1,
        "topic_states": [{"topic_name": topic, "partition_states": [state]}],
    }
    session.ask(STOP_REPLICA, 4, message)


def ask_everything(session: Session, partition: int) -> None:
    session.ask(PRODUCE, 9, produce_message("spread", batch(b"y"), partition=partition))
    session.ask(FETCH, 11, fetch_message("spread", partition))
    wanted: Message = {"partition_index": partition, "timestamp": -1}
    message = {"replica_id": -1, "topics": [{"name": "spread", "partitions": [wanted]}]}
    for version in (1, 7):
        session.ask(LIST_OFFSETS, version, message)
    wanted = {"partition": partition, "leader_epoch": 0}
    message = {"replica_id": -2, "topics": [{"topic": "spread", "partitions": [wanted]}]}
    session.ask(OFFSET_FOR_LEADER_EPOCH, 3, message)


def fetch_message(topic: str, partition: int) -> Message:
    fetched = [{"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1_000_000}]
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1_000_000,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": fetched}],
    }


def partitions_of(session: Session, topic: str) -> dict[int, Message]:
    message = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    found = session.look(METADATA, 9, message)["topics"][0]["partitions"]
    return {p["partition_index"]: p for p in found}


def has_leaders(session: Session, topic: str, leaders: dict[int, int]) -> bool:
    return {p: found["leader_id"] for p, found in partitions_of(session, topic).items()} == leaders


def note_metadata(session: Session, topic: str, order: tuple[int, ...]) -> None:
    found = partitions_of(session, topic)
    session.note("metadata", [{**found[p], "partition_index": n} for n, p in enumerate(order)])


def alter(session: Session, path: Path | str, *replicas: tuple[str, int], version: int = 2) -> None:
    topics: dict[str, list[int]] = {}
    for topic, partition in replicas:
        topics.setdefault(topic, []).append(partition)
    directory = {
        "path": str(path),
        "topics": [{"name": name, "partitions": numbers} for name, numbers in topics.items()],
    }
    session.ask(ALTER_REPLICA_LOG_DIRS, version, {"dirs": [directory]})


@pytest.mark.long
def test_replicas_move_to_other_directories_while_they_are_in_use(both: Directories) -> None:
    def script(session: Session) -> None:
        home = both.home(session)
        here, there = 0, 1
        # A wish for a partition that is not there yet is kept.
        alter(session, home / "a", ("moving", here), ("moving", 2))
        alter(session, home / "b", ("moving", there), ("moving", 3))
        create_topic(session, "moving", PARTITIONS)
        places = [both.directory_of(session, "moving", p) for p in range(PARTITIONS)]
        session.note("as wished", places)
        for number in range(60):
            records = batch(f"value {number} ".encode() * 100, b"b")
            session.look(PRODUCE, 9, produce_message("moving", records, partition=here))
        alter(session, "/nowhere", ("moving", here))
        alter(session, "b", ("moving", here))
        alter(session, home / "b", ("moving", 99), ("nothing", 0), version=1)
        alter(session, home / "b", ("t" * 230, 0))
        alter(session, home / "b", ("moving", there), version=0)
        alter(session, home / "b", ("moving", here))
        session.ask(PRODUCE, 9, produce_message("moving", batch(b"meanwhile"), partition=here))
        eventually(lambda: both.folders(session, "moving", here) == ["b"], what="the move")
        session.ask(PRODUCE, 9, produce_message("moving", batch(b"afterwards"), partition=here))
        session.ask(FETCH, 11, fetch_message("moving", here))
        session.note("sizes", both.file_sizes(session, "moving", here))
        session.note("described", described(session, both, "moving"))
        alter(session, home / "a", ("moving", here))
        alter(session, home / "b", ("moving", here))
        alter(session, home / "a", ("moving", here))
        eventually(lambda: both.folders(session, "moving", here) == ["a"], what="the way back")
        session.ask(FETCH, 11, fetch_message("moving", here))

    both.compare(script)


@pytest.mark.long
def test_either_kind_goes_on_with_a_copy_that_the_other_kind_began(both: Directories, place: str) -> None:
    values = [b"a" * 3000, b"b" * 3000]

    def before(session: Session) -> None:
        create_topic(session, "begun")
        session.ask(PRODUCE, 9, produce_message("begun", batch(*values)))

    both.compare(before)
    assert both.headrace.stop() == 0
    both.kafka.stop()
    targets = {}
    for home in (both.kafka.home, both.headrace.home):
        (source,) = home.glob("[ab]/begun-0")
        targets[home] = "b" if source.parent.name == "a" else "a"
        # What both make first.
        copy = home / targets[home] / f"begun-0.{'0123456789abcdef' * 2}-future"
        copy.mkdir()
        shutil.copy(source / "partition.metadata", copy)
    both.kafka.start()
    headrace = start_headrace(both.headrace.home, place)
    again = both._replace(headrace=headrace)
    try:
        both.kafka.wait_until_serving()
        again.wait_for_producer_ids()

        def after(session: Session) -> None:
            target = [targets[again.home(session)]]
            eventually(lambda: again.folders(session, "begun", 0) == target, what="the move")
            session.ask(FETCH, 11, fetch_message("begun", 0))
            session.ask(PRODUCE, 9, produce_message("begun", batch(b"c")))

        again.compare(after)
    finally:
        headrace.end()


@pytest.mark.long
def test_a_directory_that_fails_at_the_start_leaves_old_partitions_out_of_reach(
    both: Directories, place: str
) -> None:
    def before(session: Session) -> None:
        create_topic(session, "old", PARTITIONS)
        session.note("created", sorted(both.directory_of(session, "old", p) for p in range(PARTITIONS)))

    both.compare(before)
    assert both.headrace.stop() == 0
    both.kafka.stop()
    for home in (both.kafka.home, both.headrace.home):
        (home / "a").rename(home / "a-away")
        (home / "a").touch()
    both.kafka.start()
    headrace = start_headrace(both.headrace.home, place)
    again = both._replace(headrace=headrace)
    try:
        both.kafka.wait_until_serving()
        again.wait_for_producer_ids()

        def after(session: Session) -> None:
            lost = sorted(int(d.name.rpartition("-")[2]) for d in both.home(session).glob("a-away/old-*"))
            kept = sorted(set(range(PARTITIONS)) - set(lost))
            expected = dict.fromkeys(lost, -1) | dict.fromkeys(kept, 1)
            eventually(partial(has_leaders, session, "old", expected), what="the leaders")
            note_metadata(session, "old", (*lost, *kept))
            session.note("codes", [code_of(session, "old", p) for p in (*lost, *kept)])
            session.note("described", described_paths(session))

        again.compare(after)
    finally:
        headrace.end()


def described_paths(session: Session) -> list[tuple[str, int]]:
    answer = session.look(DESCRIBE_LOG_DIRS, 4, {"topics": []})
    return [(Path(result["log_dir"]).name, result["error_code"]) for result in answer["results"]]


def test_a_data_directory_serves_one_broker_of_either_kind(both: Directories, kafka_jars: Path) -> None:
    homes = [broker.home for broker in (both.kafka, both.headrace)]
    texts = [(home / "server.properties").read_text() for home in homes]
    # The same broker of the same cluster: only the lock can tell.
    for home, other_home, text in zip(homes, reversed(homes), reversed(texts), strict=True):
        lines = text.replace(str(other_home), str(home)).splitlines()
        (home / "second.properties").write_text("\n".join(line for line in lines if METRICS not in line))
    ours = [sys.executable, "-m", "headrace.broker.command", "--config", f"{homes[0]}/second.properties"]
    refused = subprocess.run(ours, capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (
        1,
        f"Error: Another broker uses {homes[0]}/a (it holds a lock on .lock there): stop it, or give this one a data "
        "directory of its own.",
    )
    (homes[1] / "log4j.properties").write_text(LOGGING)
    logging = f"-Dlog4j.configuration=file:{homes[1]}/log4j.properties"
    theirs = ["java", logging, "-cp", f"{kafka_jars}/*", "kafka.Kafka", f"{homes[1]}/second.properties"]
    kafka = subprocess.run(theirs, capture_output=True, text=True, timeout=90, check=False)
    assert kafka.returncode == 1
    assert "Failed to acquire lock on file .lock" in kafka.stdout + kafka.stderr


@pytest.mark.parametrize("controller", ["headrace", "kafka"])
def test_either_kind_of_controller_hears_of_the_others_failed_directory(
    controller: str, kafka_jars: Path, tmp_path: Path, place: str
) -> None:
    """The one that is started first is controller; the other one loses a directory."""
    with ExitStack() as stack:
        brokers: dict[int, BrokerProcess | KafkaBroker] = {}
        kinds = ("headrace", "kafka") if controller == "headrace" else ("kafka", "headrace")
        for broker_id, kind in enumerate(kinds, start=1):
            home = tmp_path / kind
            settings: dict[str, Any] = {
                "broker_id": broker_id,
                "zookeeper": place,
                "set": directories(home, "a", "b"),
            }
            started = (
                KafkaBroker(kafka_jars, home, **settings)
                if kind == "kafka"
                else BrokerProcess(home, **settings)
            )
            brokers[broker_id] = started
            stack.callback(started.end)
            if isinstance(started, KafkaBroker):
                started.wait_until_serving()
        sessions = {broker_id: Session(address_of(started)) for broker_id, started in brokers.items()}
        for session in sessions.values():
            stack.callback(session.close)
        eventually(lambda: all(sees_both(session) for session in sessions.values()), what="one cluster")
        create_topic(sessions[1], "spread", 2 * PARTITIONS)
        home = tmp_path / kinds[1]
        eventually(lambda: len(list(home.glob("[ab]/spread-*"))) == PARTITIONS, what="the logs")
        lost = sorted(int(d.name.rpartition("-")[2]) for d in home.glob("a/spread-*"))
        (home / "a").rename(home / "a-away")
        (home / "a").touch()
        before = {p: found["leader_id"] for p, found in partitions_of(sessions[1], "spread").items()}
        assert {before[p] for p in lost} == {2}
        expected = before | dict.fromkeys(lost, -1)
        for session in sessions.values():
            eventually(partial(has_leaders, session, "spread", expected), what="partitions without a leader")
            found = partitions_of(session, "spread")
            assert sorted(p for p in found if found[p]["offline_replicas"] == [2]) == lost
        create_topic(sessions[1], "later", 2)
        eventually(lambda: list(home.glob("b/later-*")), what="a log in the other directory")


def address_of(broker: BrokerProcess | KafkaBroker) -> tuple[str, int]:
    return broker.address if isinstance(broker, KafkaBroker) else broker.addresses[0]


def sees_both(session: Session) -> bool:
    try:
        return len(session.look(METADATA, 9, {"topics": []})["brokers"]) == 2
    except ConnectionError:
        session.close()
        return False
