"""What a machine lacks for its services, asked of this one and of what it could say."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playbooks_kit import load

machine = load("headrace_machine")
machines = load("ansible.module_utils.headrace_machines")
packages = load("ansible.module_utils.headrace_packages")
NAME = socket.gethostname()
NOTHING: dict[str, Any] = {
    "executables": [],
    "python": None,
    "python_wanted": {},
    "packages": False,
    "listeners": [],
    "needs": {},
    "clock": False,
    "hosts": ["east-1"],
    "datacenters": {},
    "manager": "supervisor",
    "socket": None,
}


UNREACHABLE = {"service": "broker", "host": "east-1", "address": "192.0.2.1", "port": 9092}


def problems(
    running: dict[str, int] | None = None, drained: tuple[str, ...] = (), **arguments: Any
) -> list[str]:
    found: list[str] = machine.problems({**NOTHING, **arguments}, running or {}, drained)
    return found


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a program on the path that says this."""

    def install(name: str, says: str) -> None:
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
        file.chmod(0o755)
        monkeypatch.setattr(machines, "SEARCH_PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


def test_a_program_that_is_missing_is_named_unless_it_will_be_installed() -> None:
    assert problems(executables=["sh"]) == []
    (problem,) = problems(executables=["no-such-program"])
    assert problem.startswith(f"The program no-such-program is not installed on {NAME}: install it")
    assert problems(executables=["no-such-program"], packages=True) == []


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ('openjdk version "17.0.13" 2024-10-15', None),
        ('openjdk version "21" 2023-09-19', None),
        ('java version "1.8.0_392"', f"Java on {NAME} is version 8: ZooKeeper and Spark need 17 or later."),
        (
            "Segmentation fault",
            f"`java -version` does not tell its version on {NAME}: it says 'Segmentation fault'.",
        ),
    ],
)
def test_a_java_that_is_too_old_is_told(
    program: Callable[[str, str], None], says: str, problem: str | None
) -> None:
    program("java", says)
    assert problems(executables=["java"]) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ("3 11", None),
        (
            "3 9",
            "is version 3.9: a release needs Python 3.11 or later. Set release_python to another Python of the host's.",
        ),
        (
            "3 12\nModuleNotFoundError: No module named 'ensurepip'",
            "makes no virtual environments: install it (apt-get install python3-venv).",
        ),
    ],
)
def test_a_python_that_makes_no_release_is_told(
    program: Callable[[str, str], None], says: str, problem: str | None
) -> None:
    program("python3.x", says)
    expected = [f"release_python, python3.x on {NAME}, {problem}"] if problem else []
    assert problems(python="python3.x", python_wanted={}) == expected
    assert len(problems(python="no-such-python")) == 1
    assert problems(python="no-such-python", packages=True) == []


@pytest.mark.parametrize(
    ("installs", "how"),
    [(True, "which the roll-out installs"), (False, "after you install it (dnf install python3.11)")],
)
def test_amazon_linux_is_told_of_its_other_python(
    program: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    installs: bool,
    how: str,
) -> None:
    (tmp_path / "os-release").write_text('ID="amzn"\n')
    monkeypatch.setattr(packages, "OS_RELEASE", str(tmp_path / "os-release"))
    program("python3.x", "3 9")
    (problem,) = problems(python="python3.x", python_wanted={}, packages=installs)
    assert problem.endswith(f"Set release_python to python3.11, {how}.")


def test_a_python_that_the_release_is_not_for_is_told(program: Callable[[str, str], None]) -> None:
    program("python3.x", "3 12")
    here = {"version": "3.12", "machine": platform.machine()}
    assert problems(python="python3.x", python_wanted=here) == []
    for wanted in ({"version": "3.11"}, {"machine": "sparc"}):
        (problem,) = problems(python="python3.x", python_wanted={**here, **wanted})
        release = " on ".join({**here, **wanted}.values())
        assert (
            f"is version 3.12 on {platform.machine()}, and the release is for {release}: name another in"
            in problem
        )


def test_too_little_memory_room_and_open_files_are_told_in_numbers(tmp_path: Path) -> None:
    needs = {
        "memory_mb": 1 << 30,
        "disk": {str(tmp_path / "not" / "yet"): 1 << 40, str(tmp_path): 1},
        "open_files": [{"service": "haproxy", "count": 1 << 40, "advice": "raise the limit"}],
    }
    memory, disk, files = problems(needs=needs)
    assert memory.startswith(f"{NAME} has ")
    assert "MB of memory, and its services need 1073741824 MB" in memory
    assert "MB free, and its services need 1099511627777 MB" in disk
    assert "haproxy needs 1099511627776 open files" in files
    assert problems(needs={"memory_mb": 1, "disk": {str(tmp_path): 1}, "open_files": []}) == []


