"""Appends that came together: the same answers and the same files as one by one, with fewer writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from log_kit import NOW_MS, batch, offsets, open_log

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import CorruptMessageError, KafkaError, OutOfOrderSequenceError, StorageError
from headrace.broker.log.appender import Appender
from headrace.broker.log.files import OsFile
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.results import AppendResult
from headrace.broker.wire.batches import Record, encode_batch

CONFIGS = {
    "plain": LogConfig(),
    "rolls by size": LogConfig(segment_bytes=900),
    "rolls by time": LogConfig(segment_ms=40),
    "small index": LogConfig(segment_index_bytes=36, index_interval_bytes=1),
    "stamps": LogConfig(message_timestamp_type="LogAppendTime"),
    "recompresses": LogConfig(compression_type="gzip"),
    "compacted": LogConfig(cleanup_policy=("compact",)),
}


class Producers:
    """Makes what clients send: mostly the next batch, now and then one that is refused or repeats another."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._sequences = {1: 0, 2: 0}
        self._sent: list[bytes] = []
        self._producer_id = -1

    def next(self) -> bytes:
        chance = self._random.random()
        if chance < 0.08 and self._sent:
            return self._random.choice(self._sent[-6:])
        data = self._new(skips=chance > 0.97)
        if 0.90 < chance < 0.94:
            data[-1] ^= 1
        elif 0.94 < chance < 0.96:
            return bytes(data) + bytes(data)
        else:
            self._sent.append(bytes(data))
        return bytes(data)

    def _new(self, *, skips: bool) -> bytearray:
        if self._random.random() < 0.3:
            self._producer_id = self._random.choice((-1, 1, 2))
        producer_id = self._producer_id
        count = self._random.randint(1, 3)
        records = [
            Record(0, NOW_MS + self._random.randint(-30, 30), b"k", self._random.randbytes(60), [])
            for _ in range(count)
        ]
        sequence = self._sequences[producer_id] + skips if producer_id > 0 else -1
        if producer_id > 0 and not skips:
            self._sequences[producer_id] += count
        epoch = 0 if producer_id > 0 else -1
        return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def views(appends: Sequence[bytes]) -> list[memoryview]:
    return [memoryview(bytearray(data)) for data in appends]


def one_by_one(log: PartitionLog, appends: Sequence[bytes]) -> list[AppendResult | KafkaError]:
    outcomes: list[AppendResult | KafkaError] = []
    for records in views(appends):
        try:
            outcomes.append(Appender(log).append_as_leader(records, leader_epoch=4, now_ms=NOW_MS))
        except KafkaError as error:
            outcomes.append(error)
    return outcomes


def told(outcomes: Sequence[AppendResult | KafkaError]) -> list[object]:
    return [
        (type(outcome), str(outcome)) if isinstance(outcome, KafkaError) else outcome for outcome in outcomes
    ]


def contents(log: PartitionLog) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(log.directory).iterdir()}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", range(12))
def test_together_and_one_by_one_give_the_same_answers_and_files(
    tmp_path: Path, name: str, seed: int
) -> None:
    together, _ = open_log(tmp_path / "together", CONFIGS[name])
    apart, _ = open_log(tmp_path / "apart", CONFIGS[name])
    producers, random = Producers(seed), Random(seed)
    refused = 0
    for _ in range(20):
        appends = [producers.next() for _ in range(random.randint(1, 9))]
        outcomes = Appender(together).append_each_as_leader(views(appends), leader_epoch=4, now_ms=NOW_MS)
        assert told(outcomes) == told(one_by_one(apart, appends))
        refused += sum(isinstance(outcome, KafkaError) for outcome in outcomes)
    assert refused
    assert together.log_end_offset == apart.log_end_offset
    together.close()
    apart.close()
    written = contents(together)
    if name == "small index":
        # A full index is noticed when a run is written, not before each of its batches.
        return
    assert written == contents(apart)
    assert sum(map(len, written.values())) > 1000


def test_batches_that_came_together_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(tmp_path)
    Appender(log).append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS)
    sizes: list[list[int]] = []
    write_all_at = OsFile.write_all_at

    def write(file: OsFile, buffers: Sequence[memoryview], position: int) -> None:
        sizes.append([len(buffer) for buffer in buffers])
        write_all_at(file, buffers, position)

    monkeypatch.setattr(OsFile, "write_all_at", write)
    appends = [batch(producer=(9, 0, sequence)) for sequence in range(5)]
    Appender(log).append_each_as_leader(appends, leader_epoch=0, now_ms=NOW_MS)
    assert sizes == [[len(one) for one in appends]]
    assert offsets(log) == [0, 1, 2, 3, 4, 5]


def test_a_run_that_finds_no_room_leaves_no_trace_and_its_producer_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(tmp_path, LogConfig(segment_bytes=400))
    Appender(log).append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS)
    size, room = log.size, 250

    def write(file: OsFile, buffers: Sequence[memoryview], position: int) -> None:
        data = b"".join(buffers)
        file.write_at(data[:room], position)
        raise OSError(28, "No space left on device")

    # The second run fits no segment behind the first one, so it is a run of its own.
    appends = [bytes(batch(producer=(9, 0, sequence))) for sequence in range(4)]
    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "write_all_at", write)
        outcomes = Appender(log).append_each_as_leader(views(appends), leader_epoch=0, now_ms=NOW_MS)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds[:2] == [StorageError, StorageError]
    assert set(kinds[2:]) <= {StorageError, OutOfOrderSequenceError}
    assert (log.log_end_offset, log.size) == (1, size)
    again = Appender(log).append_each_as_leader(views(appends), leader_epoch=0, now_ms=NOW_MS)
    assert [outcome.base_offset for outcome in again if isinstance(outcome, AppendResult)] == [1, 2, 3, 4]
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_an_error_keeps_its_place_among_the_answers(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path)
    rotten = bytearray(batch())
    rotten[-1] ^= 1
    appends = [bytes(batch(2)), bytes(rotten), bytes(batch(3))]
    first, second, third = Appender(log).append_each_as_leader(views(appends), leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(second, CorruptMessageError)
    assert isinstance(first, AppendResult)
    assert isinstance(third, AppendResult)
    assert (first.base_offset, third.base_offset, log.log_end_offset) == (0, 2, 5)
