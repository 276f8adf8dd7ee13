"""headrace's cleaner and Apache Kafka's make the same of the same files: keys, tombstones, transactions, markers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from processes import eventually
from swapped_broker import SwappedBroker
from swapped_life import end

from headrace.broker.config.topics import LogConfig
from headrace.broker.log.compaction import CleanerLimits
from headrace.broker.log.files import OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.transactions import TransactionIndex
from headrace.broker.wire.batches import decode_records, iter_batches

TOPIC = "cleaned"
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "2000", "delete.retention.ms": "0"}
# Too large while nothing is to be cleaned: that it is refused tells that the configuration is in use.
CANARY = b"c" * 3000
PAUSED = {"min.cleanable.dirty.ratio": "1.0", "max.message.bytes": "1000"}
CLEANING = {"min.cleanable.dirty.ratio": "0.0", "max.message.bytes": "1000000"}


class Contents(NamedTuple):
    """What the cleaned part of a log holds."""

    records: list[tuple[Any, ...]]
    aborted: list[tuple[int, int, int]]
    last_offsets: dict[int, int]


@pytest.fixture
def kafka(kafka_jars: Path, tmp_path: Path) -> Iterator[SwappedBroker]:
    broker = SwappedBroker(tmp_path, kafka_jars)
    broker.start("kafka")
    yield broker
    broker.end()


class Writer:
    """Fills the topic, with the cleaner paused."""

    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "linger.ms": 0,
        }
        self._admin = AdminClient(self._settings)
        eventually(self._has_topic, timeout_s=90, what="the topic")
        self._plain = Producer({**self._settings, "enable.idempotence": True})
        self._transactional = [
            Producer({**self._settings, "transactional.id": f"writer-{number}"}) for number in range(2)
        ]
        for producer in self._transactional:
            producer.init_transactions(60)

    def _has_topic(self) -> bool:
        topic = NewTopic(TOPIC, 1, 1, config={**CONFIGS, **PAUSED})
        (made,) = self._admin.create_topics([topic], request_timeout=15).values()
        try:
            made.result()
        except KafkaException as error:
            # A broker on a busy machine may answer late; what it was asked it has done all the same.
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    def configure(self, configs: dict[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource("TOPIC", TOPIC, incremental_configs=entries)
        for altered in self._admin.incremental_alter_configs([resource]).values():
            altered.result(20)

    def pause_cleaner(self) -> None:
        """Returns once that is in use."""
        self.configure(PAUSED)

        def is_in_use() -> bool:
            refused: list[bool] = []
            self._plain.produce(
                TOPIC, CANARY, b"canary", on_delivery=lambda error, _: refused.append(error is not None)
            )
            self._plain.flush(20)
            return refused == [True]

        eventually(is_in_use, what="the paused cleaner")

    def write(self, turn: int) -> None:
        """Records in and out of interleaved transactions, every third of which is aborted; then some to roll on."""
        first, second = self._transactional
        for number in range(9):
            first.begin_transaction()
            second.begin_transaction()
            for record in range(3):
                self._put(first, number + record, f"first {turn} {number} {record}")
                self._put(second, number + 2 * record, f"second {turn} {number} {record}")
                self._put(self._plain, number + record, None if record == 1 else f"plain {turn} {number}")
            end(first, is_aborted=number % 3 == 0)
            end(second, is_aborted=number % 3 == 1)
        for number in range(20):
            self._put(self._plain, 100 + number % 3, f"rolling on {turn} {number}")

    @staticmethod
    def _put(producer: Producer, key: int, value: str | None) -> None:
        data = None if value is None else (value * 4).encode()
        producer.produce(TOPIC, data, b"key %d" % (key % 12 if key < 100 else key))
        assert producer.flush(20) == 0


@pytest.mark.acceptance
def test_both_cleaners_keep_the_same(kafka: SwappedBroker, tmp_path: Path) -> None:
    writer = Writer(kafka.bootstrap)
    folder = next(found for home in kafka.directories for found in home.glob(f"{TOPIC}-0"))
    seen = set()
    # A marker goes in the third cleaning at the latest: its records in the first, its time is found over in the third.
    for turn in range(3):
        if turn:
            writer.pause_cleaner()
        writer.write(turn)
        copy = tmp_path / f"turn-{turn}" / f"{TOPIC}-0"
        shutil.copytree(folder, copy)
        before = contents(copy)
        clean_with_headrace(copy, kafka.clean_offset(TOPIC))
        writer.configure(CLEANING)
        active = max(folder.glob("*.log")).name[:20]
        eventually(partial(is_cleaned, kafka, int(active)), what="Apache Kafka's cleaning")
        ours, theirs = contents(copy), contents(folder)
        assert ours.records == theirs.records
        assert ours.aborted == theirs.aborted
        assert ours.last_offsets.items() >= theirs.last_offsets.items()
        assert 0 < len(ours.records) < len(before.records)
        seen.add(
            len([record for record in ours.records if record[1]]) < len([r for r in before.records if r[1]])
        )
    assert seen == {True, False}, "markers stay at first and go later"


def is_cleaned(kafka: SwappedBroker, offset: int) -> bool:
    return kafka.clean_offset(TOPIC) >= offset


def clean_with_headrace(folder: Path, clean_offset: int) -> None:
    config = LogConfig(
        cleanup_policy=("compact",), segment_bytes=2000, delete_retention_ms=0, min_cleanable_dirty_ratio=0
    )
    now_ms = time.time_ns() // 1_000_000
    log, report = PartitionLog.open(OsFiles(), str(folder), config, now_ms=now_ms)
    assert not [finding for finding in report.findings if finding.kind != "rebuilt"]
    log.advance_high_watermark(log.log_end_offset)
    log.cleaner.clean_offset = None if clean_offset < 0 else clean_offset
    flush = log.flush_task()
    assert flush is not None
    log.flushed(flush())
    dirt = log.cleaner.dirt(log, now_ms)
    assert dirt is not None
    for job in log.cleaner.clean(log, dirt, CleanerLimits(), now_ms):
        job()
    assert log.cleaner.clean_offset == dirt.end_offset
    log.delete_retired(now_ms + config.file_delete_delay_ms)


def contents(folder: Path) -> Contents:
    """Of all segments but the active one; empty batches count by what they tell of their producers."""
    records: list[tuple[Any, ...]] = []
    aborted = []
    last_offsets: dict[int, int] = {}
    for path in sorted(folder.glob("*.log"))[:-1]:
        data = path.read_bytes()
        for position, header in iter_batches(data):
            if not header.is_control and header.producer_id >= 0:
                last_offsets[header.producer_id] = header.last_offset
            for record in decode_records(data, position, header):
                place = (record.offset, header.is_control, header.producer_id, record.timestamp_ms)
                records.append((*place, record.key, record.value, header.delete_horizon_ms is not None))
        index = path.with_suffix(".txnindex")
        entries = TransactionIndex(OsFiles(), str(index), exists=index.exists()).all()
        aborted += [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries]
    return Contents(records, aborted, last_offsets)
