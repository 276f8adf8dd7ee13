"""What the roll-out makes of systemd's answers, and what it asks of systemd in which order."""

from __future__ import annotations

import os
import socket
import xmlrpc.client
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

managers, writing, fingerprint = (
    load(f"ansible.module_utils.headrace_{name}") for name in ("managers", "writing", "fingerprint")
)
service = load("headrace_service")
files = load("headrace_files")


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
        journal = tmp_path / "journalctl"
        journal.write_text(
            f'#!/bin/sh\necho "journalctl $*" >> {asked}\nprintf "disk on fire\\ngiving up\\n"\n'
        )
        journal.chmod(0o755)
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


def asked_to_do(asked: Path) -> list[str]:
    return [line for line in asked.read_text().splitlines() if not line.startswith("show")]


def unit(**arguments: Any) -> Any:
    """A service under systemd, which waits for nothing."""
    wanted = {"manager": "systemd", "name": "headrace-broker-1", "timeout_s": 0, "health": None}
    return service.Service({**wanted, "log": "journalctl --unit headrace-broker-1", **arguments})


def test_a_unit_that_does_not_come_up_is_reported_with_its_logs_last_lines(
    systemctl: Callable[..., Path],
) -> None:
    asked = systemctl(LoadState="loaded", ActiveState="failed", Result="exit-code")
    with pytest.raises(service.NotServingError) as raised:
        unit().wait_until_well()
    assert str(raised.value) == (
        "does not serve after 0 s: systemd says failed (exit-code). Its log is journalctl --unit headrace-broker-1. "
        "Its last lines:\ndisk on fire\ngiving up"
    )
    assert asked_to_do(asked) == [
        "journalctl --unit=headrace-broker-1.service --lines=12 --no-pager --output=cat"
    ]


@pytest.mark.parametrize(
    ("active_state", "unit_file_state", "expected"),
    [
        ("active", "enabled", ["disable --now headrace-broker-1.service"]),
        ("inactive", "enabled", ["disable --now headrace-broker-1.service"]),
        ("inactive", "disabled", []),
    ],
)
def test_what_is_stopped_does_not_come_back_with_a_boot(
    systemctl: Callable[..., Path], active_state: str, unit_file_state: str, expected: list[str]
) -> None:
    asked = systemctl(LoadState="loaded", ActiveState=active_state, UnitFileState=unit_file_state)
    assert service.stopped(unit(), True) == {"changed": bool(expected)}
    assert asked_to_do(asked) == []
    assert service.stopped(unit(), False) == {"changed": bool(expected)}
    assert asked_to_do(asked) == expected


