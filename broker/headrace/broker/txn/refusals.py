"""What a request hears when its shard cannot decide it: one answer of its own form for any error.

Also maps the log's errors to what producers understand, as Apache Kafka 3.9's TransactionStateManager does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.txn.events import (
    AddPartitions,
    DescribeAnswer,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ProducerAnswer,
    Request,
    VerifyPartitions,
)

# What a client hears whose place another one has taken, that never was the producer, or that ends what it has not begun.
STRANGERS = frozenset(
    (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE)
)
_NOT_STORED: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def not_stored(error: ErrorCode) -> ErrorCode:
    """What a producer hears for the log's error."""
    return _NOT_STORED.get(error, error)


def refusal(request: Request[Any], error: ErrorCode) -> Any:
    """The request's answer that says `error`."""
    match request:
        case InitProducer():
            return ProducerAnswer(error=error)
        case DescribeTransaction():
            return DescribeAnswer(error=error)
        case VerifyPartitions():
            return dict.fromkeys(request.partitions, error)
        case _:
            return error


def error_of(answer: object) -> ErrorCode:
    """The error of any request's answer; of several partitions, that of one."""
    match answer:
        case ErrorCode():
            return answer
        case ProducerAnswer() | DescribeAnswer():
            return answer.error
        case Mapping():
            return next(iter(answer.values()), ErrorCode.NONE)
        case _:
            return ErrorCode.NONE


def asker(request: Request[Any]) -> str:
    """Who says that it is the producer, as ID/EPOCH; nothing where nobody says so."""
    match request:
        case InitProducer():
            producer = request.expected
        case AddPartitions() | VerifyPartitions() | EndTransaction():
            producer = request.producer
        case _:
            producer = None
    return "" if producer is None else f"{producer.producer_id}/{producer.epoch}"
