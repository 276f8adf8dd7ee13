"""Hosts that fail under a roll-out and under load: one goes down in the middle, a disk fills up, a clock is off.

A front end publishes all the while, and at the end its every event is in the warehouse, once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab_kit import Lab, Traffic, eventually, kill_session, module_runs

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(1800)]
HOST, SERVICE = "dc-east-broker-3", "headrace-broker-3"
DATA = f"/var/lib/headrace/{SERVICE}"
DISK_MB = 320
PRELOADED = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


def in_sync(lab: Lab) -> bool:
    """Whether the cluster of dc-east is well, as its people ask."""
    program = f"/opt/headrace/releases/{lab.version()}/bin/headrace"
    asked = lab.asked("dc-east-broker-1", program, "cluster", "status", "--bootstrap", "10.77.1.1:9092")
    return asked.returncode == 0


@pytest.mark.parametrize("run_count", [3, 14])
def test_a_host_that_goes_down_in_the_middle_ends_the_run_and_the_same_command_goes_on(
    rolled_out: Lab, traffic: Traffic, tmp_path: Path, run_count: int
) -> None:
    wanted = {"num.partitions": 3 + run_count}
    arguments = ["--limit", "dc_east", "-e", json.dumps({"broker_properties": wanted, "gate_timeout_s": 60})]
    log = tmp_path / "down.log"
    process = rolled_out.start_play("site.yml", *arguments, log=log)
    try:
        assert eventually(lambda: process.poll() is not None or module_runs(log).total() >= run_count)
        rolled_out.docker.run("stop", "--time", "30", HOST, timeout_s=60)
        assert process.wait(600) != 0
        assert HOST in log.read_text().split("PLAY RECAP")[-1], log.read_text()[-6000:]
        assert traffic.moves()
    finally:
        kill_session(process)
        rolled_out.docker.run("start", HOST)
    assert eventually(lambda: rolled_out.is_active(HOST, SERVICE))
    again = rolled_out.play("site.yml", *arguments)
    assert again.returncode == 0, again.output[-6000:]
    for number in (1, 2, 3):
        properties = f"/etc/headrace/headrace-broker-{number}/server.properties"
        written = rolled_out.on(f"dc-east-broker-{number}", "cat", properties).splitlines()
        assert f"num.partitions={3 + run_count}" in written
    assert traffic.moves()


@contextmanager
def small_disk(lab: Lab) -> Iterator[None]:
    """The broker's data on a disk of its own; it follows from nothing, and from what it had once the disk is gone."""
    lab.on(HOST, "systemctl", "stop", SERVICE)
    lab.on(HOST, "mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0750", "tmpfs", DATA)
    lab.on(HOST, "chown", "headrace:headrace", DATA)
    lab.on(HOST, "systemctl", "start", SERVICE)
    try:
        yield
    finally:
        lab.on(HOST, "systemctl", "stop", SERVICE)
        lab.on(HOST, "umount", DATA)
        lab.on(HOST, "systemctl", "start", SERVICE)


def test_a_full_disk_is_refused_by_preflight_and_holds_up_no_front_end(
    rolled_out: Lab, traffic: Traffic
) -> None:
    with small_disk(rolled_out):
        assert eventually(lambda: in_sync(rolled_out))
        rolled_out.asked(HOST, "sh", "-c", f"head --bytes=1G /dev/zero >{DATA}/filler")
        assert eventually(lambda: not in_sync(rolled_out))
        assert traffic.moves()
        refused = rolled_out.play("preflight.yml", "--limit", HOST)
        assert refused.returncode != 0
        assert "free" in refused.output, refused.output[-3000:]
        assert HOST in refused.output.split("PLAY RECAP")[-1]
        rolled_out.on(HOST, "rm", f"{DATA}/filler")
        rolled_out.on(HOST, "systemctl", "restart", SERVICE)
        assert eventually(lambda: in_sync(rolled_out))
        assert traffic.moves()
    assert eventually(lambda: in_sync(rolled_out))


@contextmanager
def clock_ahead(lab: Lab, minutes: int) -> Iterator[None]:
    """What starts on the host from now on sees another time."""
    lab.on(HOST, "sh", "-c", f"echo +{minutes}m >/etc/faketimerc; echo {PRELOADED} >/etc/ld.so.preload")
    lab.on(HOST, "systemctl", "restart", SERVICE)
    try:
        yield
    finally:
        lab.on(HOST, "rm", "/etc/ld.so.preload", "/etc/faketimerc")
        lab.on(HOST, "systemctl", "restart", SERVICE)


def test_a_clock_ten_minutes_off_is_refused_by_name_and_loses_nothing(
    rolled_out: Lab, traffic: Traffic
) -> None:
    with clock_ahead(rolled_out, 10):
        refused = rolled_out.play("preflight.yml")
        assert refused.returncode != 0
        # What is certain of it: the answers of both hosts took their time.
        told = re.search(rf"The clock of {HOST} is \+([\d.]+) s off", refused.output)
        assert told is not None, refused.output[-3000:]
        assert 590 < float(told[1]) < 610
        assert eventually(lambda: in_sync(rolled_out))
        assert traffic.moves()
    assert eventually(lambda: in_sync(rolled_out))
    assert rolled_out.play("preflight.yml").returncode == 0


def test_nothing_was_lost_or_doubled_by_these_faults(rolled_out: Lab, traffic: Traffic) -> None:
    published = traffic.stop()
    assert (published["failed"], published["unknown"]) == (0, 0)
    rolled_out.wait_until_complete(published["acknowledged"])
