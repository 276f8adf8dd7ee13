"""Both brokers are killed, the same logs of both damaged alike by seed: both serve the same afterwards and go on alike.

    HEADRACE_DAMAGE_SEEDS=0-99 pytest tests/conformance/test_conformance_random_damage.py

tries others than the fixed ones. Nothing counts as synced: bad bytes in synced data are another matter, which Apache
Kafka cuts and headrace reports (docs/compatibility.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pairs import running_pair
from processes import eventually
from random_damage import damaged
from random_runs import Broker, address_of
from random_scripts import seeds
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

PARTITIONS = 24
BATCHES = 60
PRODUCERS = (4000, 4001)
DESCRIBE_PRODUCERS = 61
CONFIGS = {"segment.bytes": "3000", "index.interval.bytes": "300", "segment.index.bytes": "2400"}
# Producers that were silent for a day are forgotten.
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def mortal_pair(
    kafka_jars: Path, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A pair that is killed and started again."""
    settings = {"zookeeper.session.timeout.ms": "3000"}
    with running_pair(kafka_jars, zookeeper, tmp_path_factory.mktemp("mortal"), set=settings) as both:
        yield both


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds([0], "HEADRACE_DAMAGE_SEEDS"))
def test_logs_that_a_crash_damaged_are_mended_alike(mortal_pair: Pair, seed: int) -> None:
    topic = f"damaged-{seed}"
    brokers: tuple[Broker, Broker] = (mortal_pair.kafka, mortal_pair.headrace)
    for broker in brokers:
        fill(broker, topic)
    for broker in brokers:
        broker.process.kill()
        broker.process.wait()
    theirs, ours = (damage(broker.home / "logs", topic) for broker in brokers)
    assert ours == theirs, "what is to be damaged was the same"
    restart(mortal_pair)
    for partition in range(PARTITIONS):
        try:
            mortal_pair.compare(partial(look_at, topic=topic, partition=partition))
        except AssertionError as error:
            pytest.fail(f"seed {seed}, {topic}-{partition}, {ours[partition]}:\n{error}", pytrace=False)


def fill(broker: Broker, topic: str) -> None:
    """Several segments a partition: all codecs, two idempotent producers, times out of order."""
    session = Session(address_of(broker))
    create_topic(session, topic, PARTITIONS, CONFIGS)
    for partition in range(PARTITIONS):
        sequences = dict.fromkeys(PRODUCERS, 0)
        for number in range(BATCHES):
            producer_id = PRODUCERS[number % 2]
            values = [b"%d %d " % (number, record) * (number % 9 + 1) for record in range(number % 3 + 1)]
            is_idempotent = partition % 3 > 0
            records = batch(
                *values,
                timestamp_ms=NOW_MS - 100_000 + number * 10 - number * partition % 7 * 50,
                codec=number % 5 if partition % 2 else 0,
                producer_id=producer_id if is_idempotent else -1,
                producer_epoch=0 if is_idempotent else -1,
                base_sequence=sequences[producer_id] if is_idempotent else -1,
            )
            sequences[producer_id] += len(values)
            answer = session.look(PRODUCE, 7, produce_message(topic, records, partition=partition))
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    session.close()


def damage(logs: Path, topic: str) -> list[str]:
    """Damage each log of the topic in a way of its own, and have nothing count as synced."""
    (logs / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    return [damaged(f"{topic}-{n}", logs / f"{topic}-{n}") for n in range(PARTITIONS)]


def is_gone(pair: Pair, path: str) -> bool:
    return pair.znodes.exists(path) is None


def restart(pair: Pair) -> None:
    for chroot, broker in (("/kafka", pair.kafka), ("/headrace", pair.headrace)):
        eventually(partial(is_gone, pair, f"{chroot}/brokers/ids/1"), what="the session's end")
        broker.start()
    pair.kafka.wait_until_serving()
    pair.wait_for_producer_ids()


def look_at(session: Session, topic: str, partition: int) -> None:
    """All that both tell of a log, then appends to it."""
    eventually(lambda: is_known(session, topic) and end_of(session, topic, partition) >= 0, what="a leader")
    for timestamp in (-1, -2, -3, *range(NOW_MS - 102_000, NOW_MS - 98_000, 400)):
        session.ask(LIST_OFFSETS, 7, list_message(topic, partition, timestamp))
    end_offset = end_of(session, topic, partition)
    for offset in {0, 1, end_offset // 3, end_offset // 2, end_offset - 1, end_offset, end_offset + 1}:
        session.ask(FETCH, 11, fetch_message(topic, partition, offset, 100_000), note=str(offset))
        session.ask(FETCH, 11, fetch_message(topic, partition, offset, 200), note=f"{offset} in part")
    for epoch in (0, 1, 7):
        wanted = {"partition": partition, "leader_epoch": epoch}
        message = {"replica_id": -2, "topics": [{"topic": topic, "partitions": [wanted]}]}
        session.ask(OFFSET_FOR_LEADER_EPOCH, 3, message)
    answer = session.look(
        DESCRIBE_PRODUCERS, 0, {"topics": [{"name": topic, "partition_indexes": [partition]}]}
    )
    producers = answer["topics"][0]["partitions"][0]["active_producers"]
    producers.sort(key=lambda producer: producer["producer_id"])
    session.note("producers", producers)
    for producer in producers:
        for skipped in (1, 5):
            records = batch(
                b"more",
                timestamp_ms=NOW_MS,
                producer_id=producer["producer_id"],
                producer_epoch=0,
                base_sequence=producer["last_sequence"] + skipped,
            )
            session.ask(PRODUCE, 9, produce_message(topic, records, partition=partition))
    session.ask(PRODUCE, 9, produce_message(topic, batch(b"x" * 500, b"y" * 500), partition=partition))
    session.ask(FETCH, 11, fetch_message(topic, partition, max(0, end_offset - 3), 100_000))


def is_known(session: Session, topic: str) -> bool:
    """Whether the controller has told the broker of the topic, which Fetch looks up and ListOffsets does not."""
    message: Message = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return bool(session.look(METADATA, 9, message)["topics"][0]["error_code"] == 0)


def end_of(session: Session, topic: str, partition: int) -> int:
    """The log's end offset; -1 while there is no leader."""
    found = session.look(LIST_OFFSETS, 7, list_message(topic, partition, -1))["topics"][0]["partitions"][0]
    return -1 if found["error_code"] else int(found["offset"])


def list_message(topic: str, partition: int, timestamp: int) -> Message:
    wanted = {"partition_index": partition, "timestamp": timestamp}
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": [wanted]}]}


def fetch_message(topic: str, partition: int, offset: int, size: int) -> Message:
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size}
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1_000_000,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
    }
