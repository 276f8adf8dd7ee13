"""What became of the items of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.log.results import AppendResult
from headrace.broker.replication.leader import Leadership
from headrace.broker.replication.partition import Partition


class Outcome(NamedTuple):
    """The records' place in the log, or the error; that goes with the start of a log that looked at them, else with -1.

    `leadership` is the one that appended.
    """

    topic: str
    partition_index: int
    partition: Partition | None
    result: AppendResult | None
    error: KafkaError | None = None
    log_start_offset: int = -1
    leadership: Leadership | None = None

    @property
    def error_code(self) -> ErrorCode:
        return ErrorCode.NONE if self.error is None else self.error.code


class AppendedRun(NamedTuple):
    """What became of the batches that several requests brought for one partition; `numbers` are those requests.

    Once all below `end_offset` is committed, all that was appended is; it is 0 when nothing was.
    """

    topic: str
    partition: Partition
    leadership: Leadership | None
    numbers: list[int]
    outcomes: Sequence[AppendResult | Outcome]
    end_offset: int
