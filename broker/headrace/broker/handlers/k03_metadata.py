"""Metadata (key 3), versions 0-12.

Asking for an unknown topic by name creates it when the broker and the request allow that; until it is there the answer
is LEADER_NOT_AVAILABLE, upon which clients ask again, or why it cannot be created. What a mirror of this broker would
create is left to it.

Answers are kept as encoded bodies by what was asked, and dropped when the metadata cache changes: a thousand clients
that refresh a large topic cost one encoding. An answer about many topics is made in slices, so that others need not
wait for all of it.

A broker that no controller has told of any broker yet lets clients wait for that word: an answer without brokers would
leave librdkafka, which has no other broker to ask then, without a controller until its next periodic refresh. A topic
that is in ZooKeeper, and of which no controller has told this broker yet, has no leader here, but is not unknown: for
those librdkafka gives up what it has to publish.

Deviations: a topic with neither name nor id gets UNKNOWN_TOPIC_ID, where Kafka fails the whole request.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection, Generator
from functools import cache, partial
from typing import Any
from uuid import UUID

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.coordinators.topics import INTERNAL_TOPICS
from headrace.broker.errors import ErrorCode
from headrace.broker.handlers.access import Access, access, cluster_operations
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.error_counts import count_errors
from headrace.broker.handlers.replies import Parts
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.slices import in_slices
from headrace.broker.handlers.throttle import mutation_allowance
from headrace.broker.replication.model import PartitionMetadata
from headrace.broker.replication.topic_requests import is_legal_name
from headrace.broker.tasks import outcome
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire import frames
from headrace.broker.wire.api import k03_metadata
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.varint import encode_uvarint

API = k03_metadata.API
VERSIONS = (0, 12)
RAW = True

TOPIC_ID_VERSION = 12
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
LISTENER_ERROR_VERSION = 6
UNTOLD = ("", -1)
"""What those wait for who ask a broker that knows nothing yet; no partition is called so."""
UNTOLD_WAIT_MS_MAX = 20_000
FLEXIBLE_VERSION = 9
SLICE_SIZE = 1000
"""Topics and partitions that are told in one go: a few milliseconds of the loop."""
NOTHING: dict[str, Any] = {"brokers": [], "cluster_id": None, "controller_id": -1, "topics": []}


def handle(broker: Services, call: Call, frame: memoryview) -> Parts | Deferred[Parts]:
    if broker.metadata.brokers:
        return _answered(broker, call, frame)
    kept = memoryview(bytes(frame))

    def attempt(moved: Collection[tuple[str, int]] | None) -> Parts | None:
        if moved is not None and not broker.metadata.brokers:
            return None
        return _reply(call, outcome(_body(broker, call, kept)))

    return broker.waiting.park([UNTOLD], UNTOLD_WAIT_MS_MAX, attempt)


def _answered(broker: Services, call: Call, frame: memoryview) -> Parts | Deferred[Parts]:
    body = in_slices(broker, "metadata", _body(broker, call, frame))
    return body.map(partial(_reply, call)) if isinstance(body, Deferred) else _reply(call, body)


def _reply(call: Call, body: bytes) -> Parts:
    start = frames.encode_response_header(call.header.key, call.header.version, call.header.correlation_id)
    return [frames.frame(start, body)]


def _body(broker: Services, call: Call, frame: memoryview) -> Generator[None, None, bytes]:
    """The encoded answer: one that was kept, or else made in slices, between which others have the loop."""
    rights = access(broker, call)
    who = None if rights is None else (call.client.principal, call.client.host)
    key = (call.header.version, call.client.listener, bytes(frame[call.header.body_offset :]), who)
    body = broker.metadata_bodies.get(_version(broker), key)
    if body is not None:
        return body
    request = API.decode_request(call.header.version, frame, call.header.body_offset)
    if call.header.version < TOPIC_ID_VERSION and any(
        t["name"] is None or t["topic_id"].int for t in request["topics"] or ()
    ):
        return API.encode_response(call.header.version, _refusal_of_ids(request))
    missing: list[str] = []
    may_create = broker.config.topics.auto_create_topics_enable and request["allow_auto_topic_creation"]
    unknown = broker.topics.error_on_demand if may_create else _unknown
    asker = None if rights is None else Asker(rights, may_create=may_create)
    topics = yield from _topics(broker, call, request, unknown, missing, asker)
    if missing and may_create:
        broker.topics.auto_create(missing, mutation_allowance(broker, call))
    body = _spliced(call.header.version, _rest_of_answer(broker, call, request, rights), topics)
    if not (missing and may_create) and not (asker and asker.is_refused):
        broker.metadata_bodies.put(_version(broker), key, body)
    return body


def _version(broker: Services) -> tuple[int, int]:
    """Of what the answers are made of."""
    return broker.metadata.version, 0 if broker.authorizer is None else broker.authorizer.version


class Asker:
    """What the client may be told and may have made; `is_refused`: that was noted."""

    def __init__(self, rights: Access, *, may_create: bool) -> None:
        self.rights = rights
        self.is_refused = False
        self._may_create = may_create

    def may_know(self, topic: str, *, quietly: bool) -> bool:
        may = self.rights.may(Operation.DESCRIBE, ResourceType.TOPIC, topic, quietly=quietly)
        self.is_refused = self.is_refused or not (may or quietly)
        return may

    def may_have_made(self, topic: str) -> bool:
        """Whether a topic that is not there may be made for it, if topics are made at all."""
        may = (
            not self._may_create
            or self.rights.may_cluster(Operation.CREATE, quietly=True)
            or self.rights.may(Operation.CREATE, ResourceType.TOPIC, topic)
        )
        self.is_refused = self.is_refused or not may
        return may


def _topics(
    broker: Services,
    call: Call,
    request: dict[str, Any],
    unknown: Callable[[str], ErrorCode],
    missing: list[str],
    asker: Asker | None,
) -> Generator[None, None, list[tuple[int, bytes]]]:
    """(count, encoded topics) of each slice, all of one state of the metadata: when that changes between two slices it
    begins anew, the last time without a pause.
    """
    for may_pause in (True, True, False):
        told = _version(broker)
        missing.clear()
        slices: list[tuple[int, bytes]] = []
        wanted = deque(_wanted(broker, call.header.version, request, asker))
        while wanted:
            if slices and may_pause:
                yield
                if _version(broker) != told:
                    break
            slices.append(_slice(broker, call, request, wanted, unknown, missing, asker))
        else:
            return slices
    raise AssertionError("the last attempt does not pause")


def _slice(
    broker: Services,
    call: Call,
    request: dict[str, Any],
    wanted: deque[tuple[str | None, UUID]],
    unknown: Callable[[str], ErrorCode],
    missing: list[str],
    asker: Asker | None,
) -> tuple[int, bytes]:
    """Takes what one slice has time for from the left of `wanted`."""
    version = call.header.version
    topics: list[dict[str, Any]] = []
    size = 0
    while wanted and size < SLICE_SIZE:
        name, topic_id = wanted.popleft()
        missing_before = len(missing)
        refusal = None if asker is None else _refused(broker, asker, name, topic_id)
        topic = refusal or _topic(broker, call, name, topic_id, unknown, missing)
        if (
            request["include_topic_authorized_operations"]
            and refusal is None
            and topic["error_code"] != ErrorCode.UNKNOWN_TOPIC_ID
        ):
            topic["topic_authorized_operations"] = (
                asker.rights.operations(ResourceType.TOPIC, topic["name"]) if asker else TOPIC_OPERATIONS
            )
        topics.append(topic)
        size += 1 + len(topic["partitions"])
        if unknown is not _unknown and len(missing) > missing_before:
            # Whether it can be created was looked up among all topics.
            break
    before, after = _around_topics(version)
    message = {**NOTHING, "topics": topics}
    count_errors(broker.metrics, API, message)
    encoded = API.encode_response(version, message)
    return len(topics), encoded[before + len(_count(version, len(topics))) : len(encoded) - after]


def _refused(broker: Services, asker: Asker, name: str | None, topic_id: UUID) -> dict[str, Any] | None:
    """The answer about a topic that the client may not be told of, or that may not be made for it; None: it may."""
    known = broker.metadata.topic_name(topic_id) if name is None else name
    if known is None:
        return None
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not asker.may_know(known, quietly=False):
        # Whether it is there is nothing to be told; its id was named by the client.
        return _refusal(error, name, topic_id) | {"is_internal": False}
    if broker.metadata.topics(known) is None and not asker.may_have_made(known):
        return _refusal(error, known, ZERO_UUID)
    return None


def _rest_of_answer(
    broker: Services, call: Call, request: dict[str, Any], rights: Access | None
) -> dict[str, Any]:
    """All but the topics."""
    message = {
        "brokers": _brokers(broker, call),
        "cluster_id": broker.metadata.cluster_id,
        "controller_id": broker.metadata.controller_id,
        "topics": [],
    }
    if request["include_cluster_authorized_operations"]:
        message["cluster_authorized_operations"] = cluster_operations(rights)
    return message


def _spliced(version: int, rest: dict[str, Any], topics: list[tuple[int, bytes]]) -> bytes:
    """The encoded answer with these topics, which `rest` has none of."""
    encoded = API.encode_response(version, rest)
    end = len(encoded) - _around_topics(version)[1]
    count = _count(version, sum(count for count, _ in topics))
    start = encoded[: end - len(_count(version, 0))]
    return b"".join((start, count, *(data for _, data in topics), encoded[end:]))


@cache
def _around_topics(version: int) -> tuple[int, int]:
    """How many bytes of an answer with `NOTHING` else stand before and behind the topics with their count."""
    flexible = version >= FLEXIBLE_VERSION
    after = (4 if 8 <= version <= 10 else 0) + flexible
    return len(API.encode_response(version, NOTHING)) - len(_count(version, 0)) - after, after


def _count(version: int, count: int) -> bytes:
    """How an answer says how many topics follow."""
    return encode_uvarint(count + 1) if version >= FLEXIBLE_VERSION else struct.pack(">i", count)


def _wanted(
    broker: Services, version: int, request: dict[str, Any], asker: Asker | None
) -> list[tuple[str | None, UUID]]:
    """(name, id) of each topic that is asked for, once; no list, or in version 0 an empty one, means all it may know of.

    One id makes Kafka pass over all names of the request.
    """
    topics = request["topics"]
    if topics is None or (version == 0 and not topics):
        names = broker.metadata.topic_names()
        return [(n, ZERO_UUID) for n in names if asker is None or asker.may_know(n, quietly=True)]
    ids = [topic["topic_id"] for topic in topics if topic["topic_id"] != ZERO_UUID]
    if ids:
        return [(None, topic_id) for topic_id in dict.fromkeys(ids)]
    return [(name, ZERO_UUID) for name in dict.fromkeys(topic["name"] for topic in topics)]


def _topic(
    broker: Services,
    call: Call,
    name: str | None,
    topic_id: UUID,
    unknown: Callable[[str], ErrorCode],
    missing: list[str],
) -> dict[str, Any]:
    metadata = broker.metadata
    if name is None:
        name = metadata.topic_name(topic_id)
        if name is None:
            return _refusal(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    if not is_legal_name(name):
        return _refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, name, ZERO_UUID)
    partitions = metadata.topics(name)
    if metadata.is_expected(name):
        return _refusal(ErrorCode.LEADER_NOT_AVAILABLE, name, ZERO_UUID)
    if partitions is None and broker.configurations.is_mirrored(name):
        return _refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, ZERO_UUID)
    if partitions is None:
        missing.append(name)
        return _refusal(unknown(name), name, ZERO_UUID)
    return {
        "error_code": 0,
        "name": name,
        "topic_id": metadata.topic_id(name),
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [_partition(broker, call, index, partitions[index]) for index in sorted(partitions)],
    }


def _unknown(name: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refusal_of_ids(request: dict[str, Any]) -> dict[str, Any]:
    """Versions 10 and 11 have topic ids in their requests, but only later ones may use them."""
    topics = [
        _refusal(ErrorCode.INVALID_REQUEST, topic["name"] or "", topic["topic_id"]) | {"is_internal": False}
        for topic in request["topics"]
    ]
    return {"brokers": [], "cluster_id": None, "controller_id": -1, "topics": topics}


def _refusal(code: ErrorCode, name: str | None, topic_id: UUID) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
    }


def _partition(broker: Services, call: Call, index: int, partition: PartitionMetadata) -> dict[str, Any]:
    replicas, isr = list(partition.replicas), list(partition.isr)
    error = _leader_error(broker, call, partition.leader)
    is_led = error is ErrorCode.NONE
    if call.header.version == 0:
        replicas, isr = _reachable(broker, call, replicas), _reachable(broker, call, isr)
        if is_led and (len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": partition.leader if is_led else -1,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": list(partition.offline_replicas),
    }


def _leader_error(broker: Services, call: Call, leader: int) -> ErrorCode:
    """NONE when clients of this listener reach the leader."""
    if broker.metadata.endpoint(leader, call.client.listener) is not None:
        return ErrorCode.NONE
    is_alive = call.header.version >= LISTENER_ERROR_VERSION and leader in broker.metadata.brokers
    return ErrorCode.LISTENER_NOT_FOUND if is_alive else ErrorCode.LEADER_NOT_AVAILABLE


def _reachable(broker: Services, call: Call, brokers: list[int]) -> list[int]:
    """Version 0 tells only of brokers that are alive: its clients believed in no others."""
    listener = call.client.listener
    return [broker_id for broker_id in brokers if broker.metadata.endpoint(broker_id, listener) is not None]


def _brokers(broker: Services, call: Call) -> list[dict[str, Any]]:
    """The live brokers that have the listener this client came by."""
    brokers = []
    for broker_id, member in sorted(broker.metadata.brokers.items()):
        endpoint = member.endpoint(call.client.listener)
        if endpoint is not None:
            brokers.append(
                {"node_id": broker_id, "host": endpoint.host, "port": endpoint.port, "rack": member.rack}
            )
    return brokers
