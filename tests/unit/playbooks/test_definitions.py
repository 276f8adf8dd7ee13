"""What must not change of a service that was rolled out: its definition here, beside what the inventory says now."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

definitions = load("ansible.module_utils.headrace_definitions")
machine = load("headrace_machine")
NAME = socket.gethostname()
SERVICE = "headrace-broker-1"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """A broker's unit, whose data are there."""
    (tmp_path / "old" / SERVICE).mkdir(parents=True)
    (tmp_path / "old" / SERVICE / "meta.properties").touch()
    file = tmp_path / f"{SERVICE}.service"
    file.write_text(
        f"[Unit]\nDescription=Broker 1 of dc-east\nWants=network-online.target\n[Service]\nWorkingDirectory={tmp_path}/old\n"
    )
    return file


def problem(unit: Path, datacenter: str = "dc-east", folder: str = "old") -> Any:
    return definitions.rolled_out_problem(SERVICE, str(unit), datacenter, str(unit.parent / folder))


def test_what_was_rolled_out_as_the_inventory_says_is_well(unit: Path) -> None:
    assert problem(unit) is None


def test_what_was_never_rolled_out_is_well(tmp_path: Path) -> None:
    assert problem(tmp_path / "none.service") is None


def test_a_datacenter_cannot_be_renamed(unit: Path) -> None:
    assert problem(unit, datacenter="dc-pacific") == (
        f"{SERVICE} on {NAME} was rolled out for dc-east, and headrace_datacenter is dc-pacific: the name is in copies of "
        "topics, rows and counts, and never changes. Say dc-east again, or remove the host's data and configuration first "
        "(playbooks/down.yml)."
    )


@pytest.mark.parametrize(
    "description",
    [
        "Auditor of all datacenters",
        "Load of the mirrored topics into the warehouse",
        "Mirror member 7 beside b:9092",
    ],
)
def test_what_serves_all_datacenters_has_no_name_of_one(unit: Path, description: str) -> None:
    unit.write_text(f"Description={description}\n")
    assert problem(unit, datacenter="dc-pacific") is None


def test_data_that_are_not_where_the_inventory_says_are_not_left_behind(unit: Path) -> None:
    folder = unit.parent
    assert problem(unit, folder="new") == (
        f"{SERVICE} on {NAME} has its data in {folder}/old/{SERVICE}, and headrace_data_dir is {folder}/new, without them: say "
        f"{folder}/old again, or stop it (playbooks/down.yml) and move that folder to {folder}/new/{SERVICE} first."
    )
    (folder / "new").mkdir()
    (folder / "old" / SERVICE).rename(folder / "new" / SERVICE)
    assert problem(unit, folder="new") is None


def test_a_service_without_data_may_have_another_folder(unit: Path) -> None:
    (unit.parent / "old" / SERVICE / "meta.properties").unlink()
    assert problem(unit, folder="new") is None


def test_a_definition_of_supervisors_tells_its_folder(unit: Path) -> None:
    unit.write_text(f"[program:{SERVICE}]\ndirectory={unit.parent}/old\n")
    assert problem(unit) is None
    assert "has its data in" in problem(unit, folder="new")


def test_preflight_looks_at_each_service_of_the_machine(unit: Path) -> None:
    arguments: dict[str, Any] = {
        **dict.fromkeys(("python", "socket")),
        "executables": [],
        "packages": False,
        "listeners": [],
        "needs": {},
        "clock": False,
        "hosts": [],
        "manager": "systemd",
        "datacenters": {SERVICE: "dc-west", "headrace-counter": "dc-west"},
        "definitions": f"{unit.parent}/{{}}.service",
        "data_dir": str(unit.parent / "old"),
    }
    (sentence,) = machine.problems(arguments, {}, ())
    assert sentence.startswith(f"{SERVICE} on {NAME} was rolled out for dc-east")
