"""What the controller asks of this broker is answered, whatever becomes of it."""

from __future__ import annotations

from typing import Any

from virtual_time import LoopClock, VirtualLoop

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.errors import ErrorCode
from headrace.broker.replication.control_requests import LeaderAndIsr, StopReplica, UpdateMetadata
from headrace.broker.server.cluster import Cluster
from headrace.broker.server.metadata import MetadataCache
from headrace.broker.tasks import Tasks


def test_what_fails_on_a_broker_is_answered_to_the_controller() -> None:
    async def script() -> Any:
        properties = {"zookeeper.connect": "nowhere"}
        config, _ = BrokerConfig.from_properties(properties)
        cluster = Cluster(config, LoopClock(loop), MetadataCache(), Tasks())
        sender: Any = {"controller_id": 1, "controller_epoch": 1}
        requests = (
            LeaderAndIsr(**sender, partitions=()),
            StopReplica(**sender, replicas=()),
            UpdateMetadata(**sender, brokers=(), partitions=()),
        )
        return [await cluster.control.perform(request) for request in requests]

    with VirtualLoop() as loop:
        assert loop.run_until_complete(script()) == [{"error_code": ErrorCode.UNKNOWN_SERVER_ERROR}] * 3
