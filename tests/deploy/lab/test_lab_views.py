"""What people are shown of hosts: a plan that comes true, a table of health, a support bundle without a secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from lab_kit import CHECKOUT, INVENTORY, PATIENCE, PROGRAMS, Lab, eventually

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
CANARY = "c4n4ry-of-the-lab"
BROKERS = {f"headrace-broker-{number}" for number in (1, 2, 3)}
SINCE = ("-e", "health_since=1m")
# What a failed road or a started broker leaves behind is over by then.
WELL_S = 180


def plan(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/plan.py", "--json", "-i", INVENTORY, *PATIENCE, *arguments]
    environment = lab.environment(lab.folder / "plan.runs")
    return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)


def is_well(lab: Lab) -> bool:
    """Whatever drills before this did to latencies."""
    return lab.play("health.yml", *SINCE).returncode == 0


def test_nothing_is_planned_and_all_is_well_after_a_roll_out(rolled_out: Lab) -> None:
    planned = plan(rolled_out)
    assert planned.returncode == 0, planned.stdout[-4000:] + planned.stderr[-2000:]
    assert eventually(lambda: is_well(rolled_out), WELL_S)
    health = rolled_out.play("health.yml", *SINCE)
    for host in rolled_out.hosts:
        for service in rolled_out.services(host):
            assert f"{host} " in health.output
            assert f" {service} " in health.output
    assert f"release {rolled_out.version()}" in health.output


@pytest.mark.long
def test_a_plan_of_a_change_comes_true(rolled_out: Lab) -> None:
    change = ("--limit", "dc_east", "-e", json.dumps({"broker_properties": {"num.partitions": 9}}))
    planned = plan(rolled_out, *change)
    assert planned.returncode == 2, planned.stdout[-4000:] + planned.stderr[-2000:]
    told = json.loads(planned.stdout)
    assert [(each["step"], each["reason"]) for each in told["services"]] == [
        ("restart", "server.properties changes")
    ] * 3
    before = {each["host"]: rolled_out.process_id(each["host"], each["service"]) for each in told["services"]}
    changed = rolled_out.play("site.yml", *change)
    assert changed.returncode == 0, changed.output[-6000:]
    assert set(changed.changed()) == set(before)
    for each in told["services"]:
        assert rolled_out.process_id(each["host"], each["service"]) != before[each["host"]]
    again = plan(rolled_out, *change)
    assert again.returncode == 0, again.stdout[-4000:]
    back = rolled_out.play("site.yml", "--limit", "dc_east")
    assert back.returncode == 0, back.output[-6000:]


@pytest.mark.long
def test_a_stopped_broker_and_a_host_that_is_down_are_told(rolled_out: Lab, tmp_path: Path) -> None:
    """And the bundle of then says which host it has not, and holds no secret that a host keeps."""
    secret = "/etc/headrace/planted.properties"
    rolled_out.on("dc-east-broker-1", "sh", "-c", f"umask 027; echo 'key={CANARY}' >{secret}")
    told = "/etc/headrace/told.txt"
    rolled_out.on("dc-east-broker-1", "sh", "-c", f"echo 'it said {CANARY}, and password=x{CANARY}' >{told}")
    rolled_out.on("dc-east-broker-2", "systemctl", "stop", "headrace-broker-2")
    rolled_out.docker.run("stop", "--time", "60", "dc-east-haproxy-1", timeout_s=90)
    try:
        health = rolled_out.play("health.yml")
        bundle = rolled_out.play("support_bundle.yml", "-e", f"support_dir={tmp_path}")
    finally:
        rolled_out.on("dc-east-broker-1", "rm", secret, told)
        rolled_out.docker.run("start", "dc-east-haproxy-1")
        rolled_out.on("dc-east-broker-2", "systemctl", "start", "headrace-broker-2")
    assert health.returncode != 0
    assert "headrace-broker-2 on dc-east-broker-2 is not well: stopped." in health.output
    assert "Host dc-east-haproxy-1 does not answer (docker to dc-east-haproxy-1:" in health.output
    assert "cluster dc-east is not well" in health.output
    assert "headrace-broker-1 on dc-east-broker-1" not in health.output

    assert bundle.returncode == 0, bundle.output[-6000:]
    assert "Missing: Host dc-east-haproxy-1 does not answer" in bundle.output
    (archive,) = tmp_path.glob("headrace-*.tar.gz")
    texts = members(archive)
    assert [name for name, text in texts.items() if CANARY in text] == []
    assert "Host dc-east-haproxy-1 does not answer" in texts["MISSING"]
    assert f"hosts/dc-east-broker-1/files{told}" in texts
    assert secret in texts["hosts/dc-east-broker-1/not-taken"]
    assert (
        "broker.id=1"
        in texts["hosts/dc-east-broker-1/files/etc/headrace/headrace-broker-1/server.properties"]
    )
    assert texts["hosts/dc-east-broker-1/logs/headrace-broker-1"].strip()
    assert eventually(lambda: is_well(rolled_out), WELL_S)


def members(archive: Path) -> dict[str, str]:
    """The archive's texts by their names below its folder."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
    return found


@pytest.mark.long
def test_the_commands_of_the_page_work(rolled_out: Lab, tmp_path: Path) -> None:
    for entry in CHECKOUT.iterdir():
        if entry.name != "var":
            (tmp_path / entry.name).symlink_to(entry)
    done = subprocess.run(
        ["bash", "-x", CHECKOUT / "tests" / "deploy" / "lab" / "operations_page.sh"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def installed_on(planned: dict[str, Any], what: str) -> set[str]:
    """The hosts that would be given it."""
    return {each["host"] for each in planned["installations"] if what in each["what"]}


@pytest.mark.long
def test_a_plan_of_bare_hosts_has_everything_and_comes_true(rolled_out: Lab) -> None:
    """What is removed here is rolled out again, with the checkout's release, and empty."""
    remove = ("-e", "headrace_remove_config=true", "-e", "headrace_remove_data=true")
    services = {(host, service) for host in rolled_out.hosts for service in rolled_out.services(host)}
    release = f"releases/{version('headrace')}: headrace "
    assert rolled_out.play("down.yml", *remove).returncode == 0
    planned = plan(rolled_out)
    assert planned.returncode == 2, planned.stdout[-4000:] + planned.stderr[-2000:]
    told = json.loads(planned.stdout)
    assert {
        (each["host"], each["service"]) for each in told["services"] if each["step"] == "start"
    } == services
    hosts = set(rolled_out.hosts)
    assert installed_on(told, "user: headrace") == hosts
    assert installed_on(told, release) == hosts - {"dc-east-haproxy-1"}
    assert told["failures"] == []
    again = rolled_out.play("site.yml")
    assert again.returncode == 0, again.output[-6000:]
    nothing = plan(rolled_out)
    assert nothing.returncode == 0, nothing.stdout[-4000:]
