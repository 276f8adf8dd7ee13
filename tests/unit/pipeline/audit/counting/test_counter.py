"""The counter's rounds over a log in memory: where it goes on, what it refuses, what it says."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Collection
from typing import Any, cast

import pytest
from fastavro import schemaless_writer

from headrace.audit.counting.counter import (
    BARRIER_INTERVAL_MS,
    COUNTS,
    FLUSH_INTERVAL_MS,
    OFFSETS_PER_RECORD_MAX,
    POLICY_INTERVAL_MS,
    RECORD_SIZE_MAX,
    ROT_LEFT_OUT_AFTER_MS,
    LogCounter,
    Publisher,
    RoundFigures,
)
from headrace.audit.modes import TopicModes
from headrace.audit.modes import parse as parse_modes
from headrace.audit.records import Barrier, Counted, CountRecord, Standstill, encode
from headrace.audit.topic_names import parse
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import OffsetOutOfRangeError
from headrace.broker.wire.batches import (
    Record,
    decode_records,
    encode_batch,
    iter_batches,
    read_header,
    rewrite_batch,
)
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.avro_schemas import MONITORING_TOPIC, parsed_schema
from headrace.load.log_client import Fetched
from headrace.load.ranges import LogOffsets

PAGES = TopicPartition("pageviews", 0)
ACCOUNTS = TopicPartition(MONITORING_TOPIC, 0)
COUNTED_BY_HEADERS = OFFSETS_PER_RECORD_MAX


def event(sequence: int, producer: str = "p") -> bytes:
    sink = io.BytesIO(b"\0\0\0\0\7")
    sink.seek(5)
    header = {"time": 1000, "server": "s", "service": "s", "producer": producer, "sequence": sequence}
    record: dict[str, Any] = {"header": header, "reason": "", "line": b"", "size": 0, "sha256": ""}
    schemaless_writer(sink, parsed_schema("rejected_line"), record)
    return sink.getvalue()


class MemoryCluster:
    """Stands for the client and the publisher: logs are bytes, what is published is appended to the counts."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, bytearray] = {
            PAGES: bytearray(),
            ACCOUNTS: bytearray(),
            COUNTS: bytearray(),
        }
        self.starts: dict[TopicPartition, int] = {}
        self.silent: set[TopicPartition] = set()
        self.published: list[CountRecord] = []
        self.now_ms = 0
        self.policies: dict[str, str] = {}
        self.asked: list[list[str]] = []

    def policies_of(self, topics: Collection[str]) -> dict[str, str]:
        self.asked.append(sorted(topics))
        return {topic: self.policies.get(topic, "delete") for topic in topics}

    def append(self, partition: TopicPartition, *values: bytes) -> None:
        first = self.end(partition)
        records = [Record(first + at, 1000, None, value, []) for at, value in enumerate(values)]
        self.logs[partition] += encode_batch(records, base_offset=first)

    def end(self, partition: TopicPartition) -> int:
        return max((header.next_offset for _, header in iter_batches(self.logs[partition])), default=0)

    def partitions(self, wanted: Any) -> list[TopicPartition]:
        return [partition for partition in self.logs if wanted(partition.topic)]

    def log_offsets(self, partitions: Any) -> dict[TopicPartition, LogOffsets]:
        return {
            item: LogOffsets(self.starts.get(item, 0), self.end(item))
            for item in partitions
            if item not in self.silent
        }

    def reachable_ends_and_offsets(
        self, ended: Any, partitions: Any
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, LogOffsets]]:
        return {item: offsets.end for item, offsets in self.log_offsets(ended).items()}, self.log_offsets(
            partitions
        )

    def fetch(self, partition: TopicPartition, offset: int, **_: Any) -> Fetched:
        if not self.starts.get(partition, 0) <= offset <= self.end(partition):
            raise OffsetOutOfRangeError("no")
        log = self.logs[partition]
        begin = next((at for at, header in iter_batches(log) if header.last_offset >= offset), len(log))
        end = self.end(partition)
        return Fetched(
            records=memoryview(bytes(log[begin:])),
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=0,
        )

    def publish(self, record: CountRecord) -> None:
        self.published.append(record)
        self.append(COUNTS, encode(record))

    def flush(self) -> None:
        pass

    def counter(
        self, topics: str = "pageviews", went_on: Callable[[], None] = lambda: None, modes: str = ""
    ) -> LogCounter:
        return LogCounter(
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            tier="live",
            datacenter="dc-east",
            topics=TopicModes(parse(topics), parse_modes(modes)),
            window_size_ms=1000,
            clock_ms=lambda: self.now_ms,
            policies=self.policies_of,
            went_on=went_on,
        )

    def news(self) -> list[tuple[str, int, int]]:
        """What was published since the last call, but for barriers: (kind, first, next)."""
        found = [
            (type(item).__name__, item.first, item.next)
            for item in self.published
            if not isinstance(item, Barrier)
        ]
        self.published.clear()
        return found


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def test_counts_what_is_new_and_then_says_how_far_it_is(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0), event(1), b"no event")
    cluster.append(ACCOUNTS, b"x", b"y")
    assert cluster.counter().round() is False
    counted, barrier = cluster.published
    assert isinstance(counted, Counted)
    assert (counted.first, counted.next, counted.foreign) == (0, 3, 1)
    assert [(item.producer, item.runs.tolist()) for item in counted.tallies] == [("p", [[0, 1]])]
    assert barrier == Barrier(
        tier="live",
        datacenter="dc-east",
        counted={PAGES: 3},
        monitoring={0: 2},
        whole=frozenset({"pageviews"}),
        at_ms=0,
    )


