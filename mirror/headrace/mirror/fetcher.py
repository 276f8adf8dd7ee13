"""One connection to one broker of a source, and the partitions whose requests go over it, several in one request.

Invariant: an answer is handed to the copier that asked, with the question, while the receive buffer holds it. After any
failure the connection is opened again, after a growing pause; the copiers are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar
from uuid import UUID

from headrace.broker.client.asynchronous import FAILURES, AsyncLink
from headrace.broker.clock import Clock
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.structured_log import get_logger
from headrace.broker.wire.api import k01_fetch, k02_list_offsets, k03_metadata, k23_offset_for_leader_epoch
from headrace.broker.wire.batches import HEADER_SIZE, BatchHeader, read_header
from headrace.broker.wire.client.exchange import ProtocolError
from headrace.broker.wire.client.offsets import (
    EPOCH_ENDS_VERSION,
    LIST_OFFSETS_VERSION,
    epoch_ends,
    list_offsets,
    listed_offsets,
    told_epoch_ends,
)
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
)
from headrace.mirror.config import SourceConfig, Tunables
from headrace.mirror.copier import Copier
from headrace.mirror.questions import UNKNOWN, Fetch, Survey, Surveyed
from headrace.mirror.state import NO_ID

logger = get_logger(__name__)
IDLE_SECONDS = 0.05
FULL_FETCH_EPOCH = -1
FETCH_VERSION, METADATA_VERSION = 13, 12
Want = TypeVar("Want", Survey, Fetch)
Asked = dict[PartitionKey, tuple[Copier, Want]]


class FetchedSource(Protocol):
    """What a fetcher knows of its source, and tells it."""

    config: SourceConfig
    tunables: Tunables
    clock: Clock
    client_id: str
    addresses: dict[int, Address]
    after_fetch: Callable[[int], None]

    def heard(self, now_ms: int) -> None:
        """A broker of the source answered."""
        ...

    def refresh_soon(self) -> None:
        """Something suggests that the metadata is out of date."""
        ...


class Fetcher:
    """`node` is the broker's id at the source."""

    def __init__(self, source: FetchedSource, node: int) -> None:
        self._source = source
        self._node = node
        self._copiers: dict[PartitionKey, Copier] = {}

    def assign(self, copiers: list[tuple[PartitionKey, Copier]]) -> None:
        """The partitions to ask for from now on."""
        new = dict(copiers)
        kept = {key: new[key] for key in self._copiers if key in new}
        self._copiers = kept | new

    async def run(self) -> None:
        """Ask for ever; ends only by cancellation."""
        tunables = self._source.tunables
        pause_ms = tunables.retry_backoff_ms
        while True:
            try:
                async with await self._open() as link:
                    while True:
                        await self._round(link)
                        pause_ms = tunables.retry_backoff_ms
            except (*FAILURES, KafkaError) as error:
                self._failed(error)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(pause_ms * 2, tunables.retry_backoff_max_ms)

    async def _open(self) -> AsyncLink:
        source = self._source
        address = source.addresses.get(self._node)
        if address is None:
            raise ProtocolError(f"the source has no broker {self._node} any more")
        return await AsyncLink.open(address, source.client_id, source.tunables.request_timeout_ms)

    def _failed(self, error: Exception) -> None:
        source = self._source
        logger.warning(
            "broker of a source failed", source=source.config.name, node=self._node, reason=repr(error)
        )
        now_ms = source.clock.now_ms()
        for copier in self._copiers.values():
            copier.failed(repr(error), now_ms)
        source.refresh_soon()

    async def _round(self, link: AsyncLink) -> None:
        """Send what the copiers want and hand them the answers."""
        now_ms = self._source.clock.now_ms()
        surveys: Asked[Survey] = {}
        fetches: Asked[Fetch] = {}
        for key, copier in self._copiers.items():
            match copier.wants(now_ms):
                case Survey() as survey:
                    surveys[key] = copier, survey
                case Fetch() as fetch:
                    fetches[key] = copier, fetch
        if surveys:
            await self._survey(link, surveys)
        if fetches:
            await self._fetch(link, fetches)
        if not surveys and not fetches:
            await asyncio.sleep(IDLE_SECONDS)

    # -- surveys

    async def _survey(self, link: AsyncLink, asked: Asked[Survey]) -> None:
        starts = await self._list_offsets(link, asked, EARLIEST_TIMESTAMP, CONSUMER_REPLICA_ID)
        # The log's end, not the high watermark, which a new leader may not know yet.
        ends = await self._list_offsets(link, asked, LATEST_TIMESTAMP, DEBUGGING_REPLICA_ID)
        epochs = await self._epoch_ends(link, asked)
        tails = await self._tails(link, asked, starts, ends)
        topic_ids = await self._topic_ids(link, asked)
        now_ms = self._source.clock.now_ms()
        self._source.heard(now_ms)
        for key, (copier, survey) in asked.items():
            answers = (starts.get(key), ends.get(key), epochs.get(key, (0, UNKNOWN, UNKNOWN)))
            code = next(
                (ErrorCode.UNKNOWN_SERVER_ERROR if a is None else a[0] for a in answers if not a or a[0]), 0
            )
            if not code and survey.topic_id not in (NO_ID, topic_ids.get(key[0])):
                # What was asked by name was told of a namesake: no sign of a truncation.
                code = ErrorCode.UNKNOWN_TOPIC_ID
            if code:
                self._refused(copier, survey, code, now_ms)
                continue
            start, end, epoch = answers
            assert start is not None, "an answer without a start has a code"
            assert end is not None, "an answer without an end has a code"
            found = Surveyed(
                log_start_offset=start[1],
                log_end_offset=end[1],
                epoch=epoch[1],
                epoch_end=epoch[2],
                tail=tails.get(key),
            )
            copier.surveyed(survey, found, now_ms)

    async def _topic_ids(self, link: AsyncLink, asked: Asked[Survey]) -> dict[str, UUID]:
        """The ids of the topics after all else was asked of them."""
        names = {topic for topic, _ in asked}
        topics = [{"topic_id": NO_ID, "name": name} for name in sorted(names)]
        answer = await link.ask(
            k03_metadata.API, METADATA_VERSION, {"topics": topics, "allow_auto_topic_creation": False}
        )
        return {topic["name"]: topic["topic_id"] for topic in answer["topics"]}

    async def _list_offsets(
        self, link: AsyncLink, asked: Asked[Survey], timestamp: int, replica_id: int
    ) -> dict[PartitionKey, tuple[int, int]]:
        """Partition → (error code, offset)."""
        epochs = {key: survey.leader_epoch for key, (_, survey) in asked.items()}
        request = list_offsets(epochs, timestamp, replica_id=replica_id)
        return listed_offsets(await link.ask(k02_list_offsets.API, LIST_OFFSETS_VERSION, request))

    async def _epoch_ends(
        self, link: AsyncLink, asked: Asked[Survey]
    ) -> dict[PartitionKey, tuple[int, int, int]]:
        """Partition → (error code, epoch, end offset), for those that ask for an epoch."""
        epochs = {
            key: (survey.leader_epoch, survey.epoch)
            for key, (_, survey) in asked.items()
            if survey.epoch is not None and survey.epoch >= 0
        }
        if not epochs or link.version(k23_offset_for_leader_epoch.API, EPOCH_ENDS_VERSION) < 0:
            return {}
        request = epoch_ends(epochs)
        return told_epoch_ends(await link.ask(k23_offset_for_leader_epoch.API, EPOCH_ENDS_VERSION, request))

    async def _tails(
        self,
        link: AsyncLink,
        asked: Asked[Survey],
        starts: dict[PartitionKey, tuple[int, int]],
        ends: dict[PartitionKey, tuple[int, int]],
    ) -> dict[PartitionKey, BatchHeader]:
        """The source's batches at the places of the copies' last ones, one request each: it has to be answered."""
        tails = {}
        for key, (_, survey) in asked.items():
            tail = survey.tail
            if tail is None or not starts.get(key, (0, 0))[1] <= tail.base_offset < ends.get(key, (0, 0))[1]:
                continue
            wanted = Fetch(
                topic_id=survey.topic_id, leader_epoch=survey.leader_epoch, offset=tail.base_offset
            )
            topics = _fetch_topics([(key, wanted)], tail.size)
            answer = await link.ask(k01_fetch.API, FETCH_VERSION, self._fetch_message(topics, wait_ms=0))
            for topic in answer["responses"]:
                for partition in topic["partitions"]:
                    records = partition["records"]
                    if not partition["error_code"] and records is not None and len(records) >= HEADER_SIZE:
                        tails[key] = read_header(records)
        return tails

    # -- fetches

    def _fetch_message(self, topics: list[Message], *, wait_ms: int) -> Message:
        tunables = self._source.tunables
        return {
            "max_wait_ms": wait_ms,
            "min_bytes": tunables.fetch_min_bytes,
            "max_bytes": tunables.fetch_response_max_bytes,
            "session_epoch": FULL_FETCH_EPOCH,
            "topics": topics,
            "forgotten_topics_data": [],
            "rack_id": "",
        }

    async def _fetch(self, link: AsyncLink, asked: Asked[Fetch]) -> None:
        tunables = self._source.tunables
        names = {fetch.topic_id: topic for (topic, _), (_, fetch) in asked.items()}
        topics = _fetch_topics([(key, fetch) for key, (_, fetch) in asked.items()], tunables.fetch_max_bytes)
        message = self._fetch_message(topics, wait_ms=tunables.fetch_wait_max_ms)
        answer = await link.ask(k01_fetch.API, FETCH_VERSION, message)
        if answer.get("error_code"):
            raise ProtocolError(f"the source answered a fetch with error {answer['error_code']}")
        now_ms = self._source.clock.now_ms()
        self._source.heard(now_ms)
        try:
            for topic in answer["responses"]:
                name = topic.get("topic") or names.get(topic.get("topic_id"), "")
                for partition in topic["partitions"]:
                    self._take(asked, (name, partition["partition_index"]), partition, now_ms)
        finally:
            self._source.after_fetch(now_ms)

    def _take(self, asked: Asked[Fetch], key: PartitionKey, answer: dict[str, Any], now_ms: int) -> None:
        if key not in asked:
            raise ProtocolError(f"the source answered about {key[0]}-{key[1]}, which was not asked for")
        copier, fetch = asked[key]
        if answer["error_code"]:
            self._refused(copier, fetch, answer["error_code"], now_ms)
            return
        records = answer["records"]
        copier.fetched(
            fetch,
            memoryview(b"") if records is None else records,
            high_watermark=answer["high_watermark"],
            log_start_offset=answer.get("log_start_offset", UNKNOWN),
            now_ms=now_ms,
        )
        if records and key in self._copiers:
            # Whoever got data asks last the next time, or one busy partition would fill every answer.
            self._copiers[key] = self._copiers.pop(key)

    def _refused(self, copier: Copier, want: Survey | Fetch, code: int, now_ms: int) -> None:
        copier.refused(want, code, now_ms)
        self._source.refresh_soon()


def _fetch_topics(asked: Iterable[tuple[PartitionKey, Fetch]], size_max: int) -> list[Message]:
    """In the order of `asked`; a topic is named anew when another came between its partitions."""
    topics: list[Message] = []
    for (topic, number), fetch in asked:
        if not topics or topics[-1]["topic"] != topic:
            topics.append({"topic": topic, "topic_id": fetch.topic_id, "partitions": []})
        topics[-1]["partitions"].append(
            {
                "partition": number,
                "current_leader_epoch": fetch.leader_epoch,
                "fetch_offset": fetch.offset,
                "partition_max_bytes": size_max,
            }
        )
    return topics
