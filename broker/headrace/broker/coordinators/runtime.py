"""Runs the shards of one kind of coordinator: decide, append, apply, answer (DESIGN D4), one shard a partition.

Invariants: a shard lives here exactly while this broker leads its partition, from one leader epoch to the next; records
are appended before they are applied; a reply leaves once the high watermark has passed everything that was appended
before it, reads included, so that no client ever sees state which a new leader would not have. Timers wait in one heap;
nothing polls. Must not know what the kind is: that is in `Kind` and its shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, Protocol

from headrace.broker.clock import Clock
from headrace.broker.coordinators.decision import Decision, ProducerEpoch, Reply, Timer, TimerKey
from headrace.broker.coordinators.kind import Journal, Kind, Loader, ShardType
from headrace.broker.coordinators.records import Record, partition_for
from headrace.broker.coordinators.timers import TimerQueue
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.structured_log import get_logger
from headrace.broker.wire import batches

# Tombstones of one decision may go in several batches: each is right by itself. Everything else is one batch.
TOMBSTONES_BATCH_COUNT_MAX = 1_000
# What times out together, as the members of a large group do, may each look at all others.
TIMERS_SLICE_COUNT = 20
LOAD_RETRY_MS, LOAD_RETRY_MS_MAX = 1_000, 60_000

Answered = Callable[[Any], None]
Perform = Callable[[Journal, Any], None]
"""Does an order of a decision, for the shard of that journal."""

logger = get_logger(__name__)


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The two services of an event loop that the runtime needs."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any: ...

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> TimerHandle: ...


class TopicTable(Protocol):
    """What the runtime needs of the metadata cache."""

    def topics(self, name: str) -> Sized | None: ...


class Host(Generic[ShardType]):
    """One shard with its journal and the requests that wait for its answers; `loader` until it is loaded."""

    __slots__ = ("journal", "load_retry_ms", "loader", "requests", "shard")

    def __init__(self, journal: Journal, kind: Kind[ShardType]) -> None:
        self.journal = journal
        self.shard = kind.shard()
        self.loader: Loader | None = kind.loader(journal.log, self.shard)
        self.load_retry_ms = LOAD_RETRY_MS
        self.requests: dict[int, tuple[Any, Answered]] = {}

    @property
    def index(self) -> int:
        return self.journal.index


class Runtime(Generic[ShardType]):
    """All shards of a kind whose partitions this broker leads."""

    def __init__(
        self,
        kind: Kind[ShardType],
        *,
        clock: Clock,
        metadata: TopicTable,
        scheduler: Scheduler,
        perform: Perform | None = None,
    ) -> None:
        self._kind = kind
        self._perform = perform
        self._clock = clock
        self._metadata = metadata
        self._scheduler = scheduler
        self._hosts: dict[int, Host[ShardType]] = {}
        self._timers: TimerQueue[tuple[int, TimerKey], tuple[int, Any]] = TimerQueue()
        self._wake_up: TimerHandle | None = None
        self._wake_up_ms = 0
        self._token = 0
        self._closed = False

    def partition_for(self, key: str) -> int:
        """The partition of the topic that keeps this key."""
        topic = self._kind.topic
        known = self._metadata.topics(topic.name)
        return partition_for(key, len(known) if known else topic.partition_count)

    def ask(self, key: str, request: Any, answered: Answered) -> Callable[[], None]:
        """Put a request to the key's shard: `answered(answer)` once it is committed. Answers how to forget about it.

        Where there is no shard it is refused at once: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or
        COORDINATOR_NOT_AVAILABLE after `close`.
        """
        host = self._hosts.get(self.partition_for(key))
        error = self._refusal_error(host)
        if error is not ErrorCode.NONE or host is None:
            answered(self._kind.refusal(request, error))
            return _nothing
        self._token += 1
        token, requests = self._token, host.requests
        requests[token] = (request, answered)
        self._decide(host, request, token)

        def forget() -> None:
            """What the request has parked in the shard stays until that is done with it."""
            requests.pop(token, None)

        return forget

    def settled(self, key: str) -> ShardType | None:
        """The key's shard where what it knows may be told at once: it is here, loaded, and all of it is committed."""
        host = self._hosts.get(self.partition_for(key))
        if host is None or host.loader is not None or not host.journal.is_committed:
            return None
        return host.shard

    def tell(self, key: str, event: Any) -> None:
        """An event for the key's shard, if that is here and loaded."""
        self.tell_partition(self.partition_for(key), event)

    def tell_partition(self, index: int, event: Any) -> None:
        """An event for the shard of a partition, if that is here and loaded."""
        host = self._hosts.get(index)
        if host is not None and host.loader is None:
            self._decide(host, event)

    @property
    def is_loading(self) -> bool:
        """Whether a shard here is not loaded yet."""
        return any(host.loader is not None for host in self._hosts.values())

    def shards(self, *, loading: bool = False) -> Iterator[ShardType]:
        """The shards that are loaded; with `loading` those that are not as well."""
        return (host.shard for host in self._hosts.values() if loading or host.loader is None)

    def close(self) -> None:
        """Stop all timers; waiting requests are answered NOT_COORDINATOR."""
        self._closed = True
        for index in list(self._hosts):
            self.resign(index)
        if self._wake_up is not None:
            self._wake_up.cancel()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def _refusal_error(self, host: Host[ShardType] | None) -> ErrorCode:
        if self._closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if host is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if host.loader is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    # One turn of a shard: no `await` between decide and apply.

    def _decide(self, host: Host[ShardType], event: Any, token: int = 0) -> None:
        now_ms = self._clock.now_ms()
        decision = host.shard.decide(event, now_ms, token)
        if decision.records:
            try:
                self._append(host.journal, decision, now_ms)
            except KafkaError as error:
                logger.warning(
                    f"{self._kind.name} records refused",
                    partition=host.index,
                    error=error.code.name,
                    reason=str(error),
                )
                decision = host.shard.append_failed(event, decision, error.code, now_ms, token)
        host.shard.adopt(decision)
        for record in decision.records:
            host.shard.apply(record)
        for timer in decision.timers:
            self._set_timer(host, timer, now_ms)
        if decision.orders:
            self._perform_when_committed(host, decision.orders)
        if decision.replies:
            self._reply_when_committed(host, decision.replies)

    def _append(self, journal: Journal, decision: Decision[Any], now_ms: int) -> None:
        records, producer = decision.records, decision.producer
        if producer is not None or len(records) == 1:
            journal.append(_encoded(records, now_ms, self._kind.codec, producer), now_ms)
            return
        tombstones = all(record.value is None for record in records)
        size = TOMBSTONES_BATCH_COUNT_MAX if tombstones else len(records)
        for first in range(0, len(records), size):
            journal.append(_encoded(records[first : first + size], now_ms, self._kind.codec), now_ms)

    def _perform_when_committed(self, host: Host[ShardType], orders: Sequence[Any]) -> None:
        """However long that takes, as long as the shard is here."""
        if host.journal.is_committed:
            self._perform_now(host, orders)
            return

        def told(is_committed: bool) -> None:
            if is_committed:
                self._perform_now(host, orders)
            elif self._hosts.get(host.index) is host:
                self._scheduler.call_soon(self._perform_when_committed, host, orders)

        host.journal.when_committed(told, self._kind.reply_timeout_ms)

    def _perform_now(self, host: Host[ShardType], orders: Sequence[Any]) -> None:
        if self._perform is not None and self._hosts.get(host.index) is host:
            for order in orders:
                self._perform(host.journal, order)

    def _reply_when_committed(self, host: Host[ShardType], replies: list[Reply]) -> None:
        if host.journal.is_committed:
            self._reply(host, replies)
            return

        def told(is_committed: bool) -> None:
            if is_committed:
                self._reply(host, replies)
            else:
                self._time_out(host, replies)

        host.journal.when_committed(told, self._kind.reply_timeout_ms)

    def _reply(self, host: Host[ShardType], replies: Iterable[Reply]) -> None:
        for reply in replies:
            waiting = host.requests.pop(reply.to, None)
            if waiting is not None:
                waiting[1](reply.answer)

    def _time_out(self, host: Host[ShardType], replies: Iterable[Reply]) -> None:
        """What was appended may still be committed, so memory stays; the clients ask again."""
        for reply in replies:
            waiting = host.requests.pop(reply.to, None)
            if waiting is not None:
                waiting[1](self._kind.refusal(waiting[0], ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # Leadership.

    def lead(self, journal: Journal) -> None:
        """This broker leads a partition: load its shard, or go on with it in a new leader epoch of the same journal."""
        if self._closed:
            return
        host = self._hosts.get(journal.index)
        if host is not None and host.journal == journal:
            return
        self.resign(journal.index)
        self._hosts[journal.index] = Host(journal, self._kind)
        self._scheduler.call_soon(self._load_slice, self._hosts[journal.index])

    def resign(self, index: int) -> None:
        """Another broker leads the partition, or nobody: forget its shard; who waits hears NOT_COORDINATOR."""
        host = self._hosts.pop(index, None)
        if host is None:
            return
        host.shard.release()
        self._timers.cancel_where(lambda key: key[0] == index)
        # Who asked may still forget about its request.
        requests = list(host.requests.values())
        host.requests.clear()
        for request, answered in requests:
            answered(self._kind.refusal(request, ErrorCode.NOT_COORDINATOR))
        logger.info(f"{self._kind.name}s unloaded", partition=index, **self._count_of(host))

    def _load_slice(self, host: Host[ShardType]) -> None:
        """Replay a bounded piece of the log; other work of the loop goes on in between."""
        if self._hosts.get(host.index) is not host or host.loader is None:
            return
        try:
            finished = host.loader.load_slice()
        except KafkaError as error:
            self._load_later(host, error)
            return
        if not finished:
            self._scheduler.call_soon(self._load_slice, host)
            return
        logger.info(
            f"{self._kind.name}s loaded",
            partition=host.index,
            leader_epoch=host.journal.leader_epoch,
            **self._count_of(host),
            records=host.loader.record_count,
            skipped=host.loader.skipped_count,
        )
        host.loader = None
        self._decide(host, self._kind.loaded())

    def _load_later(self, host: Host[ShardType], error: KafkaError) -> None:
        """Go on where the disk failed after a pause that doubles each time; clients try again meanwhile."""
        retry_ms = host.load_retry_ms
        host.load_retry_ms = min(retry_ms * 2, LOAD_RETRY_MS_MAX)
        logger.error(
            f"{self._kind.name}s not loaded",
            partition=host.index,
            error=error.code.name,
            reason=str(error),
            retry_ms=retry_ms,
        )
        self._scheduler.call_later(retry_ms / 1000, self._load_slice, host)

    def _count_of(self, host: Host[ShardType]) -> dict[str, int]:
        return {f"{self._kind.name}s": len(host.shard)}

    # Timers.

    def _set_timer(self, host: Host[ShardType], timer: Timer[Any], now_ms: int) -> None:
        key = (host.index, timer.key)
        if timer.event is None:
            self._timers.cancel(key)
            return
        # The shard counts on the wall clock, which may jump; what it asks for is a delay.
        deadline_ms = self._clock.monotonic_ms() + timer.deadline_ms - now_ms
        self._timers.set(key, deadline_ms, (host.index, timer.event))
        self._arm()

    def _arm(self) -> None:
        deadline_ms = self._timers.next_deadline()
        if deadline_ms is None or (self._wake_up is not None and self._wake_up_ms <= deadline_ms):
            return
        if self._wake_up is not None:
            self._wake_up.cancel()
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        self._wake_up_ms = deadline_ms
        self._wake_up = self._scheduler.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._wake_up = None
        for index, event in self._timers.due(self._clock.monotonic_ms(), TIMERS_SLICE_COUNT):
            host = self._hosts.get(index)
            if host is not None:
                self._decide(host, event)
        self._arm()


def _encoded(
    records: Sequence[Record], now_ms: int, codec: int, producer: ProducerEpoch | None = None
) -> bytearray:
    stored = [batches.Record(0, now_ms, record.key, record.value, []) for record in records]
    if producer is None:
        return batches.encode_batch(stored, codec=codec)
    # Coordinators number nothing: Kafka's own begin at 0 each time.
    return batches.encode_batch(
        stored,
        codec=codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )


def _nothing() -> None:
    """There is nothing to forget about a request that was answered."""