def test_a_round_says_what_it_read_and_what_it_left(cluster: MemoryCluster) -> None:
    other, silent = TopicPartition("other", 0), TopicPartition("other", 1)
    cluster.append(PAGES, event(0), event(1), b"no event")
    cluster.logs[other] = bytearray()
    cluster.append(other, event(0))
    counter = cluster.counter("pageviews,other")
    counter.round()
    assert (counter.counted_events, counter.counted_offsets) == (3, {"pageviews": 3, "other": 1})
    assert counter.figures == RoundFigures(lag={"pageviews": 0, "other": 0}, reached=2)
    cluster.logs[silent] = bytearray()
    cluster.append(PAGES, event(2))
    cluster.logs[PAGES][-1] ^= 1
    cluster.silent = {silent}
    counter.round()
    assert counter.figures == RoundFigures(
        lag={"pageviews": 1, "other": 0}, reached=2, unreachable=1, standstills=1
    )


def test_a_long_round_says_that_it_goes_on(cluster: MemoryCluster) -> None:
    second = TopicPartition("pageviews", 1)
    cluster.logs[second] = bytearray()
    cluster.append(PAGES, event(0))
    cluster.append(second, event(1))
    heard: list[int] = []

    fetch = cluster.fetch

    def slow(partition: TopicPartition, offset: int, **rest: Any) -> Fetched:
        cluster.now_ms += FLUSH_INTERVAL_MS
        return fetch(partition, offset, **rest)

    counter = cluster.counter(went_on=lambda: heard.append(cluster.now_ms))
    cluster.fetch = slow  # type: ignore[method-assign]
    counter.round()
    assert len(heard) == 2


def test_a_new_counter_goes_on_from_what_was_published(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0))
    cluster.counter().round()
    cluster.news()
    cluster.append(PAGES, event(1))
    second = cluster.counter()
    second.round()
    assert cluster.news() == [("Counted", 1, 2)]


def test_a_counter_that_died_before_its_barrier_goes_on_from_its_last_range(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0))
    cluster.counter().round()
    cluster.append(PAGES, event(1))
    counter = cluster.counter()
    counter._tell = lambda *_: None  # type: ignore[method-assign]
    counter.round()
    cluster.news()
    assert cluster.counter().positions == {PAGES: 2}


def test_reads_back_past_the_records_of_others(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0))
    cluster.counter().round()
    for _ in range(1200):
        cluster.append(COUNTS, b"not of this counter")
    assert cluster.counter().positions == {PAGES: 1}


def test_says_nothing_new_until_a_barrier_is_due(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0))
    counter = cluster.counter()
    counter.round()
    cluster.published.clear()
    cluster.now_ms = BARRIER_INTERVAL_MS - 1
    counter.round()
    assert cluster.published == []
    cluster.now_ms = BARRIER_INTERVAL_MS
    counter.round()
    assert [type(item) for item in cluster.published] == [Barrier]


def test_rot_is_said_once_and_never_passed_over(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0))
    cluster.append(PAGES, event(1))
    good = bytes(cluster.logs[PAGES])
    cluster.logs[PAGES][-1] ^= 1
    counter = cluster.counter()
    assert counter.round() is False
    counter.round()
    *_, stop, barrier = cluster.published
    assert isinstance(stop, Standstill)
    assert "checksum" in stop.reason
    assert isinstance(barrier, Barrier)
    assert barrier.whole == frozenset()
    assert cluster.news() == [("Counted", 0, 1), ("Standstill", 1, 1)]
    cluster.logs[PAGES] = bytearray(good)
    counter.round()
    assert cluster.news() == [("Counted", 1, 2)]


