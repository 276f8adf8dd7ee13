"""An Ansible callback that notes every module run with its host, in the file that MODULE_RUNS names: one line a run."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Loaded before Ansible forks its workers, which all append to the one file."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "module_runs"

    def __init__(self) -> None:
        super().__init__()
        path = os.environ["MODULE_RUNS"]
        run = ActionBase._execute_module

        def counted(action: Any, *arguments: Any, **options: Any) -> Any:
            name = options.get("module_name") or (arguments[0] if arguments else None) or action._task.action
            host = (options.get("task_vars") or {}).get("inventory_hostname", "?")
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{host} {name}\n")
            return run(action, *arguments, **options)

        ActionBase._execute_module = counted
