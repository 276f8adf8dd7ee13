"""OffsetFetch (key 9), versions 1-9.

Deviations: version 0, which reads offsets from ZooKeeper, is not served. `require_stable` holds for every
fetch: an answer waits until what was committed before it is replicated; UNSTABLE_OFFSET_COMMIT comes with
transactions.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import FetchAnswer, FetchedOffset, FetchOffsets, TopicPartition
from headrace.broker.handlers.context import Context
from headrace.broker.handlers.deferred import Deferred
from headrace.broker.handlers.gather import gather
from headrace.broker.wire.api import k09_offset_fetch
from headrace.broker.wire.frames import RequestHeader

API = k09_offset_fetch.API
VERSIONS = (1, 9)


def handle(context: Context, header: RequestHeader, request: dict[str, Any]) -> Deferred[dict[str, Any]]:
    if header.version >= 8:
        groups: list[dict[str, Any]] = request["groups"]
        answers = gather([_ask(context, group["group_id"], group["topics"]) for group in groups])
        return answers.map(
            lambda found: {"groups": [_group(g, a) for g, a in zip(groups, found, strict=True)]}
        )
    answer = _ask(context, request["group_id"], request["topics"])
    return answer.map(lambda found: _single(header.version, request, found))


def _ask(context: Context, group_id: str, topics: list[dict[str, Any]] | None) -> Deferred[FetchAnswer]:
    partitions = None
    if topics is not None:
        partitions = tuple(
            TopicPartition(t["name"], index) for t in topics for index in t["partition_indexes"]
        )
    answer: Deferred[FetchAnswer] = context.groups.ask(FetchOffsets(group_id=group_id, partitions=partitions))
    return answer


def _group(group: dict[str, Any], answer: FetchAnswer) -> dict[str, Any]:
    return {"group_id": group["group_id"], "error_code": answer.error, "topics": _topics(answer)}


def _single(version: int, request: dict[str, Any], answer: FetchAnswer) -> dict[str, Any]:
    if version >= 2 or answer.error is ErrorCode.NONE:
        return {"error_code": answer.error, "topics": _topics(answer)}
    # Version 1 has no error of its own: each partition says it.
    failed = FetchedOffset(error=answer.error)
    wanted = {
        TopicPartition(t["name"], index): failed
        for t in request["topics"]
        for index in t["partition_indexes"]
    }
    return {"topics": _topics(FetchAnswer(offsets=wanted))}


def _topics(answer: FetchAnswer) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), fetched in answer.offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": fetched.offset,
                "committed_leader_epoch": fetched.leader_epoch,
                "metadata": fetched.metadata,
                "error_code": fetched.error,
            }
        )
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
