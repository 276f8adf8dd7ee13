"""Compares the copies that this broker leads of one source with that source, slowly, all the time.

What comes when is the `CheckPlan`'s to say, whether it is the same the `Comparison`'s. The source is asked over a connection
of its own, the copy read from the log on a thread, so neither holds up what is copied. What is found is told by the copier.
A copy that changes hands begins its turn anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.errors import ErrorCode, OffsetOutOfRangeError, error_of, reason_of
from headrace.broker.server.embedding import EmbeddingHost
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.api import k02_list_offsets
from headrace.broker.wire.client.offsets import LIST_OFFSETS_VERSION, list_offsets, listed_offsets
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import EARLIEST_TIMESTAMP
from headrace.mirror.cluster_client import ClusterClient
from headrace.mirror.copy.copier import Copier
from headrace.mirror.equality import verification
from headrace.mirror.equality.comparison import Comparison, Offsets, Side
from headrace.mirror.fetch import encoding
from headrace.mirror.fetch.encoding import IDS_VERSION, NAMES_VERSION, SOURCE_FETCH
from headrace.mirror.memory.lead import Lead
from headrace.mirror.memory.own_topics import FINDINGS, WRITTEN_PARTITION
from headrace.mirror.memory.reports import shortened
from headrace.mirror.memory.state import NO_ID
from headrace.mirror.questions import Fetch, Located
from headrace.mirror.source import Source
from headrace.mirror.told import findings_of

logger = get_logger(__name__)
IDLE_SECONDS, RETRY_SECONDS = 1.0, 2.0
ATTEMPTS_COUNT = 3
"""A partition that cannot be read so often has no turn in this pass."""


@dataclass(slots=True, kw_only=True)
class _Turn:
    """One partition's: its copier and leadership as it began, and what was compared since."""

    key: PartitionKey
    copier: Copier
    lead: Lead
    first: int
    end: int
    passed: Sequence[Offsets]
    is_compacted: bool
    is_informed: bool = False
    failures: int = 0
    comparison: Comparison = field(init=False)

    def __post_init__(self) -> None:
        self.begin(self.first, self.passed)

    def begin(self, offset: int, passed: Sequence[Offsets]) -> None:
        """Compare from there on."""
        self.passed = passed
        self.comparison = Comparison(offset, self.end, passed=passed, is_compacted=self.is_compacted)


