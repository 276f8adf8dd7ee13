"""Holds an answer back until what was appended may be acknowledged, or its time is over.

Invariant: what one leadership appended no other one acknowledges, though this broker may lead again and its log hold
something at those offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from headrace.broker.errors import (
    NotEnoughReplicasAfterAppendError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StorageError,
)
from headrace.broker.handlers.produce.outcome import AppendedRun, Outcome
from headrace.broker.handlers.replies import Parts
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting

if TYPE_CHECKING:
    from headrace.broker.replication.partition import Partition

T = TypeVar("T")


def is_done(partition: Partition, end_offset: int, acks: int) -> bool:
    """Whether all below that offset is what `acks` asks for: committed (-1), or as durable as it shall be."""
    log = partition.log
    if acks == -1:
        return log.high_watermark >= end_offset
    return not log.awaits_sync or end_offset <= log.recovery_point or not log.is_sync_due


def is_acknowledged(run: AppendedRun, acks: int) -> bool:
    """Whether all that was appended may be acknowledged."""
    partition = run.partition
    return (
        partition.leadership is run.leadership
        and is_done(partition, run.end_offset, acks)
        and (acks != -1 or partition.has_enough_in_sync)
    )


def park(
    waiting: Waiting,
    outcomes: list[Outcome],
    acks: int,
    timeout_ms: int,
    encode: Callable[[list[Outcome]], T],
) -> Deferred[T]:
    """What `encode` makes of the outcomes once all are certain, at most `timeout_ms` later."""
    keys = [(outcome.topic, outcome.partition_index) for outcome in outcomes if outcome.error is None]

    def attempt(moved: Collection[tuple[str, int]] | None) -> T | None:
        settled = all_certain(outcomes, acks)
        if settled is not None:
            return encode(settled)
        return encode([settle(outcome, acks) for outcome in outcomes]) if moved is None else None

    return waiting.park(keys, timeout_ms, attempt)


def park_runs(
    waiting: Waiting, runs: Sequence[AppendedRun], acks: int, timeout_ms: int, encode: Callable[[], Parts]
) -> Deferred[Parts]:
    """What `encode` makes once all runs are certain, at most `timeout_ms` later."""
    left = [run for run in runs if not is_done(run.partition, run.end_offset, acks)]
    keys = [(run.topic, run.partition.partition) for run in left]

    def attempt(moved: Collection[tuple[str, int]] | None) -> Parts | None:
        return encode() if moved is None or all(_is_certain(run, acks) for run in left) else None

    return waiting.park(keys, timeout_ms, attempt)


def settle(outcome: Outcome, acks: int) -> Outcome:
    """The outcome as it is answered now: what is not certain is too late."""
    settled = _certain(outcome, acks)
    if settled is None:
        return outcome._replace(error=RequestTimedOutError("not all in-sync replicas had it in time"))
    return settled


def all_certain(outcomes: Sequence[Outcome], acks: int) -> list[Outcome] | None:
    """The outcomes once all of them are certain; None before."""
    settled = [s for o in outcomes if (s := _certain(o, acks)) is not None]
    return settled if len(settled) == len(outcomes) else None


def _is_certain(run: AppendedRun, acks: int) -> bool:
    partition = run.partition
    return (
        is_done(partition, run.end_offset, acks)
        or partition.leadership is not run.leadership
        or partition.log.has_failed
    )


def _certain(outcome: Outcome, acks: int) -> Outcome | None:
    """The outcome once it is certain: done, or not on this disk, or not by this leader; None before.

    The rules are those of kafka.cluster.Partition.checkEnoughReplicasReachOffset.
    """
    if outcome.error is not None:
        return outcome
    partition, result = outcome.partition, outcome.result
    assert partition is not None
    assert result is not None
    if partition.leadership is not outcome.leadership:
        return outcome._replace(error=NotLeaderOrFollowerError("leadership moved before all replicas had it"))
    if is_done(partition, result.last_offset + 1, acks):
        if acks != -1 or partition.has_enough_in_sync:
            return outcome
        reason = "fewer replicas than min.insync.replicas were in sync when it was committed"
        return outcome._replace(error=NotEnoughReplicasAfterAppendError(reason))
    if partition.log.has_failed:
        return outcome._replace(error=StorageError("the disk could not sync it"))
    return None
