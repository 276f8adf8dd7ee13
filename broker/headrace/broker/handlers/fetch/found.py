"""What a fetch finds, before it is bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.broker.handlers.current_leader import CurrentLeader
from headrace.broker.handlers.fetch.batch_headers import BatchHeaders
from headrace.broker.handlers.fetch_request import FetchTopic
from headrace.broker.legacy.fetched import ConvertedRecords
from headrace.broker.log.results import EpochEndOffset, LogSlice
from headrace.broker.log.transactions import AbortedTransaction

UNKNOWN = -1

Records = LogSlice | ConvertedRecords | BatchHeaders
"""What stands for the records of a partition in an answer."""


class Found(NamedTuple):
    """What one partition has to offer; offsets are -1 with an error.

    `preferred_read_replica` is the broker to read from rather, -1 for none (KIP-392). `aborted` is None for "not asked
    for", `encoded` what `encode_nothing` gave, in the version of the request.
    """

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Records | None
    aborted: Sequence[AbortedTransaction] | None = None
    diverging_epoch: EpochEndOffset | None = None
    current_leader: CurrentLeader | None = None
    is_behind: bool = False
    preferred_read_replica: int = UNKNOWN
    encoded: bytes | None = None


Answer = list[tuple[FetchTopic, list[Found]]]
