"""Error codes that take something odd to provoke: a partition nobody leads, a former epoch, a switch that is off, no time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka_oracle import KafkaBroker
from pairs import LEFT_EPOCH as EPOCH
from pairs import leave_topic, running_pair
from processes import BrokerProcess, eventually
from sessions import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    INIT_PRODUCER_ID,
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

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN = 4, 5, 6, 7
API_VERSIONS, DELETE_RECORDS, ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS = (
    18,
    21,
    34,
    35,
    61,
)
NOT_CONTROLLER = 41
NOBODY = 7
TOPIC_ID, OTHER_TOPIC_ID = "AAAAAAAAQACAAAAAAAAAAQ", "AAAAAAAAQACAAAAAAAAAAg"
ZSTD = 4


@pytest.fixture(scope="module")
def changed_pair(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A pair that deletes no topics, and that the last test restarts."""
    settings = {"delete.topic.enable": "false"}
    with running_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("changed"), settings) as both:
        yield both


def fetch_of(topic: str, partition: int = 0, *, epoch: int = -1, offset: int = 0) -> Message:
    wanted = {
        "partition": partition,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "partition_max_bytes": 100_000,
    }
    topics = [{"topic": topic, "partitions": [wanted]}]
    return {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 100_000, "topics": topics}


def list_offsets_of(topic: str, partition: int = 0, *, epoch: int = -1) -> Message:
    wanted = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": -1}
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": [wanted]}]}


def epoch_end_of(topic: str, partition: int = 0, *, epoch: int = -1) -> Message:
    wanted = {"partition": partition, "current_leader_epoch": epoch, "leader_epoch": 0}
    return {"replica_id": -2, "topics": [{"topic": topic, "partitions": [wanted]}]}


def ask_all(session: Session, topic: str, partition: int, epoch: int = -1) -> None:
    """All that consumers ask of a leader, with the epoch in which they believe it to lead."""
    for version in (4, 9, 11, 12):
        message = fetch_of(topic, partition, **({"epoch": epoch} if version >= 9 else {}))
        session.ask(FETCH, version, message, note=f"{partition} {epoch}")
    for version in (1, 4, 5, 8):
        message = list_offsets_of(topic, partition, **({"epoch": epoch} if version >= 4 else {}))
        session.ask(LIST_OFFSETS, version, message, note=f"{partition} {epoch}")
    for version in (2, 3, 4):
        message = epoch_end_of(topic, partition, epoch=epoch)
        session.ask(OFFSET_FOR_LEADER_EPOCH, version, message, note=f"{partition} {epoch}")


@pytest.mark.acceptance
def test_partitions_that_nobody_leads(changed_pair: Pair) -> None:
    """A controller finds a topic of its predecessor, with one partition on a broker that is not there."""
    pair = changed_pair
    for chroot in ("/kafka", "/headrace"):
        leave_topic(pair.znodes, chroot, "lost", TOPIC_ID, {0: [NOBODY], 1: [1, NOBODY]})
        leave_topic(
            pair.znodes, chroot, "few", OTHER_TOPIC_ID, {0: [1, NOBODY]}, {"min.insync.replicas": "2"}
        )
        pair.znodes.delete(f"{chroot}/controller")

    def script(session: Session) -> None:
        def is_known() -> bool:
            message = {"topics": [{"name": "lost"}], "allow_auto_topic_creation": False}
            topic = session.look(METADATA, 4, message)["topics"][0]
            return topic["error_code"] == 0 and len(topic["partitions"]) == 2

        eventually(is_known, what="the lost topic")
        eventually(lambda: is_led(session, "few"), what="the topic with few in sync")
        for version in range(13):
            topics = [{"name": "lost"}]
            allowed = {"allow_auto_topic_creation": False} if version >= 4 else {}
            session.ask(METADATA, version, {"topics": topics, **allowed})
        for partition in (0, 1):
            ask_all(session, "lost", partition)
            for version in (3, 7, 9, 10, 11):
                message = produce_message("lost", batch(b"x"), partition=partition)
                session.ask(PRODUCE, version, message, note=f"{partition}")
            parts: list[Message] = [{"partition_index": partition, "offset": 0}]
            message = {"topics": [{"name": "lost", "partitions": parts}], "timeout_ms": 1000}
            session.ask(DELETE_RECORDS, 1, message, note=f"{partition}")
            message = {"topics": [{"name": "lost", "partition_indexes": [partition]}]}
            session.ask(DESCRIBE_PRODUCERS, 0, message, note=f"{partition}")
        for epoch in (EPOCH - 1, EPOCH, EPOCH + 1):
            ask_all(session, "lost", 1, epoch)
        for version in (3, 8, 11):
            message = produce_message("few", batch(b"x"), acks=-1)
            session.ask(PRODUCE, version, message, note="too few in sync")
        path = session.look(DESCRIBE_LOG_DIRS, 4, {"topics": []})["results"][0]["log_dir"]
        for version in range(3):
            directory = {"path": path, "topics": [{"name": "lost", "partitions": [0]}]}
            session.ask(ALTER_REPLICA_LOG_DIRS, version, {"dirs": [directory]}, note="elsewhere")
        stop_replicas_of_former_epochs(session, pair)

    pair.compare(script)


