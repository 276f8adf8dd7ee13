"""OffsetFetch version 0: what a znode says that holds an offset, or something else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import FetchedOffset
from headrace.broker.handlers.k09_offset_fetch import _read
from headrace.broker.handlers.services import Services
from headrace.broker.legacy.zookeeper_offsets import ZooKeeperOffsets
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.zk.znodes import Znode


def fetched(data: bytes | None) -> FetchedOffset:
    async def get(path: str) -> Znode | None:
        assert path == "/consumers/g/offsets/t/0"
        return None if data is None else Znode(data, 0, 0, 0, 0)

    offsets = ZooKeeperOffsets(cast("Any", SimpleNamespace(get=get)))
    broker = SimpleNamespace(
        metadata=SimpleNamespace(partition=lambda *_: object()),
        consumer_offsets=offsets,
    )
    topics = [{"name": "t", "partition_indexes": [0]}]
    answer = asyncio.run(_read(cast("Services", broker), {"group_id": "g", "topics": topics}, None))
    ((partition,),) = (topic["partitions"] for topic in answer["topics"])
    assert TopicPartition("t", partition["partition_index"]) == ("t", 0)
    return FetchedOffset(offset=partition["committed_offset"], error=partition["error_code"])


@pytest.mark.parametrize(
    ("data", "offset"), [(b"42", 42), (b"-1", -1), (b"+7", 7), (b"9223372036854775807", 2**63 - 1)]
)
def test_an_offset_is_read(data: bytes, offset: int) -> None:
    assert fetched(data) == FetchedOffset(offset=offset)


def test_a_partition_without_one_is_unknown() -> None:
    assert fetched(None) == FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize(
    "data",
    [b"", b"many", b" 42", b"4_2", b"9223372036854775808", b"9" * 5000, b"\xff"],
    ids=lambda data: str(data[:5]),
)
def test_what_is_no_offset_is_an_error_of_its_partition_alone(data: bytes) -> None:
    assert fetched(data) == FetchedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR)
