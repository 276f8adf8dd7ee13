"""What `headrace cluster` says while brokers have no answer from ZooKeeper, and of a broker that nobody knows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from scripted_broker import ScriptedBroker
from scripted_cluster import Answers, bootstrap_of, scripted_cluster

from headrace.cli import broker_answers, cluster_admin
from headrace.cli.cluster import cluster

DESCRIBE_CONFIGS, LOG_DIRS, MOVES = 32, 35, 46
TOPIC = 2
WAIT_SECONDS = 0.1


class Configs:
    """DescribeConfigs of a broker: for what topics say it waits longer than anybody, unless ZooKeeper answers it."""

    def __init__(self) -> None:
        self.zookeeper_answers = False

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        is_of_topics = message["resources"][0]["resource_type"] == TOPIC
        if is_of_topics and not self.zookeeper_answers:
            time.sleep(3 * WAIT_SECONDS)
        configs = [{"name": "min.insync.replicas", "value": "1"}] if is_of_topics else []
        named = [{k: r[k] for k in ("resource_type", "resource_name")} for r in message["resources"]]
        return {"results": [{**each, "error_code": 0, "configs": configs} for each in named]}


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> Configs:
    monkeypatch.setattr(cluster_admin, "READ_SECONDS", WAIT_SECONDS)
    return Configs()


@pytest.fixture
def broker(configs: Configs) -> Iterator[ScriptedBroker]:
    answers: Answers = {
        DESCRIBE_CONFIGS: configs,
        LOG_DIRS: lambda _: {"results": []},
        MOVES: lambda _: {"error_message": None, "topics": []},
    }
    with scripted_cluster({"t": 2}, answers) as broker:
        yield broker


def run(broker: ScriptedBroker, *arguments: str) -> Result:
    return CliRunner().invoke(cluster, [*arguments, "--bootstrap", bootstrap_of(broker)])


def test_without_zookeeper_status_tells_what_brokers_know(broker: ScriptedBroker) -> None:
    done = run(broker, "status", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["partitions"], found["controller"]) == (1, 2, 1)
    assert {found[name] for name in ("below_min_isr", "at_min_isr", "reassigning")} == {None}
    assert [problem.split(":")[0] for problem in found["problems"]] == [
        "ZooKeeper does not answer the brokers"
    ]
    assert broker.keys.count(DESCRIBE_CONFIGS) == 2, "one question for topics, one for the broker"
    assert MOVES not in broker.keys, "the controller may wait for ZooKeeper, too"


def test_without_zookeeper_status_prints_the_brokers(broker: ScriptedBroker) -> None:
    done = run(broker, "status")
    assert "2 partitions, unknown at min.insync.replicas." in done.output
    assert "ZooKeeper does not answer the brokers" in done.output


def test_status_says_which_broker_does_not_answer(configs: Configs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_answers, "TIMEOUT_SECONDS", WAIT_SECONDS)
    configs.zookeeper_answers = True

    def late(_: dict[str, Any]) -> dict[str, Any]:
        time.sleep(3 * WAIT_SECONDS)
        return {"results": []}

    answers: Answers = {
        DESCRIBE_CONFIGS: configs,
        LOG_DIRS: late,
        MOVES: lambda _: {"error_message": None, "topics": []},
    }
    with scripted_cluster({"t": 2}, answers) as broker:
        done = run(broker, "status")
    row = next(line for line in done.output.splitlines() if bootstrap_of(broker) in line)
    assert row.split()[2:5] == ["does", "not", "answer"]


@pytest.mark.parametrize("more", [[], ["--allow-unavailable"], ["--json"]])
def test_without_zookeeper_no_broker_may_stop(broker: ScriptedBroker, more: list[str]) -> None:
    done = run(broker, "may-stop", "1", *more)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: broker 1 may not stop now: ZooKeeper does not answer the brokers")
    assert done.stderr.count("\n") == 1


def test_who_is_no_broker_is_told_so(broker: ScriptedBroker, configs: Configs) -> None:
    configs.zookeeper_answers = True
    assert run(broker, "may-stop", "1", "--allow-unavailable").output == (
        "Broker 1 may stop.\n"
        "These have too few replicas to do without any one of them: t-0, t-1. "
        "Give them more replicas (headrace topics reassign), or allow it with --allow-unavailable.\n"
    )
    done = run(broker, "may-stop", "9")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Error: there is no broker 9, and no partition has a replica there: alive are 1.\n"
