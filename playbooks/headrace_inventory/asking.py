"""Runs a module on a host such that a host that does not answer is a failure, whatever the connection.

Ansible goes on with its other hosts and plays where one is unreachable, even under any_errors_fatal, and so would begin to stop
the next broker; a container that does not run is to it a module that went wrong. Here both are a failed task, which ends the run
before any other host is touched; the callback headrace_unanswered then says what was left undone.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ansible.constants
import ansible.module_utils
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action.normal import ActionModule as NormalAction

from headrace_inventory.bytecode import with_bytecode

PLAYBOOKS = Path(__file__).resolve().parents[1]
SOURCES = {
    "ansible/module_utils/": (Path(ansible.module_utils.__file__).parent, PLAYBOOKS / "module_utils"),
    "ansible/legacy/": (PLAYBOOKS / "library",),
}

# What Docker's client says of a container, or of an engine, that is not there.
NO_CONTAINER = re.compile(
    r"No such container[^\n]*|container \S+ is (?:not running|paused|restarting)[^\n]*|Cannot connect to the Docker daemon[^\n]*",
    re.IGNORECASE,
)
# What Ansible says where its modules' Python is not there.
NO_PYTHON = re.compile(r"The module interpreter '([^']+)' was not found")
REASON_LENGTH_MAX = 300
PYTHON = "ansible_python_interpreter"


def reason_in(said: str) -> str:
    """Why a host does not answer, in half a sentence."""
    found = NO_CONTAINER.search(said)
    words = found.group() if found else " ".join(said.split())
    return words[:REASON_LENGTH_MAX].strip().rstrip(".") or "no reason given"


def answered(
    ask: Callable[[], dict[str, Any]], task_vars: dict[str, Any] | None, delegate: str | None = None
) -> dict[str, Any]:
    """The result of a module run, or a failure that says why the host, or the one it is delegated to, does not answer."""
    variables = variables_of(task_vars or {}, delegate)
    try:
        result = ask()
    except AnsibleConnectionFailure as error:
        return unanswered(str(error), variables)
    except AnsibleError as error:
        if NO_CONTAINER.search(str(error)) is None:
            raise
        return unanswered(str(error), variables)
    # A module that ran has said something: what went wrong is then its own.
    silent = result.get("failed") and not result.get("module_stdout")
    if silent and NO_CONTAINER.search(str(result.get("module_stderr") or "")):
        return unanswered(str(result["module_stderr"]), variables)
    lacks = NO_PYTHON.match(str(result.get("msg")))
    if lacks:
        host = variables.get("inventory_hostname", "")
        advice = "install it there, or name another in ansible_python_interpreter"
        return result | {"msg": f"Host {host} has no Python in {lacks[1]}: {advice}."}
    return result


class AskingAction(NormalAction):  # type: ignore[misc]
    """Runs the module of the task's name."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        return answered(lambda: NormalAction.run(self, tmp, task_vars), task_vars, self._task.delegate_to)

    def _configure_module(self, *arguments: Any, **named: Any) -> tuple[Any, str]:
        built, path = super()._configure_module(*arguments, **named)
        if self._connection.transport == "local":
            program = with_bytecode(built.b_module_data, SOURCES, Path(ansible.constants.DEFAULT_LOCAL_TMP))
            built = replace(built, b_module_data=program)
        return built, path


class ReleaseAction(AskingAction):
    """Runs a module with the release's own Python.

    In check mode the release may not be there yet: then the one that is there runs it, and without any nothing does.
    """

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        variables = dict(task_vars or {})
        if self._task.check_mode:
            return answered(lambda: self._checked(tmp, variables), variables)
        return super().run(tmp, variables)

    def without_release(self) -> dict[str, Any]:
        """What the module would answer on a host without services."""
        raise NotImplementedError

    def _checked(self, tmp: Any, variables: dict[str, Any]) -> dict[str, Any]:
        home = self._templar.template(variables.get("release_home", "/opt/headrace"))
        current = os.path.join(home, "current", "bin", "python")
        for python in (self._templar.template(variables[PYTHON]), current):
            if self._low_level_execute_command(f"test -x {shlex.quote(python)}")["rc"] == 0:
                found: dict[str, Any] = super().run(tmp, {**variables, PYTHON: python})
                return found
        return self.without_release()


class LookingAction(AskingAction):
    """Runs a module that only looks: what keeps it from that is told of, as C(unanswered), and fails nothing."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        if not result.get("failed"):
            return result
        host = (task_vars or {}).get("inventory_hostname", "")
        said = str(result.get("module_stderr") or result.get("msg") or "")
        sentence = f"Host {host} cannot be looked at ({reason_in(said)})."
        return {"changed": False, "unanswered": result.get("headrace_unanswered") or sentence}


def variables_of(variables: dict[str, Any], delegate: str | None) -> dict[str, Any]:
    """Those of the host that is asked."""
    if not delegate:
        return variables
    return {**variables.get("ansible_delegated_vars", {}).get(delegate, {}), "inventory_hostname": delegate}


def unanswered(said: str, variables: dict[str, Any]) -> dict[str, Any]:
    host = variables.get("inventory_hostname", "")
    connection = str(variables.get("ansible_connection", "ssh")).rpartition(".")[2]
    address = variables.get("ansible_host", host)
    sentence = f"Host {host} does not answer ({connection} to {address}: {reason_in(said)})."
    told = {"headrace_unanswered": sentence, "headrace_unanswered_host": host}
    return {"failed": True, "changed": False, "msg": sentence, **told}
