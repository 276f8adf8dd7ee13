"""What handlers reach of broker 1, which holds `events-0` together with brokers 2 and 3, for tests that script all three."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from log_kit import NOW_MS, batch, open_log
from replica_kit import ScriptedHost, told

from headrace.broker.config.sections import RACK_AWARE_SELECTOR
from headrace.broker.errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from headrace.broker.replication.partition import Partition
from headrace.broker.waiting.parking import Waiting

RACKS = {1: "a", 2: "b", 3: "b"}


class Turns:
    """A loop: what is woken is attempted in `turn`, time-outs come when the test lets them."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], Any]] = []

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.soon.append(lambda: callback(*args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        return SimpleNamespace(cancel=lambda: None)

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class ReplicatedBroker(SimpleNamespace):
    """`partition` is led in epoch 4, by this broker, with `end` records, of which nothing is committed yet."""

    def __init__(self, folder: Path, end: int = 0, *, leader: int = 1) -> None:
        log, _ = open_log(folder)
        self.host = ScriptedHost()
        self.partition = Partition(self.host, "events", 0, UUID(int=1), log)
        self.host.committed = lambda partition: self.waiting.wake(partition.topic, partition.partition)  # type: ignore[method-assign]
        self.loop = Turns()
        self.waiting = Waiting(self.loop)
        if end:
            self.partition.appender.append_as_leader(batch(end), leader_epoch=3, now_ms=NOW_MS)
        self.lead(leader, 4)
        super().__init__(
            authorizer=None,
            partitions=SimpleNamespace(leader_of=self.leader_of, replica=self.replica, get=self.replica),
            metadata=SimpleNamespace(
                topic_name=lambda _: "events",
                partition=lambda topic, index: SimpleNamespace(leader=2, leader_epoch=5),
                brokers={number: SimpleNamespace(rack=rack) for number, rack in RACKS.items()},
            ),
            config=SimpleNamespace(
                replication=SimpleNamespace(replica_selector_class=RACK_AWARE_SELECTOR, fetch_max_bytes=10**6)
            ),
            clock=SimpleNamespace(now_ms=lambda: NOW_MS, monotonic_ms=lambda: 0),
        )

    def lead(self, leader: int, epoch: int, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        """The controller's word."""
        self.partition.follow(told(leader, epoch, isr, (1, 2, 3)))

    def leader_of(self, topic: str, index: int) -> Partition:
        partition = self.replica(topic, index)
        if not partition.is_leader:
            raise NotLeaderOrFollowerError("led elsewhere")
        return partition

    def replica(self, topic: str, index: int) -> Partition:
        if (topic, index) != ("events", 0):
            raise UnknownTopicOrPartitionError("never heard of it")
        return self.partition

    def fetched(self, replica: int, offset: int, log_start_offset: int = 0) -> None:
        """A follower is there."""
        self.partition.follower_fetched(replica, offset, log_start_offset=log_start_offset)
