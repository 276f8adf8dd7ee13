"""What the controller asks of this broker is answered, whatever becomes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from virtual_time import LoopClock, VirtualLoop

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.errors import ErrorCode
from headrace.broker.replication.control_requests import (
    LeaderAndIsr,
    StopReplica,
    ToldPartition,
    ToldStop,
    UpdateMetadata,
)
from headrace.broker.replication.model import Broker, Endpoint, PartitionMetadata
from headrace.broker.server.cluster import Cluster
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.tasks import Tasks
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.zk import paths


def test_what_fails_on_a_broker_is_answered_to_the_controller() -> None:
    async def script() -> Any:
        properties = {"zookeeper.connect": "nowhere"}
        config, _ = BrokerConfig.from_properties(properties)
        cluster = Cluster(config, LoopClock(loop), MetadataCache(), Tasks())
        sender: Any = {"controller_id": 1, "controller_epoch": 1}
        requests = (
            LeaderAndIsr(**sender, partitions=()),
            StopReplica(**sender, replicas=(ToldStop("t", 0, 0, delete=True),)),
            UpdateMetadata(**sender, brokers=(), partitions=()),
        )
        return [await cluster.control.perform(request) for request in requests]

    with VirtualLoop() as loop:
        answers = loop.run_until_complete(script())
    error = {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR}
    stopped = [{"topic_name": "t", "partition_index": 0, **error}]
    assert answers == [
        {**error, "partition_errors": [], "topics": []},
        {**error, "partition_errors": stopped},
        error,
    ]


class AskedController:
    """The controller, which has a partition left that the broker leads, however often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def connect(self, *_: object) -> Any:
        return self

    async def ask(self, *_: object) -> dict[str, Any]:
        self.asked += 1
        return {"error_code": 0, "remaining_partitions": [{"topic_name": "t", "partition_index": 0}]}

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("replicas", "asked"), [((1, 2), 4), ((1, 3), 1)])
def test_a_stopping_broker_asks_again_only_for_what_a_live_broker_could_lead(
    replicas: tuple[int, ...], asked: int
) -> None:
    async def script() -> None:
        config, _ = BrokerConfig.from_properties({"zookeeper.connect": "nowhere"})
        metadata = MetadataCache()
        cluster = Cluster(config, LoopClock(loop), metadata, Tasks(), connect=controller.connect)
        nobodys: Any = object()
        cluster.control.obey(nobodys)
        cluster.membership.broker_id = 1
        endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=1)
        brokers = tuple(Broker(broker_id=n, epoch=n, endpoints=(endpoint,)) for n in (1, 2))
        state = PartitionMetadata(leader=1, leader_epoch=0, replicas=replicas, isr=(1,), offline_replicas=())
        told = ToldPartition("t", ZERO_UUID, 0, state)
        metadata.update(
            UpdateMetadata(controller_id=2, controller_epoch=1, brokers=brokers, partitions=(told,))
        )
        await cluster.control.take_leave()

    controller = AskedController()
    with VirtualLoop() as loop:
        loop.run_until_complete(script())
    assert controller.asked == asked


def test_a_broker_that_starts_expects_the_topics_that_zookeeper_has() -> None:
    """A new controller tells of its topics one after another; what is being deleted is never told of."""
    names = {paths.TOPICS: ["going", "orders"], paths.DELETE_TOPICS: ["going"]}

    async def children(path: str) -> list[str]:
        return names[path]

    async def script() -> None:
        config, _ = BrokerConfig.from_properties({"zookeeper.connect": "nowhere"})
        cluster = Cluster(config, LoopClock(loop), metadata, Tasks())
        cluster.control._zookeeper = cast(Any, SimpleNamespace(children=children))
        cluster.control.obey(cast(Any, SimpleNamespace(broker_epoch=-1)))
        await cluster.control.registered()

    metadata = MetadataCache()
    with VirtualLoop() as loop:
        loop.run_until_complete(script())
    assert [metadata.is_expected(name) for name in ("orders", "going")] == [True, False]
