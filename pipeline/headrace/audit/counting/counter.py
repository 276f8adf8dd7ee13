"""The continuous counter of one datacenter: its own cluster's log in, count records in its own cluster out.

Owns the order of a round: the monitoring topic's ends first, then the counted topics' ends, then the counting up to
these, then the barrier that says so (see `records`). Invariants: a range of events is counted from its bytes, checksums
checked; positions go forward only with what was handed to the publisher, which keeps the order; after any end the next start
goes on from what was published.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from confluent_kafka import KafkaError as DeliveryError
from confluent_kafka import KafkaException, Message, Producer

from headrace.audit import batch_counts
from headrace.audit.counting.count import census, removed_offsets
from headrace.audit.modes import Mode, TopicModes
from headrace.audit.records import (
    COUNTS_TOPIC,
    Barrier,
    Counted,
    CounterTier,
    CountRecord,
    Standstill,
    decode,
    encode,
)
from headrace.broker.client.blocking_cluster import ConnectionFailedError
from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.client.librdkafka import settings_of
from headrace.broker.errors import KafkaError
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.batches import BatchHeader
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.avro_schemas import MONITORING_TOPIC
from headrace.load.log_client import LogClient
from headrace.load.ranges import LoadFinding, LogOffsets, OffsetRange
from headrace.load.source import Chunk, StandstillError, between, chunks, header_chunks

OFFSETS_PER_RECORD_MAX: Final = 20_000
"""Bound of what one count record of events is about."""
RECORD_SIZE_MAX: Final = 896 * 1024
"""Bytes of a count record, below what a broker takes unless it is told otherwise; what says more is told by several."""
RANGES_PER_ROUND_MAX: Final = 50
"""Ranges of one partition, or fetches of its headers, before the others get their turn."""
FLUSH_INTERVAL_MS: Final = 5_000
"""How long a round may go on before what it counted so far is seen to be acknowledged."""
ROT_LEFT_OUT_AFTER_MS: Final = 600_000
"""A batch that is rotten for so long is not waited for any more: what lies behind it counts."""
PUBLISH_TIMEOUT_S: Final = 60.0
COUNTS: Final = TopicPartition(COUNTS_TOPIC, 0)
READ_BACK: Final = 1000
BARRIER_INTERVAL_MS: Final = 10_000
POLICY_INTERVAL_MS: Final = 10_000
"""How old the answer may be to the question which topics are compacted; a new topic is asked for at once."""

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFigures:
    """What a round found, at its end."""

    lag: Mapping[str, int] = field(default_factory=dict)
    """By topic: offsets that are readable and not counted."""
    reached: int = 0
    """Partitions whose leader answered."""
    unreachable: int = 0
    """Partitions whose leader did not."""
    standstills: int = 0
    """Partitions that cannot be counted on."""


class PublishError(Exception):
    """Count records were not acknowledged; the counter must start again from what was."""


class Publisher:
    """Appends count records, in order, to partition 0 of `headrace.counts`."""

    def __init__(self, bootstrap: Bootstrap) -> None:
        self._failure: str | None = None
        self._producer = Producer(
            {
                **settings_of(bootstrap),
                "client.id": "headrace-counter",
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "zstd",
                "linger.ms": 5,
                "delivery.timeout.ms": int(PUBLISH_TIMEOUT_S * 1000),
                "message.max.bytes": 8_000_000,
                # That nobody answers is told by the rounds, and by it several times a second.
                "log_level": 2,
            }
        )

    def publish(self, record: CountRecord) -> None:
        """Hand a record over; `flush` tells whether it got there. Raises PublishError when those before did not."""
        value = encode(record)
        try:
            self._produce(value)
        except BufferError:
            # A round of many partitions is longer than the producer's queue.
            self.flush()
            self._produce(value)

    def _produce(self, value: bytes) -> None:
        self._producer.produce(COUNTS.topic, value, partition=COUNTS.partition, on_delivery=self._delivered)

    def flush(self) -> None:
        """Wait until all is acknowledged; raises PublishError when it is not."""
        try:
            left = self._producer.flush(PUBLISH_TIMEOUT_S + 5)
        except KafkaException as error:
            raise PublishError(str(error)) from error
        if left or self._failure:
            raise PublishError(self._failure or f"{left} count records are not acknowledged")

    def _delivered(self, error: DeliveryError | None, _: Message) -> None:
        if error is not None:
            self._failure = error.str()


class LogCounter:
    """Counts those topics of one cluster that are in `topics`, as this says, new ones from the next round on.

    `policies` tells the cleanup.policy of topics, as the brokers say now; `went_on` is called when counts of a round that
    goes on are acknowledged.
    """

    def __init__(
        self,
        client: LogClient,
        publisher: Publisher,
        *,
        tier: CounterTier,
        datacenter: str,
        topics: TopicModes,
        window_size_ms: int,
        clock_ms: Callable[[], int],
        policies: Callable[[Collection[str]], Mapping[str, str]] = lambda _: {},
        went_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._publisher = publisher
        self._tier: CounterTier = tier
        self._datacenter = datacenter
        self._topics = topics
        self._policies = policies
        self._went_on = went_on
        self._known: frozenset[str] = frozenset()
        self._compacted: frozenset[str] = frozenset()
        self._policies_ms = 0
        self._window_size_ms = window_size_ms
        self._standstills: dict[TopicPartition, str] = {}
        self._stands_since: dict[TopicPartition, tuple[int, int]] = {}
        """At which offset, and since when."""
        self._told: Barrier | None = None
        self._clock_ms = clock_ms
        self.counted_events = 0
        self.counted_offsets: dict[str, int] = {}
        """By topic."""
        self.figures = RoundFigures()
        """Of the last round."""
        self.positions = published_positions(client, tier, datacenter)

    @property
    def known_topics(self) -> frozenset[str]:
        """The topics that the rounds found."""
        return self._known

    def round(self) -> bool:
        """Count what is there now; returns whether there is more at once.

        Raises:
            ConnectionFailedError, KafkaError: a broker did not answer; the next round tries again.
            PublishError: end, and start anew.
        """
        begun_ms = self._clock_ms()
        present = self._client.partitions(lambda _: True)
        modes = self._topics.others({partition.topic for partition in present})
        partitions = [partition for partition in present if partition.topic in self._topics]
        self._ask_policies(frozenset(partition.topic for partition in partitions), begun_ms)
        accounts = [item for item in present if item.topic == MONITORING_TOPIC and self._tier != "offline"]
        told, offsets = self._client.reachable_ends_and_offsets(accounts, partitions)
        monitoring = {partition.partition: end for partition, end in told.items()}
        behind = {partition.topic for partition in partitions if partition not in offsets}
        flushed_ms = begun_ms
        try:
            for partition, ends in sorted(offsets.items()):
                if not self._count(partition, ends):
                    behind.add(partition.topic)
                if self._clock_ms() - flushed_ms >= FLUSH_INTERVAL_MS:
                    self._publisher.flush()
                    self._went_on()
                    flushed_ms = self._clock_ms()
        finally:
            self._publisher.flush()
        self.figures = self._figures(partitions, offsets)
        self._tell(
            monitoring, frozenset(partition.topic for partition in partitions) - behind, modes, begun_ms
        )
        return bool(behind) and any(
            self.positions.get(partition, 0) < ends.end and partition not in self._standstills
            for partition, ends in offsets.items()
        )

    def _figures(
        self, partitions: Collection[TopicPartition], offsets: Mapping[TopicPartition, LogOffsets]
    ) -> RoundFigures:
        lag = {partition.topic: 0 for partition in partitions}
        for partition, ends in offsets.items():
            lag[partition.topic] += max(0, ends.end - self.positions[partition])
        return RoundFigures(
            lag=lag,
            reached=len(offsets),
            unreachable=len(partitions) - len(offsets),
            standstills=len(self._standstills),
        )

    def _ask_policies(self, topics: frozenset[str], now_ms: int) -> None:
        """Ask which topics are compacted, before any of their records is read."""
        if topics <= self._known and now_ms - self._policies_ms < POLICY_INTERVAL_MS:
            return
        policies = self._policies(topics) if topics else {}
        self._compacted = frozenset(topic for topic, policy in policies.items() if "compact" in policy)
        self._known, self._policies_ms = topics, now_ms

    def _count(self, partition: TopicPartition, ends: LogOffsets) -> bool:
        """Count a partition up to its end; returns whether that was reached."""
        position = self.positions.get(partition, ends.start)
        if position < ends.start:
            reason = f"offsets {position} to {ends.start - 1} were deleted before they were counted"
            self._publish(self._standstill(partition, position, ends.start, reason))
            position = ends.start
        self.positions[partition] = position
        if position > ends.end:
            reason = f"counted up to offset {position - 1}, but the log ends at {ends.end}: it was truncated or recreated"
            self._stand_still(partition, reason)
            return False
        for _ in range(RANGES_PER_ROUND_MAX):
            position = self.positions[partition]
            if position >= ends.end or not self._count_range(partition, position, ends.end):
                break
        return self.positions[partition] >= ends.end

    def _count_range(self, partition: TopicPartition, first: int, end: int) -> bool:
        """Count and publish some offsets from `first` on; returns whether it went forward."""
        topic, number = partition
        wanted = OffsetRange(topic=topic, partition=number, first_offset=first, next_offset=end)
        try:
            if self._topics.mode(topic) == "headers":
                self._count_headers(partition, wanted)
            else:
                following = min(end, first + OFFSETS_PER_RECORD_MAX)
                self._count_events(partition, replace(wanted, next_offset=following))
        except StandstillError as error:
            self._stand_still(partition, error.finding.detail)
            self._leave_out_old_rot(partition, error.finding)
        return self.positions[partition] > first

    def _count_events(self, partition: TopicPartition, wanted: OffsetRange) -> None:
        for chunk in chunks(self._client, wanted):
            for counted in self._of_events(partition, chunk, self.positions[partition], chunk.next_offset):
                self._take(counted, sum(item.count for item in counted.tallies))

    def _of_events(
        self, partition: TopicPartition, chunk: Chunk, first: int, following: int
    ) -> Iterator[Counted]:
        """Yield what offsets of a chunk hold, in as many parts as need be."""
        records = [between(part, first, following) for part in chunk.records]
        found = census(records, self._window_size_ms)
        unreadable = sum(
            max(0, min(item.last_offset + 1, following) - max(item.first_offset, first))
            for item in chunk.unreadable
        )
        counted = Counted(
            tier=self._tier,
            datacenter=self._datacenter,
            partition=partition,
            first=first,
            next=following,
            tallies=tuple(found.tallies),
            at_ms=self._clock_ms(),
            foreign=found.foreign + unreadable,
            removed=removed_offsets(chunk.headers, [part.offset for part in records], first, following),
            is_compacted=partition.topic in self._compacted,
            producers=found.producers,
        )
        if following - first == 1 or not _is_too_large(counted):
            yield counted
            return
        middle = (first + following) // 2
        yield from self._of_events(partition, chunk, first, middle)
        yield from self._of_events(partition, chunk, middle, following)

    def _count_headers(self, partition: TopicPartition, wanted: OffsetRange) -> None:
        """Count what one fetch brings."""
        for chunk in islice(header_chunks(self._client, wanted), 1):
            for counted in self._of_headers(
                partition, chunk.headers, chunk.aborted, self.positions[partition]
            ):
                assert counted.batches is not None, "it is counted by headers"
                self._take(counted, counted.batches.messages)

    def _of_headers(
        self, partition: TopicPartition, headers: Sequence[BatchHeader], aborted: Collection[int], first: int
    ) -> Iterator[Counted]:
        """Yield what batches from an offset on say, in as many parts as need be."""
        counted = Counted(
            tier=self._tier,
            datacenter=self._datacenter,
            partition=partition,
            first=first,
            next=headers[-1].next_offset,
            tallies=(),
            at_ms=self._clock_ms(),
            is_compacted=partition.topic in self._compacted,
            batches=batch_counts.census(headers, aborted, first, self._window_size_ms),
        )
        middle = len(headers) // 2
        if not middle or not _is_too_large(counted):
            yield counted
            return
        yield from self._of_headers(partition, headers[:middle], aborted, first)
        yield from self._of_headers(partition, headers[middle:], aborted, headers[middle - 1].next_offset)

    def _take(self, counted: Counted, events: int) -> None:
        """Publish what was counted, and go on behind it."""
        partition = counted.partition
        self._publish(counted)
        self.positions[partition] = counted.next
        offsets = self.counted_offsets.get(partition.topic, 0)
        self.counted_offsets[partition.topic] = offsets + counted.next - counted.first
        self.counted_events += events
        self._standstills.pop(partition, None)

    def _stand_still(self, partition: TopicPartition, reason: str) -> None:
        """Say once why a partition cannot be counted; it is tried again in every round."""
        if self._standstills.get(partition) != reason:
            logger.error(
                "partition cannot be counted",
                topic=partition.topic,
                partition=partition.partition,
                reason=reason,
            )
            position = self.positions[partition]
            self._publish(self._standstill(partition, position, position, reason))
            self._standstills[partition] = reason

    def _leave_out_old_rot(self, partition: TopicPartition, finding: LoadFinding) -> None:
        position, now_ms = self.positions[partition], self._clock_ms()
        offset, since_ms = self._stands_since.get(partition, (-1, 0))
        if offset != position:
            self._stands_since[partition] = position, now_ms
            return
        following = finding.go_on_at if finding.kind == "corruption" else None
        if following is not None and now_ms - since_ms >= ROT_LEFT_OUT_AFTER_MS:
            reason = f"offsets {position} to {following - 1} are left out: {finding.detail}"
            self._publish(self._standstill(partition, position, following, reason))
            self.positions[partition] = following
            self._standstills.pop(partition, None)

    def _standstill(self, partition: TopicPartition, first: int, following: int, reason: str) -> Standstill:
        return Standstill(
            tier=self._tier,
            datacenter=self._datacenter,
            partition=partition,
            first=first,
            next=following,
            reason=reason,
            at_ms=self._clock_ms(),
        )

    def _tell(
        self, monitoring: Mapping[int, int], whole: frozenset[str], modes: Mapping[str, Mode], begun_ms: int
    ) -> None:
        """Publish the barrier of this round when it says anything new, and from time to time anyway."""
        told = self._told
        barrier = Barrier(
            tier=self._tier,
            datacenter=self._datacenter,
            counted=dict(self.positions),
            monitoring=monitoring,
            whole=whole,
            at_ms=begun_ms,
            modes=modes,
        )
        is_due = told is None or begun_ms - told.at_ms >= BARRIER_INTERVAL_MS
        if is_due or replace(barrier, at_ms=0) != replace(told or barrier, at_ms=0):
            self._publish(barrier)
            self._publisher.flush()
            self._told = barrier

    def _publish(self, record: CountRecord) -> None:
        self._publisher.publish(record)


def _is_too_large(record: Counted) -> bool:
    return len(encode(record)) > RECORD_SIZE_MAX


def published_positions(client: LogClient, tier: CounterTier, datacenter: str) -> dict[TopicPartition, int]:
    """Return how far each partition is counted by what was published: the last barrier and the ranges after it."""
    if COUNTS not in client.partitions(lambda topic: topic == COUNTS.topic):
        return {}
    ends = client.log_offsets([COUNTS])[COUNTS]
    size = READ_BACK
    while True:
        begin = max(ends.start, ends.end - size)
        own = [
            item
            for item in records_between(client, begin, ends.end)
            if (item.tier, item.datacenter) == (tier, datacenter)
        ]
        if begin == ends.start or any(isinstance(item, Barrier) for item in own):
            return _positions(own)
        size *= 4


def records_between(client: LogClient, begin: int, end: int) -> Iterator[CountRecord]:
    """Yield the count records at these offsets of `headrace.counts`; what cannot be read is passed over with a warning."""
    if begin >= end:
        return
    wanted = OffsetRange(topic=COUNTS.topic, partition=COUNTS.partition, first_offset=begin, next_offset=end)
    for chunk in chunks(client, wanted):
        for part in chunk.records:
            for start, size in zip(part.value_start.tolist(), part.value_size.tolist(), strict=True):
                try:
                    yield decode(part.data[start : start + size] if size >= 0 else None)
                except ValueError as error:
                    logger.warning("count record is not readable", reason=error)


def _positions(records: Collection[CountRecord]) -> dict[TopicPartition, int]:
    positions: dict[TopicPartition, int] = {}
    for item in records:
        found = item.counted if isinstance(item, Barrier) else {item.partition: item.next}
        for partition, offset in found.items():
            positions[partition] = max(offset, positions.get(partition, 0))
    return positions


FAILURES: Final = (ConnectionFailedError, KafkaError)
"""What a round may raise that the next one may do better."""
