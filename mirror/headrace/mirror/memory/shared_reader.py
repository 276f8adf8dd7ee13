"""Reading the topics that the brokers of this cluster share, over the network.

`StateReader` hands `headrace.mirror` to the journal, as it grows: of the partition that is written whatever comes, of those
that earlier versions wrote (each broker to one of its own) what they hold, once. `recorded_ends` looks up how far arrivals
are recorded, `last_report` what this broker last told. Must not know what the records mean, but for arrivals and reports.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import ErrorCode, KafkaError, reason_of
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.batches import Record
from headrace.mirror.memory import arrivals, reports
from headrace.mirror.memory.journal import Journal
from headrace.mirror.memory.leader_link import LeaderLink
from headrace.mirror.memory.own_topics import ARRIVALS, SOURCES, STATES, WRITTEN_PARTITION
from headrace.mirror.memory.reports import Report

logger = get_logger(__name__)
INTERVAL_SECONDS = 1.0
PAGE_RECORDS = 2 * arrivals.SUMMARY_EVERY


class StateReader:
    """Of `headrace.mirror`."""

    def __init__(self, host: EmbeddingHost, journal: Journal) -> None:
        self._host = host
        self._journal = journal
        self._links: dict[int, LeaderLink] = {}
        self._positions: dict[int, int] = {}
        self._done: set[int] = set()
        self._due = asyncio.Event()
        self._problem = ""
        journal.read_soon = self._due.set

    async def open(self) -> None:
        """Read all that is there of this broker's copies."""
        while True:
            needed = {WRITTEN_PARTITION} | {
                number
                for number, told in (self._host.metadata.topics(STATES) or {}).items()
                if self._host.broker_id in told.replicas
            }
            if needed <= await self._read():
                return
            await asyncio.sleep(INTERVAL_SECONDS)

    async def run(self) -> None:
        """Read what comes, for ever."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL_SECONDS):
                        await self._due.wait()
                self._due.clear()
                await self._read()
        finally:
            for link in self._links.values():
                link.close()

    async def _read(self) -> set[int]:
        """Read on in every partition; those that were read to their end, now or before."""
        partitions = set(self._host.metadata.topics(STATES) or {}) | {WRITTEN_PARTITION}
        for number in sorted(partitions - self._done):
            try:
                await self._read_partition(number)
            except (*FAILURES, KafkaError) as error:
                self._failed(number, error)
            else:
                self._done.add(number)
        found = set(self._done)
        self._done.discard(WRITTEN_PARTITION)
        return found

    async def _read_partition(self, number: int) -> None:
        link = self._links.setdefault(number, LeaderLink(self._host, STATES, number))
        if number not in self._positions:
            self._positions[number], _ = await link.limits()
        while True:
            offset = self._positions[number]
            records, next_offset = await link.read(offset)
            self._journal.read(number, records, next_offset)
            self._positions[number] = next_offset
            if next_offset == offset:
                break
        if number != WRITTEN_PARTITION:
            self._links.pop(number).close()
        self._problem = ""

    def _failed(self, number: int, error: Exception) -> None:
        if isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions.pop(number, None)
            self._journal.reread(number)
            self._due.set()
        problem = reason_of(error)
        if number == WRITTEN_PARTITION and problem != self._problem:
            logger.warning("mirror's topic cannot be read", topic=STATES, partition=number, reason=problem)
            self._problem = problem


async def last_report(host: EmbeddingHost) -> Report | None:
    """What this broker told last before its start; None too where the topic cannot be read."""
    key, last = str(host.broker_id).encode(), None
    link = LeaderLink(host, SOURCES, WRITTEN_PARTITION)
    try:
        offset, end = await link.limits()
        async for records in _pages(link, offset, end):
            last = next((r for r in reversed(records) if r.key == key), last)
        return None if last is None else reports.decode(last.value or b"")
    except (*FAILURES, KafkaError, ValueError) as error:
        logger.warning("the last report of the mirror is not known", topic=SOURCES, reason=error)
        return None
    finally:
        link.close()


async def recorded_ends(host: EmbeddingHost, wanted: set[bytes]) -> dict[bytes, int]:
    """Place → the offset up to which arrivals are recorded; those that no partition tells of are missing.

    Raises KafkaErrors and FAILURES of the partition that is written; earlier versions' are passed over when they are away.
    """
    found: dict[bytes, int] = {}
    for number in sorted(host.metadata.topics(ARRIVALS) or (WRITTEN_PARTITION,)):
        if wanted <= found.keys():
            break
        link = LeaderLink(host, ARRIVALS, number)
        try:
            found = await _ends_of(link, wanted - found.keys()) | found
        except (*FAILURES, KafkaError):
            if number == WRITTEN_PARTITION:
                raise
        finally:
            link.close()
    return found


async def _ends_of(link: LeaderLink, wanted: set[bytes]) -> dict[bytes, int]:
    """Reads a partition backwards, page by page, until every place was seen or the log begins."""
    start, upper = await link.limits()
    ends: dict[bytes, int] = {}
    while upper > start and not wanted <= ends.keys():
        begin = max(start, upper - PAGE_RECORDS)
        page: dict[bytes, int] = {}
        async for records in _pages(link, begin, upper):
            page |= arrivals.recorded_ends((r.key or b"", r.value or b"") for r in records)
        ends = {key: end for key, end in page.items() if key in wanted} | ends
        upper = begin
    return ends


async def _pages(link: LeaderLink, offset: int, upper_offset: int) -> AsyncIterator[Sequence[Record]]:
    """The records from `offset` up to `upper_offset`, as they come."""
    while offset < upper_offset:
        records, next_offset = await link.read(offset)
        yield [record for record in records if record.offset < upper_offset]
        if next_offset == offset:
            return
        offset = next_offset
