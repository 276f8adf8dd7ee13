"""DeleteRecords, DescribeLogDirs, DescribeProducers, OffsetForLeaderEpoch and ListOffsets version 0 beside Apache Kafka."""

from __future__ import annotations

import pytest
from sessions import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    Message,
    Pair,
    Session,
    batch,
    create_topic,
    produce_message,
)

DELETE_RECORDS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS = 21, 35, 61


def fill(session: Session, topic: str, count: int = 5) -> None:
    for _ in range(count):
        session.look(PRODUCE, 7, produce_message(topic, batch(b"v" * 100), acks=-1))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_delete_records(pair: Pair, version: int) -> None:
    name = f"delete-records-{version}"

    def script(session: Session) -> None:
        create_topic(session, name)
        create_topic(session, f"{name}-compacted", configs={"cleanup.policy": "compact"})
        create_topic(session, f"{name}-both", configs={"cleanup.policy": "compact,delete"})
        fill(session, name)
        wishes = ((name, 0, 2), (name, 0, 1), (name, 0, 9), (name, 0, -2), (name, 5, 0), (name, 0, -1))
        others = ((f"{name}-compacted", 0, 0), (f"{name}-both", 0, 0), ("nowhere", 0, 0))
        for topic, partition, offset in (*wishes, *others):
            partitions = [{"partition_index": partition, "offset": offset}]
            message = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 5000}
            session.ask(DELETE_RECORDS, version, message, note=f"{topic}-{partition} to {offset}")
            earliest = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}
            wanted = {"replica_id": -1, "topics": [{"name": name, "partitions": [earliest]}]}
            session.ask(LIST_OFFSETS, 5, wanted, note="earliest")

    pair.compare(script)


@pytest.mark.parametrize("version", range(5))
def test_describe_log_dirs(pair: Pair, version: int) -> None:
    name = f"log-dirs-{version}"

    def script(session: Session) -> None:
        create_topic(session, name, partitions=2)
        fill(session, name)
        for wanted in (
            [],
            [{"topic": name, "partitions": [0, 1, 7]}, {"topic": "nowhere", "partitions": [0]}],
        ):
            answer = session.look(DESCRIBE_LOG_DIRS, version, {"topics": wanted}, noted=True)
            (directory,) = answer["results"]
            has_room = 0 < directory["usable_bytes"] <= directory["total_bytes"]
            session.note("room is told", has_room)
            session.note("errors", (answer["error_code"], directory["error_code"]))
            topics = sorted(directory["topics"], key=lambda t: str(t["name"]))
            session.note("topics", [(t["name"], sorted(map(repr, t["partitions"]))) for t in topics])
        everything = session.look(DESCRIBE_LOG_DIRS, version, {"topics": None})["results"][0]["topics"]
        session.note("all are told", name in [t["name"] for t in everything])

    pair.compare(script)


def test_describe_producers(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "producers", partitions=2)
        for sequence in range(3):
            records = batch(b"v", producer_id=77, producer_epoch=2, base_sequence=sequence)
            session.ask(PRODUCE, 7, produce_message("producers", records), note=f"sequence {sequence}")
        fill(session, "producers", 1)
        topics = [
            {"name": "producers", "partition_indexes": [0, 1, 9]},
            {"name": "nowhere", "partition_indexes": [0]},
            {"name": "bad name", "partition_indexes": [0]},
        ]
        session.ask(DESCRIBE_PRODUCERS, 0, {"topics": topics})

    pair.compare(script)


def test_list_offsets_of_version_0(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "segments", configs={"segment.bytes": "400"})
        create_topic(session, "no-segments")
        fill(session, "segments", 9)
        for topic in ("segments", "no-segments", "nowhere"):
            for time in (-1, -2, -3, -4, -5, 0, 10**15):
                for count in (0, 1, 2, 100):
                    wanted = {"partition_index": 0, "timestamp": time, "max_num_offsets": count}
                    message = {"replica_id": -1, "topics": [{"name": topic, "partitions": [wanted]}]}
                    session.ask(LIST_OFFSETS, 0, message, note=f"{topic} {count} at {time}")

    pair.compare(script)


@pytest.mark.parametrize("version", range(1, 10))
def test_list_offsets_of_every_special_time(pair: Pair, version: int) -> None:
    name = f"special-{version}"

    def script(session: Session) -> None:
        create_topic(session, name)
        for state in ("empty", "filled"):
            for time in (-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_000, 10**15):
                wanted: Message = {"partition_index": 0, "timestamp": time}
                session.ask(
                    LIST_OFFSETS,
                    version,
                    {"replica_id": -1, "topics": [{"name": name, "partitions": [wanted]}]},
                    note=f"{state} at {time}",
                )
            fill(session, name, 3)
        twice = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
        message = {"replica_id": -1, "topics": [{"name": name, "partitions": twice}]}
        session.ask(LIST_OFFSETS, version, message, note="twice")

    pair.compare(script)


@pytest.mark.parametrize("version", range(5))
def test_offset_for_leader_epoch(pair: Pair, version: int) -> None:
    name = f"epochs-{version}"

    def script(session: Session) -> None:
        create_topic(session, name)
        fill(session, name, 3)
        for partition in (0, 5):
            for epoch in (-1, 0, 1, 7):
                wanted: Message = {"partition": partition, "leader_epoch": epoch}
                if version >= 2:
                    wanted["current_leader_epoch"] = -1 if epoch < 7 else 7
                message: Message = {"topics": [{"topic": name, "partitions": [wanted]}]}
                if version >= 3:
                    message["replica_id"] = -2
                session.ask(OFFSET_FOR_LEADER_EPOCH, version, message, note=f"{partition} epoch {epoch}")

    pair.compare(script)
