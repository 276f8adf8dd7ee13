"""Fetch sessions (KIP-227), absent partitions and diverging epochs: answered as Apache Kafka answers them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sessions import (
    FETCH,
    PRODUCE,
    Message,
    Pair,
    Session,
    batch,
    create_topic,
    produce_message,
)

DELETE_RECORDS = 21


def produce(session: Session, topic: str, partition: int) -> None:
    session.look(PRODUCE, 7, produce_message(topic, batch(b"v" * 100), partition=partition, acks=-1))


def wanted(partition: int, offset: int = 0, **fields: int) -> Message:
    return {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **fields}


@pytest.mark.parametrize("version", [7, 9, 11, 12, 13, 15, 17])
def test_a_session_from_its_beginning_to_its_end(pair: Pair, version: int) -> None:
    name = f"sessions-{version}"

    def script(session: Session) -> None:
        topic_id = create_topic(session, name, partitions=4)
        key: Message = {"topic_id": topic_id} if version >= 13 else {"topic": name}
        number = 0

        def ask(
            note: str, epoch: int, *partitions: Message, forgotten: Any = (), of: int | None = None
        ) -> int:
            message: Message = {
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "session_id": number if of is None else of,
                "session_epoch": epoch,
                "topics": [{**key, "partitions": list(partitions)}] if partitions else [],
                "forgotten_topics_data": [{**key, "partitions": list(forgotten)}] if forgotten else [],
            }
            if version < 15:
                message["replica_id"] = -1
            answer = session.ask(FETCH, version, message, note=note)
            return int(answer.get("session_id", 0))

        number = ask("full", 0, wanted(0), wanted(1), wanted(2), wanted(9))
        session.note("a session is granted", number > 0)
        ask("nothing new but the absent partition", 1)
        produce(session, name, 1)
        ask("new records", 2)
        ask("the same records again", 3)
        ask("read on", 4, wanted(1, 1))
        ask("out of range", 5, wanted(2, 100))
        ask("out of range again", 6)
        ask("in range again", 7, wanted(2, 0))
        ask("one more", 8, wanted(3), forgotten=[0, 9])
        ask("quiet", 9)
        ask("an old epoch", 3)
        ask("an unknown session", 1, of=number ^ 1)
        other = 12 if version >= 13 else 13
        if version in (12, 13):
            message = {
                "max_wait_ms": 0,
                "min_bytes": 1,
                "session_id": number,
                "session_epoch": 10,
                "topics": [],
            }
            session.ask(FETCH, other, message, note="topics named in the other way")
        ask("all forgotten", 10, forgotten=[1, 2, 3])
        ask("gone", 11)
        number = ask("a new one", 0, wanted(0))
        ask("a final fetch closes it", -1, wanted(0))
        ask("closed", 1)

    pair.compare(script)


def test_absent_partitions_stand_last_and_change_no_wait(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "absent")
        for note, partitions, waits in (("beside", [5, 0], True), ("alone", [5], False)):
            topics = [{"topic": "absent", "partitions": [wanted(p) for p in partitions]}]
            began = time.monotonic()
            message = {"replica_id": -1, "max_wait_ms": 600, "min_bytes": 1, "topics": topics}
            answer = session.ask(FETCH, 11, message, note=note)
            session.note(f"{note}: waits", (time.monotonic() - began >= 0.6) == waits)
            order = [p["partition_index"] for t in answer["responses"] for p in t["partitions"]]
            session.note(f"{note}: order", order)

    pair.compare(script)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_no_fetch_waits_at_the_end_of_a_segment_that_others_follow(pair: Pair, version: int) -> None:
    name = f"segments-{version}"

    def script(session: Session) -> None:
        create_topic(session, name, configs={"segment.bytes": "250"})
        for _ in range(3):
            produce(session, name, 0)
        for offset, waits in ((0, False), (2, True)):
            topics = [{"topic": name, "partitions": [wanted(0, offset)]}]
            began = time.monotonic()
            message = {"replica_id": -1, "max_wait_ms": 600, "min_bytes": 1000, "topics": topics}
            session.ask(FETCH, version, message, note=f"from {offset}")
            assert (time.monotonic() - began >= 0.6) == waits

    pair.compare(script)


def test_epochs_fetched_last_are_compared_with_the_log(pair: Pair) -> None:
    def script(session: Session) -> None:
        topic_id = create_topic(session, "parting")
        for _ in range(3):
            produce(session, "parting", 0)
        for offset, epoch in ((0, 0), (3, 0), (4, 0), (50, 0), (0, 1), (0, -1)):
            topics = [{"topic_id": topic_id, "partitions": [wanted(0, offset, last_fetched_epoch=epoch)]}]
            answer = session.ask(
                FETCH, 16, {"max_wait_ms": 0, "min_bytes": 1, "topics": topics}, note=f"{offset}@{epoch}"
            )
            session.note("diverging", answer["responses"][0]["partitions"][0]["diverging_epoch"])
        # What is deleted is out of range, wherever the logs part.
        deleted = {"name": "parting", "partitions": [{"partition_index": 0, "offset": 2}]}
        session.look(DELETE_RECORDS, 1, {"topics": [deleted], "timeout_ms": 5000})
        for offset, epoch in ((1, 0), (2, 0), (9, 0)):
            topics = [{"topic_id": topic_id, "partitions": [wanted(0, offset, last_fetched_epoch=epoch)]}]
            session.ask(
                FETCH, 16, {"max_wait_ms": 0, "min_bytes": 1, "topics": topics}, note=f"then {offset}@{epoch}"
            )

    pair.compare(script)


def test_a_fenced_epoch_is_answered_with_the_leader(pair: Pair) -> None:
    def script(session: Session) -> None:
        topic_id = create_topic(session, "fenced")
        for version in (15, 16):
            for epoch in (-2, 7):
                topics = [{"topic_id": topic_id, "partitions": [wanted(0, current_leader_epoch=epoch)]}]
                message = {"max_wait_ms": 0, "min_bytes": 1, "topics": topics}
                answer = session.ask(FETCH, version, message, note=f"epoch {epoch}")
                session.note("leader", answer["responses"][0]["partitions"][0]["current_leader"])
                session.note(
                    "nodes", [(n["node_id"], n["host"], n["rack"]) for n in answer["node_endpoints"]]
                )

    pair.compare(script)