def test_offsets_that_were_deleted_first_are_given_up_aloud(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0))
    counter = cluster.counter()
    counter.round()
    cluster.news()
    cluster.append(PAGES, event(1))
    cluster.append(PAGES, event(2))
    cluster.starts[PAGES] = 2
    counter.round()
    assert cluster.news() == [("Standstill", 1, 2), ("Counted", 2, 3)]


def test_a_log_that_ends_before_what_was_counted_stands_still(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0), event(1))
    counter = cluster.counter()
    counter.round()
    cluster.news()
    cluster.logs[PAGES].clear()
    cluster.append(PAGES, event(5))
    counter.round()
    (stop,) = (item for item in cluster.published if isinstance(item, Standstill))
    assert "truncated or recreated" in stop.reason
    assert cluster.news() == [("Standstill", 2, 2)]


def test_a_pattern_takes_a_new_topic_in_the_next_round(cluster: MemoryCluster) -> None:
    counter = cluster.counter("page.*")
    cluster.append(PAGES, event(0))
    counter.round()
    late = TopicPartition("page-clicks", 0)
    cluster.logs[late] = bytearray()
    cluster.append(late, event(1))
    counter.round()
    *_, barrier = cluster.published
    assert isinstance(barrier, Barrier)
    assert barrier.whole == {"pageviews", "page-clicks"}
    assert cluster.news() == [("Counted", 0, 1), ("Counted", 0, 1)]


def test_says_how_many_offsets_have_no_record_and_whether_the_topic_is_compacted(
    cluster: MemoryCluster,
) -> None:
    cluster.policies["pageviews"] = "compact,delete"
    counter = cluster.counter()
    cluster.append(PAGES, *(event(sequence) for sequence in range(10)))
    whole = bytes(cluster.logs[PAGES])
    kept = [record for record in decode_records(whole, 0, read_header(whole)) if record.offset in (0, 4)]
    behind = [Record(at, 1000, None, event(at), []) for at in (12, 13)]
    cluster.logs[PAGES] = rewrite_batch(read_header(whole), kept) + encode_batch(behind, base_offset=12)
    counter.round()
    counted, _ = cluster.published
    assert isinstance(counted, Counted)
    assert (counted.first, counted.next, counted.removed, counted.is_compacted) == (0, 14, 10, True)


def test_asks_for_policies_of_new_topics_at_once_and_of_others_from_time_to_time(
    cluster: MemoryCluster,
) -> None:
    counter = cluster.counter("page.*")
    counter.round()
    cluster.now_ms = POLICY_INTERVAL_MS - 1
    counter.round()
    assert cluster.asked == [["pageviews"]]
    cluster.logs[TopicPartition("page-clicks", 0)] = bytearray()
    counter.round()
    assert cluster.asked[1:] == [["page-clicks", "pageviews"]]
    cluster.now_ms *= 3
    counter.round()
    assert len(cluster.asked) == 3


class FullQueue:
    """A producer whose queue holds two messages."""

    def __init__(self) -> None:
        self.queued = self.sent = 0

    def produce(self, *_: object, **__: object) -> None:
        if self.queued == 2:
            raise BufferError("Local: Queue full")
        self.queued += 1

    def flush(self, timeout_s: float) -> int:
        self.sent, self.queued = self.sent + self.queued, 0
        return 0


def test_a_round_may_be_larger_than_the_producers_queue() -> None:
    publisher, queue = Publisher(Bootstrap("127.0.0.1:1")), FullQueue()
    publisher._producer = cast(Any, queue)
    for first in range(5):
        publisher.publish(
            Standstill(
                tier="live", datacenter="dc-east", partition=PAGES, first=first, next=first, reason="rot"
            )
        )
    publisher.flush()
    assert queue.sent == 5


def test_rot_is_waited_for_so_long_and_then_left_out(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0), event(1))
    cluster.append(PAGES, event(2), event(3))
    cluster.logs[PAGES][-1] ^= 1
    cluster.append(PAGES, event(4))
    counter = cluster.counter()
    counter.round()
    cluster.now_ms += ROT_LEFT_OUT_AFTER_MS - 1
    counter.round()
    assert cluster.news() == [("Counted", 0, 2), ("Standstill", 2, 2)]
    cluster.now_ms += 1
    counter.round()
    assert cluster.news() == [("Standstill", 2, 4), ("Counted", 4, 5)]


def test_rot_that_is_healed_in_time_is_counted(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0))
    cluster.logs[PAGES][-1] ^= 1
    counter = cluster.counter()
    counter.round()
    cluster.now_ms += ROT_LEFT_OUT_AFTER_MS
    cluster.logs[PAGES][-1] ^= 1
    counter.round()
    assert cluster.news() == [("Standstill", 0, 0), ("Counted", 0, 1)]


