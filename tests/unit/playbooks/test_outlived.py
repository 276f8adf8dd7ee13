"""What a supervisord that was killed leaves running is told, and stopped: real processes, on a socket of their own."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playbooks_kit import load

managers, health = (load(f"ansible.module_utils.headrace_{name}") for name in ("managers", "health"))
supervisord, service, machine = map(load, ("headrace_supervisord", "headrace_service", "headrace_machine"))
TIMEOUT_S = 20
# A service with a process of its own under it, such as the load's JVM.
PROGRAM = "sleep 3600 & trap 'kill $!; exit' TERM; wait"


def eventually(is_so: Callable[[], bool]) -> None:
    assert health.wait_until(lambda: None if is_so() else "not yet", TIMEOUT_S) is None


def arguments_of(folder: Path) -> dict[str, Any]:
    return {
        "executable": str(Path(sys.executable).parent / "supervisord"),
        "config": str(folder / "supervisord.conf"),
        "pid_file": str(folder / "supervisord.pid"),
        "socket": str(folder / "supervisor.sock"),
    }


@pytest.fixture
def abandoned(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The arguments of a supervisord that was killed while two programs ran."""
    arguments = arguments_of(tmp_path)
    (tmp_path / "run.sh").write_text(PROGRAM, encoding="utf-8")
    programs = "".join(
        f"[program:{name}]\ncommand=/bin/sh {tmp_path}/run.sh\nstartsecs=0\n" for name in ("broker-1", "load")
    )
    (tmp_path / "supervisord.conf").write_text(
        f"[unix_http_server]\nfile={arguments['socket']}\n"
        f"[supervisord]\npidfile={arguments['pid_file']}\nlogfile={tmp_path}/log\nchildlogdir={tmp_path}\n"
        "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        f"{programs}",
        encoding="utf-8",
    )
    assert supervisord.start(arguments, TIMEOUT_S) is None
    eventually(lambda: all(managers.supervisor_processes(arguments["socket"]).values()))
    assert managers.outlived(arguments["socket"]) == {}
    os.kill(supervisord.running_pid(arguments["pid_file"], arguments["config"]), signal.SIGKILL)
    eventually(lambda: not managers.supervisor_answers(arguments["socket"]))
    # A program that supervisord has just started is not what it will be yet: a shell, and what this starts.
    eventually(
        lambda: sorted(managers.outlived(arguments["socket"]).values()) == ["broker-1"] * 2 + ["load"] * 2
    )
    yield arguments
    managers.stop_outlived(arguments["socket"], 0)


def stop(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = service.stopped(
        service.Service(
            {
                "name": name,
                "manager": "supervisor",
                "state": "stopped",
                "socket": arguments["socket"],
                "timeout_s": TIMEOUT_S,
            }
        ),
        False,
    )
    return found


def test_what_runs_on_is_named_once_and_nothing_is_started_beside_it(abandoned: dict[str, Any]) -> None:
    problem = managers.outlived_problem(abandoned["socket"])
    assert problem.startswith(
        f"The supervisord of {abandoned['socket']} is gone on {socket.gethostname()}, and what it had started runs on: "
    )
    assert problem.count("broker-1 (process ") == problem.count("load (process ") == 1
    assert problem.endswith("Stop that with playbooks/down.yml, then roll out.")
    nothing: dict[str, Any] = {
        "executables": [],
        "python": None,
        "needs": {},
        "clock": False,
        "packages": False,
        "datacenters": {},
    }
    taken = {"service": "broker-1", "host": "east-1", "address": "192.0.2.1", "port": 9092}
    arguments = {**nothing, "manager": "supervisor", "socket": abandoned["socket"], "listeners": [taken]}
    assert machine.problems(arguments, {}, ()) == [problem]


def test_a_service_that_runs_on_is_stopped_alone(abandoned: dict[str, Any]) -> None:
    assert stop(abandoned, "broker-1") == {"changed": True}
    assert set(managers.outlived(abandoned["socket"]).values()) == {"load"}
    assert stop(abandoned, "broker-1") == {"changed": False}


def test_stopping_supervisord_stops_what_outlived_it(abandoned: dict[str, Any]) -> None:
    assert supervisord.stop(0, abandoned, TIMEOUT_S) is None
    assert managers.outlived(abandoned["socket"]) == {}


def test_a_check_counts_no_program_that_the_play_would_have_stopped(abandoned: dict[str, Any]) -> None:
    all_but_one, everything = abandoned | {"stopped": ["load"]}, abandoned | {"stopped": ["load", "broker-1"]}
    assert supervisord.would_stop(all_but_one, check_mode=True)
    assert not supervisord.would_stop(everything, check_mode=True)
    assert supervisord.would_stop(everything, check_mode=False)


def test_what_does_not_stop_in_time_is_killed(abandoned: dict[str, Any]) -> None:
    for pid in managers.outlived(abandoned["socket"]):
        os.kill(pid, signal.SIGSTOP)
    managers.stop_outlived(abandoned["socket"], 0.2)
    eventually(lambda: managers.outlived(abandoned["socket"]) == {})
