"""One connection to one leader, and the partitions that this broker follows over it.

Performs what `replication.follower` wants done: fetches for all of them with one request in one session, appends what comes
while the receive buffer holds it, cuts logs in threads, all that have to be cut together, and asks again at once. Invariants:
one request is under way; an answer is taken in before the next request; nothing of a partition that was dropped is touched
any more. After a failure of the connection all wait for `replica.fetch.backoff.ms`. Decides nothing about a partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.broker.client.asynchronous import FAILURES
from headrace.broker.errors import (
    CorruptMessageError,
    ErrorCode,
    KafkaError,
    StorageError,
    error_of,
    reason_of,
)
from headrace.broker.replication.follower import (
    Append,
    Cut,
    Follower,
    Phase,
    StartAt,
    pause_ms,
)
from headrace.broker.replication.partition import Partition
from headrace.broker.server.peers.requests import Link
from headrace.broker.server.replicas.followed import FetchContext, Followed
from headrace.broker.server.replicas.logs import in_threads
from headrace.broker.server.replicas.troubles import Troubles
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.api import k02_list_offsets
from headrace.broker.wire.client.exchange import ProtocolError
from headrace.broker.wire.client.fetch_session import FULL_EPOCH, FetchSession
from headrace.broker.wire.client.offsets import list_offsets, listed_offsets
from headrace.broker.wire.client.replica_fetch import (
    REPLICA_FETCH,
    TOPIC_ID_VERSION,
    FetchedPartition,
    ReplicaFetchAnswer,
    ReplicaFetchRequest,
    WireKey,
)
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from headrace.broker.log.truncation import Truncation

logger = get_logger(__name__)
NAMES_VERSION = TOPIC_ID_VERSION - 1
SESSION_ERRORS = frozenset((ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH))
"""After these everything is asked for anew, at once."""
PASSING_ERRORS = frozenset(
    (
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)
"""What a leader answers while the controller's word is on its way to it: people are told when it takes long."""
PASSING_FAILURES = 6
TAKEN_AT_ONCE = 50
"""Partitions of an answer before others have their turn: about a millisecond without data."""
NEW_AT_ONCE = 100
"""Partitions that a request has the leader read beside those that it is asked for already: a millisecond or two of its loop."""
THROTTLE_LOOK_MS = 100
"""How often it is looked whether a throttle lets go on, while there is nothing else to do."""


