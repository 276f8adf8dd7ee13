"""headrace and Apache Kafka take each other's place on the same `server.properties`, files and ZooKeeper.

Nothing is lost, nothing converted: messages, committed offsets, producers' sequences and configurations live on, and no
byte of a segment changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_oracle import run_tool
from swapped_broker import SwappedBroker, differing, fingerprints
from swapped_life import Life


@pytest.fixture
def broker(kafka_jars: Path, tmp_path: Path) -> Iterator[SwappedBroker]:
    swapped = SwappedBroker(tmp_path, kafka_jars)
    yield swapped
    swapped.end()


@pytest.mark.long
def test_a_stopped_engine_is_replaced_by_the_other(broker: SwappedBroker, kafka_jars: Path) -> None:
    broker.start("headrace")
    life = Life(broker)
    life.begin()
    life.go_on("headrace")
    broker.stop()
    for engine in ("kafka", "headrace"):
        before = fingerprints(broker)
        broker.start(engine)
        assert not differing(before)
        life.go_on(engine)
        assert not differing({path: found for path, found in before.items() if "compacted" not in str(path)})
        broker.stop()
    check_with_kafkas_tool(kafka_jars, broker)


@pytest.mark.long
def test_a_killed_engine_is_replaced_by_the_other(broker: SwappedBroker) -> None:
    broker.start("headrace")
    life = Life(broker)
    life.begin()
    life.go_on("headrace")
    for engine in ("kafka", "headrace"):
        broker.kill()
        before = fingerprints(broker)
        broker.start(engine)
        assert not differing(before)
        life.go_on(engine)


def check_with_kafkas_tool(jars: Path, broker: SwappedBroker) -> None:
    """DumpLogSegments finds every record of every file, and nothing to say about the indexes."""
    logs, indexes = broker.files(".log"), [*broker.files(".index"), *broker.files(".timeindex")]
    said = dump(jars, logs, "--deep-iteration")
    assert said.count("Dumping ") == len(logs)
    assert "isvalid: false" not in said
    assert "Found" not in said
    said = dump(jars, indexes, "--index-sanity-check")
    assert said.count("passed sanity check.") + said.count("is empty.") == len(indexes)
    said = dump(jars, indexes, "--verify-index-only")
    assert "Found" not in said
    assert "mismatch" not in said.lower()
    assert len(broker.files(".txnindex")) > 1
    said = dump(jars, [*broker.files(".snapshot"), *broker.files(".txnindex")])
    assert "lastStableOffset" in said
    assert "rror" not in said


def dump(jars: Path, files: list[Path], *arguments: str) -> str:
    names = ",".join(map(str, files))
    run = run_tool(jars, "kafka.tools.DumpLogSegments", *arguments, "--files", names)
    assert run.returncode == 0, run.stderr
    return run.stdout