def is_led(session: Session, topic: str) -> bool:
    answer = session.look(LIST_OFFSETS, 1, list_offsets_of(topic))
    return bool(answer["topics"][0]["partitions"][0]["error_code"] == 0)


def stop_replicas_of_former_epochs(session: Session, pair: Pair) -> None:
    chroot = "/kafka" if session._address == pair.kafka.address else "/headrace"
    controller_epoch = int(pair.znodes.get(f"{chroot}/controller_epoch")[0])
    state = {"partition_index": 1, "leader_epoch": EPOCH - 1, "delete_partition": True}
    topics = [{"topic_name": "lost", "partition_states": [state]}]
    for version in (3, 4):
        message = {"controller_id": 1, "controller_epoch": controller_epoch, "broker_epoch": -1}
        session.ask(STOP_REPLICA, version, {**message, "topic_states": topics}, note="former leader epoch")
    session.ask(FETCH, 11, fetch_of("lost", 1), note="still there")


@pytest.mark.acceptance
def test_a_broker_that_is_not_controller_any_more(own_pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "before")
        chroot = "/kafka" if session._address == own_pair.kafka.address else "/headrace"
        path = f"{chroot}/controller"
        controller = json.loads(own_pair.znodes.get(path)[0])
        # Somebody else is faster than the one whose term ends here.
        change = own_pair.znodes.transaction()
        change.delete(path)
        change.create(path, json.dumps({**controller, "brokerid": NOBODY}).encode(), ephemeral=True)
        change.commit()
        topic = {"name": "after", "num_partitions": 1, "replication_factor": 1}
        wish: Message = {"topics": [topic], "timeout_ms": 1000, "validate_only": True}

        def has_resigned() -> bool:
            answer = session.look(CREATE_TOPICS, 5, wish)
            return bool(answer["topics"][0]["error_code"] == NOT_CONTROLLER)

        eventually(has_resigned, what="the resignation")
        for version in range(8):
            before = {"validate_only": False} if version >= 1 else {}
            session.ask(CREATE_TOPICS, version, {"topics": [topic], "timeout_ms": 1000, **before})
        for version in range(7):
            names = {"topic_names": ["before"]} if version < 6 else {"topics": [{"name": "before"}]}
            session.ask(DELETE_TOPICS, version, {**names, "timeout_ms": 1000})
        for version in range(4):
            grown = {"topics": [{"name": "before", "count": 2}], "timeout_ms": 1000, "validate_only": False}
            session.ask(CREATE_PARTITIONS, version, grown)
        for version in range(4):
            epoch = {"broker_epoch": -1} if version >= 2 else {}
            # Version 0 has a header without a client id.
            frame = session.frame(
                CONTROLLED_SHUTDOWN, version, {"broker_id": 1, **epoch}, "x" if version else None
            )
            session.send_frame(frame, CONTROLLED_SHUTDOWN, version)

    own_pair.compare(script)


def test_fetches_of_brokers_that_are_no_followers(pair: Pair) -> None:
    def script(session: Session) -> None:
        topic_id = create_topic(session, "unfollowed")
        for version in (1, 4, 9, 11, 12):
            for epoch in (-1, 0, 3) if version >= 9 else (-1,):
                for offset in (0, 7):
                    message = fetch_of(
                        "unfollowed", **({"epoch": epoch} if version >= 9 else {}), offset=offset
                    )
                    session.ask(FETCH, version, message | {"replica_id": NOBODY}, note=f"{epoch} {offset}")
        for version, epoch in itertools.product((15, 17), (-1, 0, 3)):
            wanted = {"partition": 0, "fetch_offset": 0, "current_leader_epoch": epoch}
            topics = [{"topic_id": topic_id, "partitions": [wanted | {"partition_max_bytes": 1000}]}]
            replica = {"replica_id": NOBODY, "replica_epoch": 1}
            message = {"max_wait_ms": 0, "min_bytes": 0, "topics": topics, "replica_state": replica}
            session.ask(FETCH, version, message, note=f"{epoch} in version {version}")

    pair.compare(script)


def test_records_larger_than_a_segment(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "errors-segment", configs={"segment.bytes": "5000"})
        for size in (4000, 6000):
            session.ask(PRODUCE, 8, produce_message("errors-segment", batch(b"x" * size)), note=f"{size}")

    pair.compare(script)


