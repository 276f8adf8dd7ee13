"""What the roll-out asks of a cluster to have its topics, through headrace's own client and real sockets."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load
from scripted_broker import API_VERSIONS, scripted_broker, versions

from headrace.broker.client.blocking_cluster import BlockingCluster
from headrace.broker.errors import ErrorCode

topics = load("headrace_topics")
METADATA, CREATE = 3, 19


class Cluster:
    """One broker; it is not the controller at the first request for topics, and refuses those named `bad`."""

    def __init__(self) -> None:
        self.address = ("", 0)
        self.leaders = {"old": [1, 1]}
        self.refusals = 1

    def __call__(self, key: int, message: dict[str, Any]) -> dict[str, Any]:
        if key == API_VERSIONS:
            return versions({METADATA: (0, 12), CREATE: (0, 7)})
        if key == METADATA:
            host, port = self.address
            return {
                "brokers": [{"node_id": 1, "host": host, "port": port}],
                "controller_id": 1,
                "topics": [self.described(name) for name in self.leaders],
            }
        code = ErrorCode.NOT_CONTROLLER if self.refusals else ErrorCode.NONE
        self.refusals -= bool(self.refusals)
        return {"topics": [self.created(topic["name"], code) for topic in message["topics"]]}

    def described(self, name: str) -> dict[str, Any]:
        partitions = [
            {"partition_index": index, "leader_id": leader} for index, leader in enumerate(self.leaders[name])
        ]
        return {"name": name, "partitions": partitions}

    def created(self, name: str, code: ErrorCode) -> dict[str, Any]:
        if name == "bad":
            code = ErrorCode.INVALID_REPLICATION_FACTOR
        if code == ErrorCode.NONE:
            self.leaders[name] = [1]
        return {"name": name, "error_code": code, "error_message": None}


class Module:
    """What the module needs of AnsibleModule."""

    def __init__(self, check_mode: bool = False, **params: Any) -> None:
        self.params = {
            "broker_ids": [1],
            "bootstrap_servers": "127.0.0.1:1",
            "data_dir": "/nowhere",
            **params,
        }
        self.check_mode = check_mode
        self.warnings: list[str] = []

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


def topic(name: str, partitions: int = 1, cleanup: str = "delete") -> dict[str, Any]:
    config = {"cleanup.policy": cleanup}
    return {"name": name, "partitions": partitions, "replication_factor": -1, "config": config}


def run(
    script: Cluster, timeout_s: int = 5, **arguments: Any
) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """The names made, the warnings, and the requests for topics."""
    module = Module(**arguments)
    with scripted_broker(script) as broker:
        script.address = broker.address
        with closing(BlockingCluster([broker.address], "test", 5)) as cluster:
            made, strangers = topics.run(module, cluster, timeout_s)
    assert strangers == module.warnings
    return made, module.warnings, [message for key, message in broker.asked if key == CREATE]


def test_what_is_missing_is_asked_of_the_controller_until_it_is_one() -> None:
    wanted = [topic("old", 2), topic("new", cleanup="compact")]
    made, warnings, requests = run(Cluster(), topics=wanted)
    assert (made, warnings, len(requests)) == (["new"], [], 2)
    (asked,) = requests[1]["topics"]
    assert (asked["name"], asked["num_partitions"], asked["replication_factor"]) == ("new", 1, -1)
    assert [(each["name"], each["value"]) for each in asked["configs"]] == [("cleanup.policy", "compact")]


def test_a_second_run_and_a_check_create_nothing() -> None:
    assert run(Cluster(), topics=[topic("old", 2)]) == ([], [], [])
    assert run(Cluster(), topics=[topic("new")], check_mode=True) == (["new"], [], [])


def test_a_broker_that_the_inventory_lacks_is_named() -> None:
    _, warnings, _ = run(Cluster(), topics=[topic("old", 2)], broker_ids=[2])
    assert "Broker 1 at 127.0.0.1:" in warnings[0]


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (
            topic("bad"),
            "Topic bad was not created: INVALID_REPLICATION_FACTOR; bring back the brokers that are away .* roll out again[.]$",
        ),
        (topic("old", 3), "Topic old has 2 partitions, the inventory says 3"),
    ],
)
def test_what_cannot_be_is_said(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(topics.TopicsError, match=sentence):
        run(Cluster(), topics=[wanted])


def test_a_partition_without_a_leader_is_waited_for_and_named() -> None:
    script = Cluster()
    script.leaders["old"] = [1, -1]
    with pytest.raises(topics.TopicsError, match=r"After 0 s topic old has partitions without a leader"):
        run(script, topics=[topic("old", 2)], timeout_s=0)


def test_a_check_of_a_cluster_that_is_not_there_yet_would_make_all() -> None:
    cluster = BlockingCluster([("127.0.0.1", 1)], "test", 1)
    assert topics.run(Module(check_mode=True, topics=[topic("new")]), cluster, 5) == (["new"], [])
    with pytest.raises(topics.TopicsError, match=r"No broker of 127\.0\.0\.1:1 answers"):
        topics.run(Module(topics=[topic("new")]), cluster, 5)


def test_a_check_of_a_cluster_that_is_stopped_says_that_nobody_knows_its_topics(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    module = Module(check_mode=True, topics=[topic("new")], data_dir=str(tmp_path))
    assert topics.run(module, BlockingCluster([("127.0.0.1", 1)], "test", 1), 5) == ([], [])
    (warning,) = module.warnings
    assert warning.startswith(
        "No broker of 127.0.0.1:1 answers, so that nobody knows which topics are there: "
    )


def test_a_broker_that_went_away_is_passed_over_the_next_time() -> None:
    failures = [ConnectionResetError("gone"), None]

    def ask() -> None:
        failure = failures.pop(0)
        if failure is not None:
            raise failure

    cluster = BlockingCluster([("127.0.0.1", 1)], "test", 1)
    topics.patiently(cluster, ask, 5)
    assert failures == []
