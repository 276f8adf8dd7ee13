"""What `headrace topics describe` tells while brokers have no answer from ZooKeeper."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from click.testing import CliRunner
from scripted_cluster import BROKER_ID, bootstrap_of, scripted_cluster

from headrace.cli import topic_deletion, topics

DESCRIBE_CONFIGS = 32


def test_without_zookeeper_a_topic_is_described_as_brokers_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "DESCRIPTION_SECONDS", 0.5)
    monkeypatch.setattr(topic_deletion, "ANSWER_SECONDS", 0.1)
    ended = threading.Event()

    def hang(_: dict[str, Any]) -> dict[str, Any]:
        ended.wait(30)
        return {}

    with scripted_cluster({"t": 1}, {DESCRIBE_CONFIGS: hang}) as broker:
        where = ["--bootstrap", bootstrap_of(broker)]
        done = CliRunner().invoke(topics.topics, ["describe", "t", "--json", *where])
        ended.set()
    found = json.loads(done.stdout)
    assert (done.exit_code, found["configuration"], found["marked_for_deletion"]) == (1, None, None)
    assert [each["leader"] for each in found["partitions"]] == [BROKER_ID]
    assert done.stderr.startswith("Error: the configuration of t is not known: ZooKeeper does not answer the")
    assert done.stderr.count("\n") == 1
