"""A cluster of one scripted broker, its controller, for commands that look at all of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from scripted_broker import API_VERSIONS, ScriptedBroker, scripted_broker

from headrace.broker.wire.api import APIS

METADATA = 3
BROKER_ID = 1
Answers = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]


@contextmanager
def scripted_cluster(topics: Mapping[str, int], answers: Answers) -> Iterator[ScriptedBroker]:
    """`topics` maps names to counts of partitions, `answers` each key that a test is about to what is answered."""

    def script(key: int, message: dict[str, Any]) -> dict[str, Any]:
        if key == API_VERSIONS:
            served = [(key, *APIS[key].versions) for key in (METADATA, *answers)]
            return {
                "api_keys": [
                    {"api_key": k, "min_version": low, "max_version": high} for k, low, high in served
                ]
            }
        return _metadata(broker, topics, message) if key == METADATA else answers[key](message)

    with scripted_broker(script) as broker:
        yield broker


def bootstrap_of(broker: ScriptedBroker) -> str:
    return "{}:{}".format(*broker.address)


def _metadata(broker: ScriptedBroker, topics: Mapping[str, int], request: dict[str, Any]) -> dict[str, Any]:
    host, port = broker.address
    wanted = topics if request["topics"] is None else [each["name"] for each in request["topics"]]
    return {
        "brokers": [{"node_id": BROKER_ID, "host": host, "port": port, "rack": None}],
        "controller_id": BROKER_ID,
        "cluster_id": "c",
        "topics": [_topic(name, topics.get(name, 0)) for name in wanted],
    }


def _topic(name: str, partition_count: int) -> dict[str, Any]:
    partition = {
        "error_code": 0,
        "leader_id": BROKER_ID,
        "replica_nodes": [BROKER_ID],
        "isr_nodes": [BROKER_ID],
    }
    return {
        "error_code": 0 if partition_count else 3,
        "name": name,
        "partitions": [{**partition, "partition_index": index} for index in range(partition_count)],
    }
