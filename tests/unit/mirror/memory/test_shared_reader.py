"""Reading the topics that brokers share: what is read on and on, once, or again, and how far arrivals are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.errors import ErrorCode, KafkaError, error_of
from headrace.broker.wire.batches import Record
from headrace.mirror.memory import arrivals, shared_reader
from headrace.mirror.memory.arrivals import Arrival
from headrace.mirror.memory.reports import Report
from headrace.mirror.memory.shared_reader import PAGE_RECORDS, StateReader, last_report, recorded_ends

PAGE = 1000


class Topic:
    """Partitions in memory; `away` have no leader. A read gives a page."""

    def __init__(self, partitions: dict[int, Sequence[tuple[bytes, bytes | None]]]) -> None:
        self.partitions = {
            number: [Record(offset, offset, key, value, []) for offset, (key, value) in enumerate(pairs)]
            for number, pairs in partitions.items()
        }
        self.away: set[int] = set()
        self.reads: list[tuple[int, int]] = []

    def link(self, host: Any, name: str, number: int) -> Link:
        return Link(self, number)

    def host(self, broker: int = 1, replicas: dict[int, int] | None = None) -> Any:
        told = {
            number: SimpleNamespace(replicas=((replicas or {}).get(number, 0),)) for number in self.partitions
        }
        return SimpleNamespace(broker_id=broker, metadata=SimpleNamespace(topics=lambda name: told))


class Link:
    def __init__(self, topic: Topic, number: int) -> None:
        self.topic, self.number = topic, number

    def _records(self) -> list[Record]:
        if self.number in self.topic.away:
            raise error_of(ErrorCode.LEADER_NOT_AVAILABLE)
        return self.topic.partitions[self.number]

    async def limits(self) -> tuple[int, int]:
        found = self._records()
        return found[0].offset if found else 0, found[-1].offset + 1 if found else 0

    async def read(self, offset: int) -> tuple[Sequence[Record], int]:
        self.topic.reads.append((self.number, offset))
        found = self._records()
        if found and offset > found[-1].offset + 1:
            raise error_of(ErrorCode.OFFSET_OUT_OF_RANGE)
        page = [record for record in found if record.offset >= offset][:PAGE]
        return page, page[-1].offset + 1 if page else offset

    def close(self) -> None: ...


class Journal:
    def __init__(self) -> None:
        self.taken: list[tuple[int, bytes | None]] = []
        self.reread_partitions: list[int] = []

    def read(self, partition: int, records: Iterable[Record], next_offset: int) -> None:
        self.taken += [(partition, record.key) for record in records]

    def reread(self, partition: int) -> None:
        self.reread_partitions.append(partition)


def reader_of(monkeypatch: pytest.MonkeyPatch, topic: Topic, host: Any) -> tuple[StateReader, Journal]:
    monkeypatch.setattr(shared_reader, "LeaderLink", topic.link)
    monkeypatch.setattr(shared_reader, "INTERVAL_SECONDS", 0.0)
    journal = Journal()
    return StateReader(host, cast("Any", journal)), journal


def read(reader: StateReader) -> None:
    asyncio.run(reader._read())


def test_the_written_partition_is_read_on_and_those_of_earlier_versions_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Topic({0: [(b"a", b"")], 1: [(b"old", b"")]})
    reader, journal = reader_of(monkeypatch, topic, topic.host())
    read(reader)
    topic.partitions[0].append(Record(5, 0, b"b", b"", []))
    topic.partitions[1].append(Record(1, 0, b"later", b"", []))
    read(reader)
    assert journal.taken == [(0, b"a"), (1, b"old"), (0, b"b")]


def test_a_start_waits_for_what_this_broker_wrote_itself_and_not_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Topic({0: [], 1: [(b"own", b"")], 2: [(b"other", b"")]})
    reader, journal = reader_of(monkeypatch, topic, topic.host(broker=7, replicas={1: 7, 2: 8}))
    topic.away = {1, 2}

    async def opened() -> None:
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            opening = tasks.create_task(reader.open())
            for _ in range(10):
                await asyncio.sleep(0)
            assert not opening.done()
            topic.away = {2}

    asyncio.run(opened())
    assert journal.taken == [(1, b"own")]
    topic.away = set()
    read(reader)
    assert journal.taken == [(1, b"own"), (2, b"other")], "it came back"


def test_a_log_that_ends_before_what_was_read_is_read_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic({0: [(b"a", b""), (b"b", b""), (b"c", b"")]})
    reader, journal = reader_of(monkeypatch, topic, topic.host())
    read(reader)
    del topic.partitions[0][1:]
    read(reader)
    assert journal.reread_partitions == [0]
    read(reader)
    assert journal.taken[-1] == (0, b"a")


def arrival(end: int) -> bytes:
    return arrivals.encode(Arrival(0, end - 1, 5))


def test_recorded_ends_are_read_backwards_only_as_far_as_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [(b"t-0", arrival(1)), (b"t-0", arrival(2))] + [(b"t-1", arrival(9))] * (3 * PAGE_RECORDS)
    topic = Topic({0: [*many, (b"t-0", arrival(7))], 1: [(b"t-2", arrival(4)), (b"t-0", arrival(3))]})
    monkeypatch.setattr(shared_reader, "LeaderLink", topic.link)
    assert asyncio.run(recorded_ends(topic.host(), {b"t-0", b"t-1"})) == {b"t-0": 7, b"t-1": 9}
    assert min(offset for _, offset in topic.reads) >= len(many) - PAGE_RECORDS
    found = asyncio.run(recorded_ends(topic.host(), {b"t-0", b"t-2", b"t-3"}))
    assert found == {b"t-0": 7, b"t-2": 4}, "an earlier version's, and nobody's"
    topic.away = {1}
    assert asyncio.run(recorded_ends(topic.host(), {b"t-2"})) == {}
    topic.away = {0}
    with pytest.raises(KafkaError):
        asyncio.run(recorded_ends(topic.host(), {b"t-0"}))


def test_the_last_report_is_that_of_this_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [Report(broker=broker, at_ms=at_ms, sources=()) for broker, at_ms in ((1, 5), (1, 6), (2, 9))]
    topic = Topic({0: [(str(report.broker).encode(), report.encode()) for report in told]})
    monkeypatch.setattr(shared_reader, "LeaderLink", topic.link)
    assert asyncio.run(last_report(topic.host(broker=1))) == told[1]
    assert asyncio.run(last_report(topic.host(broker=3))) is None
    topic.away = {0}
    assert asyncio.run(last_report(topic.host(broker=1))) is None