def test_a_disk_that_nobody_may_write_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_flag=os.ST_RDONLY))
    (disk,) = problems(needs={"disk": {str(tmp_path / "not" / "yet"): 1}})
    assert disk == (
        f"The disk of {tmp_path}/not/yet on {NAME} is mounted read-only: look in the kernel's log why, and mount it for writing, "
        "or set headrace_data_dir."
    )


def test_a_disk_of_its_own_is_looked_at_by_itself(tmp_path: Path) -> None:
    """/dev/shm is another disk than the folder of a test; neither lends the other room."""
    needs = {"disk": {"/dev/shm/not/yet": 1 << 40, str(tmp_path): 1}}
    (disk,) = problems(needs=needs)
    assert disk.startswith(f"The disk of /dev/shm/not/yet on {NAME} has ")


def test_systemd_allows_what_the_kernel_does_or_no_more_than_its_own_limit() -> None:
    assert 1024 <= machines.open_files_max("systemd") <= 1 << 40


def test_a_folder_without_zookeepers_jar_is_told(tmp_path: Path) -> None:
    needs = {"jars": [str(tmp_path)]}
    (tmp_path / "zookeeper-jute-3.9.3.jar").touch()
    (problem,) = problems(needs=needs)
    assert f"zookeeper_jars_dir is {tmp_path}, and there is no zookeeper-*.jar in it" in problem
    (tmp_path / "zookeeper-3.9.3.jar").touch()
    assert problems(needs=needs) == []
    assert "has no such folder" in problems(needs={"jars": [str(tmp_path / "none")]})[0]


@pytest.mark.parametrize(
    ("state", "error_ms", "problem"),
    [
        (0, 30, None),
        (5, 16000, f"The clock of {NAME} is not synchronised: "),
        (0, 900, f"The clock of {NAME} may be 900 ms off: "),
    ],
)
def test_a_clock_that_nobody_keeps_is_told(state: int, error_ms: int, problem: str | None) -> None:
    told = machines.told_of_clock(state, error_ms)
    assert told is None if problem is None else told.startswith(problem)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])
def test_a_port_is_a_services_own_or_its_holder_is_named(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        taken = {
            "service": "broker",
            "host": "east-1",
            "address": "127.0.0.1" if address == "0.0.0.0" else address,
            "port": port,
        }
        assert problems({"broker": os.getpid()}, listeners=[taken]) == []
        # Even while another of ours runs.
        (problem,) = problems({"broker": 1, "registry": os.getpid()}, listeners=[taken])
    assert f"broker cannot listen at {taken['address']}:{port}: process {os.getpid()} (" in problem
    assert problems(listeners=[taken]) == []


def test_a_socket_of_ipv6_at_an_address_of_ipv4_is_a_services_own_as_javas_are() -> None:
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::ffff:127.0.0.1", 0))
        server.listen(1)
        taken = {
            "service": "zookeeper",
            "host": "east-1",
            "address": "127.0.0.1",
            "port": server.getsockname()[1],
        }
        assert problems({"zookeeper": os.getpid()}, listeners=[taken]) == []
        assert f"process {os.getpid()} (" in problems({"zookeeper": 1}, listeners=[taken])[0]


def test_a_port_that_a_service_has_another_process_serve_is_its_own() -> None:
    serve = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
    command = [sys.executable, "-c", f"{serve}; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        port = int(worker.stdout.readline())
        taken = {"service": "haproxy", "host": "east-1", "address": "127.0.0.1", "port": port}
        assert problems({"haproxy": os.getpid()}, listeners=[taken]) == []
        assert f"process {worker.pid} (" in problems({"haproxy": 1}, listeners=[taken])[0]
        worker.communicate()


def test_nothing_of_a_drained_host_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "clock_problem", lambda: "The clock is off.")
    assert len(problems(listeners=[UNREACHABLE], clock=True)) == 2
    assert problems(drained=("east-1",), listeners=[UNREACHABLE], clock=True) == []
    both = ["east-1", "east-2"]
    found = problems(drained=("east-1",), listeners=[UNREACHABLE], hosts=both, clock=True)
    assert found == ["The clock is off."]


def test_an_address_of_another_machine_is_told() -> None:
    (problem,) = problems(listeners=[UNREACHABLE])
    assert "broker cannot listen at 192.0.2.1:9092: Cannot assign requested address." in problem


def test_a_folder_too_deep_for_a_socket_is_refused() -> None:
    (problem,) = problems(socket=f"/tmp/{'x' * 100}/supervisor.sock")
    assert "set headrace_root to a shorter folder" in problem


def test_what_is_closed_while_it_is_looked_at_hides_no_other_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = str(os.fstat(server.fileno()).st_ino)
        entries = os.listdir(f"/proc/{os.getpid()}/fd")
        monkeypatch.setattr(machines.os, "listdir", lambda _: ["999999", *entries])
        assert inode in machines.listening(os.getpid())
