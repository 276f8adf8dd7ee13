"""Replicas on logs in memory for published schedules: a log by the epochs of its messages, who leads, who follows."""

from __future__ import annotations

from typing import Any

from stub_log import Entry, StubLog

from headrace.broker.replication.follower import Append, Follower, TruncateTo
from headrace.broker.wire.client.replica_fetch import DivergingEpoch, FetchedPartition, FetchQuestion


def log(*epochs: int, high_watermark: int = 0) -> StubLog:
    """A log with a message of each of these epochs, which say whose it is."""
    made = StubLog()
    for offset, epoch in enumerate(epochs):
        made.append_fetched(offset, [Entry(epoch, b"m%d of %d" % (offset, epoch))])
    made.high_watermark = high_watermark
    return made


def lead(leader: StubLog, epoch: int) -> None:
    leader.assign_epoch(epoch)


def answer(leader: StubLog, question: FetchQuestion) -> FetchedPartition:
    """What the leader's handler of Fetch says (KIP-595)."""
    end = leader.epoch_end_offset(question.last_epoch)
    if question.last_epoch >= 0 and (
        end.leader_epoch < question.last_epoch or end.end_offset < question.offset
    ):
        return FetchedPartition(0, leader.high_watermark, 0, DivergingEpoch(*end), None)
    records: Any = leader.entries[question.offset :]
    return FetchedPartition(0, leader.high_watermark, 0, None, records)


def follow(own: StubLog, leader: StubLog, epoch: int, rounds: int = 8) -> list[int]:
    """Fetch until there is nothing more; the offsets at which the follower cut its log."""
    follower = Follower("t", 0, own, leader_epoch=epoch, backoff_ms=1)
    cuts = []
    for now_ms in range(0, 10 * rounds, 10):
        question = follower.question(now_ms)
        if question is None:
            continue
        follower.asked = question
        match follower.answered(answer(leader, question), now_ms):
            case TruncateTo(offset=offset):
                cuts.append(offset)
                own.truncate_to(offset)
                follower.truncated()
            case Append(records=records, high_watermark=high_watermark):
                entries: Any = records or []
                own.append_fetched(question.offset, entries)
                own.advance_high_watermark(high_watermark)
                follower.appended(high_watermark)
    return cuts
