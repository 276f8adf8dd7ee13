"""What a copier is told of its source's metadata, what it asks the partition's leader, and what it hears. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from headrace.broker.wire.batches import BatchHeader

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The partition as the source's metadata shows it; `leader` is -1 while it has none."""

    topic_id: UUID
    leader: int
    leader_epoch: int
    is_compacted: bool
    bootstrap: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Ask for the log's start and end, where `epoch` ends and which batch lies where the copy has `tail` (unless None).

    With `start`, a time in milliseconds or -1 for the end, also for the first committed offset of then.
    """

    topic_id: UUID
    leader_epoch: int
    log_end_offset: int
    epoch: int | None
    tail: BatchHeader | None
    start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Ask for batches from `offset` on."""

    topic_id: UUID
    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """`epoch` is the largest that the source knows not above the one asked for, `epoch_end` where it ends; -1: none.

    `tail` is the source's batch at the base offset of the one asked for; None when the source no longer has it.
    `begin` is where the copy is to begin; -1 where that was not asked.
    """

    log_start_offset: int
    log_end_offset: int
    epoch: int = UNKNOWN
    epoch_end: int = UNKNOWN
    tail: BatchHeader | None = None
    begin: int = UNKNOWN
