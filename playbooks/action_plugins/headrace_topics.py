"""Runs headrace_topics with the release's own Python; a host that does not answer fails.

In check mode the release may not be there yet. Then the one that is there asks the cluster; without any there is no cluster, and
all topics would be created.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.asking import AskingAction, answered

PYTHON = "ansible_python_interpreter"


def all_created(topics: list[dict[str, Any]]) -> dict[str, Any]:
    """What the module answers where no topic is there."""
    headers = {topic["name"]: f"topic {topic['name']}" for topic in topics}
    return {
        "changed": bool(topics),
        "created": list(headers),
        "strangers": [],
        "diff": [
            {
                "before": "",
                "after": f"{topic['partitions']} partitions\n",
                "before_header": headers[topic["name"]],
                "after_header": headers[topic["name"]],
            }
            for topic in topics
        ],
    }


class ActionModule(AskingAction):
    """Found by the module's name."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        variables = dict(task_vars or {})
        if self._task.check_mode:
            return answered(lambda: self._checked(tmp, variables), variables)
        return super().run(tmp, variables)

    def _checked(self, tmp: Any, variables: dict[str, Any]) -> dict[str, Any]:
        home = self._templar.template(variables.get("release_home", "/opt/headrace"))
        current = os.path.join(home, "current", "bin", "python")
        for python in (self._templar.template(variables[PYTHON]), current):
            if self._low_level_execute_command(f"test -x {shlex.quote(python)}")["rc"] == 0:
                found: dict[str, Any] = super().run(tmp, {**variables, PYTHON: python})
                return found
        return all_created(self._task.args["topics"])
