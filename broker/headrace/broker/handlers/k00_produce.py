"""Produce (key 0), versions 0-11.

Message formats 0 and 1, which versions 0-2 carry, become format 2. Deviation: transactional batches are refused with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED. A mirror's copy takes nothing from clients: POLICY_VIOLATION.

The shape that almost every request has, one batch for one partition, is read and answered without the codec, and
several of them that came together are written together; any other shape, and every error, goes through the codec.
acks=0 has no answer: an error closes the connection, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.errors import (
    CorruptMessageError,
    ErrorCode,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    NotOneBatchError,
    PolicyViolationError,
    RecordListTooLargeError,
    RequestTimedOutError,
    StorageError,
    TransactionalIdAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from headrace.broker.handlers import single_batches
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.current_leader import CurrentLeader, current_leader, node_endpoints
from headrace.broker.handlers.k03_metadata import INTERNAL_TOPICS
from headrace.broker.handlers.replies import CloseConnectionError, Parts, Reply
from headrace.broker.handlers.services import Services
from headrace.broker.handlers.single_batches import SingleBatch
from headrace.broker.legacy.conversion import from_old_format
from headrace.broker.legacy.message_sets import holds_message
from headrace.broker.log.results import AppendResult
from headrace.broker.structured_log import get_logger
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.wire import frames
from headrace.broker.wire.api import k00_produce
from headrace.broker.wire.batches import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    OLD_FORMATS,
    TRANSACTIONAL_BIT,
    read_header,
)
from headrace.broker.wire.compression import Codec

if TYPE_CHECKING:
    from headrace.broker.replication.leader import Partition

API = k00_produce.API
VERSIONS = (0, 11)
RAW = True
FORMAT_2_VERSION, ZSTD_VERSION, LEADER_TAG_VERSION = 3, 7, 10
# For how long one request may keep all clients waiting, but for its last batch.
WORK_MS_MAX = 1000
# How many requests at most are served with the one before them.
FOLLOWING_MAX = 127
ADMIN_CLIENT_ID = "__admin_client"
UNREAD = (
    CorruptMessageError,
    InvalidTopicError,
    MessageTooLargeError,
    NotOneBatchError,
    PolicyViolationError,
    RecordListTooLargeError,
    StorageError,
    TransactionalIdAuthorizationError,
    UnsupportedCompressionTypeError,
)
# The byte of a batch's attributes that has its flags.
FLAGS_AT = ATTRIBUTES_AT + 1

log = get_logger(__name__)

# Half the time of a call of the class: each request makes several.
_new_tuple = tuple.__new__


class _Outcome(NamedTuple):
    """What became of one partition's records; with an error, `log_start_offset` is that of a log that looked at them."""

    topic: str
    partition_index: int
    partition: Partition | None
    result: AppendResult | None
    error: KafkaError | None = None
    log_start_offset: int = -1


def handle_run(
    broker: Services, call: Call, frame: memoryview, more: Collection[memoryview]
) -> tuple[Reply, int]:
    """Serve `frame` and the first of `more` that go on with it: batches for the same partition, written together.

    Answers with how many of `more` those were.
    """
    header = call.header
    single = single_batches.read(header.version, frame, header.body_offset)
    try:
        topic = "" if single is None else str(single.name, "utf-8")
    except ValueError:
        single = None
    if single is None:
        return _handle_any(broker, call, frame), 0
    following = _following(broker, call, frame, topic, single, more) if more else ()
    if following:
        return _append_run(broker, call, topic, single, following), len(following)
    outcome = _append(broker, call, topic, single.partition_index, single.records, single.acks)
    result = outcome.result
    if result is None or single.acks == 0 or not _is_done(outcome, single.acks):
        return _answer(broker, call, [outcome], single.acks, single.timeout_ms), 0
    return [single_batches.reply(header.version, header.correlation_id, single, result)], 0


