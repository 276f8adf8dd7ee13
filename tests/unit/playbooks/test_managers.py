"""What the roll-out makes of systemd's answers, and what it asks of systemd in which order."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PLAYBOOKS = Path(__file__).resolve().parents[3] / "playbooks"


def load(name: str) -> Any:
    """A module of playbooks/module_utils, which is no package; Ansible imports it under its own name."""
    path = PLAYBOOKS / "module_utils" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"ansible.module_utils.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"ansible.module_utils.{name}"] = module
    spec.loader.exec_module(module)
    return module


managers, _, writing, fingerprint = map(
    load, ("headrace_managers", "headrace_health", "headrace_writing", "headrace_fingerprint")
)


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put a systemctl on the path that shows these properties; returns the file of what it was asked."""

    def install(**properties: str) -> Path:
        asked = tmp_path / "asked"
        shown = "\\n".join(f"{name}={value}" for name, value in properties.items())
        program = tmp_path / "systemctl"
        program.write_text(
            f'#!/bin/sh\necho "$*" >> {asked}\ncase $1 in show|list-units) printf "{shown}\\n" ;; esac\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return asked

    return install


@pytest.mark.parametrize(
    ("load_state", "active_state", "expected"),
    [
        ("loaded", "active", "running"),
        ("loaded", "activating", "failing"),
        ("loaded", "failed", "stopped"),
        ("not-found", "inactive", "missing"),
    ],
)
def test_systemds_states_are_the_roll_outs(
    systemctl: Callable[..., Path], load_state: str, active_state: str, expected: str
) -> None:
    systemctl(LoadState=load_state, ActiveState=active_state, MainPID="17")
    manager = managers.Systemd("headrace-broker-1")
    assert (manager.state(), manager.process_id()) == (expected, 17)


def test_a_restart_reads_the_definition_first_and_enables_the_unit(systemctl: Callable[..., Path]) -> None:
    asked = systemctl(UnitFileState="disabled")
    managers.Systemd("headrace-broker-1").restart()
    commands = [line for line in asked.read_text().splitlines() if not line.startswith("show")]
    assert commands == [
        "daemon-reload",
        "enable headrace-broker-1.service",
        "restart headrace-broker-1.service",
    ]


def test_units_that_run_are_known_by_their_names(systemctl: Callable[..., Path], tmp_path: Path) -> None:
    systemctl()
    (tmp_path / "systemctl").write_text(
        "#!/bin/sh\necho 'headrace-broker-3.service loaded active running Broker 3'\n"
    )
    assert managers.systemd_services() == ["headrace-broker-3"]


def test_nothing_is_written_when_one_of_the_contents_is_refused(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("old")
    files = [
        {"path": str(good), "content": "new", "mode": "0644"},
        {"path": str(bad), "content": "x", "mode": "0644", "validate": "/bin/ls %s /no/such/file"},
    ]
    with pytest.raises(writing.FilesError, match=f"{bad} was not replaced, since its new content is refused"):
        writing.write([str(tmp_path / "folder")], files, None)
    assert good.read_text() == "old"
    assert not bad.exists()
    assert not (tmp_path / "folder").exists()


def test_a_process_without_the_text_was_started_from_something_else() -> None:
    assert fingerprint.running(2**22 + 1) == ""