class Checker:
    """Of one source; `lead_of(partition of the source)` is the leadership of its copy."""

    def __init__(
        self, host: EmbeddingHost, source: Source, lead_of: Callable[[PartitionKey], Lead | None]
    ) -> None:
        self._host = host
        self._source = source
        self._lead_of = lead_of
        self._plan = source.checks
        self._turn: _Turn | None = None
        self._passed: dict[PartitionKey, Sequence[Offsets]] = {}
        self._link: AsyncLink | None = None
        self._address: Address | None = None

    async def run(self) -> None:
        """Compare for ever; nothing where no rate is set."""
        try:
            while self._plan.bytes_per_second:
                pause_seconds = await self.step()
                await asyncio.sleep(pause_seconds)
        finally:
            self._close()

    async def step(self) -> float:
        """Read on once, on both sides; how long to wait before the next."""
        if self._turn is None or not self._holds(self._turn):
            self._turn = self._next_turn()
        turn = self._turn
        if turn is None:
            return IDLE_SECONDS
        before = self._plan.bytes_compared
        self._plan.follow(self._source.bytes_copied, self._host.clock.monotonic_ms())
        try:
            if not await self._read_on(turn):
                await self._conclude(turn)
            self._plan.problem, turn.failures = "", 0
        except Exception as error:  # whatever fails here, copying goes on
            self._failed(turn, error)
            return RETRY_SECONDS
        return self._plan.pause_seconds(self._plan.bytes_compared - before)

    def _failed(self, turn: _Turn, error: Exception) -> None:
        self._close()
        reason = f"{turn.lead.place.decode()} cannot be compared: {reason_of(error)}"
        if self._plan.problem != shortened(reason):
            logger.warning("copy cannot be compared", source=self._source.config.name, reason=reason)
        self._plan.problem = shortened(reason)
        turn.failures += 1
        if turn.failures >= ATTEMPTS_COUNT:
            self._end(turn, is_compared=False)
        else:
            # What the connection's buffer held is gone.
            turn.begin(turn.comparison.position, turn.passed)

    # -- turns

    def _next_turn(self) -> _Turn | None:
        ready = {key for key, copier in self._source.copiers.items() if not copier.awaits_metadata}
        key = self._plan.next(ready, self._host.clock.now_ms())
        lead = None if key is None else self._lead_of(key)
        if key is None or lead is None:
            return None
        copier, partition = self._source.copiers[key], lead.partition
        policy = self._host.configurations.of_topic(partition.topic).get("cleanup.policy", "")
        located, source_end = copier.located_at, copier.progress.source_end_offset
        return _Turn(
            key=key,
            copier=copier,
            lead=lead,
            first=partition.log.log_start_offset,
            # A copy that was resumed after a truncation may reach further than its source.
            end=partition.high_watermark if source_end < 0 else min(partition.high_watermark, source_end),
            passed=self._passed.get(key, ()),
            is_compacted="compact" in policy or (located is not None and located.is_compacted),
        )

    def _holds(self, turn: _Turn) -> bool:
        """Whether the copy is still the one that the turn began with, and its source may be asked."""
        copier = self._source.copiers.get(turn.key)
        return copier is turn.copier and turn.lead.holds and not copier.awaits_metadata

    async def _conclude(self, turn: _Turn) -> None:
        """All is read, or a difference found: of what was passed over the findings tell."""
        found = turn.comparison.difference
        if found is not None and not turn.is_informed:
            passed = (await self._findings()).get((self._source.config.name, *turn.key), ())
            self._passed[turn.key] = passed
            turn.is_informed = True
            if passed != turn.passed:
                turn.begin(turn.first, passed)
                return
        told = None
        if found is not None:
            told = found.offset, f"the source has {found.source}, the copy {found.copy}"
        turn.copier.checked(turn.first, turn.comparison.position, told, self._host.clock.now_ms())
        self._end(turn, is_compared=True)

    def _end(self, turn: _Turn, *, is_compared: bool) -> None:
        self._plan.ended(turn.key, is_compared=is_compared)
        self._turn = None

    async def _findings(self) -> verification.PassedOver:
        own = self._host.leader_address(FINDINGS, WRITTEN_PARTITION)
        async with ClusterClient([own] if own else [], self._source.client_id, self._host.security) as client:
            found = await findings_of(
                client, lambda error: logger.warning("finding is not readable", reason=error)
            )
        return verification.passed_over(found)

    # -- reading

    async def _read_on(self, turn: _Turn) -> bool:
        """Feed the comparison; whether it wants more."""
        comparison = turn.comparison
        wanted = comparison.wants()
        for side, offset in wanted.items():
            try:
                read = self._read_copy if side is Side.COPY else self._read_source
                records = await read(turn, offset)
            except OffsetOutOfRangeError:
                comparison.deleted_below(await self._start_above(turn, side, offset))
                break
            if not records:
                raise error_of(
                    ErrorCode.OFFSET_NOT_AVAILABLE, f"the {side} serves nothing from offset {offset} on"
                )
            await asyncio.to_thread(comparison.served, side, records)
        self._plan.verified[turn.key] = comparison.position
        return bool(wanted)

    async def _read_copy(self, turn: _Turn, offset: int) -> memoryview:
        log = turn.lead.partition.log
        found = log.read(offset, size_max=self._plan.size, upper_offset=turn.end)

        def read() -> memoryview:
            with log.storage_errors():
                return memoryview(found.read())

        return await asyncio.to_thread(read)

    async def _read_source(self, turn: _Turn, offset: int) -> memoryview:
        located, link = await self._leader(turn)
        fetch = Fetch(topic_id=located.topic_id, leader_epoch=located.leader_epoch, offset=offset)
        by_ids = located.topic_id != NO_ID and link.version(SOURCE_FETCH, IDS_VERSION) >= IDS_VERSION
        request = encoding.request(
            [(encoding.wire_key(turn.key, fetch, by_ids=by_ids), encoding.question(fetch))],
            wait_ms=0,
            min_bytes=1,
            size_max=self._plan.size,
            partition_size_max=self._plan.size,
        )
        answer = await link.ask(SOURCE_FETCH, IDS_VERSION if by_ids else NAMES_VERSION, request)
        code = answer.error_code or next((found.error_code for _, found in answer.partitions), 0)
        if code:
            raise error_of(
                code, "" if code == ErrorCode.OFFSET_OUT_OF_RANGE else f"the source answers {error_of(code)}"
            )
        records = next((found.records for _, found in answer.partitions), None)
        size = 0 if records is None else len(records)
        self._plan.bytes_compared += size
        self._source.limit.took(size)
        return memoryview(b"") if records is None else records

    async def _start_above(self, turn: _Turn, side: Side, offset: int) -> int:
        """Where the side's log begins, which no longer has the offset."""
        if side is Side.COPY:
            return turn.lead.partition.log.log_start_offset
        located, link = await self._leader(turn)
        request = list_offsets({turn.key: located.leader_epoch}, EARLIEST_TIMESTAMP)
        answer = listed_offsets(await link.ask(k02_list_offsets.API, LIST_OFFSETS_VERSION, request))
        code, start = answer.get(turn.key, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0))
        if code or start <= offset:
            raise error_of(
                code or ErrorCode.OFFSET_NOT_AVAILABLE, f"the source does not serve offset {offset}"
            )
        return start

    async def _leader(self, turn: _Turn) -> tuple[Located, AsyncLink]:
        """Where the partition is, and a connection to its leader; raises client failures and KafkaErrors."""
        located = turn.copier.located_at
        address = None if located is None else self._source.addresses.get(located.leader)
        if located is None or address is None:
            raise error_of(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader at the source")
        if self._link is None or address != self._address:
            self._close()
            self._link = await self._source.link_to(address)
            self._address = address
        return located, self._link

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None
