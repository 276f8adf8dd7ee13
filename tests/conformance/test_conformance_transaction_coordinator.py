"""The transaction coordinator beside Apache Kafka's: what producers, groups and administrators are answered."""

from __future__ import annotations

import pytest
from sessions import (
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    FETCH,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    OFFSET_FETCH,
    Message,
    Pair,
    Session,
    create_topic,
)
from transactional_producers import Producer, wait_for_transactions

from headrace.broker.wire import batches

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TIMEOUT_MS = 60_000
TRANSACTIONAL_ID_NOT_FOUND = 105


@pytest.fixture(scope="module", autouse=True)
def _coordinators(pair: Pair) -> None:
    wait_for_transactions(pair)


def ask_ends(session: Session, topic: str) -> None:
    """Where readers of both kinds see the end, and what those of committed records read."""
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        wanted = [{"partition_index": 0, "timestamp": -1}]
        message: Message = {"replica_id": -1, "isolation_level": isolation}
        message["topics"] = [{"name": topic, "partitions": wanted}]
        session.ask(LIST_OFFSETS, 5, message, note=str(isolation))
    asked = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    message = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "isolation_level": READ_COMMITTED}
    message["topics"] = [{"topic": topic, "partitions": asked}]
    (found,) = session.look(FETCH, 11, message, noted=True)["responses"][0]["partitions"]
    records = bytes(found["records"] or b"")
    values = [
        (header.is_control, [record.value for record in batches.decode_records(records, at, header)])
        for at, header in batches.iter_batches(records)
    ]
    session.note("aborted", [aborted["first_offset"] for aborted in found["aborted_transactions"] or []])
    session.note("read", [each for is_control, each in values if not is_control])
    session.note("batches", [is_control for is_control, _ in values])


def test_who_coordinates(pair: Pair) -> None:
    def script(session: Session) -> None:
        for version in range(1, 7):
            keys = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
            session.ask(FIND_COORDINATOR, version, {**keys, "key_type": 1})

    pair.compare(script)


@pytest.mark.parametrize("version", range(6))
def test_a_producer_begins(pair: Pair, version: int) -> None:
    def script(session: Session) -> None:
        producer = Producer(session, f"begins-{version}")
        for timeout_ms in (0, -1, 900_001):
            producer.begin(version, timeout_ms=timeout_ms)
        Producer(session, "").begin(version)
        producer.begin(version)
        producer.describe()
        producer.begin(version, timeout_ms=900_000)
        producer.describe()
        if version >= 3:
            epoch = producer.epoch
            known = {"producer_id": producer.producer_id, "producer_epoch": epoch}
            producer.begin(version, **known)
            producer.begin(version, **known)
            producer.begin(version, producer_id=producer.producer_id, producer_epoch=epoch - 1)
            producer.begin(version, producer_id=producer.producer_id + 7, producer_epoch=producer.epoch)
            producer.begin(version, producer_id=-1, producer_epoch=producer.epoch)
            producer.begin(version, producer_id=producer.producer_id, producer_epoch=-1)
            Producer(session, f"unknown-{version}").begin(version, producer_id=99, producer_epoch=7)

    pair.compare(script)


@pytest.mark.parametrize("version", range(4))
def test_a_transaction_of_partitions(pair: Pair, version: int) -> None:
    topic = f"transactions-{version}"

    def script(session: Session) -> None:
        create_topic(session, topic, partitions=2)
        producer = Producer(session, f"writer-{version}")
        producer.add(version, {topic: [0]}, producer_id=5, epoch=0)
        producer.end(version, commit=True, producer_id=5, epoch=0)
        producer.begin()
        producer.end(version, commit=True)
        producer.end(version, commit=False)
        producer.add(version, {topic: [0, 7], "not-there": [1]})
        producer.add(version, {topic: [0]}, producer_id=producer.producer_id + 9)
        producer.add(version, {topic: [0]}, epoch=producer.epoch + 1)
        producer.add(version, {topic: [0]})
        producer.add(version, {topic: [0, 1]})
        producer.add(version, {topic: [1]})
        producer.describe()
        producer.write(topic, b"aborted", b"too", first=0)
        ask_ends(session, topic)
        producer.end(version, commit=False, epoch=producer.epoch + 1)
        producer.end(version, commit=False, producer_id=producer.producer_id + 9)
        producer.end(version, commit=False)
        producer.settle()
        producer.describe()
        producer.end(version, commit=False)
        producer.end(version, commit=True)
        ask_ends(session, topic)
        producer.add(version, {topic: [0]})
        producer.write(topic, b"committed", first=2)
        producer.end(version, commit=True)
        producer.settle()
        producer.end(version, commit=True)
        producer.end(version, commit=False)
        ask_ends(session, topic)
        Producer(session, "").add(version, {topic: [0]}, producer_id=1, epoch=1)
        Producer(session, "").end(version, commit=True, producer_id=1, epoch=1)

    pair.compare(script)


