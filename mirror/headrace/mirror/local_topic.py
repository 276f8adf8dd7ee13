"""A topic of which every broker leads a partition, so that each can append to it at once and without the network.

The mirror keeps its arrivals, findings and states in such topics: what a broker writes about its partitions lies on the
broker that holds them, and is read back from there. A broker that leads no partition of the topic adds one to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from headrace.broker.errors import ErrorCode, StorageError
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.server.embedding import EmbeddingHost, NewTopic, Partition
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.batches import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    decode_records,
    encode_batch,
    iter_batches,
    read_header,
)

logger = get_logger(__name__)
TIMEOUT_MS = 10_000
PAUSE_SECONDS = 0.2
READ_SIZE = 4 * 1024 * 1024
_DONE_OR_ANOTHER_WAS_FASTER = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class LocalTopic:
    """The partitions of `name` that this broker leads; it writes to the first of them."""

    def __init__(self, host: EmbeddingHost, name: str, partitions: list[Partition]) -> None:
        self.name = name
        self.partitions = partitions
        self._host = host

    @classmethod
    async def open(cls, host: EmbeddingHost, name: str, configs: Mapping[str, str]) -> LocalTopic:
        """Create the topic, or a partition of it for this broker, when they are missing; waits until it is led."""
        while True:
            led = sorted((p for p in host.led() if p.topic == name), key=lambda p: p.partition)
            if led:
                return cls(host, name, led)
            if not _has_own_partition(host, name):
                await _add_own_partition(host, name, configs)
            await asyncio.sleep(PAUSE_SECONDS)

    def append(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append key and value pairs as one batch, stamped with the present; raises KafkaErrors."""
        now_ms = self._host.clock.now_ms()
        batch = encode_batch([Record(0, now_ms, key, value, []) for key, value in pairs])
        partition = self.partitions[0]
        partition.append(memoryview(batch), required_acks=1, now_ms=now_ms)
        self._host.wake_fetchers(partition.topic, partition.partition)

    @property
    def log_start_offset(self) -> int:
        """Of the partition that this broker writes to."""
        return self.partitions[0].log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Of the partition that this broker writes to."""
        return self.partitions[0].log.log_end_offset


def records(partition: Partition, offset: int, upper_offset: int) -> Iterator[Record]:
    """The records of a led partition from `offset` up to `upper_offset`; raises KafkaErrors."""
    log_ = partition.log
    offset = max(offset, log_.log_start_offset)
    while offset < upper_offset:
        data = log_.read(offset, size_max=READ_SIZE, upper_offset=upper_offset).read()
        next_offset = offset
        for position, header in iter_batches(data):
            next_offset = header.next_offset
            for record in decode_records(data, position, header):
                if offset <= record.offset < upper_offset:
                    yield record
        if next_offset == offset:
            return
        offset = next_offset


def last_batch(own_log: PartitionLog) -> BatchHeader | None:
    """The header of the batch that ends at the log's end; None for an empty log or one that ends in a gap."""
    end = own_log.log_end_offset
    if end <= own_log.log_start_offset:
        return None
    found = own_log.read(end - 1, size_max=1, upper_offset=end)
    if found.file is None or found.size < HEADER_SIZE:
        return None
    header = read_header(found.file.read_at(HEADER_SIZE, found.position))
    return header if header.next_offset == end else None


def _has_own_partition(host: EmbeddingHost, name: str) -> bool:
    partitions = host.metadata.topics(name) or {}
    return any(p.replicas[:1] == (host.broker_id,) for p in partitions.values())


async def _add_own_partition(host: EmbeddingHost, name: str, configs: Mapping[str, str]) -> None:
    partitions = host.metadata.topics(name)
    if partitions is None:
        topic = NewTopic(name=name, assignments={0: [host.broker_id]}, configs=dict(configs))
        result = (await host.topics.create([topic], timeout_ms=TIMEOUT_MS))[0]
    else:
        result = await host.topics.grow(
            name, len(partitions) + 1, [[host.broker_id]], timeout_ms=TIMEOUT_MS, validate_only=False
        )
    if result.error not in _DONE_OR_ANOTHER_WAS_FASTER:
        raise StorageError(f"topic {name} cannot be had: {result.message}")
