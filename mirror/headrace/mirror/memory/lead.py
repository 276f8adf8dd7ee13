"""One leadership of a copy's partition: what is decided under it counts for nothing under the next one."""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.server.embedding import Partition
from headrace.mirror.memory.state import place_of


class Lead(NamedTuple):
    """This broker leads `partition` in `leader_epoch`, or did."""

    partition: Partition
    leader_epoch: int

    @property
    def holds(self) -> bool:
        """Whether it still does."""
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    @property
    def place(self) -> bytes:
        return place_of(self.partition.topic, self.partition.partition)
