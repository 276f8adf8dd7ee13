"""Where copies are to begin, as a source's broker is asked for it."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import LATEST_TIMESTAMP, READ_COMMITTED
from headrace.mirror.fetch.surveyor import _begins
from headrace.mirror.questions import Survey

TIMES = {("t", 0): [10, 20, 30], ("t", 1): [10], ("u", 0): [99]}
"""The timestamps of the messages of each partition, from offset 0 on."""


class Link:
    """A broker that lists offsets, and notes for which times it was asked, in order."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.isolations: set[int] = set()

    async def ask(self, api: Any, version: int, request: Any) -> Any:
        topics = []
        self.isolations.add(request["isolation_level"])
        for topic in request["topics"]:
            partitions = []
            for asked in topic["partitions"]:
                time_ms = asked["timestamp"]
                self.asked.append(time_ms)
                times = TIMES[topic["name"], asked["partition_index"]]
                young = [offset for offset, at in enumerate(times) if at >= time_ms]
                offset = len(times) if time_ms == LATEST_TIMESTAMP else min(young, default=-1)
                partitions.append(
                    {
                        "partition_index": asked["partition_index"],
                        "error_code": 0,
                        "timestamp": -1,
                        "offset": offset,
                    }
                )
            topics.append({"name": topic["name"], "partitions": partitions})
        return {"topics": topics}


def begins(starts: dict[PartitionKey, int | None]) -> tuple[dict[PartitionKey, int], list[int]]:
    link = Link()
    asked = {
        place: Survey(
            topic_id=UUID(int=1), leader_epoch=0, log_end_offset=0, epoch=None, tail=None, start=start
        )
        for place, start in starts.items()
    }
    found = asyncio.run(_begins(cast("Any", link), asked, READ_COMMITTED))
    assert link.isolations <= {READ_COMMITTED}
    return {place: offset for place, (_, offset) in found.items()}, link.asked


def test_a_time_is_looked_up_and_the_end_where_nothing_is_as_young() -> None:
    found, asked = begins({("t", 0): 15, ("t", 1): 15, ("u", 0): LATEST_TIMESTAMP})
    assert found == {("t", 0): 1, ("t", 1): 1, ("u", 0): 1}
    assert asked == [*[LATEST_TIMESTAMP] * 3, 15, 15], "the ends first: what comes meanwhile is behind them"


def test_only_new_copies_ask() -> None:
    assert begins({("t", 0): None}) == ({}, [])
    assert begins({("t", 0): None, ("u", 0): 99})[0] == {("u", 0): 0}
