"""The way of a Fetch request, versions 0-17: see the package's text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from headrace.broker.auth.operations import Operation, ResourceType
from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.handlers import throttle
from headrace.broker.handlers.access import Access
from headrace.broker.handlers.call import Call, Client
from headrace.broker.handlers.fetch.answer import encode_fetch, size_of
from headrace.broker.handlers.fetch.batch_headers import HEADERS_SIZE_MAX
from headrace.broker.handlers.fetch.found import UNKNOWN, Answer, Found
from headrace.broker.handlers.fetch.plan import Reading, SessionReading
from headrace.broker.handlers.fetch.read import TOPIC_ID_VERSION, read_fetch
from headrace.broker.handlers.fetch_request import NO_SESSION, NO_SESSION_EPOCH, FetchRequest, FetchTopic
from headrace.broker.handlers.fetch_sessions import Turn
from headrace.broker.handlers.replies import Parts, Reply
from headrace.broker.handlers.services import Services
from headrace.broker.wire.api import k01_fetch

API = k01_fetch.API
VERSIONS = (0, 17)
RAW = True

FORMAT_2_VERSION, ZSTD_VERSION = 4, 10


def handle(broker: Services, call: Call, frame: memoryview) -> Reply:
    version, client = call.header.version, call.client
    request = read_fetch(version, frame, call.header.body_offset)
    rights_version = 0
    if broker.authorizer is not None:
        rights_version = broker.authorizer.version
        request = request._replace(may_read=_may_read(Access(broker.authorizer, call), request))
    turn = None
    if request.session_id != NO_SESSION or request.session_epoch != NO_SESSION_EPOCH:
        try:
            turn = broker.fetch_sessions.begin(
                request,
                broker.metadata.topic_name,
                uses_topic_ids=version >= TOPIC_ID_VERSION,
                now_ms=broker.clock.monotonic_ms(),
                rights_version=rights_version,
            )
        except KafkaError as error:
            return encode_fetch(broker, call, error.code, NO_SESSION, [])
    max_bytes = min(request.max_bytes, broker.config.replication.fetch_max_bytes)
    if request.wants_headers:
        max_bytes = min(max_bytes, HEADERS_SIZE_MAX)
    if broker.client_usage.is_limited and not request.is_follower:
        max_bytes = throttle.fetch_size_max(broker, call, max_bytes)
    min_bytes = min(request.min_bytes, max_bytes)
    reading: Reading | SessionReading
    if turn is None:
        reading = _reading_of(broker, client)
        reading.ask(request, version, max_bytes, rights_version)
    else:
        reading = SessionReading(broker, request, version, max_bytes, turn)
    answer, size, is_urgent = reading.read()
    if size >= min_bytes or is_urgent or request.max_wait_ms <= 0:
        return _finish(broker, call, request, turn, answer, call.began_s)
    if broker.client_usage.is_limited and not request.is_follower:
        throttle.request_throttle_ms(broker, call, call.began_s)

    def attempt(moved: Collection[tuple[str, int]] | None) -> Parts | None:
        began_s = broker.now()
        answer, size, is_urgent = reading.read_again(moved)
        if moved is None or size >= min_bytes or is_urgent:
            return _finish(broker, call, request, turn, answer, began_s)
        return None

    return reading.wait(request.max_wait_ms, attempt)


def _may_read(rights: Access, request: FetchRequest) -> Callable[[str], bool]:
    """Brokers may read what the cluster has, or nothing."""
    if request.is_follower:
        may = rights.may_cluster(Operation.CLUSTER_ACTION)
        return lambda topic: may
    return partial(rights.may, Operation.READ, ResourceType.TOPIC)


def _reading_of(broker: Services, client: Client) -> Reading:
    reading = client.reading
    if not isinstance(reading, Reading):
        reading = client.reading = Reading(broker)
    return reading


def _finish(
    broker: Services, call: Call, request: FetchRequest, turn: Turn | None, answer: Answer, began_s: float
) -> Parts:
    """`began_s`: since when this request has had the broker's time."""
    error_code, session_id = ErrorCode.NONE, NO_SESSION
    if broker.client_usage.is_limited and not request.is_follower:
        size = size_of(call.header.version, answer)
        throttle_ms = throttle.fetch_throttle_ms(broker, call, size, began_s)
        if throttle_ms:
            if turn is not None:
                error_code, session_id = turn.hold_back()
            return encode_fetch(broker, call, error_code, session_id, [], throttle_ms)
    if turn is not None:
        error_code, session_id, answer = turn.finish(answer, broker.clock.monotonic_ms())
    if call.header.version < ZSTD_VERSION:
        is_old = call.header.version < FORMAT_2_VERSION
        answer = [
            (topic, [_unless_unreadable(broker, topic, item, is_old) for item in found])
            for topic, found in answer
        ]
    for topic, found in answer:
        size = sum([item.records.size for item in found if item.encoded is None and item.records is not None])
        if size:
            name = topic.name if topic.topic_id is None else broker.metadata.topic_name(topic.topic_id)
            if name is not None and request.is_follower:
                _count_replicated(broker, name, found)
            elif name is not None:
                broker.metrics.fetched(name, size)
    return encode_fetch(broker, call, error_code, session_id, answer)


def _count_replicated(broker: Services, topic: str, found: Iterable[Found]) -> None:
    """Replicas in sync count against a throttle, too, and are not held back."""
    throttle = broker.leader_throttle
    for item in found:
        if item.records is not None:
            broker.metrics.replicated_out(item.records.size)
            if throttle.covers(topic, item.partition_index):
                throttle.record(item.records.size)


def _unless_unreadable(broker: Services, topic: FetchTopic, item: Found, is_old: bool) -> Found:
    """The item, even where it is an error, or its refusal to a client too old for what its topic is set to hold."""
    partition = broker.partitions.get(topic.name or "", item.partition_index)
    if partition is None:
        return item
    config = partition.log.config
    if config.compression_type == "zstd":
        error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    elif is_old and not config.message_downconversion_enable:
        error = ErrorCode.UNSUPPORTED_VERSION
    else:
        return item
    return Found(item.partition_index, error, UNKNOWN, UNKNOWN, UNKNOWN, None, ())