def test_what_serves_and_would_not_come_back_with_a_boot_is_enabled(
    systemctl: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = systemctl(LoadState="loaded", ActiveState="active", UnitFileState="disabled")
    monkeypatch.setattr(service.Service, "differences", lambda _: [])
    assert service.started(unit(), False)["changed"] is True
    assert asked_to_do(asked) == ["enable headrace-broker-1.service"]
    systemctl(LoadState="loaded", ActiveState="active", UnitFileState="enabled")
    assert service.started(unit(), False) == {"changed": False, "diff": []}


@pytest.mark.parametrize(
    ("active_state", "step"), [("active", "none"), ("activating", "restart"), ("inactive", "start")]
)
def test_a_check_says_what_would_be_done_to_the_process(
    systemctl: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, active_state: str, step: str
) -> None:
    """It restarts for what it was started from, and not for a file that only lies there otherwise."""
    systemctl(LoadState="loaded", ActiveState=active_state)
    monkeypatch.setattr(service.Service, "differences", lambda _: [{"after_header": "a file"}])
    monkeypatch.setattr(service.Service, "wanted_files", lambda _: [])
    monkeypatch.setattr(service.Service, "reloaded", lambda _: None)
    monkeypatch.setattr(service.Service, "told", "a  file\n/release")
    monkeypatch.setattr(service.Service, "wanted", lambda _: "a  file\n/release")
    assert service.current(unit(), True)["step"] == step
    monkeypatch.setattr(service.Service, "wanted", lambda _: "b  file\n/release")
    assert service.current(unit(), True)["step"] == ("restart" if active_state == "active" else step)
    monkeypatch.setattr(service.Service, "reloaded", lambda _: "file")
    assert service.current(unit(), True)["step"] == ("reload" if active_state == "active" else step)
    monkeypatch.setattr(service.Service, "wanted", lambda _: "b  file\n/other")
    assert service.current(unit(), True)["step"] == ("restart" if active_state == "active" else step)


def test_a_reload_is_over_once_another_process_serves(
    systemctl: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = systemctl(LoadState="loaded", ActiveState="active")
    serving = [7, 7, 0, 8]
    monkeypatch.setattr(service.reloads, "told", lambda _: service.reloads.Loaded("", serving.pop(0)))
    reloaded = unit(reload={"signal": "USR2", "socket": "/stats"}, timeout_s=10, log="log")
    reloaded.reload()
    assert serving == []
    assert "reload headrace-broker-1.service" in asked.read_text().splitlines()


def test_a_reload_that_nobody_serves_after_is_told(
    systemctl: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl(LoadState="loaded", ActiveState="active")
    monkeypatch.setattr(service.reloads, "told", lambda _: service.reloads.Loaded("", 7))
    reloaded = unit(reload={"signal": "USR2", "socket": "/stats"}, timeout_s=0, log="log")
    with pytest.raises(service.NotServingError, match="goes on with what it had loaded"):
        reloaded.reload()


def test_a_unit_that_is_removed_leaves_no_link(systemctl: Callable[..., Path], tmp_path: Path) -> None:
    asked = systemctl(LoadState="loaded", ActiveState="active", UnitFileState="enabled")
    (tmp_path / "multi-user.target.wants").mkdir()
    link = tmp_path / "multi-user.target.wants" / "headrace-broker-1.service"
    definition = tmp_path / "headrace-broker-1.service"
    definition.write_text("[Service]")
    for ending in ("service", "timer"):
        (tmp_path / f"headrace-broker-1-scrub.{ending}").write_text("[Unit]")
    other = tmp_path / "headrace-broker-10-scrub.timer"
    other.write_text("[Unit]")
    link.symlink_to(definition)
    removed = unit(definition={"path": str(definition), "content": ""})
    assert service.absent(removed, True) == {"changed": True}
    assert definition.exists()
    assert service.absent(removed, False) == {"changed": True}
    assert not definition.exists()
    assert not os.path.lexists(link)
    assert list(tmp_path.glob("*-scrub.*")) == [other]
    assert asked_to_do(asked) == [
        "disable --now headrace-broker-1.service",
        "daemon-reload",
        "reset-failed headrace-broker-1.service",
    ]
    systemctl(LoadState="not-found", ActiveState="inactive")
    assert service.absent(unit(definition={"path": str(definition)}), False) == {"changed": False}


def test_units_that_run_are_known_by_their_names(systemctl: Callable[..., Path], tmp_path: Path) -> None:
    systemctl()
    (tmp_path / "systemctl").write_text(
        "#!/bin/sh\necho 'headrace-broker-3.service loaded active running Broker 3'\n"
        "echo 'headrace-broker-3-scrub.service loaded active running Scrub of the logs of broker 3'\n"
    )
    assert managers.systemd_services() == ["headrace-broker-3"]


def test_systemd_takes_changed_units_over_and_starts_none(systemctl: Callable[..., Path]) -> None:
    asked = systemctl()
    files.take_over(["headrace-broker-1-scrub.timer"])
    assert asked_to_do(asked) == ["daemon-reload", "try-restart headrace-broker-1-scrub.timer"]


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


def test_services_of_a_drained_host_are_only_ever_stopped(tmp_path: Path) -> None:
    mark = tmp_path / "east-1.json"
    arguments = {"mark": str(mark)}
    assert service.mark_against({**arguments, "state": "started"}) is None
    mark.write_text('{"host": "east-1", "who": "ana", "why": "its disk", "since": "2026-11-23T08:30:00Z"}')
    for state in service.STATES:
        found = service.mark_against({**arguments, "state": state})
        assert (found is None) == (state in ("stopped", "absent")), state


def test_a_supervisor_that_a_boot_ended_is_told_from_none(tmp_path: Path) -> None:
    path = str(tmp_path / "supervisor.sock")
    missing = managers.Supervisor("broker", path)
    assert missing.state() == "missing"
    start = (
        "start it with playbooks/site.yml, whose --limit has to name the machine as well, where there is one."
    )
    with pytest.raises(managers.ManagerError) as error:
        missing.start()
    assert str(error.value) == f"supervisor does not run: there is no {path}: {start}"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.bind(path)
    with pytest.raises(managers.ManagerError) as error:
        managers.Supervisor("broker", path).state()
    assert str(error.value) == (
        f"supervisor does not run, though {path} is there, as after a boot or where it was killed: {start}"
    )


class StartedMeanwhile:
    """A supervisord that another run told to start the program, after this one looked."""

    def reloadConfig(self) -> list[list[list[str]]]:
        return [[[], [], []]]

    def getProcessInfo(self, name: str) -> dict[str, Any]:
        return {"statename": "STOPPED"}

    def startProcess(self, name: str, wait: bool) -> None:
        raise xmlrpc.client.Fault(60, f"ALREADY_STARTED: {name}")


def test_a_program_that_another_run_starts_meanwhile_is_told_as_such(tmp_path: Path) -> None:
    program = managers.Supervisor("registry", str(tmp_path / "none"))
    program.rpc = StartedMeanwhile()
    with pytest.raises(managers.ManagerError, match="another run started it meanwhile: wait for its end"):
        program.start()
