"""What is removed from a machine, and what never is."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

removal = load("headrace_removal")
USER, HOME = pwd.getpwuid(os.getuid()).pw_name, pwd.getpwuid(os.getuid()).pw_dir


class Module:
    """What the module needs of AnsibleModule."""

    def __init__(self, check_mode: bool = False, **params: Any) -> None:
        self.params = {"paths": [], "user": None, "home": HOME, "kept": [], **params}
        self.check_mode = check_mode
        self.warnings: list[str] = []

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a userdel on the path; the file of what it was asked."""
    said = tmp_path / "asked"
    program = tmp_path / "bin" / "userdel"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$*" >> {said}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return said


def test_folders_go_with_all_that_is_in_them_and_links_alone(tmp_path: Path) -> None:
    (tmp_path / "etc" / "deep").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    paths = [str(tmp_path / name) for name in ("etc", "link", "none")]
    assert removal.run(Module(check_mode=True, paths=paths)) == paths[:2]
    assert (tmp_path / "etc").exists()
    assert removal.run(Module(paths=paths)) == paths[:2]
    assert sorted(os.listdir(tmp_path)) == ["data"]
    assert removal.run(Module(paths=paths)) == []


@pytest.mark.parametrize("path", ["/", "/etc", "/var/lib", "/usr/local/", "/opt/../var"])
def test_what_is_the_systems_own_is_refused(path: str) -> None:
    with pytest.raises(removal.RefusedError, match="is the system's own folder and is not removed"):
        removal.run(Module(check_mode=True, paths=[path]))


def test_the_user_goes_where_no_data_of_its_own_stay(tmp_path: Path, asked: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    staying = Module(user=USER, kept=[str(data)])
    assert removal.run(staying) == []
    assert staying.warnings == [
        f"The user {USER} stays, since {data} does, its own: remove that too, and the user goes."
    ]
    assert not asked.exists()
    assert removal.run(Module(user=USER, paths=[str(data)], kept=[str(data)])) == [str(data), f"user {USER}"]
    assert asked.read_text() == f"{USER}\n"
    assert removal.run(Module(user="no-such-user", kept=[])) == []


def test_a_user_that_the_roll_out_did_not_make_stays(asked: Path) -> None:
    module = Module(user=USER, home="/opt/headrace")
    assert removal.run(module) == []
    assert module.warnings == [
        f"The user {USER} stays, since its home is {HOME}: this roll-out did not make it."
    ]
    assert not asked.exists()
