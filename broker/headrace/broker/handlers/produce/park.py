"""Holds an answer back until what was appended may be acknowledged, or its time is over."""

from __future__ import annotations

from collections.abc import Callable, Collection

from headrace.broker.errors import NotLeaderOrFollowerError, RequestTimedOutError, StorageError
from headrace.broker.handlers.produce.outcome import Outcome
from headrace.broker.handlers.replies import Parts
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting


def is_done(outcome: Outcome, acks: int) -> bool:
    """Whether what was appended may be acknowledged: with acks=all when committed, else when as durable as it shall be."""
    assert outcome.partition is not None
    assert outcome.result is not None
    log, last_offset = outcome.partition.log, outcome.result.last_offset
    if acks == -1:
        return log.high_watermark > last_offset
    return not log.awaits_sync or last_offset < log.recovery_point or not log.is_sync_due


def park(
    waiting: Waiting,
    outcomes: list[Outcome],
    acks: int,
    timeout_ms: int,
    encode: Callable[[list[Outcome]], Parts],
) -> Deferred[Parts]:
    """What `encode` makes of the outcomes once all are certain, at most `timeout_ms` later."""
    keys = [(outcome.topic, outcome.partition_index) for outcome in outcomes if outcome.error is None]

    def attempt(moved: Collection[tuple[str, int]] | None) -> Parts | None:
        settled = [s for o in outcomes if (s := _settle(o, acks, final=moved is None)) is not None]
        return encode(settled) if len(settled) == len(outcomes) else None

    return waiting.park(keys, timeout_ms, attempt)


def _settle(outcome: Outcome, acks: int, *, final: bool) -> Outcome | None:
    """The outcome once it is certain: done, or not on this disk, or not by this leader, or not in time; None before."""
    if outcome.error is not None or is_done(outcome, acks):
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
