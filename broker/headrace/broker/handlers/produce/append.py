"""Hands records to the leaders of their partitions, and tells who waits for those and who counts."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.errors import (
    CorruptMessageError,
    InvalidTopicError,
    KafkaError,
    MessageTooLargeError,
    NotOneBatchError,
    PolicyViolationError,
    RecordListTooLargeError,
    StorageError,
    TransactionalIdAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from headrace.broker.handlers.call import Call
from headrace.broker.handlers.produce.check import FORMAT_2_VERSION, as_format_2, check
from headrace.broker.handlers.produce.gather import Run
from headrace.broker.handlers.produce.outcome import AppendedRun, Outcome
from headrace.broker.handlers.produce.verify import Asked
from headrace.broker.handlers.services import Services
from headrace.broker.legacy.message_sets import holds_message
from headrace.broker.log.results import AppendResult
from headrace.broker.replication.leader import Leadership
from headrace.broker.replication.partition import Partition

# Half the time of a call of the class.
_new_tuple = tuple.__new__
# With these Kafka tells no start of the log: they come before a look at what the records say.
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


def append(
    broker: Services,
    call: Call,
    topic: str,
    index: int,
    records: memoryview | None,
    acks: int,
    *,
    in_transaction: bool = False,
    asked: Asked | None = None,
) -> Outcome:
    """Append one item's records; an error becomes part of the outcome. `in_transaction`: the request has a transactional id,
    `asked`: their transaction's coordinator says that it has the partition.
    """
    header, partition = call.header, None
    try:
        records = check(broker.metadata, header, topic, index, records, acks, in_transaction=in_transaction)
        partition = broker.partitions.leader_of(topic, index)
        if header.version < FORMAT_2_VERSION and not holds_message(records):
            # Clients of that time are not told, as in Kafka.
            return Outcome(
                topic, index, partition, AppendResult(-1, -1, -1, partition.log.log_start_offset, 0)
            )
        records = as_format_2(header.version, records)
        if asked is not None:
            partition.log.producers.check_verified(asked.header, asked.verification)
        committed_before = partition.log.high_watermark
        result = partition.append(records, required_acks=acks, now_ms=broker.clock.now_ms())
    except KafkaError as error:
        is_known = partition is not None or broker.metadata.partition(topic, index) is not None
        reason = error if is_known else UnknownTopicOrPartitionError(f"{topic}-{index} is not there")
        return refusal(broker, topic, index, partition, reason)
    note_append(broker, topic, partition, 1, len(records), committed_before)
    return Outcome(topic, index, partition, result, leadership=partition.leadership)


def append_runs(broker: Services, runs: Sequence[Run], acks: int) -> list[AppendedRun]:
    """Append one after the other what the runs, all for one partition, bring; what is refused has an outcome that says so."""
    topic, partition, appends, _ = runs[0]
    if len(runs) > 1:
        appends = [records for run in runs for records in run.appends]
    index, leadership, committed_before = (
        partition.partition,
        partition.leadership,
        partition.log.high_watermark,
    )
    try:
        results = partition.append_each(appends, required_acks=acks, now_ms=broker.clock.now_ms())
    except KafkaError as error:
        refusals = [refusal(broker, topic, index, partition, error) for _ in appends]
        return _shared_out(runs, leadership, refusals)
    refused = {n: error for n, error in enumerate(results) if isinstance(error, KafkaError)}
    taken = appends if not refused else [records for n, records in enumerate(appends) if n not in refused]
    if taken:
        note_append(broker, topic, partition, len(taken), sum(map(len, taken)), committed_before)
    outcomes = [
        refusal(broker, topic, index, partition, result) if isinstance(result, KafkaError) else result
        for result in results
    ]
    return _shared_out(runs, leadership, outcomes)


def _shared_out(
    runs: Sequence[Run],
    leadership: Leadership | None,
    outcomes: Sequence[AppendResult | Outcome],
) -> list[AppendedRun]:
    """What became of each run, now that all are appended."""
    appended = []
    end_offset = runs[0].partition.log.log_end_offset
    start = 0
    for topic, partition, appends, numbers in runs:
        stop = start + len(appends)
        its = outcomes[start:stop]
        end = end_offset if AppendResult in map(type, its) else 0
        appended.append(_new_tuple(AppendedRun, (topic, partition, leadership, numbers, its, end)))
        start = stop
    return appended


def note_append(
    broker: Services, topic: str, partition: Partition, batch_count: int, size: int, committed_before: int
) -> None:
    """Something was appended: whoever waits for it is woken."""
    if broker.refused_writes.outages:
        broker.refused_writes.worked(partition.log.directory, broker.clock.monotonic_ms())
    broker.metrics.produced(topic, batch_count, size)
    broker.waiting.wake_end(topic, partition.partition)
    if partition.log.high_watermark > committed_before:
        broker.waiting.wake(topic, partition.partition)


def refusal(
    broker: Services, topic: str, index: int, partition: Partition | None, error: KafkaError
) -> Outcome:
    """The outcome of what was refused."""
    if partition is not None and isinstance(error, StorageError):
        broker.refused_writes.refused(partition.log.directory, error, broker.clock.monotonic_ms())
    return Outcome(topic, index, None, None, error, _log_start_offset(partition, error))


def _log_start_offset(partition: Partition | None, error: KafkaError) -> int:
    return -1 if partition is None or isinstance(error, UNREAD) else partition.log.log_start_offset
