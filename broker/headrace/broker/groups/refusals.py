"""What a request hears when its shard cannot decide it: one answer of its own form for any error.

Also maps the log's errors to what group clients understand, as Apache Kafka 3.9's GroupMetadataManager does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import (
    CommitOffsets,
    DeleteOffsets,
    DeleteOffsetsAnswer,
    DescribeAnswer,
    DescribeGroup,
    FetchAnswer,
    FetchOffsets,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    Request,
    SyncAnswer,
    SyncGroup,
)

_NOT_STORED: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


def offsets_not_stored(error: ErrorCode) -> ErrorCode:
    """What a committing client hears for the log's error."""
    if error in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return _NOT_STORED.get(error, error)


def group_not_stored(error: ErrorCode) -> ErrorCode:
    """What the members of a generation hear for the log's error."""
    if error in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return _NOT_STORED.get(error, error)


def refusal(request: Request[Any], error: ErrorCode) -> Any:
    """The request's answer that says `error`.

    While a shard loads, a heartbeat is answered as if all were well and a sync is sent back to join: no
    member loses its session for a coordinator that moves.
    """
    loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    match request:
        case JoinGroup():
            return JoinAnswer(error=error, member_id=request.member_id)
        case SyncGroup():
            return SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS if loading else error)
        case Heartbeat():
            return ErrorCode.NONE if loading else error
        case LeaveGroup():
            return LeaveAnswer(error=error)
        case CommitOffsets():
            return dict.fromkeys(request.offsets, error)
        case FetchOffsets():
            return FetchAnswer(error=error)
        case DescribeGroup():
            return DescribeAnswer(error=error)
        case DeleteOffsets():
            return DeleteOffsetsAnswer(error=error)
        case _:
            return error
