"""What a host lacks of packages and settings, and what is said where it may not be given them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

preparation = load("headrace_preparation")
packages = load("ansible.module_utils.headrace_packages")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "debian"),
        ('ID="amzn"\nID_LIKE="fedora"\n', "amzn"),
        ("ID=ubuntu\nID_LIKE=debian\n", "debian"),
    ],
)
def test_a_system_is_known_by_its_own_name_or_by_what_it_is_like(text: str, name: str) -> None:
    assert packages.family(text) == name
    assert packages.PACKAGES[name].keys() == {*packages.PROGRAMS, "python"}


def test_another_system_ends_with_what_to_do() -> None:
    with pytest.raises(packages.UnknownSystemError, match=r"for Alpine 3: .* set machine_packages to false"):
        packages.family('ID=alpine\nPRETTY_NAME="Alpine 3"\n')


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(preparation, "setting_path", lambda name: str(tmp_path / name))
    (tmp_path / "vm.maps").write_text("65530\n")
    (tmp_path / "vm.swappiness").write_text("60\n")
    return tmp_path


def setting(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, "reason": "…", **more}


def test_a_setting_is_raised_and_never_lowered(kernel: Path) -> None:
    (low,) = preparation.unset(
        [setting("vm.maps", 262144), setting("vm.swappiness", 1), setting("vm.unknown", 5)]
    )
    assert (low["name"], low["current"]) == ("vm.maps", 65530)
    assert preparation.put_into_effect([low]) == []
    assert (kernel / "vm.maps").read_text() == "262144"
    assert preparation.unset([setting("vm.maps", 262144)]) == []


def test_a_setting_that_must_be_exact_is_lowered_too(kernel: Path) -> None:
    (wrong,) = preparation.unset([setting("vm.swappiness", 1, exactly=True)])
    assert wrong["current"] == 60


def test_what_a_container_may_not_set_is_said(kernel: Path) -> None:
    (kernel / "vm.closed").mkdir()
    (sentence,) = preparation.put_into_effect([setting("vm.closed", 7, current=3)])
    assert sentence.startswith("vm.closed is 3 and should be 7, which cannot be set here (")
    assert sentence.endswith("set it on the machine under this container, or machine_kernel to false.")


def test_a_python_without_ensurepip_is_not_there() -> None:
    assert not preparation.is_there("python", "python-of-nobody")
    assert preparation.is_there("python", "python3")


@pytest.mark.parametrize(
    ("system", "commands"),
    [
        (
            "debian",
            [
                "apt-get update -q",
                "apt-get install -y -q --no-install-recommends chrony haproxy openjdk-17-jre-headless python3-venv",
                "systemctl disable --now haproxy",
                "systemctl enable --now chrony",
            ],
        ),
        (
            "amzn",
            [
                "dnf install -y -q chrony haproxy java-17-amazon-corretto-headless python3.11",
                "systemctl disable --now haproxy",
                "systemctl enable --now chronyd",
            ],
        ),
    ],
)
def test_packages_are_installed_with_the_systems_own_program(
    system: str, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """test_lab_machine.py really does so on Debian; there is no Amazon Linux here."""
    asked: list[str] = []
    monkeypatch.setattr(preparation, "run", lambda *command: asked.append(" ".join(command)))
    preparation.install(["clock", "haproxy", "java", "python"], system)
    assert asked == commands


def test_who_has_to_install_it_is_told_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "OS_RELEASE", str(tmp_path / "os-release"))
    assert packages.advice("java") == "install java"
    (tmp_path / "os-release").write_text('ID="amzn"\n')
    assert packages.advice("java") == "install it (dnf install java-17-amazon-corretto-headless)"
    (tmp_path / "os-release").write_text("ID=debian\n")
    assert packages.advice("clock") == "install it (apt-get install chrony)"
