"""What a controller changed of leaders and in-sync replicas: a line of the log for each, and counts of elections.

Kafka's LeaderElectionRateAndTimeMs and UncleanLeaderElectionsPerSec count the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.broker.replication.events import StatesWritten, StateWrite, WriteStates
from headrace.broker.replication.model import NO_LEADER, PartitionState, ids_text
from headrace.broker.structured_log import Event, get_logger
from headrace.broker.wire.partitions import PartitionKey

logger = get_logger(__name__)
LINES_AT_ONCE = 25
"""Before others have their turn: about a millisecond."""


class StateChange(NamedTuple):
    """What was written, and in place of what."""

    before: PartitionState | None
    write: StateWrite
    state: PartitionState


def state_changes(
    before: Mapping[PartitionKey, PartitionState], command: WriteStates, outcome: StatesWritten
) -> list[StateChange]:
    """The changes that a command made of the states `before`."""
    written = outcome.written
    keys = ((w, (w.topic, w.partition)) for w in command.writes)
    return [StateChange(before.get(key), w, written[key]) for w, key in keys if key in written]


class StateChanges:
    """Of this broker's terms; the counts live as long as the broker."""

    def __init__(self) -> None:
        self.leader_elections = 0
        self.unclean_leader_elections = 0

    async def tell(self, changes: Sequence[StateChange]) -> None:
        """Count and log them."""
        for first in range(0, len(changes), LINES_AT_ONCE):
            await asyncio.sleep(0)
            logger.info_all([self._counted(*change) for change in changes[first : first + LINES_AT_ONCE]])

    def _counted(self, before: PartitionState | None, write: StateWrite, state: PartitionState) -> Event:
        facts: dict[str, object] = {"topic": write.topic, "partition": write.partition}
        old_leader, old_isr = (NO_LEADER, ()) if before is None else (before.leader, before.isr)
        event = "in-sync replicas changed"
        if state.leader != old_leader:
            event = "partition has no leader" if state.leader == NO_LEADER else "leader elected"
            facts |= {"leader": state.leader, "before": old_leader}
            if state.leader != NO_LEADER:
                self._count(is_unclean=before is not None and state.leader not in old_isr)
        return event, {
            **facts,
            "isr": ids_text(state.isr),
            "isr_before": ids_text(old_isr),
            "leader_epoch": state.leader_epoch,
            "partition_epoch": state.zk_version,
            "controller_epoch": state.controller_epoch,
            "reason": write.reason,
        }

    def _count(self, *, is_unclean: bool) -> None:
        self.leader_elections += 1
        self.unclean_leader_elections += is_unclean
