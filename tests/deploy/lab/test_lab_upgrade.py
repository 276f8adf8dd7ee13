"""Upgrades of a pipeline on hosts under load: good releases lose nothing, broken ones are taken back and their fault is named.

One session, in this order: a front end publishes from HAProxy's address without a pause, idempotent and with acks=all. What is
broken is broken in a copy of the checkout, never by a switch of the product's.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from broken_releases import FAULTS, Fault
from lab_kit import CHECKOUT, Lab, Traffic, Watch, eventually, kill_session, module_runs

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(3600)]
UPGRADE_RUNS = 150
"""Module runs of an upgrade of the small lab, give or take."""
KILLED_RUNS = 10
SEED = int(os.environ.get("HEADRACE_LAB_SEED", "17"))
GATES = ("-e", "gate_timeout_s=90", "-e", "service_timeout_s=120", "-e", "change_audit_s=45")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where releases of this session are made."""
    folder = tmp_path_factory.mktemp("releases")
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", CHECKOUT, folder / "checkout"], check=True)
    return folder


def make(made: Path, version: str, fault: Fault | None = None) -> list[str]:
    """Make a release and return the arguments that name it."""
    checkout = made / "checkout"
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=checkout, check=True)
    if fault is not None:
        fault.put_into(checkout)
    command = [sys.executable, "scripts/release.py", "--version", version, "--output", str(made)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    return ["-e", f"release_version={version}", "-e", f"release_dir={made}/headrace-{version}", *GATES]


def running(lab: Lab) -> dict[str, str]:
    """The release that each service of the pipeline runs, those of HAProxy left out."""
    found = {}
    for host in lab.hosts:
        for service in lab.services(host):
            if service != "headrace-haproxy":
                command = lab.on(host, "cat", f"/proc/{lab.process_id(host, service)}/cmdline")
                found[f"{host} {service}"] = command.partition("/opt/headrace/releases/")[2].partition("/")[0]
    return found


def assert_all_run(lab: Lab, version: str) -> None:
    assert {place: each for place, each in running(lab).items() if each != version} == {}
    assert lab.version() == version
    left = {
        host: lab.on(host, "sh", "-c", "ls -d /etc/headrace/*/kept 2>/dev/null || true") for host in lab.hosts
    }
    assert {host: each for host, each in left.items() if each.strip()} == {}


def test_an_upgrade_under_load_stops_one_broker_at_a_time(
    rolled_out: Lab, traffic: Traffic, made: Path
) -> None:
    arguments = make(made, "0.1.1.dev1")
    before = running(rolled_out)
    with Watch() as watch:
        upgraded = rolled_out.play("upgrade.yml", *arguments)
    assert upgraded.returncode == 0, upgraded.output[-6000:]
    assert watch.down_together_max == {"dc-east": 1, "offline": 1}
    assert len(before) == len(running(rolled_out))
    assert_all_run(rolled_out, "0.1.1.dev1")
    assert traffic.moves()


def test_the_same_again_and_a_roll_out_of_it_change_nothing(rolled_out: Lab, made: Path) -> None:
    arguments = ["-e", "release_version=0.1.1.dev1", "-e", f"release_dir={made}/headrace-0.1.1.dev1"]
    for playbook in ("upgrade.yml", "site.yml"):
        again = rolled_out.play(playbook, *arguments)
        assert again.returncode == 0, again.output[-6000:]
        assert again.changed() == {}


@pytest.mark.parametrize("name", FAULTS)
def test_an_upgrade_to_a_broken_release_goes_back_and_names_the_cause(
    rolled_out: Lab, traffic: Traffic, made: Path, name: str
) -> None:
    arguments = make(made, f"0.1.2.dev{list(FAULTS).index(name) + 1}", FAULTS[name])
    with Watch() as watch:
        ended = rolled_out.play("upgrade.yml", *arguments)
    assert ended.returncode == 1
    told = ended.output[ended.output.index("did not pass with release") :]
    assert FAULTS[name].said in told, told[:4000]
    assert max(watch.down_together_max.values()) <= 1
    assert_all_run(rolled_out, "0.1.1.dev1")
    assert traffic.moves()


def killed_after(lab: Lab, arguments: list[str], log: Path, run_count: int, delay_s: float) -> bool:
    """Whether the upgrade was killed before its end; what ended by itself must have ended well."""
    process = lab.start_play("upgrade.yml", *arguments, log=log)
    try:
        assert eventually(
            lambda: process.poll() is not None or module_runs(log).total() >= run_count, timeout_s=600
        )
        time.sleep(delay_s)
    finally:
        ended = process.poll()
        kill_session(process)
    assert ended in {None, 0}, log.read_text()[-6000:]
    return ended is None


def test_a_killed_upgrade_is_ended_by_the_same_command(
    rolled_out: Lab, traffic: Traffic, made: Path, tmp_path: Path
) -> None:
    """`kill -9` of Ansible and its workers, again and again, each time after a seeded number of module runs.

    A run goes on where the one before was killed. When one comes to its end, the next begins an upgrade to another release.
    """
    versions = ["0.1.3.dev1", "0.1.3.dev2"]
    releases = [make(made, version) for version in versions]
    chosen = random.Random(SEED)
    killed = turn = 0
    while killed < KILLED_RUNS:
        log = tmp_path / f"killed-{killed}-{turn}.log"
        if killed_after(
            rolled_out, releases[turn % 2], log, chosen.randint(1, UPGRADE_RUNS), chosen.random()
        ):
            killed += 1
            print(f"killed at {versions[turn % 2]} after {module_runs(log).total()} module runs")
        else:
            assert_all_run(rolled_out, versions[turn % 2])
            turn += 1
        assert traffic.moves()
    ended = rolled_out.play("upgrade.yml", *releases[turn % 2])
    assert ended.returncode == 0, ended.output[-6000:]
    assert_all_run(rolled_out, versions[turn % 2])
    assert traffic.moves()


def broker_of(lab: Lab, host: str) -> str:
    """The service of that host's broker."""
    return next(each for each in lab.services(host) if each.startswith("headrace-broker-"))


def test_a_power_cut_in_an_upgrade_stops_no_second_broker(
    rolled_out: Lab, traffic: Traffic, made: Path, tmp_path: Path
) -> None:
    """A broker's host of the live datacenter goes while the offline brokers are upgraded."""
    version = rolled_out.version()
    arguments = make(made, "0.1.4.dev1")
    lost = "dc-east-broker-3"
    offline = [(host, broker_of(rolled_out, host)) for host in rolled_out.hosts if "offline-broker" in host]
    before = [rolled_out.process_id(*place) for place in offline]
    log = tmp_path / "power-cut.log"
    with Watch() as watch:
        process = rolled_out.start_play("upgrade.yml", *arguments, log=log)
        try:
            assert eventually(
                lambda: [rolled_out.process_id(*place) for place in offline] != before, timeout_s=600
            )
            rolled_out.docker.run("kill", lost)
            assert process.wait(1200) != 0
        finally:
            kill_session(process)
            rolled_out.docker.run("start", lost)
    assert eventually(lambda: rolled_out.is_active(lost, broker_of(rolled_out, lost)))
    ended = log.read_text()
    # Its absence is felt by the events of the next gate, or found when its own turn comes.
    assert "did not pass with release 0.1.4.dev1" in ended, ended[-6000:]
    assert set(running(rolled_out).values()) == {version}
    assert watch.down_together_max == {"dc-east": 1, "offline": 1}
    assert traffic.moves()
    with Watch() as watch:
        upgraded = rolled_out.play("upgrade.yml", *arguments)
    assert upgraded.returncode == 0, upgraded.output[-6000:]
    assert max(watch.down_together_max.values()) == 1
    assert_all_run(rolled_out, "0.1.4.dev1")
    assert traffic.moves()


def installed_everywhere(lab: Lab) -> list[str]:
    """The releases that every host with a service of a release has, HAProxy's left out."""
    hosts = {place.partition(" ")[0] for place in running(lab)}
    kept = [set(lab.on(host, "ls", "/opt/headrace/releases").split()) for host in hosts]
    return sorted(set.intersection(*kept))


def test_people_go_back_to_the_release_before(rolled_out: Lab, traffic: Traffic) -> None:
    before = [each for each in installed_everywhere(rolled_out) if each != rolled_out.version()][-1]
    back = rolled_out.play("rollback.yml", *GATES, "-e", f"release_version={before}")
    assert back.returncode == 0, back.output[-6000:]
    assert_all_run(rolled_out, before)
    assert traffic.moves()
    again = rolled_out.play("rollback.yml", *GATES, "-e", "release_version=0.0.9")
    assert again.returncode != 0
    assert "has no release 0.0.9 to go back to; it has " in again.output


def test_nothing_was_lost_or_doubled_by_any_of_it(rolled_out: Lab, traffic: Traffic) -> None:
    """But what the release that loses rows lost: those are in the brokers, and not in the tables."""
    published = traffic.stop()
    assert (published["failed"], published["unknown"]) == (0, 0)

    def is_counted() -> bool:
        totals = rolled_out.report()["totals"]
        print(
            {
                name: totals[name]
                for name in ("produced", "live", "offline", "warehouse", "lost", "duplicated")
            }
        )
        acknowledged = rolled_out.acknowledged + published["acknowledged"]
        return bool(min(totals[tier] for tier in ("produced", "live", "offline")) >= acknowledged)

    assert eventually(is_counted, timeout_s=400)
    totals = rolled_out.report()["totals"]
    assert totals["duplicated"] == 0
    assert totals["produced"] == totals["live"] == totals["offline"]