def test_a_topic_is_counted_by_its_batch_headers(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0), event(1))
    cluster.append(PAGES, b"no event")
    counter = cluster.counter("other", modes="pageviews=headers")
    assert counter.round() is False
    counted, barrier = cluster.published
    assert isinstance(counted, Counted)
    assert counted.batches is not None
    assert (counted.first, counted.next, counted.tallies, counted.foreign) == (0, 3, (), 0)
    (entry,) = counted.batches.entries
    assert (entry.sums.messages, entry.sums.size_bytes) == (3, len(cluster.logs[PAGES]))
    assert isinstance(barrier, Barrier)
    assert (barrier.modes, barrier.counted) == ({"pageviews": "headers"}, {PAGES: 3})
    assert (counter.counted_events, counter.counted_offsets) == (3, {"pageviews": 3})


def test_a_topic_goes_over_to_its_headers_and_back_where_it_was(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0))
    cluster.counter().round()
    cluster.append(PAGES, event(1))
    cluster.counter(modes="pageviews=headers").round()
    cluster.append(PAGES, event(2))
    off = cluster.counter(modes="pageviews=off")
    off.round()
    assert off.known_topics == frozenset()
    cluster.counter().round()
    found = [
        (item.first, item.next, item.batches is not None, len(item.tallies))
        for item in cluster.published
        if isinstance(item, Counted)
    ]
    assert found == [(0, 1, False, 1), (1, 2, True, 0), (2, 3, False, 1)]
    barriers = [item.modes for item in cluster.published if isinstance(item, Barrier)]
    assert barriers == [{}, {"pageviews": "headers"}, {"pageviews": "off"}, {}]


def test_rot_stops_the_count_of_headers_too(cluster: MemoryCluster) -> None:
    cluster.append(PAGES, event(0))
    cluster.append(PAGES, event(1))
    cluster.logs[PAGES][-1] ^= 1
    counter = cluster.counter(modes="pageviews=headers")
    counter.round()
    assert cluster.news() == [("Counted", 0, 1), ("Standstill", 1, 1)]


def test_names_without_end_become_several_records_each_below_a_messages_size(cluster: MemoryCluster) -> None:
    names = [f"{number:03}{'<' * 1000}" for number in range(1000)]
    cluster.append(PAGES, *(event(0, name) for name in names[:500]))
    cluster.append(PAGES, b"no event", *(event(0, name) for name in names[500:]))
    cluster.counter().round()
    counted = [item for item in cluster.published if isinstance(item, Counted)]
    assert len(counted) > 1
    assert [item.first for item in counted] == [0, *(item.next for item in counted[:-1])]
    assert max(len(encode(item)) for item in counted) <= RECORD_SIZE_MAX
    assert [tally.producer for item in counted for tally in item.tallies] == names
    assert (counted[-1].next, sum(item.foreign for item in counted)) == (1001, 1)
    assert {item.removed for item in counted} == {0}
    assert cluster.counter().positions == {PAGES: 1001}


def test_one_fetch_of_headers_is_one_record_however_many_offsets_it_has(cluster: MemoryCluster) -> None:
    for number in range(3):
        batch = encode_batch([Record(0, 1000, None, b"x", [])], base_offset=number * OFFSETS_PER_RECORD_MAX)
        cluster.logs[PAGES] += batch
    cluster.counter(modes="pageviews=headers").round()
    (counted,) = [item for item in cluster.published if isinstance(item, Counted)]
    assert (counted.first, counted.next) == (0, 2 * OFFSETS_PER_RECORD_MAX + 1)
    assert counted.batches is not None
    assert counted.batches.messages == 3


def test_batches_of_any_client_become_several_records_too(cluster: MemoryCluster) -> None:
    for number in range(COUNTED_BY_HEADERS):
        far = [Record(number, number << 40, None, b"x", [])]
        cluster.logs[PAGES] += encode_batch(
            far, base_offset=number, producer_id=number << 40, base_sequence=0
        )
    cluster.counter(modes="pageviews=headers").round()
    counted = [item for item in cluster.published if isinstance(item, Counted)]
    assert len(counted) > 1
    assert [item.first for item in counted] == [0, *(item.next for item in counted[:-1])]
    assert max(len(encode(item)) for item in counted) <= RECORD_SIZE_MAX
    assert sum(item.batches.messages for item in counted if item.batches) == COUNTED_BY_HEADERS


def test_a_publisher_that_nobody_answers_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    publisher = Publisher(Bootstrap("127.0.0.1:1"))
    assert publisher._producer.flush(1) == 0
    time.sleep(1)
    assert capfd.readouterr().err == ""
