"""Keeps what every task of a run in check mode says, for scripts/plan.py to make a plan of; prints nothing itself.

The file that HEADRACE_PLAN names gets it when the run ends in order; without that name it goes nowhere.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: headrace_plan
type: stdout
short_description: Keeps the results of a run in check mode for a plan
description:
  - Writes the results of all tasks as JSON to the file that the environment's HEADRACE_PLAN names.
author: The headrace contributors
"""

VARIABLE = "HEADRACE_PLAN"
KEPT = (
    *(
        "changed",
        "created",
        "diff",
        "drained",
        "installed",
        "leftovers",
        "msg",
        "outdated",
        "packages",
        "removed",
    ),
    *("sentence", "state", "step", "strangers", "warnings"),
)


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Hears what Ansible does."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "headrace_plan"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._play = ""
        self._seen: list[dict[str, Any]] = []

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._play = play.get_name()
        if sys.stderr.isatty():
            self._display.display(f"Looking: {self._play}", stderr=True)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._note(result, failed=False)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._note(result, failed=True)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._note(result, failed=True)

    def _note(self, result: Any, *, failed: bool) -> None:
        task = result.task
        for found in result.result.get("results") or [result.result]:
            if not isinstance(found, dict):
                continue
            kept = {key: found[key] for key in KEPT if key in found}
            kept["warnings"] = [str(each) for each in kept.get("warnings", [])]
            self._seen.append(
                {
                    "play": self._play,
                    "task": task.get_name(),
                    "module": task.action.rpartition(".")[2],
                    "host": result.host.get_name(),
                    "name": found.get("invocation", {}).get("module_args", {}).get("name", ""),
                    "failed": failed,
                    "result": kept,
                }
            )

    def v2_playbook_on_stats(self, stats: Any) -> None:
        path = os.environ.get(VARIABLE)
        if path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(self._seen, file)
