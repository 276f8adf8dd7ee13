"""Fetch (key 1) as the mirror asks a source: by hand from version 12 on, by its table where the source is older. Pure.

A question carries no last fetched epoch, so no source answers with a diverging one: lineage is the survey's matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.broker.wire.api import k01_fetch
from headrace.broker.wire.client.replica_fetch import (
    FIRST_VERSION,
    REPLICA_FETCH,
    TOPIC_ID_VERSION,
    FetchedPartition,
    FetchQuestion,
    ReplicaFetchAnswer,
    ReplicaFetchRequest,
    WireKey,
)
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import CONSUMER_REPLICA_ID, NO_EPOCH, READ_UNCOMMITTED
from headrace.mirror.memory.state import NO_ID
from headrace.mirror.questions import UNKNOWN, Fetch

NAMES_VERSION, IDS_VERSION = TOPIC_ID_VERSION - 1, TOPIC_ID_VERSION
NO_SESSION_EPOCH = -1


def wire_key(key: PartitionKey, fetch: Fetch, *, by_ids: bool) -> WireKey:
    """How requests name the partition."""
    return fetch.topic_id.bytes if by_ids else key[0].encode(), key[1]


def question(fetch: Fetch) -> FetchQuestion:
    """What a request says of the partition."""
    return FetchQuestion(fetch.leader_epoch, fetch.offset, NO_EPOCH, UNKNOWN)


def request(
    asked: Iterable[tuple[WireKey, FetchQuestion]],
    *,
    wait_ms: int,
    min_bytes: int,
    size_max: int,
    partition_size_max: int,
    session: tuple[int, int] = (0, NO_SESSION_EPOCH),
    forgotten: Iterable[WireKey] = (),
    isolation_level: int = READ_UNCOMMITTED,
) -> ReplicaFetchRequest:
    """A consumer's fetch; `session` is its id and epoch."""
    return ReplicaFetchRequest(
        CONSUMER_REPLICA_ID,
        NO_EPOCH,
        wait_ms,
        min_bytes,
        size_max,
        partition_size_max,
        *session,
        asked,
        forgotten,
        isolation_level,
    )


def readable_end(found: FetchedPartition, isolation_level: int) -> int:
    """Where what is read of the partition ends now: what lies behind an open transaction may not be."""
    if isolation_level == READ_UNCOMMITTED or found.last_stable_offset < 0:
        return found.high_watermark
    return min(found.high_watermark, found.last_stable_offset)


class SourceFetch:
    """In the place of an `Api` for a client; it has no state."""

    key = k01_fetch.API.key
    name = k01_fetch.API.name

    def encode_request(self, version: int, message: ReplicaFetchRequest) -> bytes:
        if version >= FIRST_VERSION:
            return REPLICA_FETCH.encode_request(version, message)
        return k01_fetch.API.encode_request(version, _message(message))

    def decode_response(self, version: int, buffer: memoryview, offset: int = 0) -> ReplicaFetchAnswer:
        """Raises MalformedError."""
        if version >= FIRST_VERSION:
            return REPLICA_FETCH.decode_response(version, buffer, offset)
        return _answer(k01_fetch.API.decode_response(version, buffer, offset))


SOURCE_FETCH = SourceFetch()


def _message(asked: ReplicaFetchRequest) -> Message:
    topics: dict[bytes, list[Message]] = {}
    for (topic, index), wanted in asked.asked:
        topics.setdefault(topic, []).append(
            {
                "partition": index,
                "current_leader_epoch": wanted.leader_epoch,
                "fetch_offset": wanted.offset,
                "partition_max_bytes": asked.partition_max_bytes,
            }
        )
    forgotten: dict[bytes, list[int]] = {}
    for topic, index in asked.forgotten:
        forgotten.setdefault(topic, []).append(index)
    return {
        "max_wait_ms": asked.max_wait_ms,
        "min_bytes": asked.min_bytes,
        "max_bytes": asked.max_bytes,
        "isolation_level": asked.isolation_level,
        "session_id": asked.session_id,
        "session_epoch": asked.session_epoch,
        "topics": [
            {"topic": topic.decode(), "topic_id": NO_ID, "partitions": partitions}
            for topic, partitions in topics.items()
        ],
        "forgotten_topics_data": [
            {"topic": topic.decode(), "topic_id": NO_ID, "partitions": indexes}
            for topic, indexes in forgotten.items()
        ],
        "rack_id": "",
    }


def _answer(answer: dict[str, Any]) -> ReplicaFetchAnswer:
    partitions = [
        (
            (topic["topic"].encode(), found["partition_index"]),
            FetchedPartition(
                found["error_code"],
                found["high_watermark"],
                found.get("log_start_offset", UNKNOWN),
                None,
                found["records"],
                found.get("last_stable_offset", UNKNOWN),
            ),
        )
        for topic in answer["responses"]
        for found in topic["partitions"]
    ]
    return ReplicaFetchAnswer(answer.get("error_code", 0), answer.get("session_id", 0), partitions)
