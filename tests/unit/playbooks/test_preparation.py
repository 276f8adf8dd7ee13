"""What a host lacks of packages and settings, and what is said where it may not be given them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

preparation = load("headrace_preparation")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('ID=debian\nVERSION_ID="12"\n', "debian"),
        ('ID="amzn"\nID_LIKE="fedora"\n', "amzn"),
        ("ID=ubuntu\nID_LIKE=debian\n", "debian"),
    ],
)
def test_a_system_is_known_by_its_own_name_or_by_what_it_is_like(text: str, name: str) -> None:
    assert preparation.family(text) == name
    assert preparation.PACKAGES[name].keys() == {*preparation.PROGRAMS, "python"}


def test_another_system_ends_with_what_to_do() -> None:
    with pytest.raises(preparation.PreparationError, match=r"for Alpine 3: .* set machine_packages to false"):
        preparation.family('ID=alpine\nPRETTY_NAME="Alpine 3"\n')


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
