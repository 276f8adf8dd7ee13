"""Which topics the controller says are marked for deletion, and that it is nobody's failure when it does not."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from scripted_cluster import bootstrap_of, scripted_cluster

from headrace.broker.client.bootstrap import Bootstrap
from headrace.broker.errors import ErrorCode
from headrace.cli import topic_deletion
from headrace.cli.topic_deletion import doomed_topics, is_marked, moving_partitions

CREATE_PARTITIONS, MOVES = 37, 46
REFUSED = {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "error_message": "no", "topics": []}


def moves(*topics: str) -> dict[str, Any]:
    partition = {"partition_index": 1, "replicas": [1, 2], "adding_replicas": [2], "removing_replicas": []}
    return {"error_message": None, "topics": [{"name": name, "partitions": [partition]} for name in topics]}


def asked_to_grow(message: dict[str, Any]) -> dict[str, Any]:
    assert message["validate_only"]
    codes = {"doomed": ErrorCode.INVALID_TOPIC_EXCEPTION}
    results = [
        {"name": t["name"], "error_code": codes.get(t["name"], ErrorCode.REASSIGNMENT_IN_PROGRESS)}
        for t in message["topics"]
    ]
    return {"results": [{**result, "error_message": None} for result in results]}


def test_those_that_move_are_asked_about() -> None:
    answers = {MOVES: lambda _: moves("busy", "doomed"), CREATE_PARTITIONS: asked_to_grow}
    with scripted_cluster({}, answers) as broker:
        assert doomed_topics(Bootstrap(bootstrap_of(broker))) == {"doomed"}
        assert moving_partitions(Bootstrap(bootstrap_of(broker)), "busy") == [("busy", 1)]


def test_nothing_moves_and_nothing_more_is_asked() -> None:
    with scripted_cluster({}, {MOVES: lambda _: moves(), CREATE_PARTITIONS: asked_to_grow}) as broker:
        assert doomed_topics(Bootstrap(bootstrap_of(broker))) == set()
        assert CREATE_PARTITIONS not in broker.keys


def test_who_may_not_ask_knows_nothing() -> None:
    with scripted_cluster({}, {MOVES: lambda _: REFUSED}) as broker:
        bootstrap = Bootstrap(bootstrap_of(broker))
        assert (doomed_topics(bootstrap), moving_partitions(bootstrap, "t")) == (None, [])
    assert (is_marked("t", None), is_marked("t", {"t"}), is_marked("t", set())) == (None, True, False)


def test_a_controller_that_hangs_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_deletion, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        assert doomed_topics(Bootstrap(f"127.0.0.1:{hanging.getsockname()[1]}")) is None
