"""Replicas on their way to another data directory: performs the steps that `log.moving` decides (KIP-113).

Invariants: a partition has one task; at most `threads` moves copy at a time, each a bounded piece at a time in a thread,
together no faster than replica.alter.log.dirs.io.max.bytes.per.second; a move that fails is tried again after
`BACKOFF_MS`; one that is given up has no thread at work any more when its copy is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from headrace.broker.clock import Clock
from headrace.broker.config.sections import Replication
from headrace.broker.errors import (
    ErrorCode,
    InvalidTopicError,
    KafkaError,
    NotLeaderOrFollowerError,
    StorageError,
)
from headrace.broker.log import names
from headrace.broker.log.store import LogStore
from headrace.broker.replication.partition import Partition
from headrace.broker.server.replicas.hosted import Partitions
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import Tasks, in_thread
from headrace.broker.wire.partitions import PartitionKey

logger = get_logger(__name__)
BACKOFF_MS = 1000
# Of what a client sent.
LOGGED_CHARACTERS_MAX = 250


class ReplicaMoves:
    """All moves of this broker."""

    def __init__(
        self, logs: LogStore, partitions: Partitions, clock: Clock, tasks: Tasks, *, threads: int
    ) -> None:
        self._logs = logs
        self._partitions = partitions
        self._clock = clock
        self._tasks = tasks
        self._slots = asyncio.Semaphore(threads)
        self._running: dict[PartitionKey, asyncio.Task[None]] = {}
        partitions.on_change(self._partition_changed)
        partitions.before_deletion(self.stop)

    def use_config(self, config: Replication) -> None:
        """Copy at that rate from the next piece on."""
        throttle = self._logs.moves.throttle
        throttle.bytes_per_second = config.replica_alter_log_dirs_io_max_bytes_per_second
        throttle.window_s = config.alter_log_dirs_replication_quota_window_size_seconds

    async def alter(self, wanted: Mapping[PartitionKey, str]) -> dict[PartitionKey, ErrorCode]:
        """Have each of these partitions in that directory: move it, or make it there when it comes."""
        refused: list[tuple[PartitionKey, KafkaError]] = []
        async with self._partitions.changing:
            codes = {key: await self._answer(key, path, refused) for key, path in wanted.items()}
        if refused:
            key, error = refused[0]
            logger.warning(
                "replicas are not moved",
                count=len(refused),
                first=names.partition_directory(*key)[:LOGGED_CHARACTERS_MAX],
                to=wanted[key][:LOGGED_CHARACTERS_MAX],
                reason=str(error)[:LOGGED_CHARACTERS_MAX],
            )
        return codes

    async def stop(self, keys: Iterable[PartitionKey]) -> None:
        """Return once nothing works on these any more."""
        tasks = [self._running.pop(key) for key in keys if key in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(
        self, key: PartitionKey, path: str, refused: list[tuple[PartitionKey, KafkaError]]
    ) -> ErrorCode:
        try:
            await self._alter(key, path)
        except NotLeaderOrFollowerError:
            # What a broker without the replica has always answered here.
            return ErrorCode.REPLICA_NOT_AVAILABLE
        except KafkaError as error:
            refused.append((key, error))
            return error.code
        return ErrorCode.NONE

    async def _alter(self, key: PartitionKey, path: str) -> None:
        """Raises LogDirNotFoundError, StorageError, InvalidTopicError, and what `Partitions.replica` raises."""
        if not names.fits_future_directory(*key):
            raise InvalidTopicError(
                "the topic's name is too long for the folder of a copy: its replicas cannot be moved"
            )
        moves = self._logs.moves
        self._logs.live_directory(path)
        if not self._partitions.is_offline(*key) and moves.target(key) not in (None, path):
            await self._cancel(key)
        is_here = self._logs.get(*key) is not None and self._logs.home_of(key).path == path
        if not is_here and moves.target(key) != path and not self._partitions.is_offline(*key):
            moves.prefer(key, path)
        self._partitions.replica(*key)
        if is_here or moves.target(key) == path:
            return
        if self._logs.offline:
            raise StorageError(
                f"no replica is moved while data directories are offline: {self._logs.offline}"
            )
        await self._begin(key, path)
        self._start(key)

    async def _begin(self, key: PartitionKey, path: str) -> None:
        opening = self._logs.moves.begin(key, path, self._clock.now_ms())
        await in_thread(opening.run)
        for job in self._logs.name_syncs([opening]):
            await in_thread(job)
        self._logs.moves.begun(opening)

    async def _cancel(self, key: PartitionKey) -> None:
        await self.stop([key])
        await in_thread(self._logs.moves.cancel(key, self._clock.now_ms()))

    def _partition_changed(self, partition: Partition) -> None:
        """A move that an earlier start of the broker left goes on once the replica is in use."""
        key = (partition.topic, partition.partition)
        is_held = self._partitions.get(*key) is partition
        if is_held and self._logs.moves.target(key) is not None and key not in self._running:
            self._start(key)

    def _start(self, key: PartitionKey) -> None:
        """A task that still settles the move before goes on with this one: two would rename the same folder."""
        if key in self._running and not self._running[key].done():
            return
        task = self._tasks.start(f"move-{key[0]}-{key[1]}", self._move(key))
        self._running[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: PartitionKey, task: asyncio.Task[None]) -> None:
        if self._running.get(key) is task:
            del self._running[key]

    async def _move(self, key: PartitionKey) -> None:
        async with self._slots:
            moves, last_reason = self._logs.moves, ""
            path = moves.target(key)
            while path is not None and self._logs.get(*key) is not None:
                try:
                    if not await self._run(key):
                        # The log was truncated when the copy was almost done with.
                        await in_thread(moves.cancel(key, self._clock.now_ms()))
                        await self._begin(key, path)
                    elif moves.target(key) is None and self._logs.get(*key) is not None:
                        logger.info("replica moved", topic=key[0], partition=key[1], to=path)
                except KafkaError as error:
                    if str(error) != last_reason:
                        logger.error(
                            "replica cannot be moved yet", topic=key[0], partition=key[1], reason=error
                        )
                    last_reason = str(error)
                    await asyncio.sleep(BACKOFF_MS / 1000)
                path = moves.target(key)

    async def _run(self, key: PartitionKey) -> bool:
        """All steps; whether the move is over, or has to begin anew."""
        steps = self._logs.moves.steps(key, self._clock.now_ms)
        try:
            while True:
                await self._until_within_rate()
                await in_thread(next(steps))
        except StopIteration as end:
            return bool(end.value)
        finally:
            steps.close()

    async def _until_within_rate(self) -> None:
        while True:
            wait_ms = self._logs.moves.throttle.wait_ms(self._clock.now_ms())
            if wait_ms == 0:
                return
            await asyncio.sleep(wait_ms / 1000)
