"""Fetch, ListOffsets and OffsetForLeaderEpoch: the same records, offsets and errors for every reader."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import pytest
from sessions import (
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    TIMESTAMP_MS,
    Message,
    Pair,
    Session,
    batch,
    create_topic,
    produce_message,
)

from headrace.broker.wire.batches import HEADER_SIZE, BatchHeader, read_header

VALUE = b"v" * 100


def fill(session: Session, topic: str, batch_count: int = 10, partition: int = 0) -> None:
    for number in range(batch_count):
        records = batch(VALUE, VALUE, timestamp_ms=TIMESTAMP_MS + number * 1000)
        answer = session.look(PRODUCE, 7, produce_message(topic, records, partition=partition, acks=-1))
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


def wanted(offset: int, *, partition: int = 0, size_max: int = 1 << 20, epoch: int | None = None) -> Message:
    message: Message = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size_max}
    return message if epoch is None else {**message, "current_leader_epoch": epoch}


def fetch(version: int, topic: tuple[str, UUID], *partitions: Message, **options: Any) -> Message:
    name, topic_id = topic
    key: Message = {"topic_id": topic_id} if version >= 13 else {"topic": name}
    message: Message = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **options}
    if version < 15:
        message["replica_id"] = -1
    return {**message, "topics": [{**key, "partitions": list(partitions)}]}


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch(pair: Pair, version: int) -> None:
    name = f"fetch-{version}"

    def script(session: Session) -> None:
        topic = (name, create_topic(session, name, partitions=2))
        session.ask(FETCH, version, fetch(version, topic, wanted(0)), note="empty")
        fill(session, name)
        questions = {
            "all": [wanted(0)],
            "the middle of a batch": [wanted(5)],
            "the last one": [wanted(19)],
            "the end": [wanted(20)],
            "above the end": [wanted(21)],
            "far above": [wanted(1 << 40)],
            "negative": [wanted(-1)],
            "a cut batch": [wanted(0, size_max=400)],
            "less than a batch": [wanted(4, size_max=1)],
            "no bytes": [wanted(4, size_max=0)],
            "two partitions": [wanted(0), wanted(0, partition=1)],
            "unknown partition": [wanted(0, partition=9), wanted(18)],
            "negative partition": [wanted(0, partition=-3)],
            "nothing": [],
        }
        if version >= 9:
            for epoch in (-1, 0, 1):
                questions[f"leader epoch {epoch}"] = [wanted(18, epoch=epoch)]
        for note, partitions in questions.items():
            session.ask(FETCH, version, fetch(version, topic, *partitions), note=note)
        for size in (0, 1, 300, 700):
            partitions = [wanted(0), wanted(0, partition=1)]
            session.ask(
                FETCH, version, fetch(version, topic, *partitions, max_bytes=size), note=f"max {size}"
            )
        session.ask(
            FETCH, version, fetch(version, topic, wanted(16), isolation_level=1), note="read_committed"
        )
        unknown = ("fetch-nowhere", UUID("11111111-2222-4333-8444-555555555555"))
        session.ask(FETCH, version, fetch(version, unknown, wanted(0)), note="unknown topic")

    pair.compare(script)


@pytest.mark.parametrize("version", range(11, 18))
def test_batch_headers_alone_are_headraces_own_and_passed_over_by_kafka(pair: Pair, version: int) -> None:
    name = f"fetch-headers-{version}"
    found: list[tuple[bool, list[BatchHeader]]] = []

    def script(session: Session) -> None:
        topic = (name, create_topic(session, name))
        fill(session, name)
        asked = {} if version < 12 else {"wants_batch_headers": True}
        answer = session.look(FETCH, version, fetch(version, topic, wanted(5), **asked))
        (told,) = answer["responses"][0]["partitions"]
        records, is_headers = bytes(told["records"]), told["is_batch_headers"]
        size = HEADER_SIZE if is_headers else len(records) // 8
        headers = [read_header(records[place : place + size]) for place in range(0, len(records), size)]
        session.note("headers", [header._replace(leader_epoch=0) for header in headers])
        session.note("the first offset", headers[0].base_offset)
        found.append((is_headers, headers))

    pair.compare(script)
    (theirs, _), (ours, headers) = found
    assert (theirs, ours, len(headers)) == (False, version >= 12, 8)


def test_two_partitions_share_the_bytes_in_order(pair: Pair) -> None:
    def script(session: Session) -> None:
        topic = ("fetch-share", create_topic(session, "fetch-share", partitions=3))
        for partition in range(3):
            fill(session, "fetch-share", partition=partition)
        for size in (1, 250, 600, 1500, 4000, 5000, 100_000):
            for size_max in (1, 500, 100_000):
                partitions = [wanted(0, partition=p, size_max=size_max) for p in (2, 0, 1)]
                message = fetch(12, topic, *partitions, max_bytes=size)
                session.ask(FETCH, 12, message, note=f"max {size}, {size_max} each")

    pair.compare(script)


def test_min_bytes_and_max_wait(pair: Pair) -> None:
    def script(session: Session) -> None:
        topic = ("fetch-wait", create_topic(session, "fetch-wait"))
        fill(session, "fetch-wait", 2)
        for note, offset, options in (
            ("enough at once", 0, {"min_bytes": 100}),
            ("not enough", 0, {"min_bytes": 100_000}),
            ("nothing", 4, {"min_bytes": 1}),
            ("no minimum", 4, {"min_bytes": 0}),
            ("more than the limit", 0, {"min_bytes": 100_000, "max_bytes": 300}),
            ("an error does not wait", 9, {"min_bytes": 100_000}),
        ):
            began = time.monotonic()
            session.ask(FETCH, 11, fetch(11, topic, wanted(offset), max_wait_ms=600, **options), note=note)
            session.note(f"{note}: waited", time.monotonic() - began > 0.5)
        waiting = session.frame(FETCH, 11, fetch(11, topic, wanted(4), max_wait_ms=20_000))
        session.send_only(waiting)
        other = session.another()
        fill(other, "fetch-wait", 1)
        other.close()
        session.next_answer(FETCH, 11, note="woken by a produce")

    pair.compare(script)


@pytest.mark.parametrize("version", range(1, 10))
def test_list_offsets(pair: Pair, version: int) -> None:
    name = f"list-offsets-{version}"

    def script(session: Session) -> None:
        create_topic(session, name, partitions=2)
        fill(session, name)
        times = [-1, -2, 0, TIMESTAMP_MS, TIMESTAMP_MS + 1, TIMESTAMP_MS + 500, TIMESTAMP_MS + 9000]
        times += [TIMESTAMP_MS + 9001, TIMESTAMP_MS + 9002, TIMESTAMP_MS - 1, 1 << 50]
        if version >= 7:
            times.append(-3)
        if version >= 8:
            times.append(-4)
        if version >= 9:
            times.append(-5)
        for timestamp in times:
            for partition in (0, 1, 9):
                part: Message = {"partition_index": partition, "timestamp": timestamp}
                ask_offsets(session, version, name, part, f"{timestamp} of {partition}")
        if version >= 4:
            for epoch in (0, 1, 5):
                part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}
                ask_offsets(session, version, name, part, f"epoch {epoch}")
        part = {"partition_index": 0, "timestamp": -1}
        ask_offsets(session, version, "list-offsets-nowhere", part, "unknown topic")

    pair.compare(script)


def ask_offsets(session: Session, version: int, topic: str, partition: Message, note: str) -> None:
    message: Message = {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]}
    session.ask(LIST_OFFSETS, version, message, note=note)


def test_list_offsets_of_unordered_times(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "list-unordered")
        for offset_ms in (5000, 1000, 9000, 2000, 9000, 3000):
            records = batch(VALUE, VALUE, timestamp_ms=TIMESTAMP_MS + offset_ms)
            session.ask(PRODUCE, 7, produce_message("list-unordered", records))
        for offset_ms in (0, 1000, 4999, 5000, 5001, 5002, 8999, 9000, 9001, 9002):
            part = {"partition_index": 0, "timestamp": TIMESTAMP_MS + offset_ms}
            ask_offsets(session, 7, "list-unordered", part, str(offset_ms))
        ask_offsets(session, 7, "list-unordered", {"partition_index": 0, "timestamp": -3}, "max timestamp")

    pair.compare(script)


@pytest.mark.parametrize("version", range(2, 5))
def test_offset_for_leader_epoch(pair: Pair, version: int) -> None:
    name = f"leader-epoch-{version}"

    def script(session: Session) -> None:
        create_topic(session, name)
        fill(session, name, 2)
        for epoch in (-1, 0, 1, 9):
            for current in (-1, 0, 1):
                part = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
                topics = [{"topic": name, "partitions": [part]}]
                message: Message = {"topics": topics}
                session.ask(OFFSET_FOR_LEADER_EPOCH, version, message, note=f"{epoch} under {current}")
        part = {"partition": 3, "leader_epoch": 0}
        topics = [{"topic": name, "partitions": [part]}]
        session.ask(OFFSET_FOR_LEADER_EPOCH, version, {"topics": topics}, note="unknown partition")

    pair.compare(script)


def test_a_fetch_session_that_is_not_known(pair: Pair) -> None:
    def script(session: Session) -> None:
        topic = ("fetch-session", create_topic(session, "fetch-session"))
        for epoch in (1, -1, 0):
            message = fetch(11, topic, wanted(0), session_id=12345, session_epoch=epoch)
            session.ask(FETCH, 11, message, note=f"epoch {epoch}")

    pair.compare(script)
