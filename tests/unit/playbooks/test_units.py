"""The unit that a host's systemd keeps a service by: what it may do, and how little it could do otherwise."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
from playbooks_kit import PLAYBOOKS

TEMPLATE = PLAYBOOKS / "roles" / "service" / "templates" / "systemd.j2"
EXPOSURE_MAX = 3.0
# A host's services with the directories that each writes.
SERVICES: dict[str, list[str]] = {
    "zookeeper-1": ["/var/lib/headrace/headrace-zookeeper-1"],
    "broker-1": ["/var/lib/headrace/headrace-broker-1"],
    "haproxy": ["/var/lib/headrace/headrace-haproxy"],
    "registry": [],
    "load": ["/var/lib/headrace/warehouse"],
    "counter": [],
    "auditor": ["/var/lib/headrace/headrace-auditor", "/var/lib/headrace/warehouse"],
}


SCRUB: dict[str, Any] = {
    "broker_service": "headrace-broker-1",
    "broker_id": 1,
    "broker_log_directories": ["/data/a", "/data/b"],
    "broker_scrub_calendar": "weekly",
    "broker_scrub_mib_per_second": 20,
    "headrace_bin_dir": "/opt/headrace/releases/1.0/bin",
    "headrace_datacenter": "dc-east",
    "headrace_user": "headrace",
}


def rendered(template: Path, variables: dict[str, Any]) -> str:
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(template.read_text(encoding="utf-8")).render(variables)


def unit_of(name: str, **variables: Any) -> str:
    given = {
        "service_description": f"{name} of dc-east",
        "service_directories": SERVICES[name],
        "service_final_environment": {"SAID": 'with "quotes" and 5%'},
        "service_secrets": {},
        "service_config_dir": f"/etc/headrace/headrace-{name}",
        "service_runner": {"path": f"/etc/headrace/headrace-{name}/run.sh"},
        "service_command": "/opt/headrace/releases/1.0/bin/headrace serve",
        "service_stop_timeout_s": 30,
        "service_reload": {"signal": "USR2"} if name == "haproxy" else {},
        "service_open_files": 100000,
        "service_memory_max": "80%",
        "service_wants": [],
        "headrace_user": "headrace",
        "headrace_data_dir": "/var/lib/headrace",
    }
    return rendered(TEMPLATE, given | variables)


def scrub_of(ending: str, **variables: Any) -> str:
    template = PLAYBOOKS / "roles" / "broker" / "templates" / f"scrub.{ending}.j2"
    return rendered(template, SCRUB | variables)


def analyzed(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze, of Debian's package systemd, is not installed")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", [*SERVICES, "broker-1-scrub"])
def test_a_service_could_do_little_harm(name: str, tmp_path: Path) -> None:
    unit = tmp_path / f"headrace-{name}.service"
    unit.write_text(scrub_of("service") if name.endswith("scrub") else unit_of(name))
    said = analyzed("security", "--offline=true", "--no-pager", str(unit)).stdout
    exposure = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", said)
    assert exposure is not None, said
    assert float(exposure[1]) <= EXPOSURE_MAX, said


@pytest.mark.parametrize(("calendar", "code"), [("weekly", 0), ("Sat *-*-* 03:00", 0), ("weekli", 1)])
def test_a_calendar_that_systemd_does_not_understand_is_refused(
    calendar: str, code: int, tmp_path: Path
) -> None:
    unit = tmp_path / "2-headrace-broker-1-scrub.timer"
    unit.write_text(scrub_of("timer", broker_scrub_calendar=calendar))
    assert analyzed("verify", str(unit)).returncode == code


def test_a_scrub_is_wanted_by_its_broker_and_goes_with_it() -> None:
    wants = unit_of("broker-1", service_wants=["headrace-broker-1-scrub.timer"])
    assert "\nWants=network-online.target headrace-broker-1-scrub.timer\n" in wants
    for ending in ("service", "timer"):
        assert "\nPartOf=headrace-broker-1.service\n" in scrub_of(ending)


def test_a_scrub_reads_all_of_its_brokers_directories_and_writes_no_others() -> None:
    unit = scrub_of("service").splitlines()
    directories = "/data/a /data/b"
    command = "/opt/headrace/releases/1.0/bin/headrace check-logs --record --mib-per-second 20"
    assert f"ExecStart={command} {directories}" in unit
    assert f"ReadWritePaths={directories}" in unit


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_writes_its_own_directories_alone(name: str) -> None:
    written = re.findall(r"(?m)^ReadWritePaths=(.*)$", unit_of(name))
    assert written == ([" ".join(SERVICES[name])] if SERVICES[name] else [])


def test_only_what_reads_its_file_anew_is_told_to() -> None:
    assert "ExecReload=/bin/kill -USR2 $MAINPID" in unit_of("haproxy").splitlines()
    assert "ExecReload" not in unit_of("broker-1")


def test_a_percent_sign_is_no_specifier_of_systemd() -> None:
    assert "5%%" in unit_of("load")
    assert "ExecStart=/bin/sh /etc/headrace/headrace-load/run.sh a%%b" in unit_of(
        "load", service_command="a%b"
    )


def test_a_secret_reaches_a_service_as_a_credential_and_stands_nowhere_in_its_unit() -> None:
    unit = unit_of("load", service_secrets={"catalog.secret": "key=canary"})
    assert "\nLoadCredential=catalog.secret:/etc/headrace/headrace-load/catalog.secret\n" in unit
    assert "canary" not in unit
    assert "LoadCredential" not in unit_of("load")
