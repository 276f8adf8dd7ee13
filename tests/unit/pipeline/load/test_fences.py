"""A position is fenced by the batch below it: what a log may do without tripping the fence, and what trips it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.broker.errors import OffsetOutOfRangeError
from headrace.broker.wire.batches import (
    BatchHeader,
    Record,
    encode_batch,
    iter_batches,
    set_base_offset_and_epoch,
    set_crc,
)
from headrace.broker.wire.partitions import TopicPartition
from headrace.load.fences import EpochEnd, Fence, compare, fence_at, fence_of, has_epoch_until
from headrace.load.log_client import Fetched, Origin
from headrace.load.ranges import LogOffsets, OffsetRange, standstill
from headrace.load.source import Chunk, StandstillError, chunks


def batch(first: int, values: list[str], *, epoch: int = 3, kept: int | None = None, pid: int = -1) -> bytes:
    """One batch; with `kept` compaction has removed all but so many of its records."""
    records = [Record(index, 1000, None, value.encode(), []) for index, value in enumerate(values)]
    encoded = bytearray(encode_batch(records[: kept or len(records)], base_offset=first, producer_id=pid))
    if kept is not None:
        encoded = bytearray(_with_delta(encoded, len(values) - 1))
    set_base_offset_and_epoch(encoded, 0, first, epoch)
    return bytes(encoded)


def _with_delta(encoded: bytearray, delta: int) -> bytearray:
    encoded[23:27] = delta.to_bytes(4, "big")
    set_crc(encoded, 0)
    return encoded


def headers(*batches: bytes) -> list[BatchHeader]:
    return [header for item in batches for _, header in iter_batches(item)]


@dataclass
class Log:
    """A log as its leader serves it; `restarts` is the connection's number, `epochs` are (epoch, start offset)."""

    batches: list[bytes]
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(3, 0)])
    start: int = 0
    restarts: int = 0
    asked: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return max((header.next_offset for header in headers(*self.batches)), default=self.start)

    def fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        size_max: int = 1 << 23,
        wait_ms: int = 0,
        topic_id: str | None = None,
        wants_headers: bool = False,
    ) -> Fetched:
        self.asked.append(offset)
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRangeError("not there")
        served = b""
        for item in self.batches:
            (_, header) = next(iter_batches(item))
            if header.last_offset >= offset and (not served or len(served) + len(item) <= size_max):
                served += item
        return Fetched(
            records=memoryview(served),
            high_watermark=self.end,
            last_stable_offset=self.end,
            log_start_offset=self.start,
            origin=Origin(self.restarts, self.epochs[-1][0]),
        )

    def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd:
        """What Kafka's LeaderEpochFileCache answers."""
        if leader_epoch > self.epochs[-1][0]:
            return EpochEnd(-1, -1)
        later = [start for epoch, start in self.epochs if epoch > leader_epoch]
        known = [epoch for epoch, _ in self.epochs if epoch <= leader_epoch]
        return EpochEnd(known[-1] if known else leader_epoch, later[0] if later else self.end)


def read(log: Log, first: int, fence: Fence | None, following: int | None = None) -> list[Chunk]:
    wanted = OffsetRange(
        topic="t", partition=0, first_offset=first, next_offset=following or log.end, fence=fence
    )
    return list(chunks(log, wanted))


def offsets(found: list[Chunk]) -> list[int]:
    return [int(offset) for chunk in found for part in chunk.records for offset in part.offset]


def fence(item: bytes) -> Fence:
    return fence_of(next(iter_batches(item))[1])


FIRST, SECOND, THIRD = batch(0, ["a", "b"]), batch(2, ["c", "d", "e"]), batch(5, ["f"])


def test_a_log_that_grew_is_read_on_in_the_very_answer_that_has_the_fence() -> None:
    log = Log([FIRST, SECOND, THIRD])
    assert offsets(read(log, 5, fence(SECOND))) == [5]
    assert log.asked == [2]


