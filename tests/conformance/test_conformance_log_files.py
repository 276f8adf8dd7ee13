"""Apache Kafka's own tools read the files that the log writes."""

import re
from pathlib import Path
from uuid import UUID

import pytest
from kafka_oracle import run_tool

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.appender import Appender
from headrace.broker.log.files import OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.startup import open_logs
from headrace.broker.wire.batches import Record, encode_batch

TOPIC_ID = UUID("6f1c7b1e-0d5c-4f0e-9a5e-2f1f4c1b7a11")
BATCHES = 400
NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cleanly closed data directory with one partition of several segments, codecs and producers."""
    directory = tmp_path_factory.mktemp("data")
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=1000, segment_index_bytes=4096)
    store, _ = open_logs(
        OsFiles(),
        [str(directory)],
        config,
        broker_id=1,
        cluster_id="Yz3mX2fWQ0uQk1qJ8pYb1g",
        overrides=lambda _: {},
        now_ms=NOW_MS,
    )
    log = store.create("events", 0, TOPIC_ID, now_ms=NOW_MS)
    for number in range(BATCHES):
        _append(log, number)
    log.advance_high_watermark(log.log_end_offset)
    store.close()
    return directory


def _append(log: PartitionLog, number: int) -> None:
    records = [
        Record(
            0,
            NOW_MS + number * 10 + index,
            b"key",
            f"value {number} {index}".encode() * 5,
            [("header", b"x")],
        )
        for index in range(1 + number % 5)
    ]
    producer_id = 1000 + number % 2 if number % 3 == 0 else -1
    state = log.producers.get(producer_id)
    batch = encode_batch(
        records,
        codec=number % 5,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=(state.batches[-1].last_sequence + 1 if state else 0) if producer_id >= 0 else -1,
    )
    Appender(log).append_as_leader(memoryview(batch), leader_epoch=number // 100, now_ms=NOW_MS + number * 10)


def dump(kafka_jars: Path, *arguments: str) -> str:
    """What DumpLogSegments says; it answers damage with text, not with an exit code."""
    run = run_tool(kafka_jars, "kafka.tools.DumpLogSegments", *arguments)
    assert run.returncode == 0, run.stderr
    return run.stdout


def files_of(data: Path, suffix: str) -> str:
    return ",".join(str(path) for path in sorted((data / "events-0").glob(f"*{suffix}")))


def test_every_segment_is_read_record_by_record(kafka_jars: Path, data: Path) -> None:
    said = dump(kafka_jars, "--deep-iteration", "--print-data-log", "--files", files_of(data, ".log"))
    assert said.count("baseOffset:") == BATCHES
    assert said.count("| offset:") == sum(1 + number % 5 for number in range(BATCHES))
    assert "isvalid: false" not in said
    assert "Found" not in said
    assert "payload: value 399 4value 399 4" in said
    epochs = {int(found) for found in re.findall(r"partitionLeaderEpoch: (\d+)", said)}
    assert epochs == {0, 1, 2, 3}


def test_the_indexes_agree_with_the_segments(kafka_jars: Path, data: Path) -> None:
    indexes = files_of(data, ".index")
    assert len(indexes.split(",")) > 2
    said = dump(kafka_jars, "--index-sanity-check", "--files", f"{indexes},{files_of(data, '.timeindex')}")
    count = len(indexes.split(",")) * 2
    assert said.count("passed sanity check.") + said.count("is empty.") == count
    assert said.count("is empty.") <= 1
    said = dump(kafka_jars, "--verify-index-only", "--files", f"{indexes},{files_of(data, '.timeindex')}")
    assert "Found" not in said
    assert "mismatch" not in said.lower()


def test_the_producers_snapshots_are_read(kafka_jars: Path, data: Path) -> None:
    said = dump(kafka_jars, "--files", files_of(data, ".snapshot"))
    assert "producerId: 1000" in said
    assert "producerId: 1001" in said
    assert "rror" not in said


def test_kafka_would_recover_the_same_checkpoints(data: Path) -> None:
    end_offset = sum(1 + number % 5 for number in range(BATCHES))
    assert (data / "recovery-point-offset-checkpoint").read_text() == f"0\n1\nevents 0 {end_offset}\n"
    assert (data / "replication-offset-checkpoint").read_text() == f"0\n1\nevents 0 {end_offset}\n"
    assert (data / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    assert (data / ".kafka_cleanshutdown").read_text() == '{"version":"0","broker_epoch":"-1"}'
    assert (
        data / "events-0" / "partition.metadata"
    ).read_text() == "version: 0\ntopic_id: bxx7Hg1cTw6aXi8fTBt6EQ"
    epochs = (data / "events-0" / "leader-epoch-checkpoint").read_text()
    assert epochs == "0\n4\n0 0\n1 300\n2 600\n3 900\n"
