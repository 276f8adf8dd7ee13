"""The partitions that live on this broker: performs the controller's LeaderAndIsr and StopReplica requests.

Invariants: a request of an older controller epoch, of an older broker epoch or with an older leader epoch changes
nothing; a partition's leader epoch never goes back; everyone who watches (`on_change`) is told after the change. Must not
know ZooKeeper: the only source is the controller's requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.broker.replication.leader import Partition

if TYPE_CHECKING:
    from headrace.broker.log.store import LogStore

PartitionCallback = Callable[[Partition], None]


class Partitions:
    """All replicas of this broker by (topic, partition)."""

    def __init__(self, broker_id: int, logs: LogStore) -> None:
        self.broker_id = broker_id
        self.logs = logs
        self.controller_epoch = 0
        self.broker_epoch = -1
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._callbacks: list[PartitionCallback] = []

    def leader_of(self, topic: str, partition: int) -> Partition:
        """The partition when this broker leads it.

        Raises NotLeaderOrFollowerError (the cluster has it, this broker does not lead it) or
        UnknownTopicOrPartitionError (this broker does not know it).
        """
        raise NotImplementedError

    def get(self, topic: str, partition: int) -> Partition | None:
        """The replica, whoever leads it, or None."""
        return self._partitions.get((topic, partition))

    def led(self) -> Iterable[Partition]:
        """The partitions that this broker leads now."""
        return [p for p in self._partitions.values() if p.is_leader]

    def on_change(self, callback: PartitionCallback) -> None:
        """Call `callback(partition)` after it became led (`is_leader`), stopped being led, or was deleted."""
        self._callbacks.append(callback)

    def leader_and_isr(self, request: dict[str, Any]) -> dict[str, Any]:
        """Perform a LeaderAndIsr request; answers the response message."""
        raise NotImplementedError

    def stop_replica(self, request: dict[str, Any]) -> dict[str, Any]:
        """Perform a StopReplica request; answers the response message."""
        raise NotImplementedError
