"""What the commands for reassignments ask, whom, and what they make of answers."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from scripted_broker import API_VERSIONS, scripted_broker

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import ErrorCode
from headrace.cli import cluster_admin
from headrace.cli.cluster_admin import ClusterAdmin, Move

METADATA, REASSIGN, LIST = 3, 45, 46


class Controller:
    """The only broker; it is controller from the second question on."""

    def __init__(self) -> None:
        self.address = ("", 0)
        self.refusals = 1

    def __call__(self, key: int, message: dict[str, Any]) -> dict[str, Any]:
        if key == API_VERSIONS:
            keys = [(METADATA, 12), (REASSIGN, 0), (LIST, 0)]
            return {"api_keys": [{"api_key": k, "min_version": 0, "max_version": v} for k, v in keys]}
        if key == METADATA:
            host, port = self.address
            broker = {"node_id": 1, "host": host, "port": port, "rack": None}
            return {"brokers": [broker], "controller_id": 1, "cluster_id": "c", "topics": []}
        if self.refusals:
            self.refusals -= 1
            return {"error_code": ErrorCode.NOT_CONTROLLER, "error_message": None}
        if key == LIST:
            partition = {
                "partition_index": 4,
                "replicas": [3, 1],
                "adding_replicas": [3],
                "removing_replicas": [],
            }
            return {"error_message": None, "topics": [{"name": "t", "partitions": [partition]}]}
        refused = {"partition_index": 0, "error_code": 39, "error_message": "no such broker"}
        done = {"partition_index": 1, "error_code": 0, "error_message": None}
        return {"error_message": None, "responses": [{"name": "t", "partitions": [refused, done]}]}


def test_the_controller_is_found_again_and_what_it_refuses_is_told() -> None:
    script = Controller()
    with scripted_broker(script) as broker:
        script.address = broker.address
        with ClusterAdmin(Bootstrap("{}:{}".format(*broker.address))) as admin:
            assert admin.moves() == {("t", 4): Move(replicas=(3, 1), adding=(3,), removing=())}
            refused = admin.reassign({("t", 0): (9,), ("t", 1): None})
    assert {key: (error.code, str(error)) for key, error in refused.items()} == {
        ("t", 0): (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker")
    }
    (wish,) = [message["topics"] for key, message in broker.asked if key == REASSIGN]
    assert [(p["partition_index"], p["replicas"]) for p in wish[0]["partitions"]] == [(0, [9]), (1, None)]


def test_another_broker_is_asked_where_one_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_admin, "TIMEOUT_SECONDS", 0.2)
    script = Controller()
    with socket.create_server(("127.0.0.1", 0)) as hanging, scripted_broker(script) as broker:
        script.address = broker.address
        bootstrap = "127.0.0.1:{},{}:{}".format(hanging.getsockname()[1], *broker.address)
        with ClusterAdmin(Bootstrap(bootstrap)) as admin:
            assert admin.cluster().controller == 1
