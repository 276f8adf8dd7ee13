"""Aggregate topics that are counted by their batch headers: by partition, their messages are those of their sources together.

Owns what follows from sums alone. An aggregate has batches and offsets of its own, and its headers do not tell which datacenter a
message is of; so windows, bytes and checksums are not compared, and nobody can say whose messages are missing. Rules:
- the sources are the datacenters whose topic of that name is counted by headers; where the offline cluster counts a copy of one
  as well, nobody knows whether it takes part, and sums are not compared; nor where one of the logs is compacted, or was not
  counted by headers from its first offset on;
- messages that are missing in the middle, or there again, are known by the sequences of the aggregate's producers (see
  `batch_judge`); what is missing beyond these is on its way, in the youngest messages of any source;
- what is there beyond these is in no live count yet.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.audit.ledger.batch_logs import BatchLog
from headrace.audit.outcome import Counts, Incomplete
from headrace.audit.parcels import Counter
from headrace.audit.period import BEGIN_MS, END_MS, Period

Logs = Mapping[Counter, BatchLog]
NOBODY: Final = "no datacenter counts this topic by its batch headers, so that nobody knows what it must have"
COMPACTED: Final = "the topic is compacted somewhere, so its messages do not add up"


@dataclass(slots=True)
class AggregateSums:
    """Of an aggregate, all partitions together; `counts.offline` are its own messages."""

    counts: Counts = field(default_factory=Counts)
    incomplete: list[Incomplete] = field(default_factory=list)


def judge_aggregate(topic: str, logs: Logs) -> AggregateSums:
    """Compare an aggregate with its sources; `logs` are those of all its and their partitions that are counted by headers."""
    found = AggregateSums()
    aggregates: dict[int, BatchLog] = {}
    sources: dict[int, dict[str, BatchLog]] = {}
    copied = set()
    for (tier, (datacenter, _, partition)), log in logs.items():
        if tier == "live":
            sources.setdefault(partition, {})[datacenter] = log
        elif datacenter:
            copied.add(datacenter)
        else:
            aggregates[partition] = log
    for partition in sorted({counter.place.partition for counter in logs}):
        aggregate = aggregates.get(partition, BatchLog())
        _judge(found, topic, partition, aggregate, sources.get(partition, {}), sorted(copied))
    return found


def _judge(
    found: AggregateSums,
    topic: str,
    partition: int,
    aggregate: BatchLog,
    sources: Mapping[str, BatchLog],
    copied: list[str],
) -> None:
    live = sum(log.messages for log in sources.values())
    found.counts.live += live
    found.counts.offline += aggregate.messages
    why = _incomparable(aggregate, sources, copied)
    if why:
        found.incomplete.append(_incomplete(topic, partition, why, BEGIN_MS))
        return
    waiting = live - aggregate.missing - aggregate.messages
    found.counts.under_way += max(0, waiting)
    found.counts.unknown += max(0, -waiting)
    if waiting > 0:
        names = " or ".join(sorted(sources))
        said = f"{waiting} messages are on their way to the aggregate topic, from {names}"
        since_ms = min(_since(log, waiting) for log in sources.values())
        found.incomplete.append(_incomplete(topic, partition, said, since_ms))
    elif waiting < 0:
        said = f"{-waiting} messages of the aggregate topic are in no count of a live cluster yet"
        found.incomplete.append(_incomplete(topic, partition, said, _since(aggregate, -waiting)))


def _incomparable(aggregate: BatchLog, sources: Mapping[str, BatchLog], copied: list[str]) -> str:
    """Say why sums say nothing; empty where they do."""
    if not sources:
        return NOBODY
    if copied:
        names = " and ".join(copied)
        return f"the offline cluster has copies of the topic of {names} as well, so nobody knows whether these take part"
    if aggregate.is_compacted or any(log.is_compacted for log in sources.values()):
        return COMPACTED
    partial = [name for name, log in sorted(sources.items()) if not log.is_whole]
    partial += [] if aggregate.is_whole else ["the offline cluster"]
    if partial:
        return f"{' and '.join(partial)} did not count it by batch headers from the first offset on, so sums cannot be compared"
    return ""


def _since(log: BatchLog, messages: int) -> int:
    """Return the first window in which the youngest messages of a log may lie."""
    since_ms = END_MS
    for block in sorted(log.blocks, reverse=True):
        since_ms = min(since_ms, *log.blocks[block])
        messages -= sum(sums.messages for sums in log.blocks[block].values())
        if messages <= 0:
            return since_ms
    return BEGIN_MS


def _incomplete(topic: str, partition: int, why: str, since_ms: int) -> Incomplete:
    return Incomplete(
        datacenter="",
        topic=topic,
        producer="",
        reason=f"partition {partition}: {why}",
        period=Period(since_ms, END_MS),
        hop="live_to_aggregate",
    )
