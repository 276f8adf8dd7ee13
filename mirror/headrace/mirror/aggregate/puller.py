"""Brings what this member owns of the partitions that one broker of the source leads: rounds of locate, fetch, produce, write.

A round asks for all of its partitions at once, brings what came batch after batch, each partition's in order, and ends when
all of it is acknowledged or refused. Nothing is sent to the target while it is not sure that the session lives.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headrace.broker.client.asynchronous import FAILURES, AsyncLink
from headrace.broker.errors import KafkaError, error_of, reason_of
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.api import k01_fetch
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import (
    CONSUMER_REPLICA_ID,
    READ_COMMITTED,
)
from headrace.broker.zk.znodes import ZnodeVersionError, ZooKeeperError
from headrace.mirror.aggregate.cluster import sentence
from headrace.mirror.aggregate.held import Held
from headrace.mirror.aggregate.locating import NO_LEADER, Locator, SkipOf
from headrace.mirror.aggregate.registry import Registry
from headrace.mirror.aggregate.session import Session
from headrace.mirror.aggregate.stream import Phase
from headrace.mirror.aggregate.target import Target
from headrace.mirror.fetch.encoding import IDS_VERSION, NAMES_VERSION
from headrace.mirror.memory.state import NO_ID
from headrace.mirror.source import Source

logger = get_logger(__name__)
WRITE_MS = 1_000
"""Positions are written so often while they move."""
LOCATED_MS = 3_600_000
"""What is idle is located anew so often, so that retention has not taken what would be searched."""
IDLE_SECONDS = 0.2


class Puller:
    """Of one broker of the source; `held` is all that the member owns, of which it takes what `node` leads."""

    def __init__(
        self,
        source: Source,
        node: int,
        held: Mapping[PartitionKey, Held],
        registry: Registry,
        session: Session,
        make_target: Callable[[], Target],
        skip_of: SkipOf,
    ) -> None:
        self._source = source
        self._node = node
        self._held = held
        self._registry = registry
        self._session = session
        self._target = make_target()
        self._link: AsyncLink | None = None
        self._asked: Collection[Held] = ()
        self._patience: asyncio.Timeout | None = None
        """Ends the wait for a fetch of what was asked, which is None while none is under way."""
        self._locator = Locator(source, self._target, registry, self._to_source, skip_of)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                if not await self._round(self._mine()):
                    await asyncio.sleep(IDLE_SECONDS)
        finally:
            self._close()

    def leaders_changed(self) -> None:
        """The source's leaders were told: a broker that leads nothing of what it was asked for may be gone without a word."""
        if self._patience is not None and all(held.leader != self._node for held in self._asked):
            self._patience.reschedule(0)

    def _mine(self) -> list[Held]:
        """What the node leads, but for what is in a round yet of the one that led it before."""
        return [held for held in self._held.values() if held.leader == self._node and held.is_idle.is_set()]

    def _close(self) -> None:
        self._target.close()
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _round(self, mine: Collection[Held]) -> bool:
        """Whether there was anything to ask the source for."""
        taken = [held for held in mine if not (held.is_leaving or held.is_paused)]
        for held in taken:
            held.is_idle.clear()
        try:
            return await self._bring(taken)
        except (*FAILURES, KafkaError, ZooKeeperError) as error:
            logger.warning(
                "broker failed an aggregate",
                source=self._source.config.name,
                node=self._node,
                reason=repr(error),
            )
            self._failed(taken, reason_of(error))
            return False
        except Exception as error:
            logger.failure("aggregate failed", error, source=self._source.config.name, node=self._node)
            self._failed(taken, f"an error that nobody expected, see the log: {error!r}")
            for held in taken:
                held.stream = None  # It begins again with what the registry says.
            return False
        finally:
            for held in taken:
                held.is_idle.set()

    def _failed(self, taken: Collection[Held], reason: str) -> None:
        for held in taken:
            held.progress.source_end_offset = -1
            held.failed(reason, self._now_ms())
        self._close()
        self._target.refresh_soon()
        self._source.refresh_soon()

    async def _bring(self, taken: Collection[Held]) -> bool:
        now_ms = self._now_ms()
        due = [held for held in taken if not held.pause.lasts(now_ms)]
        monotonic_ms = self._source.clock.monotonic_ms()
        for held in due:
            if held.stream is not None and monotonic_ms - held.located_ms > LOCATED_MS:
                held.stream.look_again()
        lost = [held for held in due if held.stream is None or held.stream.phase is not Phase.COPYING]
        if lost:
            await self._locator.locate(lost)
        asked = {
            held.key: held for held in due if held.stream is not None and held.stream.wants() is not None
        }
        pause_ms = self._source.limit.pause_ms(monotonic_ms)
        if asked and not pause_ms:
            await self._fetch(asked)
        while await self._send([held for held in taken if held.stream is not None and held.stream.outbox]):
            await self._write(taken)
        await self._write(taken)
        return bool(asked) and not pause_ms

    # -- what comes next

    async def _fetch(self, asked: Mapping[PartitionKey, Held]) -> None:
        link = await self._to_source()
        by_ids = link.version(k01_fetch.API, IDS_VERSION) >= IDS_VERSION and all(
            held.topic_id != NO_ID for held in asked.values()
        )
        offsets = {key: held.stream.wants() for key, held in asked.items() if held.stream is not None}
        request = self._request(asked, offsets)
        version = IDS_VERSION if by_ids else NAMES_VERSION
        self._asked = asked.values()
        try:
            async with asyncio.timeout(None) as self._patience:
                answer = await link.ask(k01_fetch.API, version, request)
        finally:
            self._patience = None
        now_ms = self._now_ms()
        self._source.heard(now_ms)
        if answer.get("error_code"):
            raise error_of(answer["error_code"])
        names = {held.topic_id: key[0] for key, held in asked.items()}
        for topic in answer["responses"]:
            name = names.get(topic["topic_id"], "") if by_ids else topic["topic"]
            for found in topic["partitions"]:
                held = asked.get((name, found["partition_index"]))
                if held is not None:
                    self._take(held, offsets[held.key], found, now_ms)

    def _request(
        self, asked: Mapping[PartitionKey, Held], offsets: Mapping[PartitionKey, int | None]
    ) -> Message:
        tunables, limit = self._source.tunables, self._source.limit
        topics: dict[str, list[PartitionKey]] = {}
        for key in asked:
            topics.setdefault(key[0], []).append(key)
        return {
            "replica_id": CONSUMER_REPLICA_ID,
            "max_wait_ms": tunables.fetch_wait_max_ms,
            "min_bytes": tunables.fetch_min_bytes,
            "max_bytes": limit.share(tunables.fetch_response_max_bytes),
            "isolation_level": READ_COMMITTED,
            "topics": [
                {
                    "topic": topic,
                    "topic_id": asked[keys[0]].topic_id,
                    "partitions": [
                        {
                            "partition": key[1],
                            "current_leader_epoch": asked[key].leader_epoch,
                            "fetch_offset": offsets[key],
                            "partition_max_bytes": limit.share(tunables.fetch_max_bytes),
                        }
                        for key in keys
                    ],
                }
                for topic, keys in topics.items()
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        }

    def _take(self, held: Held, offset: int | None, found: Mapping[str, Any], now_ms: int) -> None:
        if found["error_code"]:
            self._locator.refused_by_source(held, found["error_code"])
            return
        stream, records = held.stream, found["records"]
        if stream is None or offset is None:
            return
        stable = found["last_stable_offset"]
        held.progress.answered(stable if stable >= 0 else found["high_watermark"], now_ms)
        if records:
            self._source.limit.took(len(records))
            aborted = [
                (one["producer_id"], one["first_offset"]) for one in found["aborted_transactions"] or ()
            ]
            stream.fetched(offset, memoryview(records), aborted)
        if stream.phase is Phase.STOPPED:
            self._locator.stopped(held)

    # -- what goes to the target

    async def _send(self, full: Collection[Held]) -> bool:
        """Send the next batch of each; whether there was any."""
        by_key = {held.key: held for held in full if not held.is_leaving}
        if not by_key:
            return False
        leaders = self._target.leaders(by_key)
        for key in by_key.keys() - {key for keys in leaders.values() for key in keys}:
            self._locator.refused_by_target(by_key[key], NO_LEADER)
        sending = [self._send_to(address, [by_key[key] for key in keys]) for address, keys in leaders.items()]
        failures = [e for e in await asyncio.gather(*sending, return_exceptions=True) if e is not None]
        for failure in failures:
            raise failure
        return True

    async def _send_to(self, address: Address, full: Collection[Held]) -> None:
        parcels = {held.key: held.stream.outbox[0] for held in full if held.stream is not None}
        if not self._session.is_sure:
            for held in full:
                held.failed("ZooKeeper has not answered for as long as a session lasts", self._now_ms())
            return
        outcomes = await self._target.produce(address, {key: parcel.batch for key, parcel in parcels.items()})
        now_ms = self._now_ms()
        for held in full:
            assert held.stream is not None, "it has an outbox"
            outcome, base_offset = outcomes.get(held.key, ((-1, "it does not answer for the partition"), -1))
            if outcome[0]:
                self._locator.refused_by_target(held, sentence(outcome))
                continue
            parcel = parcels[held.key]
            held.stream.acknowledged(base_offset)
            held.pause.end()
            held.problem = ""
            held.told = ""
            held.progress.bytes_copied += len(parcel.batch)
            held.progress.batches_copied += 1
            held.progress.max_timestamp = parcel.max_timestamp
            if held.progress.source_end_offset <= held.stream.position.offset:
                held.progress.caught_up_ms = now_ms

    # -- how far it is

    async def _write(self, taken: Collection[Held]) -> None:
        now_ms = self._source.clock.monotonic_ms()
        due = [held for held in taken if not held.is_written and now_ms - held.written_ms >= WRITE_MS]
        if due:
            await asyncio.gather(*(write_position(self._registry, held, now_ms) for held in due))

    async def _to_source(self) -> AsyncLink:
        if self._link is None:
            address = self._source.addresses.get(self._node)
            if address is None:
                raise ConnectionError(f"the source has no broker {self._node} any more")
            self._link = await self._source.link_to(address)
        return self._link

    def _now_ms(self) -> int:
        return self._source.clock.now_ms()


async def write_position(registry: Registry, held: Held, now_ms: int) -> None:
    """Have the offset registry say how far it is; where another owner wrote, that one's word counts."""
    stream = held.stream
    if stream is None:
        return
    with contextlib.suppress(ZnodeVersionError):
        held.written_ms, position = now_ms, stream.position
        held.version = await registry.write(held.key, position, held.version)
        held.written = position
        return
    held.stream = None
