"""What `headrace topics reassign` says of plans that are none, and while brokers have no answer from ZooKeeper."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner
from scripted_cluster import bootstrap_of, scripted_cluster

from headrace.cli import cluster_admin
from headrace.cli.reassign import reassign

DESCRIBE_CONFIGS, MOVES = 32, 46
WAIT_SECONDS = 0.1


def test_without_zookeeper_show_tells_the_moves_and_leaves_the_throttle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_admin, "READ_SECONDS", WAIT_SECONDS)

    def late(_: dict[str, Any]) -> dict[str, Any]:
        time.sleep(3 * WAIT_SECONDS)
        return {"results": []}

    answers = {DESCRIBE_CONFIGS: late, MOVES: lambda _: {"error_message": None, "topics": []}}
    with scripted_cluster({"t": 2}, answers) as broker:
        done = CliRunner().invoke(reassign, ["show", "--json", "--bootstrap", bootstrap_of(broker)])
    assert (done.exit_code, json.loads(done.stdout)) == (1, {"moving": [], "throttle_removed": []})
    assert done.stderr.startswith("Error: ZooKeeper does not answer the brokers")
    assert done.stderr.count("\n") == 1
