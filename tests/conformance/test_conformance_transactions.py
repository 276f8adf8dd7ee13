"""Transactions in a log beside Apache Kafka: what readers of committed records see, and markers that end what is open.

Neither broker is asked by a transactional producer: both follow a script with transactions in its log, and lead afterwards.
"""

from __future__ import annotations

import time
from typing import Any

from processes import eventually
from scripted_replica import APPENDED_MS, BROKER_ID, Question, ScriptedReplica
from sessions import FETCH, LIST_OFFSETS, Message, Pair, Session, create_topic
from test_conformance_diverging_logs import OWN_ID, Partition

from headrace.broker.wire import batches

WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS = 27, 61
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FIRST, SECOND, THIRD = 7001, 7002, 7003
EPOCH, COORDINATOR_EPOCH = 3, 5


def told_log() -> bytes:
    """Of three producers one has aborted, one has committed and both others' last transactions are open."""
    sequences: dict[int, int] = {}
    log = bytearray()

    def put(producer: int, *values: bytes, marker: bytes = b"") -> None:
        offset = end[0]
        value = b"\0\0" + COORDINATOR_EPOCH.to_bytes(4, "big")
        records = [batches.Record(0, APPENDED_MS, marker, value, [])] if marker else []
        records += [batches.Record(0, APPENDED_MS, None, value, []) for value in values]
        whose: dict[str, Any] = {}
        if producer:
            first = -1 if marker else sequences.get(producer, 0)
            whose = {"producer_id": producer, "producer_epoch": EPOCH, "base_sequence": first}
            whose["transactional"] = True
            sequences[producer] = sequences.get(producer, 0) + len(values)
        one = batches.encode_batch(records, control=bool(marker), **whose)
        batches.set_base_offset_and_epoch(one, 0, offset, 1)
        log.extend(one)
        end[0] += len(records)

    end = [0]
    put(0, b"of nobody")
    put(FIRST, b"aborted", b"too")
    put(SECOND, b"committed")
    put(FIRST, marker=ABORT)
    put(SECOND, marker=COMMIT)
    put(THIRD, b"open")
    put(0, b"of nobody, either")
    put(FIRST, b"open, too")
    return bytes(log)


END_OFFSET, OPEN_OFFSET = 9, 6


def ask_readers(partition: Partition, note: str) -> None:
    """What consumers of both kinds are told of ends and records."""
    session, name = partition.session, partition.name
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        for timestamp in (-1, -2, -3, APPENDED_MS, APPENDED_MS + 1):
            wanted = {"partition_index": 0, "timestamp": timestamp}
            topics = [{"name": name, "partitions": [wanted]}]
            message: Message = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
            (found,) = session.look(LIST_OFFSETS, 9, message, noted=True)["topics"][0]["partitions"]
            # A marker's time is that of the broker.
            told = found["error_code"], found["offset"], min(found["timestamp"], APPENDED_MS + 1)
            session.note(f"{note}: {isolation} at {timestamp}", told)
        for version in (4, 11, 12, 13, 17):
            for offset in (0, 3, 4, OPEN_OFFSET, END_OFFSET, END_OFFSET + 1):
                for size in (100, 1 << 20):
                    asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": size}
                    named = {"topic_id": partition.topic_id} if version >= 13 else {"topic": name}
                    message = {"max_wait_ms": 0, "min_bytes": 0, "isolation_level": isolation}
                    message |= {"replica_id": -1} if version < 15 else {}
                    message["topics"] = [{**named, "partitions": [asked]}]
                    found = session.look(FETCH, version, message, noted=True)["responses"][0]
                    session.note(f"{note}: {isolation} {version} {offset} {size}", _seen(found))


def _seen(found: Message) -> Any:
    (told,) = found["partitions"]
    records = bytes(told["records"] or b"")
    whole = [
        (
            header._replace(length=0, crc=0, base_timestamp=0, max_timestamp=0),
            [(record.key, record.value) for record in batches.decode_records(records, position, header)],
        )
        for position, header in batches.iter_batches(records)
        if position + header.size <= len(records)
    ]
    aborted = told["aborted_transactions"]
    offsets = told["error_code"], told["high_watermark"], told["last_stable_offset"]
    return (
        offsets,
        None if aborted is None else [(a["producer_id"], a["first_offset"]) for a in aborted],
        len(records),
        whole,
    )


