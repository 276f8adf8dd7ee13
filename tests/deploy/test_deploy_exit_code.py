"""How a run of the kit's plays ends, for whoever starts them from a program: 0 when all went well, 1 when not."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from deployments import CHECKOUT, Deployment

pytestmark = pytest.mark.acceptance

FAILS = {"ansible.builtin.fail": {"msg": "a is not well"}}
WELL = {"ansible.builtin.assert": {"that": True, "quiet": True}}


@pytest.mark.parametrize(
    ("task", "connection", "code"),
    [
        (WELL, "local", 0),
        ({"block": [FAILS], "rescue": [WELL]}, "local", 0),
        (FAILS, "local", 1),
        # Nothing listens there.
        ({"ansible.builtin.command": "true"}, "ssh", 1),
    ],
    ids=["well", "rescued", "failed", "unreachable"],
)
def test_a_run_ends_with_1_whatever_failed(
    deployment: Deployment, tmp_path: Path, task: dict[str, Any], connection: str, code: int
) -> None:
    address = {"ansible_host": "127.76.255.254", "ansible_port": 9, "ansible_connection": connection}
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"a": address}}}))
    play = tmp_path / "play.yml"
    play.write_text(json.dumps([{"name": "A play", "hosts": "all", "gather_facts": False, "tasks": [task]}]))
    ended = Deployment(inventory, deployment.root).play(os.path.relpath(play, CHECKOUT / "playbooks"))
    assert ended.returncode == code, ended.stdout + ended.stderr


def test_health_of_what_was_never_rolled_out_is_a_table_and_1(deployment: Deployment) -> None:
    some = "machine:dc-east-zookeeper-1:offline-broker-1:offline-audit-1"
    ended = deployment.play("health.yml", "--limit", some)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    table, _, _ = ended.stdout.partition("PLAY RECAP")
    for service in ("dc-east-zookeeper-1", "offline-broker-1", "offline-auditor"):
        assert re.search(rf"^\S+ +{service} +missing +no$", table, re.MULTILINE), table
        assert f"\n{service} on " in table
