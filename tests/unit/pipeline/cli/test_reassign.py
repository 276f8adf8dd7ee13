"""What `headrace topics reassign` says of plans that are none, and while brokers have no answer from ZooKeeper."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import click
import pytest
from click.testing import CliRunner
from scripted_cluster import bootstrap_of, scripted_cluster

from headrace.cli import cluster_admin
from headrace.cli.reassign import read_plan, reassign

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


ENTRY = '{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}'


def test_a_plan_has_replicas_by_partition() -> None:
    assert read_plan(io.StringIO(f'{{"version":1,"partitions":[{ENTRY}]}}')) == {("t", 0): (1, 2)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"--plan: it is no JSON \(line 1, column 1: Expecting value\); write it as {"),
        ("[]", "--plan: it has no list of partitions; write it as {"),
        ('{"partitions":7}', "--plan: it has no list of partitions; write it as {"),
        (
            f'{{"partitions":[{ENTRY},{{"topic":"t"}}]}}',
            "--plan: of its partitions number 2 has no topic, partition and replicas; write it as {",
        ),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":["a"]}]}', "number 1 has no topic"),
        (f'{{"partitions":[{ENTRY},{ENTRY}]}}', "--plan: t-0 is named twice"),
    ],
)
def test_what_is_no_plan_is_told_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        read_plan(io.StringIO(text))
