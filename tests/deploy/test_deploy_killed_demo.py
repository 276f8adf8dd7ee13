"""A demo of which a part is killed for good names it. test_deploy_rollout.py has the one that ends complete, in short."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from demo_process import DemoProcess, copy_of_local, processes
from odd_demo import EVENTS, TIERS, environment_of

pytestmark = pytest.mark.timeout(420)


@pytest.mark.long
def test_a_killed_replay_leaves_the_demo_incomplete_and_is_named(alone: None, tmp_path: Path) -> None:
    inventory = copy_of_local(tmp_path, network=79)
    with DemoProcess(tmp_path, inventory=inventory, environment=environment_of(tmp_path)) as demo:
        demo.wait_until_published(0.5)
        started = processes(demo.root)
        os.kill(demo.replay_pid("dc-west"), signal.SIGKILL)
        code = demo.wait()
        report = demo.report()

    assert code == 1, demo.text()
    assert report["verdict"] == "incomplete"
    assert report["findings"] == [] or {item["kind"] for item in report["findings"]} == {"late"}
    named = {(item["datacenter"], item["producer"]) for item in report["incomplete"] if item["producer"]}
    assert {datacenter for datacenter, _ in named} == {"dc-west"}
    assert len(named) == 1
    ((_, producer),) = named
    assert f"producer {producer}" in demo.text()
    assert "Verdict: incomplete" in demo.text()
    assert "dc-west  killed by SIGKILL" in demo.text()
    rows = {row["datacenter"]: row for row in report["topics"]}
    assert {tier: rows["dc-east"][tier] for tier in TIERS} == dict.fromkeys(TIERS, EVENTS)
    assert 0 < rows["dc-west"]["warehouse"] < EVENTS
    assert not (demo.root / "supervisor.sock").exists()
    assert not [name for name, pid in started.items() if Path(f"/proc/{pid}").exists()]