def _following(
    broker: Services,
    call: Call,
    frame: memoryview,
    topic: str,
    single: SingleBatch,
    more: Collection[memoryview],
) -> Sequence[tuple[int, memoryview]]:
    """The requests in `more` that may be served with `single`: nothing but their batches sets them apart."""
    if call.header.version < ZSTD_VERSION or topic in INTERNAL_TOPICS or not _is_plain(single.records):
        return ()
    partition = broker.partitions.get(topic, single.partition_index)
    if partition is None or partition.log.opens_batches or partition.log.awaits_sync:
        return ()
    # acks=all waits for nobody when this broker is the only one in sync.
    if single.acks not in (0, 1) and not (single.acks == -1 and len(partition.isr) == 1):
        return ()
    found: list[tuple[int, memoryview]] = []
    following = single_batches.Following(call.header.version, frame, single)
    for other in more:
        batch = following.read(other)
        if batch is None or not _is_plain(batch[1]) or len(found) == FOLLOWING_MAX:
            break
        found.append(batch)
    return found


def _append_run(
    broker: Services,
    call: Call,
    topic: str,
    single: SingleBatch,
    following: Sequence[tuple[int, memoryview]],
) -> Parts | None:
    """Append one after the other what several requests bring, and answer each; with acks=0 a refused one closes."""
    index = single.partition_index
    appends = [single.records, *(records for _, records in following)]
    partition = None
    outcomes: Sequence[AppendResult | KafkaError]
    try:
        partition = broker.partitions.leader_of(topic, index)
        outcomes = partition.append_each(appends, required_acks=single.acks, now_ms=broker.clock.now_ms())
    except KafkaError as error:
        outcomes = [error] * len(appends)
    replies: list[bytes] = []
    batch_count = size = 0
    failure = None
    correlation_ids = [call.header.correlation_id, *(correlation_id for correlation_id, _ in following)]
    for correlation_id, records, outcome in zip(correlation_ids, appends, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            failure = failure or outcome
            refused = _refused(broker, topic, index, partition, outcome)
            if single.acks != 0:
                replied_to = call._replace(header=call.header._replace(correlation_id=correlation_id))
                replies.append(_encode(broker, replied_to, [refused]))
        else:
            batch_count += 1
            size += len(records)
            if single.acks != 0:
                replies.append(single_batches.reply(call.header.version, correlation_id, single, outcome))
    if partition is not None and batch_count:
        _appended(broker, topic, partition, batch_count, size)
    if single.acks != 0:
        return [b"".join(replies)]
    if failure is not None:
        broker.metrics.failed(API.key, failure.code)
        raise _unacknowledged(failure)
    return None


def _append(
    broker: Services, call: Call, topic: str, index: int, records: memoryview | None, acks: int
) -> _Outcome:
    """Append one partition's records; an error becomes part of the outcome."""
    version, partition = call.header.version, None
    try:
        if acks not in (-1, 0, 1):
            raise InvalidRequiredAcksError(f"acks={acks}: give -1 (all), 0 or 1")
        if not records and (version >= FORMAT_2_VERSION or records is None):
            raise InvalidRecordError("the request has no record batch for this partition")
        if FORMAT_2_VERSION <= version < ZSTD_VERSION and _is_zstd(records):
            raise UnsupportedCompressionTypeError(
                "requests below version 7 must not hold zstd: use a newer client or another codec"
            )
        if _is_transactional(records):
            # An open transaction that nobody can end would hold up every reader of committed records for good.
            raise TransactionalIdAuthorizationError("transactions are not served: use no transactional id")
        if topic in INTERNAL_TOPICS:
            _check_internal(broker, call, topic, index)
        partition = broker.partitions.leader_of(topic, index)
        if version < FORMAT_2_VERSION and not holds_message(records):
            # Clients of that time are not told, as in Kafka.
            return _Outcome(
                topic, index, partition, AppendResult(-1, -1, -1, partition.log.log_start_offset, 0)
            )
        if len(records) > MAGIC_AT and records[MAGIC_AT] in OLD_FORMATS:
            records = _converted(version, records)
        result = partition.append(records, required_acks=acks, now_ms=broker.clock.now_ms())
    except KafkaError as error:
        is_known = partition is not None or broker.metadata.partition(topic, index) is not None
        reason = error if is_known else UnknownTopicOrPartitionError(f"{topic}-{index} is not there")
        return _refused(broker, topic, index, partition, reason)
    _appended(broker, topic, partition, 1, len(records))
    return _new_tuple(_Outcome, (topic, index, partition, result, None, -1))


def _appended(broker: Services, topic: str, partition: Partition, batch_count: int, size: int) -> None:
    if broker.refused_writes.directories:
        broker.refused_writes.worked(partition.log.directory, broker.clock.monotonic_ms())
    broker.metrics.produced(topic, batch_count, size)
    broker.waiting.wake(topic, partition.partition)


def _refused(
    broker: Services, topic: str, index: int, partition: Partition | None, error: KafkaError
) -> _Outcome:
    if partition is not None and isinstance(error, StorageError):
        broker.refused_writes.refused(partition.log.directory, error, broker.clock.monotonic_ms())
    return _Outcome(topic, index, None, None, error, _log_start_offset(partition, error))


def _check_internal(broker: Services, call: Call, topic: str, index: int) -> None:
    """Raises InvalidTopicError for clients that are not, by their name, the broker's own tools, as in Kafka."""
    if call.header.client_id != ADMIN_CLIENT_ID and broker.metadata.partition(topic, index) is not None:
        raise InvalidTopicError(f"{topic} is written by brokers only: commit offsets, or use another topic")


def _is_batch(records: memoryview) -> bool:
    return len(records) >= HEADER_SIZE and records[MAGIC_AT] == MAGIC


def _is_plain(records: memoryview) -> bool:
    return _is_batch(records) and not records[FLAGS_AT] & TRANSACTIONAL_BIT


def _is_transactional(records: memoryview) -> bool:
    return _is_batch(records) and records[FLAGS_AT] & TRANSACTIONAL_BIT != 0


def _converted(version: int, records: memoryview) -> memoryview:
    """Message formats 0 and 1 as a batch of format 2, from the clients that know no better."""
    if version >= FORMAT_2_VERSION:
        raise NotOneBatchError("requests of version 3 and later must hold batches of message format 2")
    return from_old_format(records)


def _is_zstd(records: memoryview) -> bool:
    if not _is_batch(records):
        return False
    header = read_header(records)
    return header.codec == Codec.ZSTD and header.size <= len(records)


def _log_start_offset(partition: Partition | None, error: KafkaError) -> int:
    """Kafka tells it with errors about what the records say, not with those that come before a look at that."""
    return -1 if partition is None or isinstance(error, UNREAD) else partition.log.log_start_offset


def _is_done(outcome: _Outcome, acks: int) -> bool:
    """Whether what was appended may be acknowledged: with acks=all when committed, else when as durable as it shall be."""
    assert outcome.partition is not None
    assert outcome.result is not None
    partition_log, last_offset = outcome.partition.log, outcome.result.last_offset
    if acks == -1:
        return partition_log.high_watermark > last_offset
    return (
        not partition_log.awaits_sync
        or last_offset < partition_log.recovery_point
        or not partition_log.is_sync_due
    )


def _handle_any(broker: Services, call: Call, frame: memoryview) -> Reply:
    request = API.decode_request(call.header.version, frame, call.header.body_offset)
    acks = request["acks"]
    deadline_ms = call.began_s * 1000 + WORK_MS_MAX
    outcomes = [
        _append_in_time(broker, call, topic["name"], partition, acks, deadline_ms)
        for topic in request["topic_data"]
        for partition in topic["partition_data"]
    ]
    return _answer(broker, call, outcomes, acks, request["timeout_ms"])


def _append_in_time(
    broker: Services,
    call: Call,
    topic: str,
    partition: Mapping[str, Any],
    acks: int,
    deadline_ms: float,
) -> _Outcome:
    """Batches that must be unpacked may take long, and clients wait: what is late is for another request."""
    index = partition["index"]
    if broker.clock.monotonic_ms() > deadline_ms:
        error = RequestTimedOutError("the partitions before this one took too long: send the rest again")
        return _Outcome(topic, index, None, None, error)
    return _append(broker, call, topic, index, partition["records"], acks)


def _answer(broker: Services, call: Call, outcomes: list[_Outcome], acks: int, timeout_ms: int) -> Reply:
    """Answer now, or once every append may be acknowledged, at most `timeout_ms` later."""
    if acks == 0:
        _close_on_error(broker, outcomes)
        return None
    if any(o.error is None and not _is_done(o, acks) for o in outcomes):
        return _wait(broker, call, outcomes, acks, timeout_ms)
    return [_encode(broker, call, outcomes)]


def _close_on_error(broker: Services, outcomes: list[_Outcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            broker.metrics.failed(API.key, outcome.error.code)
            raise _unacknowledged(outcome.error)


def _unacknowledged(error: KafkaError) -> CloseConnectionError:
    return CloseConnectionError(f"produce without acknowledgement failed: {error}")


def _wait(
    broker: Services, call: Call, outcomes: list[_Outcome], acks: int, timeout_ms: int
) -> Deferred[Parts]:
    waiting = [(o.topic, o.partition_index) for o in outcomes if o.error is None]

    def attempt(moved: Collection[tuple[str, int]] | None) -> Parts | None:
        settled = [s for o in outcomes if (s := _settle(o, acks, final=moved is None)) is not None]
        return [_encode(broker, call, settled)] if len(settled) == len(outcomes) else None

    return broker.waiting.park(waiting, timeout_ms, attempt)


def _settle(outcome: _Outcome, acks: int, *, final: bool) -> _Outcome | None:
    """The outcome once it is certain: done, or not on this disk, or not by this leader, or not in time; None before."""
    if outcome.error is not None or _is_done(outcome, acks):
        return outcome
    assert outcome.partition is not None
    if outcome.partition.log.has_failed:
        return outcome._replace(error=StorageError("the disk could not sync it"))
    if not outcome.partition.is_leader:
        return outcome._replace(error=NotLeaderOrFollowerError("leadership moved before all replicas had it"))
    return (
        outcome._replace(error=RequestTimedOutError("not all in-sync replicas had it in time"))
        if final
        else None
    )


def _encode(broker: Services, call: Call, outcomes: list[_Outcome]) -> bytes:
    topics: dict[str, list[dict[str, Any]]] = {}
    leaders: list[CurrentLeader] = []
    for outcome in outcomes:
        if outcome.error is not None:
            broker.metrics.failed(API.key, outcome.error.code)
        response = _partition_response(outcome)
        if call.header.version >= LEADER_TAG_VERSION and isinstance(outcome.error, NotLeaderOrFollowerError):
            leader = current_leader(broker.metadata, outcome.topic, outcome.partition_index)
            response["current_leader"] = leader._asdict()
            leaders.append(leader)
        topics.setdefault(outcome.topic, []).append(response)
    message: dict[str, Any] = {
        "responses": [{"name": name, "partition_responses": items} for name, items in topics.items()]
    }
    if leaders:
        message["node_endpoints"] = node_endpoints(broker.metadata, call.client.listener, leaders)
    return frames.frame(
        frames.encode_response_header(call.header.key, call.header.version, call.header.correlation_id),
        API.encode_response(call.header.version, message),
    )


def _partition_response(outcome: _Outcome) -> dict[str, Any]:
    if outcome.error is not None:
        return {
            "index": outcome.partition_index,
            "error_code": outcome.error.code,
            "base_offset": -1,
            "log_start_offset": outcome.log_start_offset,
            "record_errors": [
                {"batch_index": index, "batch_index_error_message": str(outcome.error)}
                for index in outcome.error.records_at_fault
            ],
            "error_message": str(outcome.error) or None,
        }
    assert outcome.result is not None
    return {
        "index": outcome.partition_index,
        "error_code": ErrorCode.NONE,
        "base_offset": outcome.result.base_offset,
        "log_append_time_ms": outcome.result.log_append_time_ms,
        "log_start_offset": outcome.result.log_start_offset,
    }
