"""What a member in a process of its own shares with people through topics of the target: orders to it, reports of it.

`headrace.mirror` is read as it grows, from its written partition; the newest report goes to `headrace.sources`. What cannot be
read or written now is tried again at the next look, with one line in the log.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import ErrorCode, KafkaError, OffsetOutOfRangeError, error_of
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.batches import decode_records, iter_batches
from headrace.mirror.aggregate.wire_cluster import WireCluster
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.memory.own_topics import OWN_TOPICS, SOURCES, STATES, WRITTEN_PARTITION
from headrace.mirror.memory.reports import Report
from headrace.mirror.memory.state import SkipOrder
from headrace.mirror.memory.states import States

logger = get_logger(__name__)
LOOK_SECONDS: Final = 1.0
REPLICAS: Final = 3
"""Of a topic that it makes, or as many as there are brokers."""
_MADE = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


class SharedNotes:
    """`Orders` and `Reports` of a member."""

    def __init__(self, cluster: WireCluster) -> None:
        self._cluster = cluster
        self._states = States()
        self._next_offset = -1
        self._report: Report | None = None
        self._problem = ""

    def choice_of(self, source: str) -> re.Pattern[str] | None:
        return self._states.choice_of(source)

    def limit_of(self, source: str) -> int | None:
        return self._states.limit_of(source)

    def is_paused(self, topic: str) -> bool:
        return self._states.is_paused(topic)

    def skip_at(self, place: bytes) -> SkipOrder | None:
        return self._states.skip_of(place)

    def tell(self, report: Report) -> None:
        self._report = report

    async def open(self) -> None:
        """Have the topics, and what was ordered before; raises FAILURES and KafkaErrors."""
        replicas = min(REPLICAS, len(self._cluster.brokers))
        for topic in (STATES, SOURCES):
            if self._cluster.partition_count(topic) is None:
                code, message = await self._cluster.create_replicated(
                    topic, 1, OWN_TOPICS[topic], replicas=replicas
                )
                if code not in _MADE:
                    raise error_of(code, f"the topic {topic} cannot be created: {message}")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._cluster.with_client(self._read)
                await self._cluster.with_client(self._write)
                self._problem = ""
            except (*FAILURES, KafkaError) as error:
                self._failed(repr(error))
            await asyncio.sleep(LOOK_SECONDS)

    def _failed(self, problem: str) -> None:
        if not self._problem:
            logger.warning("orders and reports wait for the target", reason=problem)
        self._problem = problem
        self._cluster.refresh_soon()

    async def _read(self, client: ClusterClient) -> None:
        if self._next_offset < 0:
            starts = await client.log_starts([(STATES, WRITTEN_PARTITION)])
            self._next_offset = starts.get(f"{STATES}-{WRITTEN_PARTITION}", -1)
        while self._next_offset >= 0:
            before = self._next_offset
            try:
                records = await client.fetch(STATES, WRITTEN_PARTITION, before)
            except OffsetOutOfRangeError:
                self._next_offset = -1
                raise
            for position, header in iter_batches(records):
                for record in decode_records(records, position, header):
                    if record.offset >= before:
                        try:
                            self._states.take(WRITTEN_PARTITION, record)
                        except ValueError as error:
                            logger.warning("record is passed over", topic=STATES, reason=error)
                self._next_offset = header.next_offset
            if self._next_offset == before:
                self._cluster.merged_of = self._states.merged_of
                return

    async def _write(self, client: ClusterClient) -> None:
        report, self._report = self._report, None
        if report is None:
            return
        code = await client.publish(SOURCES, WRITTEN_PARTITION, str(report.broker).encode(), report.encode())
        if code:
            self._report = self._report or report
            raise error_of(code, f"{SOURCES} does not take the report")