def test_clients_do_not_write_internal_topics(pair: Pair) -> None:
    def script(session: Session) -> None:
        message = {"key": "any", "key_type": 0}
        eventually(lambda: session.look(10, 2, message)["error_code"] == 0, what="a coordinator")
        for client in ("script", "__admin_client"):
            frame = session.frame(PRODUCE, 8, produce_message("__consumer_offsets", batch(b"x")), client)
            session.send_frame(frame, PRODUCE, 8, note=client)

    pair.compare(script)


@pytest.mark.parametrize("version", range(3))
def test_records_that_nobody_may_delete(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        message = {"key": "any", "key_type": 0}
        eventually(lambda: session.look(10, 2, message)["error_code"] == 0, what="a coordinator")
        create_topic(session, "errors-compacted", configs={"cleanup.policy": "compact"})
        for topic in ("__consumer_offsets", "errors-compacted"):
            parts: list[Message] = [{"partition_index": index, "offset": 0} for index in (0, 99)]
            wish = {"topics": [{"name": topic, "partitions": parts}], "timeout_ms": 1000}
            session.ask(DELETE_RECORDS, version, wish, note=topic)

    pair.compare(script)


def test_zstd_for_clients_that_do_not_know_it(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "errors-zstd", configs={"compression.type": "zstd"})
        for version in (3, 6, 7):
            message = produce_message("errors-zstd", batch(b"x" * 50, codec=ZSTD))
            session.ask(PRODUCE, version, message)
        for version in (4, 9, 10, 11):
            session.ask(FETCH, version, fetch_of("errors-zstd"))

    pair.compare(script)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time_for_what_takes_time(pair: Pair, timeout_ms: int) -> None:
    name = f"errors-late{timeout_ms}"

    def script(session: Session) -> None:
        for version in (5, 7):
            topic = {"name": f"{name}-{version}", "num_partitions": 1, "replication_factor": 1}
            session.ask(CREATE_TOPICS, version, {"topics": [topic], "timeout_ms": timeout_ms})

        def is_there() -> bool:
            message = {"topics": [{"name": f"{name}-7"}], "allow_auto_topic_creation": False}
            return bool(session.look(METADATA, 5, message)["topics"][0]["error_code"] == 0)

        eventually(is_there, what="the topic")
        wish = {"name": f"{name}-7", "count": 2, "assignments": None}
        session.ask(
            CREATE_PARTITIONS, 1, {"topics": [wish], "timeout_ms": timeout_ms, "validate_only": False}
        )
        session.ask(DELETE_TOPICS, 4, {"topic_names": [f"{name}-7"], "timeout_ms": timeout_ms})

    pair.compare(script)


def test_topics_that_are_deleted_oddly(pair: Pair) -> None:
    def script(session: Session) -> None:
        topic_id = create_topic(session, "errors-odd")
        wishes: list[list[Message]] = [
            [{"name": None, "topic_id": UUID(int=5)}],
            [{"name": "errors-odd", "topic_id": topic_id}],
            [{"name": "errors-odd", "topic_id": topic_id}, {"name": "nowhere", "topic_id": UUID(int=0)}],
            [{"name": "errors-odd", "topic_id": UUID(int=0)}] * 2,
            [{"name": None, "topic_id": UUID(int=5)}] * 2,
            [{"name": "", "topic_id": UUID(int=0)}],
            [{"name": "bad/name", "topic_id": UUID(int=0)}],
        ]
        for wish in wishes:
            session.ask(DELETE_TOPICS, 6, {"topics": wish, "timeout_ms": 1000}, note=str(len(wish)))

    pair.compare(script)


def test_producer_ids_for_odd_names(pair: Pair) -> None:
    def script(session: Session) -> None:
        for version in range(6):
            message = {"transactional_id": "", "transaction_timeout_ms": 1000}
            session.ask(INIT_PRODUCER_ID, version, message)

    pair.compare(script)


@pytest.mark.parametrize("version", range(5))
def test_api_versions(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        software = {"client_software_name": "a", "client_software_version": "1"} if version >= 3 else {}
        answer = session.look(API_VERSIONS, version, software, noted=True)
        session.note("error", answer["error_code"])
        session.note("features", answer.get("supported_features"))

    pair.compare(script)


def test_every_version_publishes_and_reads(pair: Pair) -> None:
    def script(session: Session) -> None:
        topic_id = create_topic(session, "errors-versions")
        for version in range(3, 12):
            session.ask(PRODUCE, version, produce_message("errors-versions", batch(b"x")))
        for version in range(4):
            # What they carry is compared in test_conformance_old_formats.
            found = session.look(FETCH, version, fetch_of("errors-versions"), noted=True)
            (partition,) = found["responses"][0]["partitions"]
            session.note(f"Fetch v{version}", (partition["error_code"], partition["high_watermark"]))
        for version in range(4, 18):
            message = fetch_of("errors-versions")
            if version >= 13:
                message["topics"] = [{"topic_id": topic_id, "partitions": message["topics"][0]["partitions"]}]
            if version >= 15:
                del message["replica_id"]
            session.ask(FETCH, version, message)

    pair.compare(script)


CONTROL_VERSIONS = {LEADER_AND_ISR: range(8), STOP_REPLICA: range(5), UPDATE_METADATA: range(9)}


@pytest.mark.parametrize(
    ("key", "version"), [(k, v) for k, versions in CONTROL_VERSIONS.items() for v in versions]
)
def test_a_controller_of_the_past(pair: Pair, key: int, version: int) -> None:
    def script(session: Session) -> None:
        message: Message = {"controller_id": 1, "controller_epoch": 0}
        session.ask(key, version, message, note="former controller epoch")
        knows_brokers = version >= {LEADER_AND_ISR: 2, STOP_REPLICA: 1, UPDATE_METADATA: 5}[key]
        if knows_brokers:
            late = {**message, "controller_epoch": 1, "broker_epoch": 0}
            session.ask(key, version, late, note="former broker epoch")

    pair.compare(script)


@pytest.mark.parametrize("version", range(4))
def test_shutting_down_a_broker_that_is_not_there(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        message: Message = {"broker_id": NOBODY}
        # Version 0 has a header without a client's name.
        client = None if version == 0 else "script"
        frame = session.frame(CONTROLLED_SHUTDOWN, version, message, client)
        session.send_frame(frame, CONTROLLED_SHUTDOWN, version, note="unknown broker")
        if version >= 2:
            session.ask(
                CONTROLLED_SHUTDOWN, version, {"broker_id": 1, "broker_epoch": 0}, note="former epoch"
            )

    pair.compare(script)


def test_topics_are_not_deleted_when_that_is_switched_off(changed_pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "errors-kept")
        for version in range(6):
            for name in ("errors-kept", "nowhere"):
                message = {"topic_names": [name], "timeout_ms": 1000}
                session.ask(DELETE_TOPICS, version, message, note=name)
        for name in ("errors-kept", "nowhere"):
            wish = {"name": name, "topic_id": UUID(int=0)}
            session.ask(DELETE_TOPICS, 6, {"topics": [wish], "timeout_ms": 1000}, note=name)

    changed_pair.compare(script)


def restart(pair: Pair) -> None:
    """Stop both brokers and start them again."""
    pair.kafka.stop()
    pair.headrace.stop()
    pair.headrace.start()
    pair.kafka.start()
    pair.kafka.wait_until_serving()


@pytest.mark.acceptance
def test_epochs_of_before_a_restart(changed_pair: Pair) -> None:
    def before(session: Session) -> None:
        # What is published here is years old, and a start deletes what is past its retention.
        create_topic(session, "errors-epochs", configs={"retention.ms": "-1"})
        session.ask(PRODUCE, 8, produce_message("errors-epochs", batch(b"a", b"b")))
        create_topic(session, "rotten")
        for value in (b"a", b"b", b"c"):
            session.ask(PRODUCE, 8, produce_message("rotten", batch(value)))

    def rot(broker: KafkaBroker | BrokerProcess) -> None:
        """The size of the second batch is gone."""
        (path,) = broker.home.glob("**/rotten-0/00000000000000000000.log")
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 3 + 8)
            file.write(bytes(4))

    def after(session: Session) -> None:
        def is_led() -> bool:
            message = {"topics": [{"name": "errors-epochs"}], "allow_auto_topic_creation": False}
            found: Any = session.look(METADATA, 9, message)["topics"][0]
            return bool(found["error_code"] == 0 and found["partitions"][0]["error_code"] == 0)

        eventually(is_led, what="the partition's leader")
        message = {"topics": [{"name": "errors-epochs"}], "allow_auto_topic_creation": False}
        session.ask(METADATA, 9, message)
        session.ask(PRODUCE, 8, produce_message("errors-epochs", batch(b"c")))
        for epoch in (0, 1, 2, 100, -1):
            ask_all(session, "errors-epochs", 0, epoch)
        for version in (4, 11, 12):
            for offset in (1, 2):
                session.ask(FETCH, version, fetch_of("rotten", offset=offset), note=f"rotten at {offset}")

    changed_pair.compare(before)
    restart(changed_pair)
    for broker in (changed_pair.kafka, changed_pair.headrace):
        rot(broker)
    changed_pair.compare(after)
