"""Apache Kafka's own tools read what headrace's cleaner writes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from log_kit import roll

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.appender import Appender
from headrace.broker.log.compaction import CleanerLimits
from headrace.broker.log.files import OsFiles
from headrace.broker.log.startup import open_logs
from headrace.broker.wire.batches import Record, encode_batch

pytestmark = pytest.mark.acceptance

NOW_MS = 1_700_000_000_000
KEYS = 20
BATCHES = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compacted partition: all codecs, tombstones, an idempotent producer, merged segments."""
    directory = tmp_path_factory.mktemp("data")
    store, _ = open_logs(
        OsFiles(),
        [str(directory)],
        LogConfig(cleanup_policy=("compact",), segment_bytes=6000, index_interval_bytes=300),
        broker_id=1,
        cluster_id="Yz3mX2fWQ0uQk1qJ8pYb1g",
        overrides=lambda _: {},
        now_ms=NOW_MS,
    )
    log = store.create("events", 0, None, now_ms=NOW_MS)
    sequence = 0
    for number in range(BATCHES):
        records = [
            Record(
                0,
                NOW_MS + number,
                b"key %d" % ((number * 3 + index) % KEYS),
                None if number % 7 == 0 else b"value %d" % number * 5,
                [("h", b"x")],
            )
            for index in range(3)
        ]
        # One producer goes on to the end; of another's only batch nothing but its sequences stays.
        is_idempotent, is_other = number % 4 == 0, number == 5
        batch = encode_batch(
            records,
            codec=number % 5,
            producer_id=9 if is_idempotent else 8 if is_other else -1,
            producer_epoch=0 if is_idempotent or is_other else -1,
            base_sequence=sequence if is_idempotent else 0 if is_other else -1,
        )
        sequence += 3 if is_idempotent else 0
        Appender(log).append_as_leader(memoryview(batch), leader_epoch=number // 100, now_ms=NOW_MS)
        log.advance_high_watermark(log.log_end_offset)
    roll(log, NOW_MS + log.config.segment_ms * 2)
    task = log.flush_task()
    assert task is not None
    log.flushed(task())
    dirt = log.cleaner.dirt(log, NOW_MS)
    assert dirt is not None
    for job in log.cleaner.clean(log, dirt, CleanerLimits(), NOW_MS):
        job()
    store.close()
    return directory / "events-0"


def dump(jars: Path, *arguments: str) -> str:
    command = ["java", "-Xmx256m", "-cp", f"{jars}/*", "kafka.tools.DumpLogSegments", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def names(folder: Path, suffix: str) -> str:
    return ",".join(str(path) for path in sorted(folder.glob(f"*{suffix}")))


def test_the_cleaned_segments_are_read_record_by_record(kafka_jars: Path, folder: Path) -> None:
    said = dump(kafka_jars, "--deep-iteration", "--print-data-log", "--files", names(folder, ".log"))
    found = re.findall(r"\| offset: (\d+) .*? key: (key \d+)(?: payload: (.*))?$", said, re.MULTILINE)
    expected: dict[str, tuple[int, str]] = {}
    for number in range(BATCHES):
        for index in range(3):
            value = "null" if number % 7 == 0 else f"value {number}" * 5
            expected[f"key {(number * 3 + index) % KEYS}"] = (number * 3 + index, value)
    assert len(found) == KEYS
    for offset, key, value in found:
        assert (int(offset), value or "null") == expected[key]
    assert "isvalid: false" not in said
    assert "Found" not in said
    assert f"deleteHorizonMs: OptionalLong[{NOW_MS + 86_400_000}]" in said
    assert said.count("count: 0 baseSequence: 0") == 1, "an emptied batch keeps its producer's sequences"
    assert said.count("count: 0 ") == 1, "and nothing else is empty"
    codecs = set(re.findall(r"compresscodec: (\w+)", said))
    assert len(codecs) > 2


def test_the_indexes_of_the_cleaned_segments_agree_with_them(kafka_jars: Path, folder: Path) -> None:
    files = f"{names(folder, '.index')},{names(folder, '.timeindex')}"
    said = dump(kafka_jars, "--index-sanity-check", "--files", files)
    assert said.count("passed sanity check.") + said.count("is empty.") == len(files.split(","))
    said = dump(kafka_jars, "--verify-index-only", "--files", files)
    assert "Found" not in said
    assert "mismatch" not in said.lower()
