"""Finds where a partition goes on: what its source, the offset registry and the target say now, each asked for many at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.errors import KafkaError, error_of
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import (
    DEBUGGING_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
)
from headrace.broker.zk.znodes import ZnodeVersionError
from headrace.mirror.aggregate.cluster import Outcome, sentence
from headrace.mirror.aggregate.held import Held
from headrace.mirror.aggregate.position import MalformedPositionError, Position
from headrace.mirror.aggregate.registry import Registry
from headrace.mirror.aggregate.search import Search
from headrace.mirror.aggregate.stream import Phase
from headrace.mirror.aggregate.target import Target
from headrace.mirror.fetch.surveyor import survey
from headrace.mirror.memory.state import SkipOrder
from headrace.mirror.questions import UNKNOWN, Survey, Surveyed
from headrace.mirror.source import Source

logger = get_logger(__name__)
SkipOf = Callable[[PartitionKey], SkipOrder | None]
"""Which rot of a partition of the source a person gave up last."""
SEARCHED_ANSWERS = 8
"""Of a search in one round, which keeps the other partitions waiting."""
NO_LEADER = "the partition has no leader here"


class Locator:
    """Of a puller; whatever a partition cannot go on for is told here, once. Every method may raise FAILURES, KafkaErrors and
    ZooKeeperErrors.
    """

    def __init__(
        self,
        source: Source,
        target: Target,
        registry: Registry,
        to_source: Callable[[], Awaitable[AsyncLink]],
        skip_of: SkipOf,
    ) -> None:
        self._source = source
        self._target = target
        self._registry = registry
        self._to_source = to_source
        self._skip_of = skip_of

    async def locate(self, lost: Collection[Held]) -> None:
        for held in lost:
            if held.condition == Phase.STOPPED and held.is_written and not await self._passed_over(held):
                held.stream = None  # A person may have changed what the registry says.
        readable = [held for held in lost if held.stream is not None or await self._read(held)]
        asked = {held.key: self._question(held) for held in readable}
        if not asked:
            return
        answers = await survey(await self._to_source(), asked)
        self._source.heard(self._now_ms())
        surveyed: dict[PartitionKey, tuple[Held, Surveyed]] = {}
        for held in readable:
            found = answers[held.key]
            if isinstance(found, int):
                self.refused_by_source(held, found)
            elif held.stream is not None or await self._begin(held, asked[held.key], found):
                surveyed[held.key] = held, found
        # Before how far the producers are: what comes meanwhile lies behind it.
        committed = await self._target_offsets(surveyed, LATEST_TIMESTAMP)
        sequences = await self._sequences([held for held, _ in surveyed.values()])
        for key, (held, found) in surveyed.items():
            sequence = sequences.get(key, NO_LEADER)
            if isinstance(sequence, str):
                self.refused_by_target(held, sequence)
            elif isinstance(sequence, tuple):
                self.refused_by_target(held, sentence(sequence))
            elif held.is_ahead(sequence):
                if await self._searched(held):
                    self._located_by_search(held, asked[key], found)
            else:
                held.search = None
                self._located(held, asked[key], found, sequence, target_offset=committed.get(key, UNKNOWN))

    async def _passed_over(self, held: Held) -> bool:
        """Have the registry say that the rot is passed over, if a person gave it up, before anything behind it is sent."""
        stream, order = held.stream, self._skip_of(held.key)
        rotten = None if stream is None else stream.rotten
        if stream is None or order is None or rotten is None or not rotten.is_ended_by(order):
            return False
        position = stream.passed_over(order.last_offset)
        try:
            version = await self._registry.write(held.key, position, held.version)
        except ZnodeVersionError:
            return False
        held.begins(position, version)
        logger.warning(
            "rotten messages are passed over",
            source=self._source.config.name,
            topic=held.key[0],
            partition=held.key[1],
            first_offset=rotten.first,
            last_offset=order.last_offset,
        )
        return True

    def _located_by_search(self, held: Held, asked: Survey, found: Surveyed) -> None:
        search = held.search
        assert search is not None, "it is over"
        if not search.lost:
            held.search = None
        self._located(
            held,
            asked,
            found,
            search.next_sequence,
            target_offset=search.next_offset,
            lost=search.lost,
        )

    async def _searched(self, held: Held) -> bool:
        """Look on in the target for the last committed batch of the producer; whether all was looked at."""
        stream, key = held.stream, held.key
        assert stream is not None, "it was read or begun"
        (address,) = self._target.leaders([key]) or (None,)
        if address is None:
            self.refused_by_target(held, NO_LEADER)
            return False
        if held.search is None:
            starts = await self._target.offsets(address, [key], EARLIEST_TIMESTAMP)
            ends = await self._target.offsets(address, [key], LATEST_TIMESTAMP, DEBUGGING_REPLICA_ID)
            if key not in starts or key not in ends:
                self.refused_by_target(held, "the target does not say where its log begins and ends")
                return False
            position = stream.position
            held.search = Search(
                position.producer_id, position.target_offset, log_start=starts[key], log_end=ends[key]
            )
        for _ in range(SEARCHED_ANSWERS):
            if held.search.is_over:
                return True
            held.search.take(await self._target.headers(address, key, held.search.next_offset))
        return held.search.is_over

    def _located(
        self,
        held: Held,
        asked: Survey,
        found: Surveyed,
        sequence: int | None,
        *,
        target_offset: int,
        lost: str = "",
    ) -> None:
        stream = held.stream
        assert stream is not None, "it was read or begun"
        if asked.log_end_offset != stream.position.offset:
            asked = replace(asked, log_end_offset=stream.position.offset)  # It has just begun.
        stream.located(asked, found, sequence, target_offset=target_offset, lost=lost)
        held.problem, held.located_ms = "", self._source.clock.monotonic_ms()
        if stream.phase is Phase.STOPPED:
            self.stopped(held)
        elif not held.told:
            logger.info(
                "bringing into an aggregate",
                source=self._source.config.name,
                topic=held.key[0],
                partition=held.key[1],
                offset=stream.position.offset,
            )

    def stopped(self, held: Held) -> None:
        """It is looked at again from time to time, and told once."""
        held.pause.begin(self._now_ms())
        if held.told == held.reason:
            return
        held.told = held.reason
        logger.error(
            "aggregate stopped",
            source=self._source.config.name,
            topic=held.key[0],
            partition=held.key[1],
            reason=held.reason,
        )

    def _question(self, held: Held) -> Survey:
        if held.stream is not None:
            return held.stream.survey(held.topic_id, held.leader_epoch)
        start = self._source.config.start
        return Survey(
            topic_id=held.topic_id,
            leader_epoch=held.leader_epoch,
            log_end_offset=0,
            epoch=None,
            tail=None,
            start=start,
        )

    async def _read(self, held: Held) -> bool:
        """Have the registry's position, if it has one; False for one that is none."""
        try:
            found = await self._registry.read(held.key)
        except MalformedPositionError as error:
            held.failed(f"the offset registry is damaged: {error}", self._now_ms())
            return False
        if found is not None:
            held.begins(*found)
        return True

    async def _begin(self, held: Held, asked: Survey, found: Surveyed) -> bool:
        """Have the partition begin, where no owner has had it before; False where it cannot yet."""
        (address,) = self._target.leaders([held.key]) or (None,)
        if address is None:
            self.refused_by_target(held, NO_LEADER)
            return False
        try:
            producer_id = await self._target.new_producer_id(address)
        except KafkaError as error:
            held.failed(str(error), self._now_ms())
            return False
        committed = await self._target.offsets(address, [held.key], LATEST_TIMESTAMP)
        first = Position(
            producer_id=producer_id,
            topic_id=asked.topic_id,
            offset=max(found.begin, found.log_start_offset),
            target_offset=committed.get(held.key, UNKNOWN),
        )
        held.begins(*await self._registry.begin(held.key, first))
        return True

    async def _target_offsets(
        self, keys: Collection[PartitionKey], timestamp: int
    ) -> dict[PartitionKey, int]:
        found: dict[PartitionKey, int] = {}
        for address, led in self._target.leaders(keys).items():
            found |= await self._target.offsets(address, led, timestamp)
        return found

    async def _sequences(self, lost: Collection[Held]) -> dict[PartitionKey, int | Outcome | None]:
        producers = {held.key: held.stream.position.producer_id for held in lost if held.stream is not None}
        found: dict[PartitionKey, int | Outcome | None] = {}
        for address, keys in self._target.leaders(producers).items():
            found |= await self._target.next_sequences(address, {key: producers[key] for key in keys})
        return found

    def refused_by_source(self, held: Held, code: int) -> None:
        held.failed(f"the source says {error_of(code)!s}", self._now_ms())
        self._source.refresh_soon()

    def refused_by_target(self, held: Held, reason: str) -> None:
        held.failed(reason, self._now_ms())
        self._target.refresh_soon()

    def _now_ms(self) -> int:
        return self._source.clock.now_ms()
