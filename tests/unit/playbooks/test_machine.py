"""What a machine lacks for its services."""

from __future__ import annotations

from typing import Any

from playbooks_kit import load

machine = load("headrace_machine")


def problems(**arguments: Any) -> list[str]:
    found: list[str] = machine.problems({"executables": [], "listeners": [], "socket": None, **arguments})
    return found


def test_a_program_that_is_missing_is_named_with_its_package() -> None:
    assert problems(executables=["sh"]) == []
    (problem,) = problems(executables=["no-such-program"])
    assert "The program no-such-program is not installed" in problem
    assert "openjdk-17-jre-headless" in machine.install_hint("java")


def test_a_folder_too_deep_for_a_socket_is_refused() -> None:
    (problem,) = problems(socket=f"/tmp/{'x' * 100}/supervisor.sock")
    assert "set headrace_root to a shorter folder" in problem
