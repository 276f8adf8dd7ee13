"""A pipeline on hosts: rolled out from nothing, changed, killed, rebooted, cut off, and complete by the audit's ledger.

One session, in this order: each test leaves the lab whole, and from the second on a front end publishes without a pause.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from lab_kit import CHECKOUT, PROGRAMS, Lab, Traffic, eventually, kill_session, module_runs

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
FIRST_RUNS_MAX, SECOND_RUNS_MAX = 10, 5
"""Module runs of one host: each costs half a second of a core."""
LOAD_HOST = "offline-load-1"
"""It has three services; others have two at most."""
CHANGE_RUNS = 24
"""Module runs of a change of the brokers of dc-east, give or take."""
SEED = int(os.environ.get("HEADRACE_LAB_SEED", "17"))


def test_a_roll_out_from_nothing_takes_few_module_runs(rolled_out: Lab) -> None:
    first = rolled_out.first
    assert first is not None
    assert set(rolled_out.hosts) <= set(first.module_runs)
    assert {host: count for host, count in first.module_runs.items() if count > FIRST_RUNS_MAX} == {}
    services = [(host, service) for host in rolled_out.hosts for service in rolled_out.services(host)]
    assert [place for place in services if not rolled_out.is_active(*place)] == []
    timers = [(host, f"{name}-scrub.timer") for host, name in services if name.startswith("headrace-broker-")]
    assert [place for place in timers if not rolled_out.is_active(*place)] == []


def test_a_second_run_changes_nothing(rolled_out: Lab, traffic: Traffic) -> None:
    second = rolled_out.play("site.yml")
    assert second.returncode == 0, second.output[-6000:]
    assert second.changed() == {}
    with_more = {LOAD_HOST, *(host for host in rolled_out.hosts if "-broker-" in host)}
    runs = second.module_runs.items()
    assert [(host, n) for host, n in runs if n > SECOND_RUNS_MAX + (host in with_more)] == []
    assert traffic.moves()


@pytest.mark.parametrize(
    ("host", "service"),
    [
        ("dc-east-broker-1", "headrace-broker-1"),
        ("dc-east-zookeeper-1", "headrace-zookeeper-1"),
        ("dc-east-haproxy-1", "headrace-haproxy"),
        ("offline-services-1", "headrace-registry"),
    ],
)
def test_a_service_cannot_write_etc(rolled_out: Lab, host: str, service: str) -> None:
    """A unit with the service's own sandbox, but root: only the sandbox can be what forbids it."""
    assert "Read-only file system" in said_of_writing(rolled_out, host, service, "")
    assert said_of_writing(rolled_out, host, service, "/^ProtectSystem=/d") == ""


def said_of_writing(lab: Lab, host: str, service: str, edit: str) -> str:
    """What a copy of the service's unit, edited, complains of when it writes /etc; nothing when it can."""
    edits = [
        "s|^ExecStart=.*|ExecStart=/bin/touch /etc/written|",
        "s|^Restart=.*|Restart=no|",
        "s|^User=.*|User=root|",
        "/^Group=/d",
        "/^Type=/d",
        r"s|^\[Service\]|[Service]\nType=oneshot|",
        edit,
    ]
    units = "/run/systemd/system"
    lab.on(host, "mkdir", "-p", units)
    copied = lab.on(
        host, "sed", *(f"--expression={line}" for line in edits), f"/etc/systemd/system/{service}.service"
    )
    lab.on(host, "sh", "-c", f"printf '%s\n' \"$1\" >{units}/lab-probe.service", "sh", copied)
    try:
        lab.on(host, "systemctl", "daemon-reload")
        if lab.asked(host, "systemctl", "start", "lab-probe").returncode == 0:
            return ""
        return lab.on(host, "journalctl", "--unit", "lab-probe", "--output", "cat")
    finally:
        lab.on(host, "rm", "--force", f"{units}/lab-probe.service", "/etc/written")
        lab.asked(host, "systemctl", "reset-failed", "lab-probe")
        lab.on(host, "systemctl", "daemon-reload")


@pytest.mark.parametrize(
    ("host", "service"),
    [("dc-east-broker-2", "headrace-broker-2"), ("offline-services-1", "headrace-registry")],
)
def test_a_killed_service_comes_back(rolled_out: Lab, traffic: Traffic, host: str, service: str) -> None:
    before = rolled_out.process_id(host, service)
    rolled_out.on(host, "kill", "-KILL", str(before))
    assert eventually(lambda: rolled_out.process_id(host, service) not in (0, before))
    assert traffic.moves()