def test_a_second_producer_fences_the_first(pair: Pair) -> None:
    topic = "transactions-fenced"

    def script(session: Session) -> None:
        create_topic(session, topic)
        for version in range(6):
            first, second = (Producer(session, f"fenced-{version}") for _ in range(2))
            first.begin(version)
            first.add(3, {topic: [0]})
            first.write(topic, b"late", first=0)
            second.begin(version)
            second.settle()
            second.begin(version)
            for request in range(4):
                first.add(request, {topic: [0]})
                first.end(request, commit=True)
                first.add_offsets(request, "group")
            first.add_offsets(4, "group")
            first.end(4, commit=True)
            if version >= 3:
                first.begin(version, producer_id=first.producer_id, producer_epoch=first.epoch)
            second.describe()
            ask_ends(session, topic)

    pair.compare(script)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_a_group_wait_for_the_marker(pair: Pair, version: int) -> None:
    topic, group = "transactions-of-groups", f"transactional-{version}"

    def fetch(session: Session) -> None:
        wanted = [{"name": topic, "partition_indexes": [0, 1]}]
        for stable in (False, True):
            session.ask(OFFSET_FETCH, 7, {"group_id": group, "topics": wanted, "require_stable": stable})
            for each in (8, 9):
                groups = [{"group_id": group, "topics": wanted}]
                session.ask(OFFSET_FETCH, each, {"groups": groups, "require_stable": stable})

    def script(session: Session) -> None:
        create_topic(session, topic, partitions=2)
        producer = Producer(session, f"copier-{version}")
        producer.add_offsets(version, group, producer_id=4, epoch=4)
        producer.begin()
        for offset, commit in ((10, False), (20, True), (30, True)):
            producer.add_offsets(version, group)
            producer.commit_offset(version, group, topic, offset)
            producer.commit_offset(version, group, topic, 99, "m" * 5000)
            producer.commit_offset(version, group, "not-there", offset)
            if version >= 3:
                producer.commit_offset(version, group, topic, 99, generation_id=1, member_id="nobody")
                producer.commit_offset(version, group, topic, 99, member_id="nobody")
            fetch(session)
            producer.end(4, commit=commit)
            producer.settle()
            fetch(session)
        producer.commit_offset(version, "", topic, 1) if version == 4 else None

    pair.compare(script)


def test_brokers_ask_for_many_at_once(pair: Pair) -> None:
    topic = "transactions-verified"

    def script(session: Session) -> None:
        create_topic(session, topic, partitions=2)
        for version in (4, 5):
            producer = Producer(session, f"verified-{version}")
            producer.begin()

            def asked(name: str, indexes: list[int], *, verify: bool, **other: int) -> Message:
                topics = [{"name": topic, "partitions": indexes}]
                whoever = {**producer.whoever(**other), "transactional_id": name}  # noqa: B023
                return {**whoever, "verify_only": verify, "topics": topics}

            def ask(*transactions: Message) -> None:
                session.ask(ADD_PARTITIONS_TO_TXN, version, {"transactions": list(transactions)})  # noqa: B023

            ask(asked(producer.name, [0], verify=True), asked("unknown", [0, 1], verify=True))
            ask(asked(producer.name, [0], verify=False), asked("unknown", [0], verify=False))
            ask(asked(producer.name, [0, 1], verify=True))
            ask(asked(producer.name, [0, 5], verify=True))
            ask(asked(producer.name, [0], verify=True, epoch=producer.epoch + 1))
            ask(asked(producer.name, [0], verify=True, producer_id=1 << 60))
            ask(asked("", [0], verify=True))
            producer.end(3, commit=True)
            producer.settle()
            ask(asked(producer.name, [0], verify=True))

    pair.compare(script)


def test_transactions_are_listed_and_described(pair: Pair) -> None:
    topic = "transactions-listed"

    def script(session: Session) -> None:
        create_topic(session, topic)
        idle, busy, done = (Producer(session, f"listed-{state}") for state in ("idle", "busy", "done"))
        for producer in (idle, busy, done):
            producer.begin()
        for producer in (busy, done):
            producer.add(3, {topic: [0]})
        done.end(3, commit=True)
        done.settle()
        names = [producer.name for producer in (idle, busy, done)]
        session.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [*names, "nobody", "", names[0]]})
        session.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": []})
        ids = [producer.producer_id for producer in (idle, busy, done)]
        for version in (0, 1):
            for states in ([], ["Ongoing"], ["Empty", "CompleteCommit"], ["Dead"], ["ongoing"]):
                message: Message = {"state_filters": states, "producer_id_filters": ids}
                session.ask(LIST_TRANSACTIONS, version, message)
            session.ask(LIST_TRANSACTIONS, version, {"state_filters": [], "producer_id_filters": [1 << 60]})
        for duration_ms in (0, 86_400_000):
            message = {"state_filters": [], "producer_id_filters": ids, "duration_filter": duration_ms}
            session.ask(LIST_TRANSACTIONS, 1, message)
        busy.end(3, commit=False)
        busy.settle()

    pair.compare(script)
