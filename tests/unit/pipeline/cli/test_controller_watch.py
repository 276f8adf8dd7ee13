"""A controller that hangs is told of long before a change of topics would time out, and one that is busy is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from click import ClickException
from click.testing import CliRunner
from scripted_broker import ScriptedBroker
from scripted_cluster import BROKER_ID, bootstrap_of, scripted_cluster

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli import broker_answers, controller_watch, topic_alteration
from headrace.cli.controller_watch import Controller, watched
from headrace.cli.topics import topics

CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, CREATE_PARTITIONS, MOVES = 19, 20, 32, 37, 46


@pytest.fixture(autouse=True)
def look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_watch, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(broker_answers, "TIMEOUT_SECONDS", 0.5)


@pytest.mark.parametrize("verb", ["create", "delete"])
def test_a_controller_that_hangs_is_named_and_what_it_may_have_done(verb: str) -> None:
    ended = threading.Event()

    def hang(_: dict[str, Any]) -> dict[str, Any]:
        ended.wait(30)
        return {}

    answers = {
        MOVES: lambda _: {"error_message": None, "topics": []},
        CREATE_TOPICS: hang,
        DELETE_TOPICS: hang,
    }
    with scripted_cluster({"t": 1}, answers) as broker:
        began = time.monotonic()
        done = CliRunner().invoke(topics, [verb, "t", "--bootstrap", bootstrap_of(broker)])
        seconds = time.monotonic() - began
        ended.set()
    shows = "it then" if verb == "create" else "it until then"
    assert done.stderr == (
        f"Error: {verb} topic t: the controller, broker {BROKER_ID}, does not answer (timed out); "
        f"the topic may be {verb}d all the same, and `headrace topics list` shows {shows}.\n"
    )
    assert (done.exit_code, seconds < 10) == (1, True)


@pytest.mark.parametrize("hangs_at_once", [True, False])
def test_a_topic_that_shall_grow_is_as_it_was_or_may_grow_all_the_same(hangs_at_once: bool) -> None:
    ended = threading.Event()
    configs = {
        "resource_type": 2,
        "resource_name": "t",
        "error_code": 0,
        "error_message": None,
        "configs": [],
    }

    def grow(message: dict[str, Any]) -> dict[str, Any]:
        if hangs_at_once or not message["validate_only"]:
            ended.wait(30)
        return {"results": [{"name": "t", "error_code": 0, "error_message": None}]}

    answers = {DESCRIBE_CONFIGS: lambda _: {"results": [configs]}, CREATE_PARTITIONS: grow}
    with scripted_cluster({"t": 1}, answers) as broker:
        command = ["alter", "t", "--partitions", "2", "--bootstrap", bootstrap_of(broker)]
        done = CliRunner().invoke(topics, command)
        ended.set()
    what = "nothing was changed" if hangs_at_once else "the topic may get its partitions all the same"
    told = f"Error: alter topic t: the controller, broker {BROKER_ID}, does not answer (timed out); {what}"
    assert (done.exit_code, done.stderr.startswith(told)) == (1, True), done.stderr


def test_a_controller_that_is_busy_is_waited_for() -> None:
    change: Future[str] = Future()
    threading.Timer(0.7, change.set_result, ["made"]).start()
    with scripted_cluster({}, {CREATE_TOPICS: lambda _: {"topics": []}}) as broker:
        controller = Controller(broker_id=BROKER_ID, address=broker.address, topic=None)
        assert watched(change, controller, Bootstrap(bootstrap_of(broker)), "create topic t", "") == "made"
        assert len(broker.asked) > 1


@contextmanager
def cluster_without_zookeeper() -> Iterator[ScriptedBroker]:
    """A broker that answers everything but what it has from ZooKeeper."""
    ended = threading.Event()

    def hang(_: dict[str, Any]) -> dict[str, Any]:
        ended.wait(30)
        return {}

    with scripted_cluster({"t": 1}, {DESCRIBE_CONFIGS: hang, CREATE_TOPICS: hang}) as broker:
        try:
            yield broker
        finally:
            ended.set()


@pytest.mark.parametrize(("topic", "question"), [("t", "DescribeConfigs"), (None, "CreateTopics")])
def test_a_zookeeper_that_is_away_is_named(
    monkeypatch: pytest.MonkeyPatch, topic: str | None, question: str
) -> None:
    monkeypatch.setattr(controller_watch, "READ_SECONDS", 0.3)
    with cluster_without_zookeeper() as broker:
        controller = Controller(broker_id=BROKER_ID, address=broker.address, topic=topic)
        change: Future[None] = Future()
        threading.Timer(5, change.set_result, [None]).start()
        with pytest.raises(ClickException) as told:
            watched(change, controller, Bootstrap(bootstrap_of(broker)), "create topic t", "who knows")
    assert told.value.message == (
        f"create topic t: ZooKeeper does not answer the brokers ({question} has no answer in 0 s): "
        "see that it runs, and that they reach it; who knows."
    )


def test_a_topic_is_not_altered_while_zookeeper_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_alteration, "READ_SECONDS", 1.0)
    with cluster_without_zookeeper() as broker:
        command = ["alter", "t", "--partitions", "2", "--bootstrap", bootstrap_of(broker)]
        done = CliRunner().invoke(topics, command)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: alter topic t: ZooKeeper does not answer the brokers"), done.stderr