def test_a_position_inside_a_batch_is_fenced_by_that_batch() -> None:
    log = Log([FIRST, SECOND, THIRD])
    assert offsets(read(log, 3, fence(SECOND))) == [3, 4, 5]
    assert log.asked == [2]


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_log_that_was_cut_and_grew_past_the_position_stops_the_partition(epoch: int) -> None:
    regrown = [FIRST, batch(2, ["x", "y", "z"], epoch=epoch), batch(5, ["f"], epoch=epoch)]
    with pytest.raises(StandstillError) as caught:
        read(Log(regrown, epochs=sorted({(3, 0), (epoch, 0 if epoch == 3 else 2)})), 5, fence(SECOND))
    finding = caught.value.finding
    assert (finding.kind, finding.offset) == ("truncation", 5)
    assert "offsets 2 to 4" in finding.detail
    assert "`headrace load resume t 0` says where it can go on" in finding.sentence


def test_other_bounds_of_batches_below_the_position_are_another_log() -> None:
    with pytest.raises(StandstillError):
        read(Log([FIRST, batch(2, ["c"]), batch(3, ["d", "e"]), THIRD]), 5, fence(SECOND))
    with pytest.raises(StandstillError):
        read(Log([batch(0, ["a", "b", "c", "d", "e"]), THIRD]), 5, fence(SECOND))


def test_what_retention_took_up_to_the_position_is_compared_by_epochs() -> None:
    log = Log([THIRD], start=5, epochs=[(3, 5)])
    assert offsets(read(log, 5, fence(SECOND))) == [5]
    later = Log([batch(5, ["f"], epoch=7)], start=5, epochs=[(7, 5)])
    assert offsets(read(later, 5, fence(SECOND))) == [5]
    with pytest.raises(StandstillError):
        read(Log([batch(4, ["x", "y"], epoch=7)], start=5, epochs=[(3, 3), (7, 4)]), 5, fence(SECOND))


def test_a_log_that_begins_inside_the_fences_batch_is_still_compared_by_it() -> None:
    log = Log([SECOND, THIRD], start=4)
    assert offsets(read(log, 5, fence(SECOND))) == [5]
    with pytest.raises(StandstillError):
        read(Log([batch(2, ["x", "y", "z"]), THIRD], start=4), 5, fence(SECOND))


def test_an_epoch_that_the_log_never_had_is_another_log() -> None:
    with pytest.raises(StandstillError):
        read(Log([batch(5, ["f"], epoch=1)], start=5, epochs=[(1, 5)]), 5, fence(SECOND))


def test_compaction_trips_no_fence() -> None:
    whole = Log([FIRST, THIRD])
    assert offsets(read(whole, 5, fence(SECOND))) == [5]
    thinned = Log([FIRST, batch(2, ["c", "d", "e"], kept=1), THIRD])
    assert offsets(read(thinned, 5, fence(SECOND))) == [5]


def test_a_compacted_log_that_was_cut_is_found_by_its_epochs() -> None:
    with pytest.raises(StandstillError):
        read(Log([FIRST, batch(5, ["x"], epoch=4)], epochs=[(3, 0), (4, 4)]), 5, fence(SECOND))
    with pytest.raises(StandstillError):
        read(Log([batch(2, ["c", "d", "e"], kept=1, epoch=4), THIRD], epochs=[(4, 0)]), 5, fence(SECOND))


def test_a_leader_that_answers_anew_within_a_range_is_compared_again() -> None:
    class Cut(Log):
        """Is cut below what was read and grown again, behind the reader's back, after the first answer."""

        def fetch(self, *arguments: Any, **named: Any) -> Fetched:
            answer = Log.fetch(self, *arguments, **{**named, "size_max": 1})
            if len(self.asked) == 2:
                self.restarts += 1
                self.batches = [FIRST, batch(2, ["x", "y", "z"]), batch(5, ["g"])]
            return answer

    cut = Cut([FIRST, SECOND, THIRD])
    wanted = OffsetRange(topic="t", partition=0, first_offset=0, next_offset=6)
    with pytest.raises(StandstillError) as caught:
        list(chunks(cut, wanted))
    assert (caught.value.finding.kind, caught.value.finding.offset) == ("truncation", 5)