class ReplicaFetcher:
    """See the module's text; `followed` are its partitions."""

    def __init__(self, context: FetchContext, source: int, slot: int) -> None:
        self.followed: dict[PartitionKey, Followed] = {}
        self._context = context
        self._source = source
        self._client_id = f"broker-{context.broker_id}-fetcher-{slot}"
        self._session = FetchSession()
        # Requests name topics by name only in old versions, and while one of them has no id, as in very old clusters.
        self._nameless: set[PartitionKey] = set()
        self._by_name = context.versions.fetch < TOPIC_ID_VERSION
        self._by_wire_key: dict[WireKey, Followed] = {}
        # Whose question may be another than before, and who waits, has to cut its log or is out of range.
        self._moved: dict[PartitionKey, Followed] = {}
        self._held: dict[PartitionKey, Followed] = {}
        # Who has to wait for its turn under a throttle.
        self._throttled: dict[PartitionKey, Followed] = {}
        self._troubles = Troubles(source)
        # Whose log has to be on the disk before its leader is told that it has grown.
        self._unsynced: list[Followed] = []
        self._news = asyncio.Event()
        self._problem = ""
        self._failures = 0

    # -- which partitions

    def follow(self, followed: Followed) -> None:
        """Bring this partition from now on, in the place of one that was followed in an earlier epoch."""
        key = followed.key
        if key in self.followed:
            self.drop(key)
        self.followed[key] = self._moved[key] = followed
        if followed.partition.topic_id == ZERO_UUID:
            self._nameless.add(key)
        followed.name(by_name=self._by_name)
        self._by_wire_key[followed.wire_key] = followed
        self._news.set()

    def drop(self, key: PartitionKey) -> None:
        """Leave this partition alone from now on."""
        followed = self.followed.pop(key)
        if self._by_wire_key.get(followed.wire_key) is followed:
            del self._by_wire_key[followed.wire_key]
            self._session.forget(followed.wire_key)
        self._nameless.discard(key)
        self._moved.pop(key, None)
        self._held.pop(key, None)
        self._throttled.pop(key, None)
        self._news.set()

    def _is_current(self, followed: Followed) -> bool:
        return self.followed.get(followed.key) is followed

    def _name_topics(self) -> None:
        """Choose between ids and names; a session knows one of them."""
        by_name = bool(self._nameless) or self._context.versions.fetch < TOPIC_ID_VERSION
        if by_name != self._by_name:
            self._by_name = by_name
            self._session.forget_all()
            for followed in self.followed.values():
                followed.name(by_name=by_name)
            self._by_wire_key = {followed.wire_key: followed for followed in self.followed.values()}
            self._moved = dict(self.followed)

    # -- the task

    async def run(self) -> None:
        """Fetch for ever; ends by cancellation."""
        while True:
            try:
                link = await self._open()
                try:
                    while True:
                        await self._round(link)
                finally:
                    link.close()
            except (*FAILURES, KafkaError) as error:
                self._failed(error)
            except Exception as error:
                self._session.failed()
                logger.failure("fetching from a leader failed", error, leader=self._source)
            pause = pause_ms(self._failures, self._context.config.replica_fetch_backoff_ms)
            self._failures += 1
            await asyncio.sleep(pause / 1000)

    async def _open(self) -> Link:
        await self._until_something_is_followed()
        context = self._context
        endpoint = context.endpoint(self._source)
        if endpoint is None:
            raise ProtocolError(f"broker {self._source} is not alive, as far as this broker was told")
        address = endpoint.host, endpoint.port
        return await context.connect(address, self._client_id, context.config.replica_socket_timeout_ms)

    async def _until_something_is_followed(self) -> None:
        while not self.followed:
            self._news.clear()
            await self._news.wait()

    def _failed(self, error: Exception) -> None:
        self._session.failed()
        reason = reason_of(error)
        if reason != self._problem:
            logger.warning(
                "leader cannot be fetched from",
                leader=self._source,
                partitions=len(self.followed),
                reason=reason,
            )
        self._problem = reason

    async def _round(self, link: Link) -> None:
        """One request with all there is to ask, after what has to be done before."""
        await self._settle(link)
        if self._unsynced:
            await self._sync()
        self._name_topics()
        now_ms = self._context.clock.monotonic_ms()
        if self._throttled or self._context.throttle.is_active:
            self._mind_throttle()
        for followed in self._take_moved():
            self._ask(followed, now_ms)
        if not self._session.asked and (not self._session.session_id or self._session.is_empty):
            if not self._moved:
                await self._until_news(now_ms)
            return
        request = self._request()
        answer = await link.ask(REPLICA_FETCH, self._version, request)
        await self._take(request, answer)
        self._failures = 0
        if self._problem:
            logger.info("leader is fetched from again", leader=self._source)
            self._problem = ""

    def _take_moved(self) -> list[Followed]:
        """Those that moved, but of those that the leader is not asked for yet only some: the others go with the next requests."""
        moved = list(self._moved.values())
        if len(moved) > NEW_AT_ONCE:
            asked = self._session.asked
            new = [followed for followed in moved if followed.wire_key not in asked]
            later = {followed.key for followed in new[NEW_AT_ONCE:]}
            moved = [followed for followed in moved if followed.key not in later]
        for followed in moved:
            del self._moved[followed.key]
        return moved

    @property
    def _version(self) -> int:
        return NAMES_VERSION if self._by_name else self._context.versions.fetch

    def _ask(self, followed: Followed, now_ms: int) -> None:
        wire_key = followed.wire_key
        question = followed.follower.question(now_ms)
        if question is not None:
            self._session.ask(wire_key, question)
            return
        self._session.forget(wire_key)
        if followed.follower.phase is not Phase.FAILED:
            self._held[followed.key] = followed

    def _mind_throttle(self) -> None:
        """While the rate is exceeded, those that it covers and that are out of sync are not asked for (KIP-73)."""
        throttle = self._context.throttle
        if not throttle.is_exceeded:
            self._moved |= self._throttled
            self._throttled = {}
            return
        for key, followed in self.followed.items():
            if key not in self._throttled and throttle.covers(*key) and not followed.follower.is_in_sync:
                self._throttled[key] = followed
                self._session.forget(followed.wire_key)
        for key in self._throttled:
            self._moved.pop(key, None)

    def _request(self) -> ReplicaFetchRequest:
        context, config = self._context, self._context.config
        due = self._session.due()
        by_wire_key = self._by_wire_key
        for wire_key, question in due.asked:
            by_wire_key[wire_key].follower.asked = question
        return ReplicaFetchRequest(
            context.broker_id,
            context.partitions.broker_epoch,
            # There is more to ask for.
            0 if self._moved else config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_max_bytes,
            due.session_id,
            due.epoch,
            due.asked,
            due.forgotten,
        )

    async def _until_news(self, now_ms: int) -> None:
        """There is nothing to ask: wait for another partition, or until one that waits goes on."""
        ends_ms = [
            until_ms
            for followed in self._held.values()
            if (until_ms := followed.follower.waits_until_ms()) is not None
        ]
        if self._throttled:
            ends_ms.append(now_ms + THROTTLE_LOOK_MS)
        timeout = max(0, min(ends_ms) - now_ms) / 1000 if ends_ms else None
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()

    # -- answers

    async def _take(self, request: ReplicaFetchRequest, answer: ReplicaFetchAnswer) -> None:
        """Raises the error of the whole answer, other than that of a session that has ended.

        The receive buffer holds the answer until the next request; partitions may be dropped and followed anew in between.
        """
        if not self._session.answered(answer.error_code, answer.session_id):
            if request.session_epoch == FULL_EPOCH or answer.error_code not in SESSION_ERRORS:
                raise error_of(answer.error_code)
            return
        by_wire_key, now_ms = self._by_wire_key, self._context.clock.monotonic_ms()
        for count, (wire_key, found) in enumerate(answer.partitions):
            if count and count % TAKEN_AT_ONCE == 0:
                await asyncio.sleep(0)
            followed = by_wire_key.get(wire_key)
            # One that was dropped meanwhile, or that nobody asked for.
            if followed is not None:
                try:
                    self._take_one(followed, found, now_ms)
                except Exception as error:
                    # The others go on.
                    followed.follower.failed(repr(error))
                    logger.failure("partition cannot be followed", error, partition=followed.key)
        self._troubles.tell_awaiting()

    def _take_one(self, followed: Followed, found: FetchedPartition, now_ms: int) -> None:
        follower = followed.follower
        before = follower.problem
        command = follower.answered(found, now_ms)
        self._moved[followed.key] = followed
        if isinstance(command, Append):
            self._append(followed, command, now_ms)
        elif found.error_code not in PASSING_ERRORS:
            self._troubles.tell(follower, before)
        elif follower.failures == PASSING_FAILURES:
            self._troubles.tell(follower, "")

    def _append(self, followed: Followed, command: Append, now_ms: int) -> None:
        follower, partition = followed.follower, followed.partition
        before = follower.problem
        try:
            if command.records is not None:
                self._append_records(follower, partition, command.records)
                self._note_written(partition.log.directory, now_ms)
            partition.leader_said(command.high_watermark, command.log_start_offset)
        except KafkaError as error:
            if isinstance(error, StorageError):
                self._context.refused_writes.refused(partition.log.directory, error, now_ms)
            follower.not_done(error, now_ms)
            self._troubles.tell(follower, before)
        else:
            follower.appended(command.high_watermark)
            if partition.log.awaits_sync and partition.log.is_sync_due:
                self._unsynced.append(followed)

    def _note_written(self, directory: str, now_ms: int) -> None:
        refused_writes = self._context.refused_writes
        if refused_writes.outages:
            refused_writes.worked(directory, now_ms)

    def _append_records(self, follower: Follower, partition: Partition, records: memoryview) -> None:
        now_ms = self._context.clock.now_ms()
        result = partition.append_as_follower(records, leader_epoch=follower.leader_epoch, now_ms=now_ms)
        if not result.batch_count:
            # A leader sends the first batch of an answer whole, however large it is (KIP-74).
            raise CorruptMessageError(
                f"the leader's batch at offset {partition.log.log_end_offset} claims to be longer than what was sent of it"
            )
        self._context.replicated(len(records))
        if self._context.throttle.covers(partition.topic, partition.partition):
            self._context.throttle.record(len(records))

    async def _sync(self) -> None:
        """To its leader, too, a log ends where it is on the disk, as far as `flush.messages` asks."""
        unsynced, self._unsynced = self._unsynced, []
        await asyncio.gather(*(self._context.sync(followed.partition.log) for followed in unsynced))
        for followed in filter(self._is_current, unsynced):
            if followed.partition.log.has_failed:
                followed.follower.failed("its log could not be brought to the disk")
                self._troubles.tell(followed.follower, "")

    # -- what keeps partitions from being fetched

    async def _settle(self, link: Link) -> None:
        """Cut logs, learn where the leader's begin and end, and let those go on that have waited long enough.

        What a cut log begins with lies in the receive buffer still: cut before anything is asked.
        """
        for followed in self._moved.values():
            if followed.follower.phase is not Phase.FETCHING:
                self._held[followed.key] = followed
        if not self._held:
            return
        await self._cut_wanted()
        now_ms = self._context.clock.monotonic_ms()
        asking = [followed for followed in self._held.values() if followed.follower.wants_offsets(now_ms)]
        if asking:
            await self._ask_offsets(link, asking)
            await self._cut_wanted()
        for key, followed in list(self._held.items()):
            if followed.follower.phase is Phase.FAILED or followed.follower.question(now_ms) is not None:
                del self._held[key]
                self._moved[key] = followed

    async def _ask_offsets(self, link: Link, asking: Sequence[Followed]) -> None:
        """The end first: a log that is shortened in between does not seem to begin behind its end."""
        ends = await self._listed(link, asking, LATEST_TIMESTAMP)
        starts = await self._listed(link, asking, EARLIEST_TIMESTAMP)
        now_ms = self._context.clock.monotonic_ms()
        missing = (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        for followed in filter(self._is_current, asking):
            (end_error, end), (start_error, start) = (
                found.get(followed.key, missing) for found in (ends, starts)
            )
            follower, before = followed.follower, followed.follower.problem
            if end_error or start_error:
                follower.offsets_refused(end_error or start_error, now_ms)
            else:
                follower.offsets_told(start, end, now_ms)
            self._troubles.tell(follower, before)

    async def _listed(
        self, link: Link, asking: Iterable[Followed], timestamp: int
    ) -> Mapping[PartitionKey, tuple[int, int]]:
        epochs = {followed.key: followed.follower.leader_epoch for followed in asking}
        request = list_offsets(epochs, timestamp, replica_id=self._context.broker_id)
        version = self._context.versions.list_offsets
        answer: dict[str, Any] = await link.ask(k02_list_offsets.API, version, request)
        return listed_offsets(answer)

    async def _cut_wanted(self) -> None:
        now_ms = self._context.clock.monotonic_ms()
        cuts = [
            (followed, cut)
            for followed in self._held.values()
            if (cut := followed.follower.wanted_cut(now_ms)) is not None
        ]
        if cuts:
            await self._cut(cuts)

    async def _cut(self, cuts: Sequence[tuple[Followed, Cut]]) -> None:
        """Cut these logs, while nobody begins to lead them, moves or deletes them."""
        replicas = self._context.partitions
        async with replicas.changing:
            begun: list[tuple[Followed, Cut, Truncation | None]] = []
            for followed, cut in cuts:
                if self._is_current(followed):
                    self._log_cut(followed, cut)
                    truncation = replicas.logs.truncation(
                        followed.partition.log, cut.offset, empties=isinstance(cut, StartAt)
                    )
                    begun.append((followed, cut, truncation))
            truncations = [truncation for _, _, truncation in begun if truncation is not None]
            try:
                await in_threads(replicas.logs.lowering_jobs(truncations))
                await in_threads([truncation.run for truncation in truncations])
            finally:
                for followed, cut, truncation in begun:
                    self._cut_ended(followed, cut, truncation)

    def _log_cut(self, followed: Followed, cut: Cut) -> None:
        log = followed.partition.log
        if not isinstance(cut, StartAt) and cut.offset >= log.log_end_offset:
            return
        tell = logger.warning if cut.offset < log.high_watermark else logger.info
        tell(
            "log is emptied" if isinstance(cut, StartAt) else "log is truncated",
            topic=log.topic,
            partition=log.partition,
            offset=cut.offset,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            leader=self._source,
            leader_epoch=followed.follower.leader_epoch,
            reason=cut.reason,
        )

    def _cut_ended(self, followed: Followed, cut: Cut, truncation: Truncation | None) -> None:
        follower, before = followed.follower, followed.follower.problem
        try:
            if truncation is not None:
                truncation.end()
        except StorageError as error:
            follower.not_done(error, self._context.clock.monotonic_ms())
            self._troubles.tell(follower, before)
        else:
            follower.truncated()
            if isinstance(cut, StartAt) and cut.then is not None and self._is_current(followed):
                self._append(followed, cut.then, self._context.clock.monotonic_ms())
