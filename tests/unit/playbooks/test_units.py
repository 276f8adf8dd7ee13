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


def unit_of(name: str, **variables: Any) -> str:
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
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
        "headrace_user": "headrace",
        "headrace_data_dir": "/var/lib/headrace",
    }
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(given | variables)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_could_do_little_harm(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze, of Debian's package systemd, is not installed")
    unit = tmp_path / f"headrace-{name}.service"
    unit.write_text(unit_of(name))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    exposure = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", said)
    assert exposure is not None, said
    assert float(exposure[1]) <= EXPOSURE_MAX, said


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
