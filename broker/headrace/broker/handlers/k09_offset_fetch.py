"""OffsetFetch (key 9), versions 0-9; version 0 reads offsets from ZooKeeper, below `/consumers`.

Deviations: in version 0 a group whose name is no znode's gets INVALID_GROUP_ID. An answer always
waits until what was committed before it is replicated, as with `require_stable`. A request for no group at all is answered with
none; Kafka never answers it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.groups.events import FetchAnswer, FetchedOffset, FetchOffsets
from headrace.broker.handlers.access import Access, access
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import Listed
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire.api import k09_offset_fetch
from headrace.broker.wire.partitions import TopicPartition
from headrace.broker.zk.paths import MalformedZnodeError

REFUSED = FetchedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

API = k09_offset_fetch.API
VERSIONS = (0, 9)


def handle(
    broker: Services, call: Call, request: dict[str, Any]
) -> dict[str, Any] | Deferred[dict[str, Any]] | Listed:
    rights = access(broker, call)
    if call.header.version == 0:
        if _is_refused(rights, request["group_id"]):
            return _single(0, request, FetchAnswer(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return broker.later("fetch-from-zookeeper", _read(broker, request, rights))
    stable: bool = request.get("require_stable", False)
    if call.header.version >= 8:
        return Listed(
            "groups",
            (
                _ask(broker, rights, group["group_id"], group["topics"], stable).map(
                    partial(_group, group["group_id"])
                )
                for group in request["groups"]
            ),
        )
    answer = _ask(broker, rights, request["group_id"], request["topics"], stable)
    return answer.map(lambda found: _single(call.header.version, request, found))


def _is_refused(rights: Access | None, group_id: str) -> bool:
    return rights is not None and not rights.may(Operation.DESCRIBE, ResourceType.GROUP, group_id)


def _refused_topics(rights: Access | None, partitions: Iterable[TopicPartition]) -> Collection[str]:
    if rights is None:
        return ()
    return rights.refused(Operation.DESCRIBE, ResourceType.TOPIC, (topic for topic, _ in partitions))


async def _read(broker: Services, request: dict[str, Any], rights: Access | None) -> dict[str, Any]:
    """Version 0: partitions without an offset are as unknown as those that do not exist."""
    group_id, wanted = request["group_id"], dict.fromkeys(_partitions(request["topics"]))
    refused = _refused_topics(rights, wanted)
    found = {
        partition: REFUSED if partition.topic in refused else await _read_one(broker, group_id, partition)
        for partition in wanted
    }
    return {"topics": _topics(FetchAnswer(offsets=found))}


async def _read_one(broker: Services, group_id: str, partition: TopicPartition) -> FetchedOffset:
    unknown = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker.metadata.partition(*partition) is None:
        return unknown
    try:
        offset = await broker.consumer_offsets.fetch(group_id, *partition)
    except KafkaError as refused:
        return FetchedOffset(error=refused.code)
    except MalformedZnodeError:
        return FetchedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    return unknown if offset is None else FetchedOffset(offset=offset)


def _partitions(topics: list[dict[str, Any]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(t["name"], index) for t in topics for index in t["partition_indexes"])


def _ask(
    broker: Services,
    rights: Access | None,
    group_id: str,
    topics: list[dict[str, Any]] | None,
    stable: bool,
) -> Deferred[FetchAnswer]:
    partitions = None if topics is None else _partitions(topics)
    if rights is None:
        return broker.groups.ask(
            FetchOffsets(group_id=group_id, partitions=partitions, requires_stable=stable)
        )
    if _is_refused(rights, group_id):
        answer: Deferred[FetchAnswer] = Deferred()
        answer.complete(FetchAnswer(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return answer
    refused = _refused_topics(rights, partitions or ())
    told = None if partitions is None else tuple(p for p in partitions if p.topic not in refused)
    asked = broker.groups.ask(FetchOffsets(group_id=group_id, partitions=told, requires_stable=stable))
    return asked.map(partial(_without_refused, rights, partitions, refused))


def _without_refused(
    rights: Access,
    partitions: tuple[TopicPartition, ...] | None,
    refused: Collection[str],
    answer: FetchAnswer,
) -> FetchAnswer:
    """The answer with the refusals of partitions that were named, or, of all, without those it may not be told of."""
    if answer.error is not ErrorCode.NONE:
        return answer
    if partitions is None:
        hidden = _refused_topics(rights, answer.offsets)
        offsets = {p: found for p, found in answer.offsets.items() if p.topic not in hidden}
    else:
        offsets = {**answer.offsets, **{p: REFUSED for p in partitions if p.topic in refused}}
    return FetchAnswer(offsets=offsets)


def _group(group_id: str, answer: FetchAnswer) -> dict[str, Any]:
    return {"group_id": group_id, "error_code": answer.error, "topics": _topics(answer)}


def _single(version: int, request: dict[str, Any], answer: FetchAnswer) -> dict[str, Any]:
    if version >= 2 or answer.error is ErrorCode.NONE:
        return {"error_code": answer.error, "topics": _topics(answer)}
    # Version 1 has no error of its own: each partition says it.
    failed = FetchedOffset(error=answer.error)
    wanted = _partitions(request["topics"])
    return {"topics": _topics(FetchAnswer(offsets=dict.fromkeys(wanted, failed)))}


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