def has_a_road(lab: Lab) -> bool:
    """Whether a broker of the offline datacenter reaches one of dc-east; nothing answers over a cut road, no refusal either."""
    knock = "exec 3<>/dev/tcp/10.77.1.1/9092"
    knocked = lab.asked("offline-broker-1", "timeout", "3", "bash", "-c", knock).returncode
    assert knocked in (0, 124)
    return knocked == 0


def test_a_cut_road_holds_up_no_front_end(rolled_out: Lab, traffic: Traffic) -> None:
    assert has_a_road(rolled_out)
    rolled_out.roads("cut", "dc-east")
    try:
        assert not has_a_road(rolled_out)
        assert traffic.moves()
        assert traffic.moves()
    finally:
        rolled_out.roads("mend")
    assert has_a_road(rolled_out)


@pytest.mark.parametrize(
    "host",
    [
        "dc-east-broker-3",
        *(
            pytest.param(host, marks=pytest.mark.long)
            for host in (
                "dc-east-broker-1",
                "dc-east-broker-2",
                "dc-east-zookeeper-1",
                "dc-east-haproxy-1",
                "dc-east-services-1",
                "offline-broker-1",
                "offline-broker-2",
                "offline-broker-3",
                "offline-zookeeper-1",
                "offline-services-1",
                "offline-load-1",
            )
        ),
    ],
)
def test_a_host_that_boots_brings_its_services_back(rolled_out: Lab, traffic: Traffic, host: str) -> None:
    services = rolled_out.services(host)
    assert services
    rolled_out.reboot(host)
    assert eventually(lambda: all(rolled_out.is_active(host, service) for service in services))
    assert traffic.moves()


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.long) for turn in range(1, 10))])
def test_a_killed_roll_out_is_ended_by_the_same_command(rolled_out: Lab, tmp_path: Path, turn: int) -> None:
    """`kill -9` of Ansible and its workers at a seeded moment of a change of all brokers of dc-east.

    The moment is a count of module runs and a part of a second, so that a busy machine has it as well.
    """
    chosen = random.Random(f"{SEED}-{turn}")
    run_count, delay_s = chosen.randint(1, CHANGE_RUNS), chosen.random()
    change = json.dumps(
        {"broker_properties": {"num.partitions": 4 + turn, "offsets.topic.num.partitions": 3}}
    )
    arguments = ["--limit", "dc_east", "-e", change]
    log = tmp_path / "killed.log"
    process = rolled_out.start_play("site.yml", *arguments, log=log)
    try:
        assert eventually(lambda: process.poll() is not None or module_runs(log).total() >= run_count)
        time.sleep(delay_s)
    finally:
        kill_session(process)
    print(f"killed after {module_runs(log).total()} module runs")
    ended = rolled_out.play("site.yml", *arguments)
    assert ended.returncode == 0, ended.output[-6000:]
    for number in (1, 2, 3):
        host, service = f"dc-east-broker-{number}", f"headrace-broker-{number}"
        wanted = f"num.partitions={4 + turn}"
        assert wanted in rolled_out.on(host, "cat", f"/etc/headrace/{service}/server.properties").splitlines()
        assert rolled_out.is_active(host, service)
    assert rolled_out.play("site.yml", *arguments).changed() == {}


def test_nothing_was_lost_or_doubled_meanwhile(rolled_out: Lab, traffic: Traffic) -> None:
    published = traffic.stop()
    assert (published["failed"], published["unknown"]) == (0, 0)
    rolled_out.wait_until_complete(published["acknowledged"])


def test_what_is_down_stays_down_after_a_boot_until_it_is_rolled_out_again(rolled_out: Lab) -> None:
    down = rolled_out.play("down.yml")
    assert down.returncode == 0, down.output[-6000:]
    hosts = ("dc-east-broker-1", "dc-east-zookeeper-1", "dc-east-haproxy-1")
    for host in hosts:
        rolled_out.reboot(host)
        assert not [service for service in rolled_out.services(host) if rolled_out.is_active(host, service)]
    again = rolled_out.play("site.yml")
    assert again.returncode == 0, again.output[-6000:]
    assert all(rolled_out.is_active(host, service) for host in hosts for service in rolled_out.services(host))


@pytest.mark.long
def test_the_commands_of_the_page_work(small_lab: Lab, tmp_path: Path) -> None:
    small_lab.roads("down")
    for entry in CHECKOUT.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    done = subprocess.run(
        ["bash", "-x", CHECKOUT / "tests" / "deploy" / "lab" / "lab_page.sh"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(tmp_path / "var", ignore_errors=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
