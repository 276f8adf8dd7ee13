"""Whom the command for transactions asks, and what it makes of answers."""

from __future__ import annotations

import json
import socket
from typing import Any

import click
import pytest
from click.testing import CliRunner
from scripted_broker import API_VERSIONS, scripted_broker

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import ErrorCode
from headrace.cli import broker_answers
from headrace.cli.cluster_admin import ClusterAdmin
from headrace.cli.hanging_transactions import ProducerState
from headrace.cli.transaction_admin import TransactionAdmin
from headrace.cli.transactions import transactions

METADATA, FIND, MARKERS, PRODUCERS, DESCRIBE, LIST = 3, 10, 27, 61, 65, 66
VERSIONS = {METADATA: 12, FIND: 4, MARKERS: 1, PRODUCERS: 0, DESCRIBE: 0, LIST: 1}


class Coordinator:
    """The only broker, or beside one that hangs. It has one transactional id, and is loading when it is asked first."""

    def __init__(self) -> None:
        self.address = ("", 0)
        self.refusals = 1
        self.marker_error = ErrorCode.NONE
        self.states = {"t": "Ongoing"}
        self.hanging: tuple[str, int] | None = None

    def __call__(self, key: int, message: dict[str, Any]) -> dict[str, Any]:
        if key == API_VERSIONS:
            keys = [{"api_key": k, "min_version": 0, "max_version": v} for k, v in VERSIONS.items()]
            return {"api_keys": keys}
        if key == METADATA:
            return self._metadata(message)
        if key == FIND:
            host, port = self.address
            found = {
                "key": "t",
                "node_id": 1,
                "host": host,
                "port": port,
                "error_code": 0,
                "error_message": "",
            }
            return {"coordinators": [found]}
        if key == DESCRIBE:
            return {"transaction_states": [self._state(message["transactional_ids"][0])]}
        if key == MARKERS:
            partition = {"partition_index": 0, "error_code": self.marker_error}
            topic = {"name": "orders", "partitions": [partition]}
            return {"markers": [{"producer_id": 7, "topics": [topic]}]}
        states = [
            {"transactional_id": name, "producer_id": 7, "transaction_state": state}
            for name, state in self.states.items()
        ]
        unknown = [name for name in message["state_filters"] if name != "Ongoing"]
        return {"error_code": self._error(), "unknown_state_filters": unknown, "transaction_states": states}

    def _metadata(self, message: dict[str, Any]) -> dict[str, Any]:
        host, port = self.address
        broker = {"node_id": 1, "host": host, "port": port, "rack": None}
        partition = {
            "error_code": 0,
            "partition_index": 0,
            "leader_id": 1,
            "leader_epoch": 0,
            "replica_nodes": [1],
            "isr_nodes": [1],
            "offline_replicas": [],
        }
        topic = {"error_code": 0, "name": "orders", "partitions": [partition]}
        topics = [topic] if message["topics"] else []
        hanging = [{**broker, "node_id": 2, "port": self.hanging[1]}] if self.hanging else []
        return {"brokers": [broker, *hanging], "controller_id": 1, "cluster_id": "c", "topics": topics}

    def _error(self) -> ErrorCode:
        self.refusals -= 1
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.refusals >= 0 else ErrorCode.NONE

    def _state(self, name: str) -> dict[str, Any]:
        error = self._error() or (ErrorCode.NONE if name == "t" else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return {
            "error_code": error,
            "transactional_id": name,
            "transaction_state": "Ongoing",
            "transaction_timeout_ms": 60_000,
            "transaction_start_time_ms": 5,
            "producer_id": 7,
            "producer_epoch": 3,
            "topics": [{"topic": "orders", "partitions": [0, 2]}],
        }


STATE = ProducerState(
    place=("orders", 0),
    producer_id=7,
    producer_epoch=3,
    coordinator_epoch=-1,
    last_sequence=0,
    last_timestamp_ms=0,
    start_offset=4,
)


def test_a_coordinator_that_loads_is_asked_again() -> None:
    script = Coordinator()
    with scripted_broker(script) as broker:
        script.address = broker.address
        with ClusterAdmin(Bootstrap("{}:{}".format(*broker.address))) as cluster:
            admin = TransactionAdmin(cluster)
            row = {"transactional_id": "t", "coordinator": 1, "producer_id": 7, "state": "Ongoing"}
            assert admin.listed().whole() == [row]
            script.refusals = 1
            found = admin.described("t")
            assert found is not None
            assert found.partitions == (("orders", 0), ("orders", 2))
            assert admin.described("nobody") is None
            assert [each.producer_id for each in admin.of_producers([7, 7])] == [7]
            with pytest.raises(click.ClickException, match="there is no state Merry"):
                admin.listed(states=["Merry"])


def test_only_transactions_that_are_open_have_a_duration() -> None:
    script = Coordinator()
    script.states = {"a": "Ongoing", "b": "CompleteCommit", "c": "PrepareAbort", "d": "Empty"}
    with scripted_broker(script) as broker:
        script.address = broker.address
        with ClusterAdmin(Bootstrap("{}:{}".format(*broker.address))) as cluster:
            admin = TransactionAdmin(cluster)
            assert [row["transactional_id"] for row in admin.listed(longer_than_ms=0).rows] == ["a", "c"]
            assert [row["transactional_id"] for row in admin.listed().rows] == ["a", "b", "c", "d"]


def test_transactions_of_a_broker_that_hangs_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_answers, "TIMEOUT_SECONDS", 0.2)
    script = Coordinator()
    script.refusals = 0
    with socket.create_server(("127.0.0.1", 0)) as hanging, scripted_broker(script) as broker:
        script.address, script.hanging = broker.address, hanging.getsockname()
        where = ["--bootstrap", "{}:{}".format(*broker.address)]
        done = CliRunner().invoke(transactions, ["list", "--json", *where])
        with (
            ClusterAdmin(Bootstrap(where[1])) as cluster,
            pytest.raises(click.ClickException, match="broker 2"),
        ):
            TransactionAdmin(cluster).of_producers([7])
    assert (done.exit_code, [row["transactional_id"] for row in json.loads(done.stdout)]) == (1, ["t"])
    assert done.stderr == (
        "Error: list transactions: some may be missing, since broker 2 does not answer (timed out); "
        "see that all run, then ask again.\n"
    )


def test_a_partition_that_is_not_there_is_named() -> None:
    script = Coordinator()
    with scripted_broker(script) as broker:
        script.address = broker.address
        with ClusterAdmin(Bootstrap("{}:{}".format(*broker.address))) as cluster:
            admin = TransactionAdmin(cluster)
            assert admin.leaders("orders", 0) == {("orders", 0): 1}
            with pytest.raises(click.ClickException, match=r"There is no orders-9"):
                admin.leaders("orders", 9)


def test_an_abort_names_the_producer_and_the_first_coordinator_and_tells_of_a_refusal() -> None:
    script = Coordinator()
    with scripted_broker(script) as broker:
        script.address = broker.address
        with ClusterAdmin(Bootstrap("{}:{}".format(*broker.address))) as cluster:
            admin = TransactionAdmin(cluster)
            admin.abort(STATE)
            (sent,) = [message["markers"] for key, message in broker.asked if key == MARKERS]
            assert [(m["producer_id"], m["producer_epoch"], m["coordinator_epoch"]) for m in sent] == [
                (7, 3, 0)
            ]
            assert not sent[0]["transaction_result"]
            script.marker_error = ErrorCode.INVALID_PRODUCER_EPOCH
            with pytest.raises(click.ClickException, match="INVALID_PRODUCER_EPOCH"):
                admin.abort(STATE)
