"""A connection to whoever leads one partition of this cluster, this broker included.

Opened when it is needed, and anew after any failure and when the leader is another one. Every wait is bounded. One request
at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.errors import ErrorCode, error_of
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.wire.api import k00_produce, k01_fetch, k02_list_offsets, k22_init_producer_id
from headrace.broker.wire.batches import Record, decode_records, iter_batches
from headrace.broker.wire.client.offsets import LIST_OFFSETS_VERSION, list_offsets, listed_offsets
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import Message
from headrace.broker.wire.schema import Api
from headrace.broker.wire.special_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH

TIMEOUT_MS = 15_000
COMMIT_TIMEOUT_MS = 10_000
FETCH_BYTES = 1024 * 1024
ALL_IN_SYNC = -1
PRODUCE_VERSION, FETCH_VERSION, PRODUCER_ID_VERSION = 8, 11, 1
FULL_FETCH_EPOCH = -1


class LeaderLink:
    """What it raises is a KafkaError, or one of the client's FAILURES."""

    def __init__(self, host: EmbeddingHost, topic: str, partition: int) -> None:
        self._host = host
        self._topic = topic
        self._partition = partition
        self._link: AsyncLink | None = None
        self._address: Address | None = None

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    async def _ask(self, api: Api, version: int, message: Message) -> Message:
        address = self._host.leader_address(self._topic, self._partition)
        if address is None:
            raise error_of(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{self._topic}-{self._partition} has no leader now"
            )
        if address != self._address:
            self.close()
        self._address = address
        try:
            if self._link is None:
                client_id = f"headrace-mirror-{self._host.broker_id}"
                self._link = await AsyncLink.open(
                    address, client_id, TIMEOUT_MS, security=self._host.security
                )
            return await self._link.ask(api, version, message)
        except BaseException:
            # Also when it was cancelled: who asks next must not get the answer to this.
            self.close()
            raise

    async def new_producer(self) -> tuple[int, int]:
        """A producer's id and epoch."""
        answer = await self._ask(
            k22_init_producer_id.API,
            PRODUCER_ID_VERSION,
            {"transactional_id": None, "transaction_timeout_ms": COMMIT_TIMEOUT_MS},
        )
        self._check(answer["error_code"], "no producer id")
        return answer["producer_id"], answer["producer_epoch"]

    async def append(self, batch: bytes) -> int:
        """Append a batch and wait until it is committed; its first offset."""
        data = [{"index": self._partition, "records": batch}]
        message = {
            "transactional_id": None,
            "acks": ALL_IN_SYNC,
            "timeout_ms": COMMIT_TIMEOUT_MS,
            "topic_data": [{"name": self._topic, "partition_data": data}],
        }
        answer = await self._ask(k00_produce.API, PRODUCE_VERSION, message)
        found = answer["responses"][0]["partition_responses"][0]
        self._check(found["error_code"], "cannot be written to")
        offset: int = found["base_offset"]
        return offset

    async def limits(self) -> tuple[int, int]:
        """Where the log begins, and up to where it is committed."""
        return await self._offset(EARLIEST_TIMESTAMP), await self._offset(LATEST_TIMESTAMP)

    async def _offset(self, timestamp: int) -> int:
        place = self._topic, self._partition
        answer = await self._ask(
            k02_list_offsets.API, LIST_OFFSETS_VERSION, list_offsets({place: NO_EPOCH}, timestamp)
        )
        code, offset = listed_offsets(answer)[place]
        self._check(code, "does not tell its offsets")
        return offset

    async def read(self, offset: int) -> tuple[Sequence[Record], int]:
        """The next records from `offset` on, as far as they are committed, and where to go on; none at the end."""
        wanted: dict[str, Any] = {
            "partition": self._partition,
            "fetch_offset": offset,
            "partition_max_bytes": FETCH_BYTES,
        }
        message = {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": FETCH_BYTES,
            "session_epoch": FULL_FETCH_EPOCH,
            "topics": [{"topic": self._topic, "partitions": [wanted]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        answer = await self._ask(k01_fetch.API, FETCH_VERSION, message)
        found = answer["responses"][0]["partitions"][0]
        self._check(found["error_code"], "cannot be read")
        data = found["records"] or b""
        records: list[Record] = []
        for position, header in iter_batches(data):
            records += [r for r in decode_records(data, position, header) if r.offset >= offset]
            offset = header.next_offset
        return records, offset

    def _check(self, code: int, what: str) -> None:
        if code:
            raise error_of(code, f"{self._topic}-{self._partition} {what}: {error_of(code)}")