def marker(
    topic: str,
    producer: int,
    *,
    commit: bool,
    epoch: int = EPOCH,
    coordinator_epoch: int = COORDINATOR_EPOCH,
    partitions: tuple[int, ...] = (0,),
) -> Message:
    return {
        "producer_id": producer,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": list(partitions)}],
        "coordinator_epoch": coordinator_epoch,
    }


def describe(session: Session, name: str, note: str) -> None:
    topics = [{"name": name, "partition_indexes": [0]}]
    (topic,) = session.look(DESCRIBE_PRODUCERS, 0, {"topics": topics}, noted=True)["topics"]
    for told in topic["partitions"][0]["active_producers"]:
        is_marked = told.pop("last_timestamp") != APPENDED_MS
        session.note(f"{note}: producer {told['producer_id']}", (is_marked, sorted(told.items())))


def test_open_and_aborted_transactions_and_the_markers_that_end_them(pair: Pair) -> None:
    def script(session: Session) -> None:
        partition = Partition(pair, session, "transactions")
        name = partition.name
        with ScriptedReplica() as other:
            answer = {"records": told_log(), "high_watermark": END_OFFSET}
            other.answers = {Question(1, 0, 0): answer}
            partition.other_lives(other.address)
            partition.led_by(BROKER_ID, 1, other.address)
            eventually(lambda: Question(1, END_OFFSET, 1) in other.asked, what="the leader's log")
            session.ask(
                WRITE_TXN_MARKERS, 1, {"markers": [marker(name, THIRD, commit=False)]}, note="a follower"
            )
            describe(session, name, "a follower")
            partition.led_by(OWN_ID, 2, other.address)
            ask_readers(partition, "open")
            describe(session, name, "open")
            refused = [
                marker(name, THIRD, commit=False, epoch=EPOCH - 1),
                marker(name, FIRST, commit=False, coordinator_epoch=COORDINATOR_EPOCH - 1),
                marker(name, SECOND, commit=True, partitions=(5,)),
                marker("nowhere", THIRD, commit=True),
            ]
            for each in refused:
                for version in (0, 1):
                    session.ask(WRITE_TXN_MARKERS, version, {"markers": [each]}, note=str(each))
            session.ask(WRITE_TXN_MARKERS, 0, {"markers": [marker(name, THIRD, commit=False)]}, note="abort")
            ask_readers(partition, "aborted")
            session.ask(WRITE_TXN_MARKERS, 1, {"markers": [marker(name, FIRST, commit=True)]}, note="commit")
            # Which of two markers is the later one is asked below, in milliseconds.
            time.sleep(0.005)
            session.ask(WRITE_TXN_MARKERS, 1, {"markers": [marker(name, FIRST, commit=False)]}, note="again")
            session.ask(WRITE_TXN_MARKERS, 1, {"markers": []}, note="nothing")
            ask_readers(partition, "ended")
            describe(session, name, "ended")
            partition.other_lives(None)

    pair.compare(script)


def test_topics_that_take_no_marker_or_keep_it_in_their_own_way(pair: Pair) -> None:
    settings = {
        "narrow": {"max.message.bytes": "50"},
        "short": {"segment.bytes": "60"},
        "packed": {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"},
    }

    def script(session: Session) -> None:
        few = Partition(pair, session, "markers-few", {"min.insync.replicas": "2"})
        few.led_by(OWN_ID, 1)
        message = {"markers": [marker(few.name, FIRST, commit=True)]}
        session.ask(WRITE_TXN_MARKERS, 1, message, note="few in sync")
        for which, configs in settings.items():
            name = f"markers-{which}"
            topic_id = create_topic(session, name, configs=configs)
            message = {"markers": [marker(name, FIRST, commit=True), marker(name, SECOND, commit=False)]}
            session.ask(WRITE_TXN_MARKERS, 1, message, note=which)
            asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
            topics = [{"topic_id": topic_id, "partitions": [asked]}]
            found = session.look(FETCH, 13, {"max_wait_ms": 0, "min_bytes": 0, "topics": topics}, noted=True)
            session.note(f"{which} holds", _seen(found["responses"][0]))

    pair.compare(script)
