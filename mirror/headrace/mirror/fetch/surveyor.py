"""What a survey asks of a source's broker over one connection: where logs and epochs begin and end, which batch lies there.

One request for all partitions of each kind, in an order that shows no truncation that is none: starts before ends, the topics'
ids after all else that was asked by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from headrace.broker.client.asynchronous import AsyncLink
from headrace.broker.errors import ErrorCode
from headrace.broker.wire.api import k02_list_offsets, k03_metadata, k23_offset_for_leader_epoch
from headrace.broker.wire.batches import HEADER_SIZE, BatchHeader, read_header
from headrace.broker.wire.client.offsets import (
    EPOCH_ENDS_VERSION,
    LIST_OFFSETS_VERSION,
    epoch_ends,
    list_offsets,
    listed_offsets,
    told_epoch_ends,
)
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_UNCOMMITTED,
)
from headrace.mirror.fetch import encoding
from headrace.mirror.fetch.encoding import IDS_VERSION, NAMES_VERSION, SOURCE_FETCH
from headrace.mirror.memory.state import NO_ID
from headrace.mirror.questions import UNKNOWN, Fetch, Survey, Surveyed

METADATA_VERSION = 12
TAILS_SIZE_MAX = 4 * 1024 * 1024
Asked = Mapping[PartitionKey, Survey]
Listed = Mapping[PartitionKey, tuple[int, int]]
Tails = dict[PartitionKey, BatchHeader]


async def survey(
    link: AsyncLink, asked: Asked, isolation: int = READ_UNCOMMITTED
) -> dict[PartitionKey, Surveyed | int]:
    """An answer or an error code for each partition; raises FAILURES. Where copies begin depends on `isolation`."""
    starts = await _list_offsets(link, asked, EARLIEST_TIMESTAMP, CONSUMER_REPLICA_ID)
    # The log's end, not the high watermark, which a new leader may not know yet.
    ends = await _list_offsets(link, asked, LATEST_TIMESTAMP, DEBUGGING_REPLICA_ID)
    begins = await _begins(link, asked, isolation)
    epochs = await _epoch_ends(link, asked)
    tails = await _tails(link, asked, starts, ends)
    topic_ids = await _topic_ids(link, asked)
    found: dict[PartitionKey, Surveyed | int] = {}
    for key, wanted in asked.items():
        if wanted.topic_id not in (NO_ID, topic_ids.get(key[0])):
            # What was asked by name was told of a namesake: no sign of a truncation.
            found[key] = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            found[key] = _surveyed(
                starts.get(key),
                ends.get(key),
                begins.get(key, (0, UNKNOWN)),
                epochs.get(key, (0, UNKNOWN, UNKNOWN)),
                tails.get(key),
            )
    return found


def _surveyed(
    start: tuple[int, int] | None,
    end: tuple[int, int] | None,
    begin: tuple[int, int],
    epoch: tuple[int, int, int],
    tail: BatchHeader | None,
) -> Surveyed | int:
    if start is None or end is None:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    code = start[0] or end[0] or begin[0] or epoch[0]
    return code or Surveyed(
        log_start_offset=start[1],
        log_end_offset=end[1],
        epoch=epoch[1],
        epoch_end=epoch[2],
        tail=tail,
        begin=begin[1],
    )


async def _topic_ids(link: AsyncLink, asked: Asked) -> dict[str, UUID]:
    """The ids of the topics after all else was asked of them."""
    names = {topic for topic, _ in asked}
    topics = [{"topic_id": NO_ID, "name": name} for name in sorted(names)]
    answer = await link.ask(
        k03_metadata.API, METADATA_VERSION, {"topics": topics, "allow_auto_topic_creation": False}
    )
    return {topic["name"]: topic["topic_id"] for topic in answer["topics"]}


async def _list_offsets(
    link: AsyncLink, asked: Asked, timestamp: int, replica_id: int, isolation: int = READ_UNCOMMITTED
) -> Listed:
    """Partition → (error code, offset)."""
    epochs = {key: wanted.leader_epoch for key, wanted in asked.items()}
    request = list_offsets(epochs, timestamp, replica_id=replica_id, isolation_level=isolation)
    return listed_offsets(await link.ask(k02_list_offsets.API, LIST_OFFSETS_VERSION, request))


async def _begins(link: AsyncLink, asked: Asked, isolation: int) -> Listed:
    """Where copies are to begin, for those that ask; at the end where nothing is as young as that."""
    wanted = {key: survey for key, survey in asked.items() if survey.start is not None}
    if not wanted:
        return {}
    # Before the times: what comes meanwhile is not passed over.
    ends = await _list_offsets(link, wanted, LATEST_TIMESTAMP, CONSUMER_REPLICA_ID, isolation)
    found = dict(ends)
    for start in {survey.start or 0 for survey in wanted.values()} - {LATEST_TIMESTAMP}:
        those = {key: survey for key, survey in wanted.items() if survey.start == start}
        listed = await _list_offsets(link, those, start, CONSUMER_REPLICA_ID, isolation)
        found |= {key: answer for key, answer in listed.items() if answer[0] or answer[1] >= 0}
    return found


async def _epoch_ends(link: AsyncLink, asked: Asked) -> dict[PartitionKey, tuple[int, int, int]]:
    """Partition → (error code, epoch, end offset), for those that ask for an epoch."""
    epochs = {
        key: (wanted.leader_epoch, wanted.epoch)
        for key, wanted in asked.items()
        if wanted.epoch is not None and wanted.epoch >= 0
    }
    if not epochs or link.version(k23_offset_for_leader_epoch.API, EPOCH_ENDS_VERSION) < 0:
        return {}
    request = epoch_ends(epochs)
    return told_epoch_ends(await link.ask(k23_offset_for_leader_epoch.API, EPOCH_ENDS_VERSION, request))


async def _tails(link: AsyncLink, asked: Asked, starts: Listed, ends: Listed) -> Tails:
    """The source's batches at the places of the copies' last ones, many with one request.

    A broker answers the first of a request whole, however large it is, and may leave out others: those are asked for alone.
    """
    wanted = {
        key: (survey, survey.tail)
        for key, survey in asked.items()
        if survey.tail is not None
        and starts.get(key, (0, 0))[1] <= survey.tail.base_offset < ends.get(key, (0, 0))[1]
    }
    found: Tails = {}
    for group in grouped({key: tail.size for key, (_, tail) in wanted.items()}):
        found |= await _tails_of(link, {key: wanted[key] for key in group})
    for key in wanted.keys() - found.keys():
        found |= await _tails_of(link, {key: wanted[key]})
    return found


def grouped(sizes: Mapping[PartitionKey, int]) -> Iterator[list[PartitionKey]]:
    """In groups of one request each: as many batches as, each as large as the largest, are no more than TAILS_SIZE_MAX."""
    group: list[PartitionKey] = []
    for key, size in sorted(sizes.items(), key=lambda entry: entry[1]):
        if group and size * (len(group) + 1) > TAILS_SIZE_MAX:
            yield group
            group = []
        group.append(key)
    if group:
        yield group


async def _tails_of(link: AsyncLink, wanted: Mapping[PartitionKey, tuple[Survey, BatchHeader]]) -> Tails:
    by_ids = link.version(SOURCE_FETCH, IDS_VERSION) >= IDS_VERSION and all(
        survey.topic_id != NO_ID for survey, _ in wanted.values()
    )
    asked = {}
    for key, (survey, tail) in wanted.items():
        fetch = Fetch(topic_id=survey.topic_id, leader_epoch=survey.leader_epoch, offset=tail.base_offset)
        asked[encoding.wire_key(key, fetch, by_ids=by_ids)] = key, encoding.question(fetch)
    size = max(tail.size for _, tail in wanted.values())
    request = encoding.request(
        [(wire, question) for wire, (_, question) in asked.items()],
        wait_ms=0,
        min_bytes=1,
        size_max=size * len(wanted),
        partition_size_max=size,
    )
    answer = await link.ask(SOURCE_FETCH, IDS_VERSION if by_ids else NAMES_VERSION, request)
    return {
        asked[wire][0]: read_header(found.records)
        for wire, found in answer.partitions
        if wire in asked
        and not found.error_code
        and found.records is not None
        and len(found.records) >= HEADER_SIZE
    }
