"""After the same session the data directories of both brokers hold the same: segments byte for byte, checkpoints line by line."""

from __future__ import annotations

import re
from pathlib import Path

from sessions import PRODUCE, TIMESTAMP_MS, Pair, Session, batch, create_topic, produce_message

TOPIC = "directory"
CONFIGS = {"segment.bytes": "8000", "index.interval.bytes": "500", "segment.index.bytes": "4096"}


def fill(session: Session) -> None:
    create_topic(session, TOPIC, configs=CONFIGS)
    sequences = {4000: 0, 4001: 0}
    for number in range(200):
        producer = {}
        if number % 3 == 0:
            producer_id = 4000 + number % 2
            producer = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequences[producer_id],
            }
            sequences[producer_id] += 2
        records = batch(
            f"value {number} ".encode() * 30,
            b"b",
            timestamp_ms=TIMESTAMP_MS + number * 10,
            codec=number % 5,
            **producer,
        )
        answer = session.look(PRODUCE, 7, produce_message(TOPIC, records, acks=-1))
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


def test_the_same_files_with_the_same_bytes(pair: Pair) -> None:
    for address in (pair.kafka.address, pair.headrace.addresses[0]):
        session = Session(address)
        fill(session)
        session.close()
    theirs, ours = (broker.home / "logs" / f"{TOPIC}-0" for broker in (pair.kafka, pair.headrace))
    assert names(ours, "*") == names(theirs, "*")
    assert len(names(theirs, "*.log")) > 2
    for name in names(theirs, "*.log"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    # The active segment's indexes are preallocated by Kafka; the closed ones are trimmed.
    for name in [*names(theirs, "*.index")[:-1], *names(theirs, "*.timeindex")[:-1]]:
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    for name in names(theirs, "*.snapshot"):
        assert snapshot(ours / name) == snapshot(theirs / name), name
    for name in ("leader-epoch-checkpoint",):
        assert (ours / name).read_text() == (theirs / name).read_text(), name
    metadata = [
        re.sub("topic_id: .*", "topic_id", (d / "partition.metadata").read_text()) for d in (ours, theirs)
    ]
    assert metadata[0] == metadata[1]


def names(directory: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


def snapshot(path: Path) -> tuple[bytes, list[bytes]]:
    """Version and count, and the entries of a producers' snapshot, which Kafka writes in hash order."""
    data = path.read_bytes()
    entries = data[10:]
    size = len(entries) // max(1, int.from_bytes(data[6:10], "big"))
    return data[:2] + data[6:10], sorted(entries[n : n + size] for n in range(0, len(entries), size or 1))


def test_the_same_description_of_the_directory(pair: Pair) -> None:
    texts = []
    for broker in (pair.kafka, pair.headrace):
        lines = (broker.home / "logs" / "meta.properties").read_text().splitlines()
        texts.append(sorted(line for line in lines if not line.startswith("#")))
    theirs, ours = texts
    # Kafka's directory.id comes with KRaft's JBOD and is made anew when it is missing.
    assert [line for line in ours if not line.startswith("directory.id")] == [
        line for line in theirs if not line.startswith("directory.id")
    ]