def test_the_fence_of_a_position_is_the_last_batch_that_begins_below_it() -> None:
    known = headers(FIRST, SECOND, THIRD)
    assert fence_at(known, 5) == fence(SECOND)
    assert fence_at(known, 3) == fence(SECOND)
    assert fence_at(known, 0) is None


def test_without_an_epoch_nothing_is_said_of_epochs() -> None:
    assert has_epoch_until(Fence(-1, 0, 5, 1), 5, EpochEnd(-1, -1))
    assert compare(fence(SECOND), next(iter_batches(SECOND))[1]) == "same"


@dataclass
class Schedule:
    """A log and a load of it under random appends, cuts, retention, compaction, restarts and rounds."""

    chance: random.Random
    log: Log = field(default_factory=lambda: Log([], epochs=[(0, 0)]))
    position: int = 0
    fence: Fence | None = None
    is_lost: bool = False
    """The log was cut below the position."""
    written: int = 0

    def append(self) -> None:
        count = self.chance.randint(1, 4)
        values = [f"{self.written + number}" for number in range(count)]
        self.written += count
        self.log.batches.append(batch(self.log.end, values, epoch=self.log.epochs[-1][0]))

    def restart(self) -> None:
        self.log.restarts += 1

    def cut(self) -> None:
        kept = self.chance.randint(max(0, len(self.log.batches) - 3), len(self.log.batches))
        del self.log.batches[kept:]
        end, epoch = self.log.end, self.log.epochs[-1][0]
        self.is_lost |= end < self.position
        self.log.epochs = [entry for entry in self.log.epochs if entry[1] < end] or [(epoch, self.log.start)]
        if self.chance.random() < 0.5:
            self.log.epochs.append((epoch + 1, end))
        self.restart()

    def trim(self) -> None:
        if self.is_lost:
            return
        start = self.log.start = self.chance.randint(self.log.start, self.log.end)
        end = self.log.end
        self.log.batches = [item for item in self.log.batches if headers(item)[0].next_offset > start]
        assert self.log.end in (start, end)
        current = [epoch for epoch, first in self.log.epochs if first <= start][-1:]
        self.log.epochs = [(epoch, start) for epoch in current] + [
            entry for entry in self.log.epochs if entry[1] > start
        ]

    def compact(self) -> None:
        if self.is_lost or not self.log.batches:
            return
        *old, last = self.log.batches
        self.log.batches = [thin for item in old if (thin := self._thinned(item))] + [last]

    def _thinned(self, item: bytes) -> bytes | None:
        (header,) = headers(item)
        kind = self.chance.choice(["gone", "thin", "whole", "whole"])
        if kind == "whole" or header.last_offset_delta == 0:
            return item
        values = ["left"] * (header.last_offset_delta + 1)
        thin = batch(header.base_offset, values, epoch=header.leader_epoch, kept=1)
        return thin if kind == "thin" else None

    def load(self) -> bool:
        """Run a round; returns False when the partition stands still for good."""
        offsets = LogOffsets(self.log.start, self.log.end)
        finding = standstill(TopicPartition("t", 0), self.position, offsets, None)
        if finding is None and self.log.end > self.position:
            try:
                for chunk in read(self.log, self.position, self.fence):
                    assert not self.is_lost
                    self.position = chunk.next_offset
                    self.fence = fence_at(chunk.headers, self.position) or self.fence
            except StandstillError as error:
                finding = error.finding
        if finding is None:
            return True
        if finding.kind == "retention":
            self.position = self.log.start
            return True
        assert finding.kind == "truncation"
        assert self.is_lost
        return False


@pytest.mark.parametrize("seed", range(200))
def test_no_schedule_loads_on_in_another_log_or_stops_in_the_same(seed: int) -> None:
    schedule = Schedule(random.Random(seed))
    steps = [schedule.append] * 5 + [schedule.restart, schedule.cut, schedule.trim, schedule.compact]
    for _ in range(60):
        schedule.chance.choice(steps)()
        if schedule.chance.random() < 0.5 and not schedule.load():
            break
