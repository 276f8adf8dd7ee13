"""The transaction coordinator of this broker: the runtime of transactions on the partitions of `__transaction_state` that it
leads, the sender of their markers, and who asks other coordinators for this broker's partitions.

Requests go to the shard of their transactional id; what concerns all ids (their expiry) goes through them in slices, so that no
turn of the loop is long. Must not know what a transaction is: that is `txn.machine`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Sized
from typing import Protocol, TypeVar

from headrace.broker.clock import Clock
from headrace.broker.config.sections import Transactions
from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.coordinators.kind import Journal
from headrace.broker.coordinators.runtime import Runtime, Scheduler, TimerHandle, TopicTable
from headrace.broker.coordinators.topics import TRANSACTIONS_TOPIC
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.replication.partition import Partition
from headrace.broker.server.coordinators.groups import LedPartitions
from headrace.broker.server.coordinators.journal import PartitionJournal
from headrace.broker.server.coordinators.markers import Leaders, MarkerSender, TaskStarter, WriteLocal
from headrace.broker.server.coordinators.verifier import Verifier
from headrace.broker.server.peers.requests import Connect
from headrace.broker.structured_log import get_logger
from headrace.broker.txn.events import IdExpiryDue, MarkersWritten, Overview, Request, SendMarkers
from headrace.broker.txn.kind import TransactionKind
from headrace.broker.txn.machine import Shard
from headrace.broker.txn.refusals import STRANGERS, asker, error_of, refusal
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting
from headrace.broker.wire.partitions import TopicPartition

TRANSACTIONAL_ID_SIZE_MAX = 32_000
# Transactional ids that one turn of the loop looks at for their expiry.
IDS_SLICE_COUNT = 200

Answer = TypeVar("Answer")

logger = get_logger(__name__)


class KnownLeaders(TopicTable, Leaders, Protocol):
    """What the coordinator needs of the metadata cache."""

    def topics(self, name: str) -> Sized | None: ...


class TransactionCoordinator:
    """All transactional ids whose `__transaction_state` partition this broker leads."""

    def __init__(
        self,
        config: Transactions,
        *,
        clock: Clock,
        partitions: LedPartitions,
        metadata: KnownLeaders,
        waiting: Waiting,
        scheduler: Scheduler,
        refused_writes: RefusedWrites,
        next_producer_id: Callable[[], int | None],
        broker_id: int,
        listener: str,
        timeout_ms: int,
        connect: Connect,
        tasks: TaskStarter,
    ) -> None:
        self.config = config
        self._clock = clock
        self._waiting = waiting
        self._scheduler = scheduler
        self._refused_writes = refused_writes
        self._partitions = partitions
        self._sender = MarkerSender(
            broker_id,
            metadata,
            listener=listener,
            timeout_ms=timeout_ms,
            connect=connect,
            tasks=tasks,
            scheduler=scheduler,
            written=self._written,
        )
        self._runtime: Runtime[Shard] = Runtime(
            TransactionKind(config, next_producer_id, timeout_ms),
            clock=clock,
            metadata=metadata,
            scheduler=scheduler,
            perform=self._perform,
        )
        self.verifier = Verifier(
            broker_id,
            metadata,
            partition_for=self.partition_for,
            ask_local=self.ask,
            is_in=self.is_in,
            listener=listener,
            timeout_ms=timeout_ms,
            connect=connect,
            tasks=tasks,
        )
        self._expiry: TimerHandle | None = None

    def start(self, write_local: WriteLocal) -> None:
        """Coordinate what this broker leads, from now on; `write_local(ending)` writes markers to partitions that it leads."""
        self._sender.write_local = write_local
        self._partitions.on_change(self._partition_changed)
        for partition in self._partitions.led():
            self._partition_changed(partition)
        self._schedule_expiry()

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that keeps the id."""
        return self._runtime.partition_for(transactional_id)

    def ask(self, request: Request[Answer]) -> Deferred[Answer]:
        """Put a request to the id's shard; the answer comes once it is committed.

        An id that is not here is answered in the request's own form with NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or
        INVALID_REQUEST.
        """
        deferred: Deferred[Answer] = Deferred()
        transactional_id: str = request.transactional_id  # type: ignore[attr-defined]
        if not transactional_id or len(transactional_id.encode()) > TRANSACTIONAL_ID_SIZE_MAX:
            deferred.complete(refusal(request, ErrorCode.INVALID_REQUEST))
            return deferred

        def answered(answer: Answer) -> None:
            _note(request, answer)
            deferred.complete(answer)

        forget = self._runtime.ask(transactional_id, request, answered)
        if not deferred.done:
            deferred.on_cancel(forget)
        return deferred

    def is_in(self, transactional_id: str, producer: ProducerEpoch, partition: TopicPartition) -> bool:
        """Whether it is known here, and committed, that the transaction under way of that producer has the partition."""
        shard = self._runtime.settled(transactional_id)
        return shard is not None and shard.is_in(transactional_id, producer, partition)

    def overviews(self) -> tuple[ErrorCode, list[Overview]]:
        """Every transactional id here; COORDINATOR_LOAD_IN_PROGRESS while any shard is still loading."""
        if self._runtime.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        return ErrorCode.NONE, [o for shard in self._runtime.shards() for o in shard.overviews()]

    def counts(self) -> Counter[str]:
        """How many transactional ids are here in each state."""
        return Counter(
            known.state.shown for shard in self._runtime.shards() for known in shard.transactions.values()
        )

    def close(self) -> None:
        """Stop all timers and markers; waiting requests are answered NOT_COORDINATOR."""
        self._sender.close()
        self.verifier.close()
        self._runtime.close()
        if self._expiry is not None:
            self._expiry.cancel()

    def _partition_changed(self, partition: Partition) -> None:
        if partition.topic != TRANSACTIONS_TOPIC:
            return
        if partition.is_leader:
            journal = PartitionJournal(partition, self._waiting, self._refused_writes, self._clock)
            self._runtime.lead(journal)
        else:
            self._sender.forget(partition.partition)
            self._runtime.resign(partition.partition)

    def _perform(self, journal: Journal, order: SendMarkers) -> None:
        if order.is_late:
            logger.info(
                "transaction timed out",
                transactional_id=order.transactional_id,
                producer_id=order.producer.producer_id,
                partitions=len(order.partitions),
            )
        self._sender.send(journal.index, journal.leader_epoch, order)

    def _written(self, order: SendMarkers, partitions: frozenset[TopicPartition]) -> None:
        event = MarkersWritten(
            transactional_id=order.transactional_id, producer=order.producer, partitions=partitions
        )
        self._runtime.tell(order.transactional_id, event)

    # Work over all ids, in slices.

    def _schedule_expiry(self) -> None:
        delay_s = self.config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        self._expiry = self._scheduler.call_later(delay_s, self._check_expiry)

    def _check_expiry(self) -> None:
        ids = [known for shard in self._runtime.shards() for known in shard.transactions]
        self._expire(ids)
        self._schedule_expiry()

    def _expire(self, transactional_ids: Sequence[str]) -> None:
        for transactional_id in transactional_ids[:IDS_SLICE_COUNT]:
            self._runtime.tell(transactional_id, IdExpiryDue(transactional_id=transactional_id))
        if len(transactional_ids) > IDS_SLICE_COUNT and not self._runtime.is_closed:
            self._scheduler.call_soon(self._expire, transactional_ids[IDS_SLICE_COUNT:])


def _note(request: Request[Answer], answer: Answer) -> None:
    """A line of the log for who is not the producer (any more), or ends what was not begun."""
    error = error_of(answer)
    if error in STRANGERS:
        logger.info(
            "transactional request refused",
            request=type(request).__name__,
            error=error.name,
            transactional_id=request.transactional_id,  # type: ignore[attr-defined]
            producer=asker(request),
        )
