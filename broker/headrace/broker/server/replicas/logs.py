"""The logs behind the replicas of a broker: made ready and put away, many at a time, in threads.

Invariant: what was made ready for a request and not taken is abandoned with it. Must not know who leads or follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from headrace.broker.clock import Clock
from headrace.broker.errors import KafkaError, StorageError
from headrace.broker.replication.control_requests import ToldReplica
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import in_thread
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH

if TYPE_CHECKING:
    from headrace.broker.log.opening import Opening
    from headrace.broker.log.partition_log import PartitionLog
    from headrace.broker.log.store import LogStore

logger = get_logger(__name__)
BeforeDeletion = Callable[[Iterable[PartitionKey]], Awaitable[None]]
THREADS_MAX = 8


class ReplicaLogs:
    """See the module's text; one request at a time."""

    def __init__(self, broker_id: int, logs: LogStore, clock: Clock) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._clock = clock
        self.before_deletion: BeforeDeletion | None = None
        # What threads make ready for a request that is being performed.
        self._openings: dict[PartitionKey, Opening] = {}
        # Why there is nothing to make ready for some of it.
        self._unopened: dict[PartitionKey, KafkaError] = {}

    def is_expected(self, key: PartitionKey) -> bool:
        """Whether the log is being made ready."""
        return key in self._openings

    async def make_ready(self, replicas: Sequence[ToldReplica]) -> list[PartitionKey]:
        """Have the logs of these ready for `take`; answers those that are out of reach."""
        await self._put_away_namesakes(replicas)
        out_of_reach = [(told.topic, told.partition) for told in replicas if not self._begin(told)]
        openings = list(self._openings.values())
        await in_threads([opening.run for opening in openings])
        await in_threads(self._logs.name_syncs(openings))
        return out_of_reach

    def take(self, key: PartitionKey) -> PartitionLog:
        """The log that was made ready. Raises why there is none."""
        if key in self._unopened:
            raise self._unopened[key]
        return self._logs.opened(self._openings.pop(key))

    def end(self) -> None:
        """The request is over: what it did not take is abandoned."""
        self._logs.abandon(self._openings.values())
        self._openings = {}
        self._unopened = {}

    async def delete(self, keys: Sequence[PartitionKey]) -> dict[PartitionKey, StorageError]:
        """Put these logs away, once nobody works on them; those where that failed."""
        if not keys:
            return {}
        if self.before_deletion is not None:
            await self.before_deletion(keys)
        failures: dict[PartitionKey, StorageError] = {}
        delete = self._logs.deletion(keys, now_ms=self._clock.now_ms())
        await in_thread(lambda: failures.update(delete()))
        for (topic, partition), failure in failures.items():
            logger.error("cannot delete a log", topic=topic, partition=partition, reason=failure)
        return failures

    def _begin(self, told: ToldReplica) -> bool:
        """False for a log that may lie in a data directory that failed."""
        topic, number, state = told.topic, told.partition, told.state
        try:
            self._openings[topic, number] = self._logs.opening(
                topic,
                number,
                None if told.topic_id == ZERO_UUID else told.topic_id,
                now_ms=self._clock.now_ms(),
                epoch=state.leader_epoch if state.leader == self._broker_id else NO_EPOCH,
                is_new=told.is_new,
            )
        except StorageError as error:
            logger.error("cannot take a partition", topic=topic, partition=number, reason=error)
            return False
        except KafkaError as error:
            self._unopened[topic, number] = error
        return True

    async def _put_away_namesakes(self, replicas: Iterable[ToldReplica]) -> None:
        """Delete what deleted topics of the same names left, while this broker was away."""
        old = []
        for topic, topic_id, number, *_ in replicas:
            own_log = self._logs.get(topic, number)
            known = (None, ZERO_UUID, topic_id)
            if own_log is not None and topic_id != ZERO_UUID and own_log.topic_id not in known:
                logger.warning(
                    "log of a deleted topic of the same name is put away",
                    topic=topic,
                    partition=number,
                )
                old.append((topic, number))
        await self.delete(old)


async def in_threads(jobs: Sequence[Callable[[], None]]) -> None:
    """Do all jobs, `THREADS_MAX` at a time, while the event loop goes on; raises what one of them raises.

    No job is at work any more when this ends, also when it is cancelled, as when a controller resigns: the next request
    may want the same logs.
    """
    errors: list[Exception] = []
    # Threads share it: a list's iterator gives each job to one of them.
    left = iter(jobs)

    def work() -> None:
        for job in left:
            try:
                job()
            except Exception as error:
                errors.append(error)

    count = min(len(jobs), THREADS_MAX)
    if not count:
        return
    pool = ThreadPoolExecutor(count, "logs")
    try:
        await asyncio.gather(*(in_thread(work, pool) for _ in range(count)), return_exceptions=True)
    finally:
        pool.shutdown(wait=False)
    if errors:
        raise errors[0]
