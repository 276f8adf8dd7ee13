"""Up to when topics and accounts are known whole, by the barriers of counters of live tiers. Pure.

A counter says at a moment how far its datacenter's logs go. Once all of that is counted, nothing of before is to come (`reach`
is told); once all accounts that lay in the monitoring topic are read, none of before is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.audit.latency import SourcePartition
from headrace.audit.ledger.changes import Changes
from headrace.audit.ledger.reach import Reach
from headrace.audit.records import Barrier
from headrace.broker.wire.partitions import TopicPartition
from headrace.events.avro_schemas import MONITORING_TOPIC

BARRIERS_MAX: Final = 100


@dataclass(slots=True)
class Barriers:
    """See the module's text."""

    reach: Reach
    changes: Changes
    open: list[Barrier] = field(default_factory=list)
    """Those that are not in force for all of their topics."""
    passed: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    """By (datacenter, topic): accounts below these offsets of the monitoring topic are counted in the live tier."""
    unheard: list[Barrier] = field(default_factory=list)
    """Those up to whose end the accounts are not read yet."""
    heard_until: dict[str, int] = field(default_factory=dict)
    """By datacenter: all accounts that were in its log at this time of its counter's clock are read."""

    def add(self, barrier: Barrier) -> None:
        self.open.append(barrier)
        del self.open[:-BARRIERS_MAX]
        self.unheard.append(barrier)
        # The oldest ones come true first.
        del self.unheard[BARRIERS_MAX // 2 : -BARRIERS_MAX // 2]

    def settle(self, read: Mapping[TopicPartition, int]) -> None:
        """Let those count whose ends are reached; `read` is the next offset to read of each input."""
        self.open = [barrier for barrier in self.open if not self._apply(barrier)]
        self.unheard = [barrier for barrier in self.unheard if not self._hear(barrier, read)]

    def _apply(self, barrier: Barrier) -> bool:
        """Let a barrier count for the topics that are counted up to it; returns whether these are all of its topics."""
        behind = {
            partition.topic
            for partition, offset in barrier.counted.items()
            if offset > 0
            and self.reach.position("live", SourcePartition(barrier.datacenter, *partition)) < offset
        }
        for topic in barrier.whole - behind:
            key = (barrier.datacenter, topic)
            self.reach.whole_at[key] = max(barrier.at_ms, self.reach.whole_at.get(key, 0))
            for place in self.reach.places.get(key, ()):
                if self.reach.position("offline", place) > self.reach.position("live", place):
                    self.changes.note(place)
            passed = self.passed.setdefault((barrier.datacenter, topic), {})
            for partition, offset in barrier.monitoring.items():
                passed[partition] = max(offset, passed.get(partition, 0))
        return not barrier.whole & behind

    def _hear(self, barrier: Barrier, read: Mapping[TopicPartition, int]) -> bool:
        """Note how far the accounts of a datacenter are read; returns whether they are up to a barrier's ends."""
        topic = f"{barrier.datacenter}.{MONITORING_TOPIC}"
        known = {partition.partition for partition in read if partition.topic == topic}
        if not known <= barrier.monitoring.keys():
            # A partition without a leader was left out: what lies there nobody knows.
            return True
        if any(read.get(TopicPartition(topic, at), 0) < end for at, end in barrier.monitoring.items()):
            return False
        self.heard_until[barrier.datacenter] = max(barrier.at_ms, self.heard_until.get(barrier.datacenter, 0))
        return True
