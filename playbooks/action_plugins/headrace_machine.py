"""Runs headrace_machine; a host that does not answer fails. Says how far the host's clock is from this machine's."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

# Ansible loads this file by itself, without a package around it.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from headrace_inventory.asking import AskingAction


class ActionModule(AskingAction):
    """Found by the module's name."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        before_s = time.time()
        result = super().run(tmp, task_vars)
        if "clock_s" in result:
            # The host's clock was read at some time of the run: it is ahead by no less and no more than this.
            result["clock_ahead_s"] = [result["clock_s"] - time.time(), result["clock_s"] - before_s]
        return result
