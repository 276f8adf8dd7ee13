"""One simulated broker: the real `server.broker.Broker` on a simulated host.

The host is its clock, its disk, its end of the network and its session with ZooKeeper. `kill` ends the process at once: the
disk stays, with all or, after a power cut, with some of what was not synced, and whatever the dead process still holds (open
files, sockets, timers) reaches nobody any more. `pause` is SIGSTOP and SIGCONT as others see it: they hear nothing meanwhile.
`leads` is told each time that a process begins to lead a partition.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from random import Random
from typing import Any

from ensemble import Ensemble, SimulatedKazoo
from faulty_files import FaultyFiles
from network import Network, SimulatedLink
from virtual_time import LoopClock, VirtualLoop

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.keys import ConfigurationError
from headrace.broker.errors import StorageError
from headrace.broker.replication.partition import Partition
from headrace.broker.server.broker import Broker
from headrace.broker.server.cluster import Cluster
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.server.surroundings import Surroundings
from headrace.broker.tasks import Tasks
from headrace.broker.wire.client.view import Address
from headrace.broker.zk.znodes import ZooKeeperError

PORT = 9092
SESSION_SECONDS = 3.0
SETTINGS = {
    "zookeeper.connect": "zk",
    "zookeeper.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "log.dirs": "/data",
    "log.cleaner.enable": "false",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
    "num.partitions": "2",
    "socket.send.buffer.bytes": "-1",
    "socket.receive.buffer.bytes": "-1",
}


class Inline:
    """A pool whose jobs are done by who asks for them."""

    def map(self, work: Callable[[Any], Any], values: Iterable[Any]) -> Iterable[Any]:
        return [work(value) for value in values]


class Node:
    """A broker and its host; it begins without a process: `start` it."""

    def __init__(
        self,
        loop: VirtualLoop,
        ensemble: Ensemble,
        network: Network,
        broker_id: int,
        settings: Mapping[str, str] | None = None,
        disk: FaultyFiles | None = None,
        began_ms: int = 0,
        leads: Callable[[Partition, int], None] = lambda partition, broker_id: None,
    ) -> None:
        self.broker_id = broker_id
        self.disk = disk or FaultyFiles()
        self.name = f"broker-{broker_id}"
        self.rack = f"rack-{broker_id}"
        self.address: Address = (self.name, PORT)
        self.broker: Broker | None = None
        self.kazoo: SimulatedKazoo | None = None
        self.failure: Exception | None = None
        self._loop, self._ensemble, self._network = loop, ensemble, network
        self.clock = LoopClock(loop, began_ms)
        self._leads = leads
        self._properties = {
            **SETTINGS,
            "broker.id": str(broker_id),
            "broker.rack": self.rack,
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            **(settings or {}),
        }
        self._starting = Tasks()

    @property
    def is_dead(self) -> bool:
        return self.broker is None

    @property
    def is_serving(self) -> bool:
        return self.broker is not None and self.broker.is_serving

    @property
    def cluster(self) -> Cluster:
        """Of the process, which lives."""
        assert self.broker is not None, "it is dead"
        return self.broker.cluster

    @property
    def metadata(self) -> MetadataCache:
        """Of the process, which lives."""
        assert self.broker is not None, "it is dead"
        return self.broker.metadata

    @property
    def is_paused(self) -> bool:
        return self.kazoo is not None and self.kazoo.frozen_until > self._loop.time()

    @property
    def is_well(self) -> bool:
        """Whether it can be elected, now and for as long as nothing else happens."""
        has_session = self.kazoo is not None and self.kazoo.is_well
        return self.is_serving and has_session and self.disk.room is None

    def disconnect(self) -> None:
        """Its connection to ZooKeeper breaks."""
        if self.kazoo is not None:
            self.kazoo.disconnect()

    def leave_zookeeper(self) -> None:
        """ZooKeeper is out of reach for this broker alone, until `join_zookeeper`."""
        if self.kazoo is not None:
            self.kazoo.cut()

    def join_zookeeper(self) -> None:
        if self.kazoo is not None:
            self.kazoo.heal()

    def expire(self) -> None:
        """ZooKeeper ends its session, and tells it."""
        if self.kazoo is not None:
            self.kazoo.expire()

    def fill_disk(self, room: int) -> None:
        """So many bytes more, and the disk is full: until `make_room`, or until the process ends."""
        self.disk.room = room

    def make_room(self) -> None:
        self.disk.room = None

    def start(self) -> None:
        """Start a process; `is_serving` once it does."""
        assert self.broker is None, "it runs"
        config, _ = BrokerConfig.from_properties(self._properties)
        self.failure = None
        self.kazoo = SimulatedKazoo(self._ensemble, SESSION_SECONDS)
        self.broker = Broker(config, self.kill, self._host(self.kazoo))
        self._tell_who_leads(self.broker)
        self._starting.start("start", self._start(self.broker))

    def kill(self, power_cut: Random | None = None) -> None:
        """SIGKILL, or a power cut."""
        broker, kazoo = self.broker, self.kazoo
        if broker is None or kazoo is None:
            return
        self.broker = None
        kazoo.die()
        self._network.hang_up(self.address)
        self._network.forget(self.name)
        for tasks in (self._starting, broker.tasks, broker.embedded):
            for task in list(tasks._tasks):
                task.cancel()
        if broker.acceptor is not None:
            broker.acceptor.stop()
            broker.acceptor._turns.close()
        # What the dead process still has under way comes to nothing, least of all on the disk of its successor.
        dead, self.disk = self.disk, copy.deepcopy(self.disk)
        dead.operations_left = 0
        if power_cut is None:
            self.disk.kill()
        else:
            self.disk.crash(power_cut)

    async def stop(self) -> None:
        """SIGTERM."""
        broker = self.broker
        if broker is not None:
            for task in list(self._starting._tasks):
                task.cancel()
            # A full disk does not take what is still to be written: the process ends all the same.
            with suppress(StorageError):
                await broker.stop()
            if self.broker is broker:
                self.kill()

    def pause(self, seconds: float) -> None:
        """SIGSTOP and, later, SIGCONT."""
        if self.kazoo is not None:
            self.kazoo.freeze(seconds)
            self._network.pause(self.name, seconds)

    def _host(self, kazoo: SimulatedKazoo) -> Surroundings:
        async def connect(address: Address, client_id: str, timeout_ms: int) -> SimulatedLink:
            return await SimulatedLink.open(
                self._network, self.name, address, client_id, timeout_ms, negotiates=False
            )

        def files(on_failure: object) -> FaultyFiles:
            return self.disk

        return Surroundings(
            clock=self.clock,
            now=self._loop.time,
            files=files,
            bind=lambda listener, network: self._network.listen(self.address),  # type: ignore[return-value,arg-type]
            threads=lambda count: nullcontext(Inline()),
            connector=lambda *_: connect,
            kazoo=lambda *_: kazoo,
        )

    def _tell_who_leads(self, broker: Broker) -> None:
        changed = broker._partition_changed

        def tell(partition: Partition) -> None:
            if partition.is_leader and self.broker is broker:
                self._leads(partition, self.broker_id)
            changed(partition)

        broker._partition_changed = tell  # type: ignore[method-assign]

    async def _start(self, broker: Broker) -> None:
        try:
            await broker.start()
        except (ZooKeeperError, StorageError, ConfigurationError) as error:
            self.failure = error
            if self.broker is broker:
                self.kill()
