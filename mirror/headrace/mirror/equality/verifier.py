"""Reads copies and their sources for `headrace mirror verify`, partition by partition, with ordinary fetches.

`WORKERS_COUNT` partitions are read at once, over connections of their own, and both sides of one at the same moment; so the
memory is that of one answer of each side for each of them. A cluster that stopped answering is not asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import ErrorCode, KafkaError, OffsetOutOfRangeError, error_of, reason_of
from headrace.broker.wire.client.view import is_moved
from headrace.broker.wire.partitions import PartitionKey
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.equality.comparison import Comparison, Offsets, Side
from headrace.mirror.equality.verification import Extents, Result, Verdict, verdict

WORKERS_COUNT = 4
RETRY_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Between the attempts to read on: a leader may move, a broker may be started again."""
Answer = TypeVar("Answer")
MakeClient = Callable[[], ClusterClient]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One partition to compare; `place` is the copy's, `original` the source's."""

    place: PartitionKey
    original: PartitionKey
    source: str
    extents: Extents
    passed: Sequence[Offsets] = ()
    is_compacted: bool = False

    def refused(self, reason: str) -> Verdict:
        return Verdict(
            place=self.place,
            source=self.source,
            result=Result.NOT_COMPARED,
            extents=self.extents,
            reason=reason,
        )


class ReadError(Exception):
    """A side cannot be read on, in a sentence; `is_silent`: its cluster does not answer."""

    def __init__(self, side: Side, failure: Exception) -> None:
        super().__init__(f"the {side} cannot be read: {reason_of(failure)}")
        self.side = side
        self.is_silent = not isinstance(failure, KafkaError)


class Verifier:
    """`here` makes clients of the offline cluster, `there` those of each source; `moved(count)` hears of offsets compared."""

    def __init__(
        self, here: MakeClient, there: Mapping[str, MakeClient], moved: Callable[[int], None]
    ) -> None:
        self._here = here
        self._there = there
        self._moved = moved
        self._silent: dict[tuple[Side, str], str] = {}

    async def run(self, tasks: Sequence[Task], told: Callable[[Verdict], None]) -> None:
        """Compare all of these; `told(verdict)` as each is done."""
        queue = list(reversed(tasks))

        async def work() -> None:
            copies = Reader(Side.COPY, self._here)
            sources = {name: Reader(Side.SOURCE, there) for name, there in self._there.items()}
            try:
                while queue:
                    task = queue.pop()
                    told(await self._verdict(task, {Side.COPY: copies, Side.SOURCE: sources[task.source]}))
            finally:
                for reader in (copies, *sources.values()):
                    reader.close()

        async with asyncio.TaskGroup() as workers:
            for _ in range(min(WORKERS_COUNT, len(tasks))):
                workers.create_task(work())

    async def _verdict(self, task: Task, readers: Mapping[Side, Reader]) -> Verdict:
        for side in Side:
            if (side, task.source) in self._silent:
                return task.refused(self._silent[side, task.source])
        try:
            return await self._compared(task, readers)
        except ReadError as error:
            if error.is_silent:
                self._silent[error.side, task.source] = str(error)
            return task.refused(str(error))
        except KafkaError as error:
            return task.refused(f"batches cannot be unpacked: {error}")

    async def _compared(self, task: Task, readers: Mapping[Side, Reader]) -> Verdict:
        extents = task.extents
        comparison = Comparison(
            extents.first, extents.end, passed=task.passed, is_compacted=task.is_compacted
        )
        places = {Side.COPY: task.place, Side.SOURCE: task.original}
        while wanted := comparison.wants():
            before = comparison.position
            answers = await asyncio.gather(
                *(readers[side].read(places[side], offset) for side, offset in wanted.items()),
                return_exceptions=True,
            )
            for side, answer in zip(wanted, answers, strict=True):
                if isinstance(answer, memoryview):
                    comparison.served(side, answer)
                elif isinstance(answer, OffsetOutOfRangeError):
                    comparison.deleted_below(await readers[side].start_above(places[side], wanted[side]))
                    break
                else:
                    raise answer
            self._moved(comparison.position - before)
        return verdict(task.place, task.source, extents, comparison)


class Reader:
    """One side, over connections of its own, opened when they are needed."""

    def __init__(self, side: Side, make_client: MakeClient) -> None:
        self._side = side
        self._client = make_client()
        self._is_open = False

    def close(self) -> None:
        self._client.close()

    async def read(self, place: PartitionKey, offset: int) -> memoryview:
        """Batches from an offset on, which the side has; raises OffsetOutOfRangeError and ReadError."""

        async def attempt() -> memoryview:
            records = await self._client.fetch(*place, offset)
            if not records:
                # Below the high watermark, for a moment, as under a new leader that does not know it yet.
                cause = f"{place[0]}-{place[1]} serves nothing from offset {offset} on"
                raise error_of(ErrorCode.OFFSET_NOT_AVAILABLE, cause)
            return records

        return await self._retried(attempt)

    async def start_above(self, place: PartitionKey, offset: int) -> int:
        """Where the side's log begins, which no longer has the offset; raises ReadError where it is another log."""

        async def attempt() -> int:
            starts = await self._client.log_starts([place])
            return starts.get(f"{place[0]}-{place[1]}", offset)

        start = await self._retried(attempt)
        if start <= offset:
            cause = f"{place[0]}-{place[1]} ends before offset {offset} by now"
            raise ReadError(self._side, error_of(ErrorCode.OFFSET_OUT_OF_RANGE, cause))
        return start

    async def _retried(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """Raises OffsetOutOfRangeError and ReadError."""
        for pause_seconds in (*RETRY_PAUSES_SECONDS, None):
            try:
                if not self._is_open:
                    await self._client.refresh()
                self._is_open = True
                return await attempt()
            except OffsetOutOfRangeError:
                raise
            except (*FAILURES, KafkaError) as error:
                self._is_open = False
                if pause_seconds is None or (isinstance(error, KafkaError) and not is_moved(error)):
                    raise ReadError(self._side, error) from error
                await asyncio.sleep(pause_seconds)
        raise AssertionError("the last attempt returns or raises")
