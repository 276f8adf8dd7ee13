"""A topic that the brokers of this cluster share, as one of them appends to it: over the network, wherever its leader is.

Each partition that is written has a task, with one batch under way at a time (acks=all) until it is committed, as an
idempotent producer: a batch that is sent again is not appended again, and none comes late behind a later one. Bounded by
who appends: a copier waits for what it wrote, arrivals and reports have one write under way. Must not know what is written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import ErrorCode, KafkaError, StorageError, reason_of
from headrace.broker.server.embedding import EmbeddingHost, NewTopic
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.batches import Record, encode_batch
from headrace.mirror.memory.journal import Pair
from headrace.mirror.memory.leader_link import LeaderLink
from headrace.mirror.memory.own_topics import WRITTEN_PARTITION

logger = get_logger(__name__)
WRITE_SIZE_MAX = 512 * 1024
WRITE_PAUSE_SECONDS_MIN, WRITE_PAUSE_SECONDS_MAX = 0.1, 2.0
SEQUENCES_MAX = 1 << 30
CREATION_TIMEOUT_MS = 10_000
CREATION_PAUSE_SECONDS = 0.2
BROKERS_WAIT_MS = 30_000
"""So long a new cluster's brokers may take to come before its topics are made with fewer replicas."""
SAFE_FACTOR, SAFE_IN_SYNC = 3, 2
RECORD_OVERHEAD = 32
_FORGOTTEN = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Nothing was appended, and the partition does not know the producer as it was: the next one begins."""
_DONE_OR_ANOTHER_WAS_FASTER = frozenset(
    {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT}
)


class _Queued(NamedTuple):
    key: bytes
    value: bytes | None
    committed: Callable[[int], None]


def _nothing(_: int) -> None: ...


class SharedTopic:
    """See the module's text; made by `shared_topics`."""

    def __init__(self, host: EmbeddingHost, name: str, tasks: asyncio.TaskGroup) -> None:
        self.name = name
        self._host = host
        self._tasks = tasks
        self._writers: dict[int, Writer] = {}

    def append(
        self,
        pairs: Sequence[Pair],
        committed: Callable[[int], None] = _nothing,
        *,
        partition: int = WRITTEN_PARTITION,
    ) -> None:
        """See `journal.Topic`."""
        if partition not in self._writers:
            writer = self._writers[partition] = Writer(self._host, self.name, partition)
            self._tasks.create_task(writer.run())
        self._writers[partition].append(pairs, committed)


class Writer:
    """Of one partition."""

    def __init__(self, host: EmbeddingHost, topic: str, partition: int) -> None:
        self._host = host
        self._topic = topic
        self._partition = partition
        self._link = LeaderLink(host, topic, partition)
        self._queue: deque[_Queued] = deque()
        self._filled = asyncio.Event()
        self._producer: tuple[int, int] | None = None
        self._sequence = 0
        self._problem = ""

    def append(self, pairs: Sequence[Pair], committed: Callable[[int], None]) -> None:
        """Queue records; `committed` is told of the last."""
        self._queue += [_Queued(key, value, _nothing) for key, value in pairs[:-1]]
        self._queue.append(_Queued(*pairs[-1], committed))
        self._filled.set()

    async def run(self) -> None:
        """Write for ever; ends by cancellation, or by StorageError when the topic was deleted."""
        try:
            while True:
                await self._filled.wait()
                taken = self._taken()
                offset = await self._until_committed(taken)
                for index, record in enumerate(taken):
                    record.committed(offset + index)
                if not self._queue:
                    self._filled.clear()
        finally:
            self._link.close()

    def _taken(self) -> list[_Queued]:
        """What fits into a batch, at least one record."""
        taken: list[_Queued] = []
        size = 0
        while self._queue and (not taken or size < WRITE_SIZE_MAX):
            taken.append(self._queue.popleft())
            size += len(taken[-1].key) + len(taken[-1].value or b"") + RECORD_OVERHEAD
        return taken

    async def _until_committed(self, taken: Sequence[_Queued]) -> int:
        """The first record's offset."""
        pause_s = WRITE_PAUSE_SECONDS_MIN
        batch = None
        while True:
            try:
                if self._producer is None:
                    self._producer, self._sequence, batch = await self._link.new_producer(), 0, None
                batch = batch or self._encode(taken, *self._producer)
                offset = await self._link.append(batch)
            except (*FAILURES, KafkaError) as error:
                self._failed(error)
            else:
                self._went_well(len(taken))
                return offset
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, WRITE_PAUSE_SECONDS_MAX)

    def _encode(self, taken: Sequence[_Queued], producer_id: int, producer_epoch: int) -> bytes:
        now_ms = self._host.clock.now_ms()
        records = [Record(0, now_ms, key, value, []) for key, value, _ in taken]
        batch = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self._sequence,
        )
        return bytes(batch)

    def _went_well(self, count: int) -> None:
        self._problem = ""
        self._sequence += count
        if self._sequence >= SEQUENCES_MAX:
            self._producer = None

    def _failed(self, error: Exception) -> None:
        if self._host.metadata.topics(self._topic) is None:
            raise StorageError(f"topic {self._topic} was deleted; it is made anew")
        if isinstance(error, KafkaError) and error.code in _FORGOTTEN:
            self._producer = None
        problem = reason_of(error)
        if problem != self._problem:
            logger.warning(
                "mirror's topic cannot be written to, it is tried again and again",
                topic=self._topic,
                partition=self._partition,
                reason=problem,
            )
        self._problem = problem


async def shared_topics(host: EmbeddingHost, wanted: Mapping[str, Mapping[str, str]]) -> None:
    """Have these topics, by name with their configurations; returns once their leaders are known.

    They get as many replicas as `__consumer_offsets`, or as there are brokers where fewer have come after a while.
    Raises StorageError for topics that cannot be made.
    """
    began_ms = host.clock.monotonic_ms()
    while True:
        missing = [name for name in wanted if host.metadata.topics(name) is None]
        alive = len(host.metadata.brokers)
        is_late = host.clock.monotonic_ms() - began_ms >= BROKERS_WAIT_MS
        factor = min(host.internal_replication_factor, alive)
        if missing and alive and (factor == host.internal_replication_factor or is_late):
            await _make(host, [_new_topic(name, wanted[name], factor) for name in missing])
        elif not missing and all(host.leader_address(name, WRITTEN_PARTITION) for name in wanted):
            return
        await asyncio.sleep(CREATION_PAUSE_SECONDS)


def _new_topic(name: str, configs: Mapping[str, str], factor: int) -> NewTopic:
    safe = {"min.insync.replicas": str(SAFE_IN_SYNC)} if factor >= SAFE_FACTOR else {}
    return NewTopic(name=name, partition_count=1, replication_factor=factor, configs={**configs, **safe})


async def _make(host: EmbeddingHost, topics: Sequence[NewTopic]) -> None:
    for result in await host.topics.create(topics, timeout_ms=CREATION_TIMEOUT_MS):
        if result.error not in _DONE_OR_ANOTHER_WAS_FASTER:
            raise StorageError(f"topic {result.name} cannot be made: {result.message or result.error.name}")
