"""What became of one item of a request."""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.errors import KafkaError
from headrace.broker.log.results import AppendResult
from headrace.broker.replication.partition import Partition


class Outcome(NamedTuple):
    """The records' place in the log, or the error; that goes with the start of a log that looked at them, else with -1."""

    topic: str
    partition_index: int
    partition: Partition | None
    result: AppendResult | None
    error: KafkaError | None = None
    log_start_offset: int = -1
