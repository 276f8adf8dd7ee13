"""Which topics a higher min.insync.replicas would leave too few replicas for, asked through real sockets."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from playbooks_kit import load
from scripted_broker import API_VERSIONS, scripted_broker, versions

from headrace.broker.client.blocking_cluster import BlockingCluster

replicas = load("headrace_replicas")
METADATA, DESCRIBE = 3, 32
OF_TOPIC, OF_BROKER, OF_FILE, OF_NOBODY = 1, 2, 4, 5


def script(topics: dict[str, tuple[int, int, int]]) -> Any:
    """Of each topic the number of replicas, its min.insync.replicas, and who says so."""

    def described(resource: dict[str, Any]) -> dict[str, Any]:
        _, value, source = topics[resource["resource_name"]]
        config = {"name": replicas.KEY, "value": str(value), "config_source": source}
        config |= {"read_only": False, "is_sensitive": False, "config_type": 3}
        found = {"resource_type": 2, "resource_name": resource["resource_name"], "configs": [config]}
        return {"error_code": 0, "error_message": None, **found}

    def answer(key: int, message: dict[str, Any]) -> dict[str, Any]:
        if key == API_VERSIONS:
            return versions({METADATA: (0, 12), DESCRIBE: (0, 4)})
        if key == METADATA:
            counts = {name: count for name, (count, _, _) in topics.items()}
            return {"brokers": [], "topics": [metadata(name, count) for name, count in counts.items()]}
        return {"results": [described(resource) for resource in message["resources"]]}

    return answer


def metadata(name: str, count: int) -> dict[str, Any]:
    whole = {"partition_index": 0, "replica_nodes": [1, 2, 3]}
    return {"name": name, "partitions": [whole, {"partition_index": 1, "replica_nodes": [1, 2, 3][:count]}]}


def too_small(wanted: int, **topics: tuple[int, int, int]) -> list[str]:
    with (
        scripted_broker(script(topics)) as broker,
        closing(BlockingCluster([broker.address], "test", 5)) as cluster,
    ):
        found: list[str] = replicas.too_small(cluster, wanted)
    return found


@pytest.mark.parametrize("source", [OF_FILE, OF_NOBODY])
def test_the_partition_with_the_fewest_replicas_decides(source: int) -> None:
    topics = {"one": (1, 1, source), "two": (2, 1, source), "three": (3, 1, source)}
    assert too_small(2, **topics) == ["one", "two"]
    assert too_small(1, **topics) == []


@pytest.mark.parametrize("source", [OF_TOPIC, OF_BROKER])
def test_a_value_that_the_file_does_not_decide_stays(source: int) -> None:
    assert too_small(2, own=(2, 1, source)) == []


def test_what_had_too_few_before_is_not_laid_to_the_change() -> None:
    assert too_small(2, same=(2, 2, OF_FILE), fewer=(1, 2, OF_FILE)) == []
    assert too_small(3, fewer=(1, 2, OF_FILE)) == []


def test_the_sentence_names_a_few_and_says_what_to_do() -> None:
    said = replicas.sentence([f"t{number}" for number in range(7)], 2)
    assert "t0, t1, t2, t3, t4 and 2 more. Keep the value of before in broker_properties" in said
    assert "give them 3 replicas" in said
